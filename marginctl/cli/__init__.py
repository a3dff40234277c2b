"""The command line: one module per command. Nothing here imports torch."""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Annotated, Any, NoReturn

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
    predict,
    recipes,
    report,
    runs,
    train,
    transfer,
    uci_cv,
)
from marginctl.errors import MarginctlError
from marginctl.utils.device import is_other_process_of_torchrun
from marginctl.utils.text import printable

app = typer.Typer(
    name="marginctl",
    help="Margin and temperature losses for classification, on the papers' data and on yours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(requested: bool) -> None:
    if requested:
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
    "predict": predict.command,
    "report": report.command,
    "bench": bench.command,
    "doctor": doctor.command,
}
for _name, _command in COMMANDS.items():
    app.command(_name, epilog=examples.epilog(_name))(_command)
GROUPS = {"recipes": recipes.app, "data": data.app, "objectives": objectives.app, "runs": runs.app}
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name, epilog=examples.epilog(_name))


class _TerminatedError(BaseException):
    """SIGTERM, raised so that everything is closed in order."""


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise _TerminatedError


def build_command() -> Any:
    """Return the click command.

    Its help shows the first line of each command in full, and no type next to an argument.
    """
    root = typer.main.get_command(app)
    commands: list[Any] = [root]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        command.short_help = (command.help or "").partition("\n")[0]
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
    return root


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status; an error of the user is one line."""
    _prepare_streams()
    os.environ.pop("MPLBACKEND", None)  # a notebook's, which matplotlib refuses; files need none
    handlers = {}
    with contextlib.suppress(ValueError):  # not the main thread
        handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, _raise_terminated)}
        handlers[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        return _run(arguments)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run(arguments: list[str] | None) -> int:
    try:
        status = build_command().main(args=arguments, prog_name="marginctl", standalone_mode=False)
        sys.stdout.flush()
        if status == 130:  # typer's status of Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except MarginctlError as error:
        # all processes of torchrun have the same error, which one of them prints
        prints = error.is_local_to_process or not is_other_process_of_torchrun()
        for line in error.lines if prints else ():
            _print_error(line)
        return error.exit_status
    except (KeyboardInterrupt, typer.Abort):
        _print_error(f"interrupted{_resume_hint(arguments)}")
        return 130
    except _TerminatedError:
        _print_error(f"terminated{_resume_hint(arguments)}")
        return 143
    except SystemExit as error:  # typer exits so if a pipe's reader, such as `head`, has gone
        if isinstance(error.__context__, BrokenPipeError):
            _discard_output()
            return 0
        return error.code if isinstance(error.code, int) else 1
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        _print_error(f"{error.filename or 'output'}: {error.strerror or error}")
        if not error.filename:
            _discard_output()
        return 2 if error.errno in PATH_ERRORS else 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # typer's own errors, such as an unknown option; it does not export their base class
        message = " ".join(error.format_message().split()).replace("Value error, ", "")
        command = getattr(getattr(error, "ctx", None), "command_path", None)
        if message and command is not None and not message.startswith("Invalid value"):
            message += f" (see {command} --help)"
        if message:
            _print_error(message)
        return 2


def _resume_hint(arguments: list[str] | None) -> str:
    """Return what an interrupted command keeps."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] in (["train"], ["cosify"], ["transfer"]):
        return ": finished trials and checkpoints are kept: the same command again resumes"
    if words[:1] == ["uci-cv"]:
        return ": finished trials are kept: the same command again resumes"
    return ""


# errors of a path that the user gave, not of the machine
PATH_ERRORS = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR}
PATH_ERRORS |= {errno.EISDIR, errno.ELOOP, errno.EEXIST}


def _prepare_streams() -> None:
    """Open closed streams to nowhere, and escape characters that a stream cannot encode."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Send the rest of stdout nowhere, so that exiting raises no second error."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"error: {printable(line)}", file=sys.stderr, flush=True)
