"""Names of classes and categories: matching of two sets, and names that look alike."""

import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.utils.text import join_names, shorten

# Cyrillic and Greek letters that look like Latin ones.
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁһАВЕКМНОРСТУХІЈЅαοιΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aeopcyxijsdhABEKMHOPCTYXIJSaoiABEZHIKMNOPTYX"
)


def class_numbers(name: str, names: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the number in `classes` of each class of an image set, matched by name.

    Args:
        name: the image set's name, for messages.
        names: its classes.
        classes: of a network.

    Raises:
        RequestError: a class of the image set is not among them.
    """
    names, known = ([unicodedata.normalize("NFC", c) for c in each] for each in (names, classes))
    numbers = {c: i for i, c in enumerate(known)}
    unknown = next((c for c in names if c not in numbers), None)
    if unknown is not None:
        raise RequestError(
            f"data set '{name}': class '{shorten(unknown)}' is none of the {len(classes)} classes "
            f"of the network ({shorten(', '.join(classes))}): rename it, or remove it"
        )
    return np.array([numbers[c] for c in names], np.int64)


def look_alikes(what: str, names: Iterable[str]) -> list[str]:
    """Return remarks on different names that look alike, or that are equal as numbers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_appearance(name), []).append(name)
    by_kind: dict[str, list[str]] = {}
    for group in groups.values():
        if len(group) > 1:
            same_letters = len({name.casefold() for name in group}) == 1
            kind = "differ only in case" if same_letters else "look alike"
            by_kind.setdefault(kind, []).append(" and ".join(map(ascii, group)))
    return [
        f"{what} that {kind} are distinct: {join_names(shown, 5)}"
        for kind, shown in by_kind.items()
    ]


def _appearance(name: str) -> str:
    """Return a key that is equal for names that look alike."""
    text = unicodedata.normalize("NFKC", name)
    text = "".join(" " if c.isspace() else c for c in text)
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc"))
    text = " ".join(text.translate(_CONFUSABLE).split()).casefold()
    try:
        return text if "_" in text else str(Decimal(text).normalize())
    except InvalidOperation:
        return text
