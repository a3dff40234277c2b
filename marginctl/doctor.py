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

from packaging.requirements import Requirement

from marginctl import __version__
from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.paths import DATA_DIR_VARIABLE
from marginctl.data.status import dataset_status
from marginctl.data.tabular.uci import uci_definitions
from marginctl.utils.device import resolve_device, usable_cores

MIN_FREE_GIB = 2.0  # a runs folder with checkpoints is soon as large


@dataclass(frozen=True)
class Finding:
    topic: str  # what was checked
    # `ok`; `note`, which limits some commands; or `problem`, which stops all
    state: Literal["ok", "note", "problem"]
    text: str  # what was found
    advice: str | None = None  # a suggested fix or next command, or None
    details: str | None = None  # what --verbose adds


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
    yield from _check_device(device)
    yield _check_folder("runs folder", out, "--out FOLDER")
    yield _check_folder("data folder", data_dir, f"--data-dir FOLDER or {DATA_DIR_VARIABLE}")
    yield from _check_data("UCI sets", [*uci_definitions()], data_dir, "marginctl data fetch")
    yield from _check_data("image sets", [*IMAGE_SETS], data_dir, "marginctl data fetch NAME")


def _check_packages() -> Iterator[Finding]:
    """Compare the installed packages with those that marginctl's own metadata requires."""
    try:
        requirements = [Requirement(line) for line in metadata.requires("marginctl") or []]
    except metadata.PackageNotFoundError:  # a checkout on the path
        text = "marginctl is not installed: its requirements are unknown"
        yield Finding("packages", "note", text, "pip install -e . in its folder")
        return
    installed: list[str] = []
    missing: dict[str, str] = {}  # the extra of each absent package
    for required in requirements:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(required.marker or ""))
        if extra is not None and extra[1] == "test":  # for developers only
            continue
        try:
            version = metadata.version(required.name)
        except metadata.PackageNotFoundError:
            version = "is not installed"
        if required.specifier.contains(version, prereleases=True):
            installed.append(f"{required.name} {version}")
        elif extra is None:
            text = f"{required.name} {version}, expected {required.specifier}"
            yield Finding("packages", "problem", text, f"pip install '{required}'")
        else:
            missing[required.name] = extra[1]
    if missing:
        extras = ",".join(dict.fromkeys(missing.values()))  # as pip takes them
        text, advice = f"not installed: {extras}", f"optional: pip install 'marginctl[{extras}]'"
        yield Finding("extras", "note", text, advice, f"packages: {', '.join(missing)}")
    yield Finding("packages", "ok", f"{len(installed)} as required", details=", ".join(installed))


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
    if variable and threads != cores:
        advice = f"{cores} threads suit training on images (uci-cv has its own workers)"
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
        tempfile.TemporaryFile(dir=existing).close()
        free = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        is_readable = topic == "data folder" and os.access(existing, os.R_OK)
        text = f"{folder}: cannot be written: {error.strerror or error}"
        return Finding(topic, "note" if is_readable else "problem", text, change)
    is_new = existing != folder
    text = f"{folder}: {free:.1f} GiB free" + (", created on first use" if is_new else "")
    if free < MIN_FREE_GIB:
        return Finding(topic, "note", text, f"free some space, or {change}")
    if topic == "data folder" and is_new:  # its name may have a typing error
        return Finding(topic, "note", text, f"if your data are elsewhere, {change}")
    return Finding(topic, "ok", text)


def _check_data(topic: str, names: list[str], folder: Path, advice: str) -> Iterator[Finding]:
    present = []
    for status in (dataset_status(name, folder, read=False) for name in names):
        if status.state == "corrupt":
            fetch = f"marginctl data fetch {status.name}"
            yield Finding(topic, "problem", str(status.detail), fetch)
        elif status.state != "absent":
            present.append(status.name)
    text, details = f"{len(present)} of {len(names)}", ", ".join(present) or None
    if len(present) < len(names):
        yield Finding(topic, "note", text, advice, details)
    else:
        yield Finding(topic, "ok", text, details=details)
