"""Tries files whose content is known: what is read must equal what was written."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.fuzz import known_images, known_tables


def _table(stream: Random, folder: Path) -> list[str]:
    table = known_tables.make_table(stream)
    wrong = known_tables.differences(table, folder)
    return [*wrong, ", ".join(table.form)] if wrong else []


def _damaged_table(stream: Random, folder: Path) -> list[str]:
    return known_tables.mutated(known_tables.make_table(stream), stream, folder)


def _images(stream: Random, folder: Path) -> list[str]:
    known = known_images.make_images(stream, folder)
    return known_images.differences(known, folder)


# so many of each in a hundred cases
KINDS = {"table": (_table, 70), "damaged-table": (_damaged_table, 15), "images": (_images, 15)}


def silent_differences(seed: int, cases: int, folder: Path) -> Iterator[str]:
    """Yield a line for each case that is read otherwise than it was written; its files stay."""
    kinds = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    for number in range(cases):
        kind = kinds[number * 37 % 100]
        own = folder / f"{kind}-{number}"
        own.mkdir(parents=True)
        if wrong := KINDS[kind][0](Random(f"{seed}/{number}"), own):
            yield f"{own.name}: {'; '.join(wrong)}"
        else:
            shutil.rmtree(own)
