"""Checks of the installation, the devices, the folders and the data, with suggested fixes."""

import importlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import filelock
from packaging.requirements import Requirement

from marginctl import __version__
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.paths import DATA_DIR_VARIABLE
from marginctl.data.status import DatasetStatus, dataset_status
from marginctl.data.tabular.uci import uci_definitions
from marginctl.errors import RequestError
from marginctl.experiments.tasks import recipe_summaries
from marginctl.recipe.load import recipes_folder
from marginctl.utils.device import resolve_device, usable_cores

MIN_FREE_GIB = 2.0  # a runs folder with checkpoints is soon as large
TEST_EXTRA = "test"  # for developers only


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    topic: str  # what was checked
    # `ok`; `note`, which limits some commands; or `problem`, which stops all
    state: Literal["ok", "note", "problem"]
    text: str  # what was found
    advice: str | None = None  # a suggested fix or next command, or None


def examine(data_dir: Path, out: Path, device: str) -> Iterator[Finding]:
    """Yield the findings of all checks, quick ones first.

    Args:
        data_dir: the data folder.
        out: the runs folder.
        device: as for `--device`.

    Raises:
        RequestError: an unknown device.
    """
    system = f"{platform.system()} {platform.machine()}"
    version = f"{__version__} on Python {platform.python_version()}, {system}"
    yield Finding("marginctl", "ok", version)
    yield from _check_packages()
    yield _check_recipes()
    yield from _check_device(device)
    yield _check_folder("runs folder", out, "--out FOLDER")
    yield _check_runs(out)
    yield _check_folder("data folder", data_dir, f"--data-dir FOLDER or {DATA_DIR_VARIABLE}")
    yield from _check_data(data_dir)


def _check_packages() -> Iterator[Finding]:
    """Compare the installed packages with those that marginctl's own metadata requires."""
    try:
        requirements = [Requirement(line) for line in metadata.requires("marginctl") or []]
    except metadata.PackageNotFoundError:  # a checkout on the path
        text = "marginctl is not installed: its requirements are unknown"
        yield Finding("packages", "note", text, "pip install -e . in its folder")
        return
    installed: list[str] = []
    missing: list[Finding] = []
    extras: dict[str, list[str]] = {}
    for required in requirements:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(required.marker or ""))
        version = _version(required.name)
        fits = version is not None and required.specifier.contains(version, prereleases=True)
        if extra is not None:
            extras.setdefault(extra[1], []).extend([] if fits else [required.name])
        elif fits:
            installed.append(f"{required.name} {version}")
        else:
            expected = f" {version}, expected {required.specifier}"
            text = required.name + (expected if version else " is not installed")
            missing.append(Finding("packages", "problem", text, f"pip install '{required}'"))
    yield Finding("packages", "ok", ", ".join(installed))
    yield from missing
    for name, lacking in sorted(extras.items()):
        if name != TEST_EXTRA and lacking:
            advice = f"optional: pip install 'marginctl[{name}]'"
            yield Finding("extra", "note", f"{name}: no {', '.join(lacking)}", advice)
        elif name != TEST_EXTRA:
            yield Finding("extra", "ok", f"{name}: installed")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_recipes() -> Finding:
    try:
        count = len(recipe_summaries())
    except RequestError as error:
        return Finding("recipes", "problem", error.lines[0], "fix that file, or reinstall")
    text = f"{count} in {recipes_folder()}"
    if not count:
        return Finding("recipes", "problem", text, "reinstall marginctl")
    return Finding("recipes", "ok", text, "marginctl recipes list")


