"""What every kind of input shares: a case, and the numbered random streams that it is made from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")
Change = Callable[[Random, T], T]


@dataclass(frozen=True)
class Case:
    """A command line whose input is wrong in some way, or is fine.

    Attributes:
        arguments: of `marginctl`; its files lie in the case's folder.
        words: of which an error must hold one, beside the arguments: file names, keys.
    """

    arguments: tuple[str, ...]
    words: tuple[str, ...] = ()


@dataclass
class Draft:
    """A case being made. Each change has its own stream, so that leaving one out moves no other.

    Attributes:
        seed, kind, number: of the case: the same three make the same case.
        folder: an empty folder for its files.
        base: what `prepare` of its kind made.
        without: changes that are left out, to find the ones that a failure needs.
        said: the changes that were made, by name.
        drawn: how many changes there were, the left out ones included.
    """

    seed: int
    kind: str
    number: int
    folder: Path
    base: Path
    without: frozenset[int] = frozenset()
    said: list[str] = field(default_factory=list)
    drawn: int = 0

    def stream(self, part: object) -> Random:
        """The random stream of a part of the case."""
        return Random(f"{self.seed}/{self.kind}/{self.number}/{part}")

    def changed(self, value: T, changes: Sequence[Change[T]], most: int = 4, least: int = 0) -> T:
        """The value after some changes, drawn from `changes`."""
        for _ in range(self.stream(f"count {self.drawn}").randint(least, most)):
            stream = self.stream(self.drawn)
            change = stream.choice(changes)
            if self.drawn not in self.without:
                value = change(stream, value)
                self.said.append(change.__name__.strip("_"))
            self.drawn += 1
        return value
