"""Makes cases of every kind, judges them, and shrinks those that fail."""

import contextlib
import faulthandler
import io
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.fuzz import images, lines, outputs, recipes, stores, tables, uci_files
from tests.fuzz.draft import Draft
from tests.fuzz.judge import SECONDS, Verdict, judged

# How many of each in a hundred cases: what is quick and what users write is tried most.
KINDS: Mapping[str, tuple[ModuleType, int]] = {
    "recipes": (recipes, 28),
    "tables": (tables, 15),
    "uci-files": (uci_files, 9),
    "images": (images, 10),
    "outputs": (outputs, 12),
    "stores": (stores, 14),
    "lines": (lines, 12),
}


@dataclass
class Failure:
    """A case that failed, with the fewest changes that still fail."""

    kind: str
    number: int
    arguments: tuple[str, ...]
    changes: list[str]
    wrong: tuple[str, ...]
    err: str


@dataclass
class Outcome:
    """What came of some cases."""

    cases: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    messages: dict[str, list[str]] = field(default_factory=dict)
    slowest: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Counts by kind and exit status, failures, and a sample of messages."""
        return {
            "cases": dict(self.cases),
            "statuses": dict(sorted(self.statuses.items())),
            "slowest_seconds": round(self.slowest, 2),
            "failures": [vars(failure) for failure in self.failures],
            "messages": self.messages,
        }


def cases(count: int, kinds: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(kind, number) of so many cases, the kinds mixed in proportion."""
    shares = {kind: KINDS[kind][1] for kind in kinds}
    whole = sum(shares.values())
    done = Counter[str]()
    for i in range(count):
        kind = max(shares, key=lambda k: shares[k] * (i + 1) / whole - done[k])
        yield kind, done[kind]
        done[kind] += 1


def fuzz(
    seed: int,
    wanted: Sequence[tuple[str, int]],
    folder: Path,
    said: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Tries cases.

    Args:
        seed: with the kind and the number it makes the case.
        wanted: (kind, number) of each.
        folder: for files; of failures they stay there.
        said: takes a line for each failure.
    """
    outcome = Outcome()
    # an interrupt ends it with what was tried; nothing listens at that port: no host is asked
    here = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    here |= dict.fromkeys(("XDG_CACHE_HOME", "TORCH_HOME"), str(folder / "cache"))
    with patch.dict(os.environ, here), contextlib.suppress(KeyboardInterrupt):
        for kind in {kind for kind, _ in wanted}:
            base = folder / "base" / kind
            base.mkdir(parents=True)
            with contextlib.redirect_stdout(io.StringIO()):
                KINDS[kind][0].prepare(base)
        for kind, number in wanted:
            _try(outcome, seed, kind, number, folder, said)
    faulthandler.cancel_dump_traceback_later()
    return outcome


def _try(
    outcome: Outcome, seed: int, kind: str, number: int, folder: Path, said: Callable[[str], None]
) -> None:
    """Tries one case and adds what came of it."""
    draft, verdict = _tried(seed, kind, number, folder)
    outcome.cases[kind] += 1
    outcome.statuses[f"{kind} {verdict.status}"] += 1
    outcome.slowest = max(outcome.slowest, verdict.seconds)
    if verdict.wrong:
        failure = _shrunk(draft, verdict, folder)
        outcome.failures.append(failure)
        said(f"{kind} {number}: {'; '.join(failure.wrong)} [{', '.join(failure.changes)}]")
    else:
        shutil.rmtree(draft.folder, ignore_errors=True)
    kept = outcome.messages.setdefault(kind, [])
    kept += [e for e in verdict.err.splitlines()[:1] if e.startswith("error: ")]


def _tried(
    seed: int, kind: str, number: int, folder: Path, without: frozenset[int] = frozenset()
) -> tuple[Draft, Verdict]:
    # what no signal can interrupt ends the process, and says where it stood
    faulthandler.dump_traceback_later(30 * SECONDS, exit=True)
    own = folder / f"{kind}-{number}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    draft = Draft(seed, kind, number, own, folder / "base" / kind, without)
    case = KINDS[kind][0].make(draft)
    return draft, judged(case, own, (KeyboardInterrupt,))


def _shrunk(draft: Draft, verdict: Verdict, folder: Path) -> Failure:
    """Leaves out one change after the other as long as the same thing stays wrong."""

    def same(other: Verdict) -> bool:
        return [w[:30] for w in other.wrong] == [w[:30] for w in verdict.wrong]

    without = frozenset[int]()
    for i in range(draft.drawn):
        if same(_tried(draft.seed, draft.kind, draft.number, folder, without | {i})[1]):
            without |= {i}
    own, again = _tried(draft.seed, draft.kind, draft.number, folder, without)
    wrong = again.wrong or (*verdict.wrong, "(not so when tried again)")
    shutil.rmtree(own.folder, ignore_errors=True)  # as it was before the command
    own.folder.mkdir()
    own.said.clear()
    own.drawn = 0
    case = KINDS[draft.kind][0].make(own)
    said = list(own.said)
    return Failure(draft.kind, draft.number, case.arguments, said, wrong, verdict.err)
