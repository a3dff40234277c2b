"""marginctl bench."""

from typing import Annotated

from marginctl.cli import common_options, completion
from marginctl.cli.common_options import argument, flag, integer, option
from marginctl.errors import MarginctlError, RequestError


def command(
    name: Annotated[
        str | None,
        argument(
            "NAME",
            "uci-cv, objectives, train, kappa, probe, throughput or gpu (default: all but the last "
            "two, at smaller sizes).",
            complete=completion.benchmark,
        ),
    ] = None,
    quick: Annotated[
        bool, flag("--quick", "Smallest sizes, to check that everything runs.")
    ] = False,
    rounds: Annotated[int | None, option("N", "Timing repetitions.", integer(1))] = None,
    set_: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Override a setting of the benchmark; repeatable.", name="--set"),
    ] = None,
    out: common_options.Out = common_options.RUNS,
    data_dir: common_options.DataDir = None,
    device: common_options.Device = "auto",
    report_format: common_options.ReportFormat = "table",
    json: common_options.Json = False,
) -> None:
    """Benchmarks against alternatives.

    Without a NAME all benchmarks run at smaller sizes, in 3 to 5 minutes on 2 CPU cores. With one:

    uci-cv: 100 networks, stacked, against scikit-learn and a loop in torch (11 minutes).

    objectives: each objective against cross-entropy and pytorch-metric-learning (5 minutes).

    train: training steps against a bare torch loop, and a DataLoader with PIL transforms.

    kappa: a training step and its search for kappa*, as Temperature's Table 11 (4 minutes).

    probe: a linear probe against scikit-learn, and a sweep over penalties against cold fits.

    throughput: on a GPU, training on CIFAR-100, and two rows of Large Margin's Table 2. Within the
    setting `minutes`; the same command again trains the networks that are left.

    gpu: every objective on a GPU against the CPU, also by train.gpu_fast_path and cuda_graphs;
    seconds per epoch of layer13, resnet18 and mlp, the networks of ArcGrad's Table I, then
    `throughput` (8 minutes). bench-gpu.json in the runs folder keeps the results.
    """
    from marginctl.bench.suite import run_one, run_suite
    from marginctl.bench.timing import Context
    from marginctl.console.progress import log_lines, phase
    from marginctl.reports.formats.output import print_report, to_file
    from marginctl.reports.tables.bench_table import bench_report
    from marginctl.utils.device import resolve_device

    if name is None and set_:
        raise RequestError(f"--set {set_[0]}: requires a benchmark: name one")
    resolved = resolve_device(device, accelerated=True)
    context = Context(resolved, data_dir, out, lambda line: log_lines([line]))
    with phase(f"measuring {name or 'all benchmarks'}"):
        if name is None:
            results = run_suite(context, quick=quick, rounds=rounds)
        else:
            results = run_one(name, context, quick=quick, rounds=rounds, overrides=set_ or [])
    printed = bench_report(results, ratios_only=name is None)
    print_report(printed, "json" if json else report_format)
    if name == "gpu":
        with to_file(out / "bench-gpu.json"):
            print_report(printed, "json")
    failed = [line for result in results.results for line in result.failed]
    if failed:
        raise MarginctlError(*failed)
