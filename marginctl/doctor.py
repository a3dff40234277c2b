"""What this machine and this installation offer, and what to do about what is amiss."""

import importlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import filelock
from packaging.requirements import Requirement

from marginctl import __version__
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.paths import DATA_DIR_VARIABLE
from marginctl.data.status import dataset_status
from marginctl.data.tabular.uci import uci_definitions
from marginctl.errors import RequestError
from marginctl.experiments.tasks import recipe_summaries
from marginctl.recipe.load import recipes_folder
from marginctl.utils.device import resolve_device, usable_cores

LEAST_FREE_GIB = 2.0  # a store of networks and their features is soon as large
OF_TESTS = "test"  # an extra that no user needs


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what it is about.
        state: `ok`; `note`, which some work needs otherwise; or `problem`.
        said: what was found.
        advice: what to do; None where nothing is to be done.
    """

    topic: str
    state: Literal["ok", "note", "problem"]
    said: str
    advice: str | None = None

    def record(self) -> dict[str, Any]:
        return asdict(self)


def examine(data_dir: Path, out: Path, device: str) -> Iterator[Finding]:
    """Looks at everything that a command depends on, the quick things first.

    Args:
        data_dir: where data are looked for.
        out: the run store.
        device: as `--device` takes it.

    Raises:
        RequestError: no device of that name.
    """
    yield Finding(
        "marginctl",
        "ok",
        f"{__version__} on Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}",
    )
    yield from _packages()
    yield from _recipes()
    yield from _devices(device)
    yield from _threads()
    yield _folder("run store", out, "--out FOLDER")
    yield _runs(out)
    yield _folder("data folder", data_dir, f"--data-dir FOLDER or {DATA_DIR_VARIABLE}")
    yield from _data(data_dir)


def _packages() -> Iterator[Finding]:
    """The packages that this one asks for, by its own metadata."""
    extras: dict[str, list[str]] = {}
    found, wrong = [], []
    try:
        lines = metadata.requires("marginctl") or []
    except metadata.PackageNotFoundError:  # a checkout on the path
        said = "marginctl is not installed, so what it needs is not known"
        yield Finding("packages", "note", said, "in its folder: pip install -e .")
        return
    for line in lines:
        wanted = Requirement(line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(wanted.marker or ""))
        has = _version(wanted.name)
        if extra is not None:
            lacking = extras.setdefault(extra[1], [])
            if has is None or not wanted.specifier.contains(has, prereleases=True):
                lacking.append(wanted.name)
        elif has is None:
            wrong.append((wanted, f"{wanted.name} is not installed"))
        elif not wanted.specifier.contains(has, prereleases=True):
            wrong.append((wanted, f"{wanted.name} {has}, expected {wanted.specifier}"))
        else:
            found.append(f"{wanted.name} {has}")
    yield Finding("packages", "ok", ", ".join(found))
    for wanted, said in wrong:
        yield Finding("packages", "problem", said, f"pip install '{wanted}'")
    extras.pop(OF_TESTS, None)
    for name, lacking in sorted(extras.items()):
        if lacking:
            advice = f"where it is needed: pip install 'marginctl[{name}]'"
            yield Finding("extra", "note", f"{name}: no {', '.join(lacking)}", advice)
        else:
            yield Finding("extra", "ok", f"{name}: installed")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _recipes() -> Iterator[Finding]:
    try:
        count = len(recipe_summaries())
    except RequestError as error:
        yield Finding("recipes", "problem", error.lines[0], "repair that file, or install again")
        return
    found = f"{count} in {recipes_folder()}"
    if count:
        yield Finding("recipes", "ok", found, "marginctl recipes list")
    else:
        yield Finding("recipes", "problem", found, "install marginctl again")


def _devices(asked: str) -> Iterator[Finding]:
    for name in ("torch", "torchvision"):
        try:
            importlib.import_module(name)
        except Exception as error:  # what a broken pair of wheels raises is not only ImportError
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            advice = "install a torch and a torchvision of one release"
            yield Finding("device", "problem", f"{name} cannot be imported: {said}", advice)
            return
    import torch

    device = resolve_device(asked, accelerated=True)
    if device.startswith("cuda"):
        card = torch.cuda.get_device_properties(torch.device(device))
        memory = f"{card.total_memory / 2**30:.0f} GiB"
        count = torch.cuda.device_count()
        more = f", {count} of them: torchrun uses several" if count > 1 else ""
        said = f"{device}: {card.name}, {memory}{more}, CUDA {torch.version.cuda}"
        yield Finding("device", "ok", said)
    elif device == "mps":
        yield Finding("device", "ok", "mps: Apple's GPU; what needs float64 runs on the CPU")
    else:
        built = torch.version.cuda
        why = f"PyTorch is built for CUDA {built}, and finds no GPU" if built else "a CPU build"
        yield Finding(
            "device",
            "note",
            f"cpu ({why})",
            "enough for uci-cv, report and all recipes with -cpu or smoke in their names",
        )


def _threads() -> Iterator[Finding]:
    try:
        import torch
    except Exception:  # what is wrong with it stands under `device`
        return

    cores, threads = usable_cores(), torch.get_num_threads()
    variable = os.environ.get("OMP_NUM_THREADS")
    said = f"{cores} cores, PyTorch uses {threads}" + (
        f" (OMP_NUM_THREADS={variable})" if variable else ""
    )
    if threads > cores:
        yield Finding("threads", "problem", said, f"set OMP_NUM_THREADS={cores}")
    elif threads < cores and variable:
        advice = "unset it to train images on all cores; uci-cv has its own workers"
        yield Finding("threads", "note", said, advice)
    else:
        yield Finding("threads", "ok", said)


def _folder(topic: str, folder: Path, option: str) -> Finding:
    """Whether files can be made in a folder, or in the nearest one above it that is there."""
    there = next((p for p in (folder, *folder.absolute().parents) if os.path.exists(p)), folder)
    instead = f"name another one: {option}"
    if not os.path.isdir(there):
        return Finding(topic, "problem", f"{folder}: {there} is no folder", instead)
    try:
        with tempfile.TemporaryDirectory(prefix=".marginctl-", dir=there) as inner:
            locks = _locks(Path(inner))
        free = shutil.disk_usage(there).free / 2**30
    except OSError as error:
        reading = topic == "data folder" and os.access(there, os.R_OK)
        said = f"{folder}: cannot be written: {error.strerror or error}"
        return Finding(topic, "note" if reading else "problem", said, instead)
    said = f"{folder}: {free:.1f} GiB free"
    if there != folder:
        said += ", made when it is needed"
    if not locks:
        advice = "let no two processes work in it at once"
        return Finding(topic, "note", f"{said}, its file system has no locks", advice)
    if free < LEAST_FREE_GIB:
        return Finding(topic, "note", said, f"make room, or {instead}")
    if topic == "data folder" and there != folder:  # a slip in its name would look so too
        return Finding(topic, "note", said, f"where the data are elsewhere, {instead}")
    return Finding(topic, "ok", said)


def _locks(folder: Path) -> bool:
    """Whether a lock can be taken as a trial's is."""
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            return True
    except (OSError, NotImplementedError):
        return False


