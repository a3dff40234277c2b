"""Runs a case in this process and says what is wrong with how the command answered."""

import contextlib
import io
import json
import os
import re
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from marginctl.cli import run
from marginctl.utils.text import printable
from tests.fuzz.draft import Case

SECONDS = 20  # of the processor, or of waiting: the machine may do other work
WORKING = 0.1  # seconds of the processor in SECONDS of the clock, from which nobody waits
MOST_MEMORY = 2 * 2**20  # KiB that one case may add to the highest mark
# A bare Python message says what an interpreter met, and not what a reader has to mend.
BARE = re.compile(
    r"\b[A-Z]\w*(Error|Exception|Warning)\b|Traceback|has no attribute|NoneType|not subscriptable|"
    r"unhashable|invalid literal for|could not convert|not supported between|index out of range|"
    r"codec can't|\[Errno|<class|\bat 0x[0-9a-f]{6}|[Ii]nput should|unpack|broadcast|"
    r"missing \d+ req|unexpected keyword|not iterable|must be real number|"
    r"takes \d+ pos|site-packages|\.py\b"
)
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")
LONGEST = 1500  # letters of an error


class _TooLongError(BaseException):
    """The time of a case is over."""


@dataclass(frozen=True)
class Verdict:
    """How a command answered.

    Attributes:
        status: its exit status; None where it left by an exception or took too long.
        wrong: a line for each thing that is wrong; none where it answered as it must.
        out, err: what it printed.
    """

    status: int | None
    wrong: tuple[str, ...]
    out: str
    err: str
    seconds: float


def judged(case: Case, folder: Path, fatal: Sequence[type[BaseException]] = ()) -> Verdict:
    """Runs a command in a folder.

    Args:
        fatal: what is raised on, and is no verdict.
    """
    out, err = io.StringIO(), io.StringIO()
    wrong: list[str] = []
    status, here, memory = None, Path.cwd(), _memory()
    began = time.process_time()
    try:
        os.chdir(folder)
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _limit(),
            _shown_warnings(),
        ):
            status = run(list(case.arguments))
    except tuple(fatal):
        raise
    except _TooLongError:
        wrong.append(f"took more than {SECONDS} s, or waited")
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        wrong.append(f"traceback: {type(error).__name__}: {error} ({at.name}, line {at.lineno})")
        traceback.print_exception(error, file=err)
    finally:
        os.chdir(here)
    seconds = time.process_time() - began
    if seconds > SECONDS and status is not None:
        wrong.append(f"took {seconds:.0f} s, more than {SECONDS}")
    if _memory() - memory > MOST_MEMORY:
        wrong.append(f"took {(_memory() - memory) // 2**10} MiB")
    if status in (130, 143):  # someone ends the fuzz
        raise KeyboardInterrupt
    if status is not None:
        wrong += _of_answer(case, status, out.getvalue(), err.getvalue())
    if any(folder.rglob("ran")):
        wrong.append("ran what a file holds")
    return Verdict(status, tuple(wrong), out.getvalue(), err.getvalue(), seconds)


def _of_answer(case: Case, status: int, out: str, err: str) -> Iterator[str]:
    if status not in (0, 1, 2):
        yield f"exit status {status}"
    lines = err.split("\n")[:-1]
    errors = [line for line in lines if line.startswith("error: ")]
    if status == 0 and errors:
        yield f"exit status 0 with an error: {errors[0]}"
    if status and not errors and "Usage" not in out and case.arguments[:1] != ("doctor",):
        yield f"exit status {status} without an error"
    if status == 2:
        # `data verify` and `doctor` say what they found; without a command there is the help
        if out and case.arguments[:1] not in (("data",), ("doctor",)) and "Usage" not in out:
            yield "exit status 2 with something on stdout"
        if lines and not lines[-1].startswith("error: "):
            yield f"an error of several lines: {lines[-1][:80]!r}"
    if status == 0 and {"--json", "--help"} & set(case.arguments) == {"--json"}:
        yield from _of_json(out)
    for line in lines:
        if found := BARE.search(_without_what_was_given(line)):
            yield f"a bare Python message ({found[0]}): {line[:200]}"
        if len(line) > LONGEST:
            yield f"a line of {len(line)} letters: {line[:80]}"
    for line in errors:
        if not any(word in line for word in _words(case)):
            yield f"an error that names nothing of the input: {line[:200]}"
    if found := OBEYED.search(out + err):
        yield f"a terminal would obey {found[0]!r}"


def _of_json(out: str) -> Iterator[str]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} in it")

    try:
        json.loads(out, parse_constant=refuse)
    except ValueError as error:
        yield f"not one JSON document: {error}"


def _words(case: Case) -> set[str]:
    """What an error may name: the arguments, their parts, and the words of the case."""
    parts = {part for a in case.arguments for part in (a, *re.split(r"[=/:,.]", a))}
    words = {part for part in parts if len(part) > 1}
    for a in case.arguments:
        words |= {f"'{a}'", f"error: {a}: ", f"error: {os.path.normpath(a)}: "}
    words |= {f" {part}/" for part in parts}
    return {*map(printable, words), *words, *case.words}


def _without_what_was_given(line: str) -> str:
    """A line without the values in quotation marks, which the input chose."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "''", line)


@contextlib.contextmanager
def _shown_warnings() -> Iterator[None]:
    """Every warning that a user would see is shown each time, and not only the first."""
    with warnings.catch_warnings():
        for category in (UserWarning, RuntimeWarning, FutureWarning):
            warnings.simplefilter("always", category)
        yield


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    used = time.process_time()

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal used
        last, used = used, time.process_time()
        if number == signal.SIGPROF or used - last < WORKING:
            raise _TooLongError

    clocks = {signal.SIGALRM: signal.ITIMER_REAL, signal.SIGPROF: signal.ITIMER_PROF}
    before = {number: signal.signal(number, stop) for number in clocks}
    for clock in clocks.values():
        signal.setitimer(clock, SECONDS, SECONDS)
    try:
        yield
    finally:
        for number, clock in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
