"""Data whose content has changed since trials were done on it: said where they are done again."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from marginctl.runs.run_dir import digest
from marginctl.runs.safe_read import DamageError, document_in, read_text

# What two trials that differ in nothing but the content of their data do not share.
_OWN = {"trial", "data", "data_identity", "device", "setting", "precision", "processes", "recipe"}
_OWN |= {"schema", "versions", "git_commit", "timing"}


def note_on_changed_data(folder: Path, todo: Iterable[Mapping[str, Any]]) -> str | None:
    """A line where trials that are to be done have been done on other content of the same data.

    Args:
        folder: a recipe's in a run store.
        todo: what run.json will say of each of them.
    """
    asked = {_without_content(about): about for about in todo}
    if not asked or not folder.is_dir():
        return None
    changed: dict[str, int] = {}
    for path in sorted(folder.glob("*/run.json")):
        try:
            run = document_in(read_text(path))
            about = asked.get(_without_content(run))
        except (DamageError, ValueError):
            continue
        done = os.path.exists(path.parent / "result.json")
        if done and about is not None and about["data"] != run.get("data"):
            name = str(about.get("dataset") or _of_recipe(about)["name"])
            changed[name] = changed.get(name, 0) + 1
    if not changed:
        return None
    which = ", ".join(f"{name} (finished trials: {count})" for name, count in changed.items())
    return f"{folder}: the content of the data has changed since: {which}: computed anew beside"


def _without_content(run: Mapping[str, Any]) -> str:
    return digest([{k: v for k, v in run.items() if k not in _OWN}, _of_recipe(run)])


def _of_recipe(run: Mapping[str, Any]) -> Any:
    recipe = run.get("recipe")
    return recipe.get("data") if isinstance(recipe, Mapping) else None