def _runs(out: Path) -> Finding:
    if not os.path.isdir(out):
        return Finding("runs", "ok", "none yet", "marginctl uci-cv --dataset iris")
    runs = {path.parent for path in out.rglob("run.json")}
    open_ = [folder for folder in runs if not (folder / "result.json").exists()]
    said = f"{len(runs) - len(open_)} finished, {len(open_)} not"
    advice = f"marginctl report {out}" if runs else None
    if open_:
        return Finding("runs", "note", said, "the same command again finishes what is not")
    return Finding("runs", "ok", said, advice)


def _data(folder: Path) -> Iterator[Finding]:
    for topic, names in (("UCI sets", list(uci_definitions())), ("image sets", list(IMAGE_SETS))):
        found = [dataset_status(name, folder, read=False) for name in names]
        there = [s.name for s in found if s.state in ("present", "built in")]
        absent = [s.name for s in found if s.state == "absent"]
        said = f"{len(there)} of {len(names)}: {', '.join(there)}"
        for corrupt in (s for s in found if s.state == "corrupt"):
            advice = f"marginctl data fetch {corrupt.name}"
            yield Finding(topic, "problem", str(corrupt.detail), advice)
        if topic == "UCI sets" and absent:
            yield Finding(topic, "note", said, "marginctl data fetch")
        elif absent:
            advice = f"where files are looked for: marginctl data verify {absent[0]}"
            yield Finding(topic, "note", said, advice)
        else:
            yield Finding(topic, "ok", said)
