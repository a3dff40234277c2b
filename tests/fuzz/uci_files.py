"""The original UCI files, changed: no trial is ever planned on what differs from them."""

import shutil
from pathlib import Path

from marginctl.data.paths import default_data_dir
from marginctl.data.tabular.uci import uci_definitions
from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import BYTES, TEXT


def prepare(base: Path) -> None:
    """Copies the data sets whose files are there; without any, files of one are made up."""
    for name, definition in uci_definitions().items():
        for file in definition["files"]:
            source = default_data_dir() / "uci" / name / file["file"]
            target = base / "uci" / name / file["file"]
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    if not (base / "uci").exists():
        (base / "uci" / "haberman").mkdir(parents=True)
        (base / "uci" / "haberman" / "haberman.data").write_text("30,64,1,1\n" * 306)


def make(draft: Draft) -> Case:
    """One data set with a changed file, planned or verified."""
    stream = draft.stream("base")
    folder = stream.choice(sorted((draft.base / "uci").iterdir()))
    for source in sorted(folder.iterdir()):
        content = draft.changed(source.read_bytes(), [*BYTES, *TEXT], 2)
        target = draft.folder / "uci" / folder.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    if stream.random() < 0.1:
        target.unlink()
        target.mkdir()
    if stream.random() < 0.3:
        return Case(("data", "verify", folder.name, "--data-dir", ".", "--json"))
    arguments = ("uci-cv", "--dataset", folder.name, "--data-dir", ".", "--offline", "--dry-run")
    return Case((*arguments, "--json"))
