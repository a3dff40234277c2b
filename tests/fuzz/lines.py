"""Command lines: every command with its options in any number, order and value."""

from pathlib import Path
from random import Random
from typing import Any

import typer

from marginctl.cli import app
from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import WORDS

# These go on without end, measure for minutes, or ask a host.
LEFT_OUT = {"--tensorboard", "--search"}
PLANNED = ("train", "cosify", "transfer", "uci-cv")
LIKELY = ["digits", "mlp", "soft", "arcgrad:scale=5", "iris", "arcgrad/table1", "own-data", "mnist"]
LIKELY += ["2", "0.5", "1e-3", "file.csv", "file.npz", "file.yaml", "folder", "folder:folder"]
LIKELY += ["runs", "cpu", "json", "csv", "html", "temperature", "kind", "arcgrad", "I", "x.png"]
LIKELY += [
    "protocol.lr=1e-3",
    "optim.lr=nan",
    "data.subset_size=50",
    "train.epochs=0",
    "grid={}",
    "a=b",
]
LIKELY += ["near=digits", "list:file.csv", "x.svg", "iris/soft", "model=[mlp]", "cuda:0", "mps"]


def prepare(base: Path) -> None:
    """Nothing."""


def make(draft: Draft) -> Case:
    """A command with options, in a folder with a file of each kind."""
    stream = draft.stream("base")
    (draft.folder / "folder").mkdir()
    (draft.folder / "runs").mkdir()
    (draft.folder / "file.csv").write_text("a,b,kind\n" + "1,2,x\n3,4,y\n" * 5)
    for name in ("file.npz", "file.yaml"):
        (draft.folder / name).write_text("task: train\n")
    path, command = stream.choice(commands())
    arguments = list(path)
    own = [p for p in command.params if p.name != "help" and not LEFT_OUT & set(p.opts)]
    for parameter in stream.sample(own, min(len(own), stream.randint(0, 5))):
        arguments += _given(stream, parameter)
    arguments = draft.changed(arguments, LINE, 2)
    if path[0] in PLANNED and "--dry-run" not in arguments:
        arguments.append("--dry-run")
    return Case(
        tuple(arguments),
        ("argument", "option", draft.folder.name, "STORE", "RECIPE", "--", "command", *path),
    )


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command with its path, without those that take minutes or need a host."""
    found: list[tuple[tuple[str, ...], Any]] = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if path and path[0] != "bench":
            found.append((path, command))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


def _value(stream: Random) -> str:
    odd = [word for word in WORDS if "\x00" not in word]
    return stream.choice(LIKELY if stream.random() < 0.7 else odd)


def _given(stream: Random, parameter: Any) -> list[str]:
    name = parameter.opts[0]
    if not name.startswith("-"):
        return [_value(stream)]
    if getattr(parameter, "is_flag", False):
        return [name]
    value = _value(stream)
    return [f"{name}={value}"] if stream.random() < 0.3 else [name, value]


def _more(stream: Random, arguments: list[str]) -> list[str]:
    return [*arguments, _value(stream)]


def _without_one(stream: Random, arguments: list[str]) -> list[str]:
    at = stream.randrange(len(arguments))
    return arguments[:at] + arguments[at + 1 :] if at else arguments


def _misspelt(stream: Random, arguments: list[str]) -> list[str]:
    at = stream.randrange(len(arguments))
    word = arguments[at]
    return [
        *arguments[:at],
        word[:-1] if stream.random() < 0.5 else word + "x",
        *arguments[at + 1 :],
    ]


def _set(stream: Random, arguments: list[str]) -> list[str]:
    return [
        *arguments,
        "--set",
        stream.choice(["a", "protocol", "grid.x", "data.name", "", "."]) + "=",
    ]


def _twice(stream: Random, arguments: list[str]) -> list[str]:
    return arguments + arguments[1:]


LINE: list[Any] = [_more, _without_one, _misspelt, _set, _twice]
