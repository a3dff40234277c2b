"""Small text helpers for messages."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

MAX_LENGTH = 60


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or an empty string."""
    known = list(known)
    near = get_close_matches(word, known, n=1) or get_close_matches(word.lower(), known, n=1)
    if not near:
        return ""
    names = {word, near[0]}
    alike = len({unicodedata.normalize("NFKC", name).strip() for name in names}) < len(names)
    difference = " They differ in blanks or in the Unicode form." if alike else ""
    return f" Did you mean '{near[0]}'?{difference}"


def file_name(path: Path) -> str:
    """Return a file's name as text: its bytes decoded as UTF-8, the same in every locale."""
    return os.fsencode(path.name).decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Return text with control characters and line ends escaped, safe for a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Return text with line ends and control characters replaced by single blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shorten(text: str) -> str:
    """Return a user's text for a message: one line of at most `MAX_LENGTH` characters."""
    line = one_line(text)
    return line if len(line) <= MAX_LENGTH else line[: MAX_LENGTH - 3] + "..."


def join_names(names: Sequence[str], limit: int = 12) -> str:
    """Return the first names, shortened, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(shorten, names[:limit])) + more


def count_noun(number: int, noun: str) -> str:
    """Return `1 trial`, `2 trials`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def format_setting(value: object) -> str:
    """Return a setting as text: `none`, `true`, `0.001`, `[10,10]`; `given` for a mapping."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "given"
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")
