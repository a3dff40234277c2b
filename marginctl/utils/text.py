"""Small pieces of wording shared by every message."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest known word, or an empty string."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""


def file_name(path: Path) -> str:
    """A file's name as text: its bytes read as UTF-8, the same in every locale."""
    return os.fsencode(path.name).decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Text on one line that no terminal obeys: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Text without line ends and control characters: a blank stands for them."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def short(text: str) -> str:
    """Foreign text for a message: one line, and not all of a long one."""
    line = one_line(text)
    return line if len(line) <= 60 else line[:57] + "..."


def count_noun(number: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {what}{'s' * (number != 1)}"


def plain(value: object) -> str:
    """A setting for a reader: `none`, `true`, `0.001`, `[10,10]`; `given` for a mapping."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "given"
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")
