"""Detection of data whose content has changed since finished trials used it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from marginctl.runs.run_dir import digest
from marginctl.runs.safe_read import CorruptFileError, parse_document, read_text

# Keys of run.json in which trials may differ that differ only in the content of their data.
_VARYING = {"trial", "data", "data_identity", "data_summary", "device", "setting", "precision"}
_VARYING |= {"processes", "recipe", "schema", "versions", "git_commit", "timing"}


def changed_data_note(folder: Path, pending: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a note if finished trials of pending ones used other content of the same data."""
    by_key = {_key_without_content(info): info for info in pending}
    if not by_key or not folder.is_dir():
        return None
    changed: dict[str, int] = {}
    for path in sorted(folder.glob("*/run.json")):
        try:
            run = parse_document(read_text(path))
            info = by_key.get(_key_without_content(run))
        except (CorruptFileError, ValueError):
            continue
        finished = (path.parent / "result.json").exists()
        if finished and info is not None and info["data"] != run.get("data"):
            name = str(info.get("dataset") or _data_section(info)["name"])
            changed[name] = changed.get(name, 0) + 1
    if not changed:
        return None
    names = ", ".join(f"{name} (finished trials: {count})" for name, count in changed.items())
    return f"{folder}: the data has changed since: {names}: recomputing; the old runs stay"


def _key_without_content(run: Mapping[str, Any]) -> str:
    return digest([{k: v for k, v in run.items() if k not in _VARYING}, _data_section(run)])


def _data_section(run: Mapping[str, Any]) -> Any:
    recipe = run.get("recipe")
    return recipe.get("data") if isinstance(recipe, Mapping) else None
