"""The command line: one module a subcommand. Nothing here imports torch."""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Annotated, NoReturn

import typer

from marginctl import __version__
from marginctl.cli import (
    bench,
    calibrate,
    cosify,
    data,
    doctor,
    evaluate,
    examples,
    objectives,
    recipes,
    report,
    train,
    transfer,
    uci_cv,
)
from marginctl.errors import MarginctlError
from marginctl.utils.device import is_main_process
from marginctl.utils.text import printable

app = typer.Typer(
    name="marginctl",
    help="Margin and temperature losses for classification: the papers' tables, and your data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"marginctl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


COMMANDS: Mapping[str, Callable[..., None]] = {
    "train": train.command,
    "cosify": cosify.command,
    "transfer": transfer.command,
    "eval": evaluate.command,
    "calibrate": calibrate.command,
    "uci-cv": uci_cv.command,
    "report": report.command,
    "bench": bench.command,
    "doctor": doctor.command,
}
for _name, _command in COMMANDS.items():
    app.command(_name, epilog=examples.of(_name))(_command)
GROUPS = {
    "recipes": recipes.app,
    "data": data.app,
    "objectives": objectives.app,
}
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name, epilog=examples.of(_name))


class _TerminatedError(BaseException):
    """SIGTERM, raised where the program stands so that everything is closed in order."""


def _on_sigterm(number: int, frame: FrameType | None) -> NoReturn:
    raise _TerminatedError


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line and returns its exit status; no error that a user can cause escapes."""
    _prepare_streams()
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _on_sigterm)}
        before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        return _run(arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: list[str] | None) -> int:
    try:
        status = typer.main.get_command(app).main(
            args=arguments, prog_name="marginctl", standalone_mode=False
        )
        sys.stdout.flush()
        if status == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except MarginctlError as error:
        # of the processes that torchrun starts, one speaks of what all of them know
        speaks = is_main_process() or error.is_local_to_process
        for line in error.lines if speaks else ():
            _complain(line)
        return error.exit_status
    except (KeyboardInterrupt, typer.Abort):
        _complain(f"interrupted{_kept(arguments)}")
        return 130
    except _TerminatedError:
        _complain(f"terminated{_kept(arguments)}")
        return 143
    except SystemExit as leaving:  # typer leaves so where a pipe's reader has gone, as `head` does
        if isinstance(leaving.__context__, BrokenPipeError):
            _drop_output()
            return 0
        return leaving.code if isinstance(leaving.code, int) else 1
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        if not error.filename:
            _drop_output()
        return 2 if error.errno in WRONG_PATH else 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # typer's own errors (an unknown option, a missing value); it does not export their base.
        said = " ".join(error.format_message().split()).replace("Value error, ", "")
        if said:
            _complain(said + ("" if said.startswith("Invalid value") else _help_of(error)))
        return 2


def _help_of(error: Exception) -> str:
    """Where a command line that typer refuses is explained."""
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    return "" if command is None else f" (see {command} --help)"


def _kept(arguments: list[str] | None) -> str:
    """What an interrupted command leaves behind."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in (["train"], ["cosify"], ["transfer"]):
        return ": finished trials and checkpoints are kept: the same command again resumes"
    if given[:1] == ["uci-cv"]:
        return ": finished trials are kept: the same command again resumes"
    return ""


# What is wrong with a path that was asked for, rather than with the machine.
WRONG_PATH = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR}
WRONG_PATH |= {errno.EISDIR, errno.ELOOP, errno.EEXIST}


def _prepare_streams() -> None:
    """A closed stream swallows what is written; no character breaks one that is open."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is still to be written to stdout goes nowhere, so that leaving is no second error."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"error: {printable(line)}", file=sys.stderr, flush=True)