def _check_device(name: str) -> Iterator[Finding]:
    for module in ("torch", "torchvision"):
        try:
            importlib.import_module(module)
        except Exception as error:  # mismatched wheels raise more than ImportError
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            text = f"{module} cannot be imported: {reason}"
            yield Finding("device", "problem", text, "install matching torch and torchvision")
            return
    import torch

    device = resolve_device(name, accelerated=True)
    if device.startswith("cuda"):
        gpu = torch.cuda.get_device_properties(torch.device(device))
        count = torch.cuda.device_count()
        several = f", {count} GPUs (torchrun uses several)" if count > 1 else ""
        memory = f"{gpu.total_memory / 2**30:.0f} GiB"
        text = f"{device}: {gpu.name}, {memory}{several}, CUDA {torch.version.cuda}"
        yield Finding("device", "ok", text)
    elif device == "mps":
        yield Finding("device", "ok", "mps: Apple's GPU; float64 computations run on the CPU")
    else:
        cuda = torch.version.cuda
        reason = f"PyTorch is built for CUDA {cuda} but finds no GPU" if cuda else "CPU build"
        advice = "enough for uci-cv, report and recipes with -cpu or smoke in their names"
        yield Finding("device", "note", f"cpu ({reason})", advice)
    cores, threads = usable_cores(), torch.get_num_threads()
    variable = os.environ.get("OMP_NUM_THREADS")
    text = f"{cores} cores, PyTorch uses {threads}"
    text += f" (OMP_NUM_THREADS={variable})" if variable else ""
    if threads > cores:
        yield Finding("threads", "problem", text, f"set OMP_NUM_THREADS={cores}")
    elif threads < cores and variable:
        advice = "unset it to train on images with all cores (uci-cv has its own workers)"
        yield Finding("threads", "note", text, advice)
    else:
        yield Finding("threads", "ok", text)


def _check_folder(topic: str, folder: Path, option: str) -> Finding:
    """Check that files can be written in a folder, or in its nearest existing parent."""
    existing = next((p for p in (folder, *folder.absolute().parents) if os.path.exists(p)), folder)
    change = f"use another folder: {option}"
    if not os.path.isdir(existing):
        return Finding(topic, "problem", f"{folder}: {existing} is not a folder", change)
    try:
        with tempfile.TemporaryDirectory(prefix=".marginctl-", dir=existing) as inner:
            has_locks = _can_lock(Path(inner))
        free = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        is_readable = topic == "data folder" and os.access(existing, os.R_OK)
        text = f"{folder}: cannot be written: {error.strerror or error}"
        return Finding(topic, "note" if is_readable else "problem", text, change)
    is_new = existing != folder
    text = f"{folder}: {free:.1f} GiB free" + (", created on first use" if is_new else "")
    if not has_locks:
        advice = "do not run two processes in it at once"
        return Finding(topic, "note", f"{text}, no file locks", advice)
    if free < MIN_FREE_GIB:
        return Finding(topic, "note", text, f"free some space, or {change}")
    if topic == "data folder" and is_new:  # its name may have a typing error
        return Finding(topic, "note", text, f"if your data are elsewhere, {change}")
    return Finding(topic, "ok", text)


def _can_lock(folder: Path) -> bool:
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            return True
    except (OSError, NotImplementedError):
        return False


def _check_runs(out: Path) -> Finding:
    if not os.path.isdir(out):
        return Finding("runs", "ok", "none yet", "marginctl uci-cv --dataset iris")
    runs = {path.parent for path in out.rglob("run.json")}
    finished = sum((folder / "result.json").exists() for folder in runs)
    text = f"{finished} finished, {len(runs) - finished} unfinished"
    if finished < len(runs):
        return Finding("runs", "note", text, "run the same command again to finish them")
    return Finding("runs", "ok", text, f"marginctl report {out}" if runs else None)


def _check_data(folder: Path) -> Iterator[Finding]:
    for topic, names in (("UCI sets", list(uci_definitions())), ("image sets", list(IMAGE_SETS))):
        by_state: dict[str, list[DatasetStatus]] = {}
        for name in names:
            status = dataset_status(name, folder, read=False)
            by_state.setdefault(status.state, []).append(status)
        for corrupt in by_state.get("corrupt", []):
            advice = f"marginctl data fetch {corrupt.name}"
            yield Finding(topic, "problem", str(corrupt.detail), advice)
        present = [s.name for state in ("present", "built in") for s in by_state.get(state, [])]
        text = f"{len(present)} of {len(names)}: {', '.join(present)}"
        absent = by_state.get("absent", [])
        if absent and topic == "UCI sets":
            yield Finding(topic, "note", text, "marginctl data fetch")
        elif absent:
            advice = f"marginctl data verify {absent[0].name} (shows where files are expected)"
            yield Finding(topic, "note", text, advice)
        else:
            yield Finding(topic, "ok", text)
