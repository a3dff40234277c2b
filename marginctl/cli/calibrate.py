"""marginctl calibrate."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, fraction, integer, log_image_summary, option
from marginctl.cli.evaluate import Which
from marginctl.errors import RequestError


def command(
    source: Annotated[
        Path,
        argument(
            "INPUT",
            "A run directory of train, a checkpoint in it, an .npz with `logits` or "
            "`probabilities` (N, C), `labels` (N,) and, for names, `classes` (C,), or a CSV with "
            "columns logit_0, logit_1, ... or prob_0, ..., or names in place of the numbers, and "
            "label.",
        ),
    ],
    method: Annotated[
        list[str] | None,
        option(
            "NAME",
            "none, temperature, vector, matrix, isotonic or histogram (default: all); repeatable.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        option("FILE", "Fit on the outputs in this .npz or CSV; evaluate on all of INPUT."),
    ] = None,
    split: Annotated[
        float | None,
        option("FRACTION", "Random fraction of INPUT to fit on (default: 0.5).", fraction),
    ] = None,
    repeats: Annotated[int | None, option("N", "Random splits (default: 10).", integer(1))] = None,
    bins: Annotated[
        int,
        option("N", "Bins of the calibration errors and of histogram binning.", integer(1, 1000)),
    ] = 15,
    bootstrap: Annotated[
        int, option("N", "Bootstrap samples; 0 for no intervals.", integer(0))
    ] = 1000,
    seed: Annotated[int, option("N", "Seed of the splits and the bootstrap.", integer(0))] = 0,
    figure: Annotated[
        Path | None, option("FILE", "Draw reliability diagrams before and after.")
    ] = None,
    save: Annotated[
        Path | None,
        option(
            "FILE",
            "Save the calibrator that the one --method fitted on the first split, for `eval "
            "--calibration`.",
        ),
    ] = None,
    data: Annotated[str | None, option("NAME", "Override the run's data set.")] = None,
    which: Annotated[
        Which, typer.Option("--checkpoint", help="Checkpoint of the run: the last or the best.")
    ] = "last",
    report_format: common_options.ReportFormat = "table",
    json: common_options.Json = False,
    data_dir: common_options.DataDir = None,
    device: common_options.Device = "auto",
    quiet: common_options.Quiet = False,
) -> None:
    """Calibrate a classifier's outputs post hoc and evaluate on held-out samples.

    Reports accuracy, ECE, MCE, adaptive and classwise ECE, NLL and Brier score before and after,
    over random splits, with bootstrap intervals. The test images of a run are split: no training
    image is used. INPUT names whether its values are logits or probabilities.
    """
    from marginctl.calibration.benchmark import Settings, calibrate
    from marginctl.calibration.methods import METHODS
    from marginctl.calibration.outputs import create_outputs
    from marginctl.calibration.read_outputs import FORMS, is_outputs_file, read_outputs
    from marginctl.console.progress import ThrottledLog, log_lines, phase
    from marginctl.data.paths import default_data_dir
    from marginctl.reports.data_summary import outputs_lines
    from marginctl.reports.figures.style import check_path
    from marginctl.reports.formats.output import print_report
    from marginctl.reports.tables.calibrate_table import calibrate_report, title_of
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.utils.device import resolve_device

    if calibration is not None and (split is not None or repeats is not None):
        raise RequestError(
            "--calibration with --split or --repeats: give samples to fit on, or split INPUT"
        )
    if data is not None and is_outputs_file(source):
        raise RequestError(
            f"--data {data}: INPUT {source} has outputs: remove --data, or name a run"
        )
    for name in method or ():
        METHODS.find(name)
    if save is not None and len(set(method or ())) != 1:
        raise RequestError("--save: one calibrator is saved: name its method with one --method")
    if figure is not None:
        check_path("--figure", figure)
    inputs = [p for p in (source, calibration) if p is not None]
    check_outputs({"--save": save, "--figure": figure}, inputs)
    if is_outputs_file(source):
        outputs = read_outputs(source)
    elif source.exists():
        from marginctl.experiments.evaluate import predict_run

        place = resolve_device(device, accelerated=True)
        on_summary = None if quiet else log_image_summary
        folder = data_dir or default_data_dir()
        with phase("computing the network's outputs", quiet=quiet):
            run = predict_run(source, data, which, folder, place, on_summary)
        outputs = create_outputs(
            str(source),
            "logits",
            run.predictions.logits.numpy(),
            run.predictions.labels.numpy(),
            run.images.split_digests["test"],
            "the test images are split; no image that the network was trained on is used",
            classes=run.images.classes,
        )
        outputs = replace(outputs, network=run.network)
    else:
        raise RequestError(
            f"{source}: does not exist: expected a run of marginctl train, or {FORMS}"
        )
    fit_outputs = None if calibration is None else read_outputs(calibration)
    read = [outputs] if fit_outputs is None else [outputs, fit_outputs]
    if not quiet:
        log_lines(line for one in read for line in outputs_lines(one))
    settings = Settings(0.5 if split is None else split, repeats or 10, bins, bootstrap, seed)
    with phase("fitting calibration methods", quiet=quiet):
        result = calibrate(outputs, fit_outputs, method or [], settings, ThrottledLog(quiet=quiet))
    result.document["summaries"] = {one.name: one.summary() for one in read}
    print_report(calibrate_report(result.document), "json" if json else report_format)
    if figure is not None:
        from marginctl.reports.figures.reliability_diagram import draw_calibration

        draw_calibration(title_of(result.document), result.before, result.after, figure)
    if save is not None:
        (calibrator,) = result.calibrators.values()
        calibrator.save(save)
    log_lines(f"wrote {path}" for path in (figure, save) if path is not None)
    if save is None:
        one = "calibrate --method temperature --save calibrator.json"
        common_options.print_next_step(one, source)
    elif not is_outputs_file(source):
        common_options.print_next_step("eval --calibration", save, source)
