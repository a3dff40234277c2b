"""The table of benchmarks, and runs of one or all of them with their environment."""

import importlib
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from marginctl.bench.timing import Context, Result, Settings, Skipped
from marginctl.errors import MarginctlError, RequestError
from marginctl.runs.run_dir import versions
from marginctl.utils.text import did_you_mean

NAMES = ("uci-cv", "objectives", "train", "kappa", "probe", "throughput", "gpu")
# name: its module, with SETTINGS, SUITE, QUICK and run
BENCHMARKS = {name: f"marginctl.bench.{name.replace('-', '_')}" for name in NAMES}


@dataclass(frozen=True)
class Environment:
    """Where benchmarks ran; `load_before` are the system's load averages of 1, 5 and 15 minutes."""

    cores: int
    threads: int
    architecture: str
    system: str
    device: str
    device_name: str
    load_before: list[float] | None
    versions: dict[str, str]


@dataclass(frozen=True)
class BenchmarkResults:
    """The results of benchmarks; `skipped` names whole benchmarks with their reason."""

    results: list[Result]
    skipped: list[Skipped]
    environment: Environment
    quick: bool


def run_one(
    name: str,
    context: Context,
    *,
    quick: bool,
    rounds: int | None = None,
    overrides: Sequence[str] = (),
) -> BenchmarkResults:
    """Run one benchmark at its full size, or its quick one."""
    if name not in BENCHMARKS:
        raise RequestError(
            f"unknown benchmark '{name}': expected one of {', '.join(BENCHMARKS)}."
            + did_you_mean(name, BENCHMARKS)
        )
    from marginctl.recipe.load import RecipeDocument, validate

    module = importlib.import_module(BENCHMARKS[name])
    sizes = dict(module.QUICK) if quick else {}
    options = {"rounds": ("--rounds", rounds)}
    document = RecipeDocument(sizes, {}, f"bench {name}")
    settings = validate(module.SETTINGS, document, overrides, options)
    environment = describe_environment(context.device)
    return BenchmarkResults([_timed_run(module, settings, context)], [], environment, quick)


def run_suite(context: Context, *, quick: bool, rounds: int | None = None) -> BenchmarkResults:
    """Run every benchmark at a size that takes minutes; one that cannot run is skipped."""
    environment = describe_environment(context.device)
    results, skipped = [], []
    for name, path in BENCHMARKS.items():
        try:
            module = importlib.import_module(path)
            if module.SUITE is None:
                reason = f"runs on a GPU only: marginctl bench {name} --device cuda"
                skipped.append(Skipped(name, reason))
                continue
            sizes = module.QUICK if quick else module.SUITE
            settings = module.SETTINGS(**sizes | ({} if rounds is None else {"rounds": rounds}))
            prefixed = replace(context, report=lambda line, n=name: context.report(f"{n}: {line}"))  # type: ignore[misc]
            results.append(_timed_run(module, settings, prefixed))
        except (MarginctlError, ImportError) as error:
            reason = error.lines[0] if isinstance(error, MarginctlError) else str(error)
            skipped.append(Skipped(name, reason))
    return BenchmarkResults(results, skipped, environment, quick)


def _timed_run(module: Any, settings: Settings, context: Context) -> Result:
    started = time.monotonic()
    result: Result = module.run(settings, context)
    result.seconds = time.monotonic() - started
    return result


def describe_environment(device: str) -> Environment:
    """Return the environment, with the load before a benchmark starts."""
    import torch

    from marginctl.bench.throughput import device_name
    from marginctl.utils.device import usable_cores
    from marginctl.utils.precision import device_config_for

    return Environment(
        usable_cores(),
        torch.get_num_threads(),
        platform.machine(),
        platform.system(),
        device,
        device_name(device_config_for(device, "auto")),
        list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        versions(),
    )
