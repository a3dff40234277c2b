"""marginctl calibrate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginctl.cli import options
from marginctl.cli.evaluate import Which
from marginctl.cli.options import integer, share
from marginctl.errors import RequestError

if TYPE_CHECKING:
    from marginctl.calibration.outputs import Outputs


def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A trial's folder in a run store, a checkpoint in it, an .npz with `logits` or "
            "`probabilities` (N, C) and `labels` (N,), or a CSV with columns logit_0, logit_1, ... "
            "or prob_0, prob_1, ..., and label.",
        ),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="none, temperature, vector, matrix, isotonic-ovr, isotonic-top, histogram-ovr or "
            "histogram-top (ovr: one-versus-rest; top: the top label's confidence); repeatable. "
            "Else all.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="Fit on the outputs in this .npz or CSV, and measure on all of INPUT.",
        ),
    ] = None,
    split: Annotated[
        float | None,
        typer.Option(
            "--split",
            metavar="SHARE",
            parser=share,
            help="Fit on this share of INPUT, else 0.5, at random.",
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", metavar="N", parser=integer(1), help="Random splits, else 10."),
    ] = None,
    bins: Annotated[
        int,
        typer.Option(
            "--bins",
            metavar="N",
            parser=integer(1, 1000),
            help="Of the calibration errors and of histogram binning.",
        ),
    ] = 15,
    bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap",
            metavar="N",
            parser=integer(0),
            help="Draws of the intervals; 0 for none.",
        ),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", parser=integer(0), help="Of the splits and the bootstrap."
        ),
    ] = 0,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", metavar="FILE", help="Draw reliability diagrams before and after."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the first split's map of the one --method, for `eval --calibration`.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME", help="Of a run: other images than its own."),
    ] = None,
    which: Annotated[
        Which,
        typer.Option("--checkpoint", help="Of a run: after the last epoch, or the best one."),
    ] = Which.last,
    report_format: options.ReportFormat = "table",
    json: options.Json = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Calibrate a classifier's outputs post hoc, and measure what it is worth on other samples.

    Accuracy, ECE, MCE, adaptive and classwise ECE, NLL and Brier score before and after, over
    random splits, with bootstrap intervals. Of a run the test images are split: nothing that was
    trained on is used. Whether values are logits or probabilities is named, never guessed.
    """
    from marginctl.calibration import io
    from marginctl.calibration.benchmark import Asked, calibrate
    from marginctl.calibration.methods import check_method
    from marginctl.calibration.read_outputs import is_file_of_outputs, read_outputs
    from marginctl.console.progress import ThrottledLog, log_lines
    from marginctl.reports.figures.style import check_path
    from marginctl.reports.formats.output import print_report
    from marginctl.reports.tables.calibrate_table import calibrate_report, title_of
    from marginctl.runs.atomic_io import check_outputs

    if calibration is not None and (split is not None or repeats is not None):
        raise RequestError(
            "--calibration beside --split or --repeats: either samples of their own to fit on, or "
            "random splits: leave one of them out"
        )
    if data is not None and is_file_of_outputs(source):
        raise RequestError(
            f"--data {data}: {source} is a file of outputs: leave it out, or name a run"
        )
    for name in method or ():
        check_method(name)
    if save is not None and len(set(method or ())) != 1:
        raise RequestError("--save: one map is saved: name its method with one --method")
    if figure is not None:
        check_path("--figure", figure)
    inputs = [p for p in (source, calibration) if p is not None]
    for output in (save, figure):
        check_outputs(output, None, inputs)
    outputs = (
        read_outputs(source)
        if is_file_of_outputs(source)
        else _of_run(source, data, which, data_dir, device)
    )
    fitting = None if calibration is None else read_outputs(calibration)
    asked = Asked(0.5 if split is None else split, repeats or 10, bins, bootstrap, seed)
    found = calibrate(outputs, fitting, method or [], asked, ThrottledLog(quiet=quiet))
    if figure is not None:
        from marginctl.reports.figures.reliability_diagram import draw_calibration

        draw_calibration(title_of(found.document), found.before, found.after, figure)
    if save is not None:
        io.write(save, next(iter(found.maps.values())))
    log_lines(f"wrote {path}" for path in (figure, save) if path is not None)
    print_report(calibrate_report(found.document), "json" if json else report_format)


def _of_run(
    path: Path, data: str | None, which: Which, data_dir: Path | None, device: str
) -> "Outputs":
    """What a trained network says of its test images."""
    from marginctl.calibration.outputs import checked_outputs
    from marginctl.calibration.read_outputs import FORMS
    from marginctl.data.tabular.uci import default_data_dir
    from marginctl.experiments.evaluate import tested_of
    from marginctl.utils.device import resolve_device

    if not path.exists():
        raise RequestError(f"{path}: is not there: expected a run of marginctl train, or {FORMS}")
    folder, place = data_dir or default_data_dir(), resolve_device(device, accelerated=True)
    found = tested_of(path, data, which.value, folder, place)
    return checked_outputs(
        str(path),
        "logits",
        found.tested.logits.numpy(),
        found.tested.labels.numpy(),
        found.images.split_digests["test"],
        "the test images are split; no image that the network was trained on is used",
    )
