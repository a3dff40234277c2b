"""marginctl eval."""

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json


class Which(enum.StrEnum):
    last = "last"
    best = "best"


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A trial's folder in a run store, a checkpoint, or published weights: "
            "ResNet50_Weights.IMAGENET1K_V2, resnet50 for the newest, or efficientnet-lite0.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME", help="Other images than its own; of weights, which images."
        ),
    ] = None,
    which: Annotated[
        Which,
        typer.Option("--checkpoint", help="Of a folder: after the last epoch, or the best one."),
    ] = Which.last,
    bins: Annotated[
        int,
        typer.Option("--bins", metavar="N", parser=integer(1, 1000), help="Of the calibration."),
    ] = 15,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="A map of `calibrate --save`: also show the calibrated numbers.",
        ),
    ] = None,
    ood: options.Ood = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure",
            metavar="FILE",
            help="Draw how well errors and foreign images are told apart.",
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Pairs of images to verify in place of all else: LFW's lines, or PATH PATH 1 or 0;"
            " repeatable.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="FOLDER",
            parser=options.folder,
            help="Of the pairs' images; else the folder of their list.",
        ),
    ] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Of pairs: embed each image with its mirror image.")
    ] = False,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", metavar="FILE", help="Write each pair's score as CSV."),
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
) -> None:
    """Evaluate a trained network: accuracy, calibration, angles, detection, confusion.

    Detection: how well its confidence tells its errors (MISS), and foreign images (OOD), from the
    rest. Foreign images are scaled to its side, bilinearly and antialiased, made grey by luminance
    (ITU-R 601) or colour by repetition, and normalised as its own.

    Verification, of pairs of images: whether the cosine of their features says that they are of one
    identity. The network's own images are not needed then.
    """
    if pairs:
        without = {"--data": data, "--calibration": calibration, "--ood": ood, "--figure": figure}
        _verify(
            run, pairs, images, which, predictions, device, flip=flip, json=json, others=without
        )
        return
    of_pairs = {"--images": images, "--flip": flip, "--predictions": predictions}
    _refuse(of_pairs, "without --pairs: name a list of pairs with it")
    from marginctl.console.progress import log_lines
    from marginctl.data.images.registry import parse_ood_name
    from marginctl.data.tabular.uci import default_data_dir
    from marginctl.experiments import evaluate, evaluate_pretrained
    from marginctl.models.pretrained import is_weights_name
    from marginctl.reports.evaluation_text import evaluation_lines
    from marginctl.reports.figures.style import check_path
    from marginctl.reports.formats.text_table import print_lines
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.utils.device import resolve_device

    if figure is not None:
        check_path("--figure", figure)
    check_outputs(figure, None, [p for p in (Path(run), calibration) if p is not None])
    for name in ood or ():
        parse_ood_name(name)  # before anything takes its time
    folder = data_dir or default_data_dir()
    place = resolve_device(device, accelerated=True)
    if is_weights_name(run):
        found = evaluate_pretrained.evaluate_weights(
            run, data, folder, place, bins, calibration, ood or ()
        )
        title = evaluate_pretrained.title(found)
    else:
        found = evaluate.evaluate(
            *(Path(run), data, which.value, folder, place, bins, calibration), ood or ()
        )
        title = evaluate.title(found)
    if figure is not None:
        from marginctl.reports.figures.detection_of_run import draw

        reason = draw(title, found["detection"], figure)
        log_lines([f"wrote {figure}" if reason is None else f"{figure}: nothing to draw: {reason}"])
    if json:
        print_json(found)
    else:
        print_lines(evaluation_lines(title, found))


def _refuse(given: Mapping[str, Any], why: str) -> None:
    """Raises RequestError where one of these options was given."""
    from marginctl.errors import RequestError

    for option, value in given.items():
        if value:
            raise RequestError(f"{option} {why}")


def _verify(
    run: str,
    pairs: Sequence[Path],
    images: Path | None,
    which: Which,
    predictions: Path | None,
    device: str,
    *,
    flip: bool,
    json: bool,
    others: Mapping[str, Any],
) -> None:
    """`eval --pairs`."""
    from marginctl.experiments.evaluate_pairs import title, verify
    from marginctl.reports.evaluation_text import verification_lines
    from marginctl.reports.formats.text_table import print_lines
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.utils.device import resolve_device

    _refuse(others, "with --pairs: leave one of the two out: pairs are verified alone")
    check_outputs(predictions, None, [Path(run), *pairs])
    place = resolve_device(device, accelerated=True)
    found = verify(Path(run), pairs, images, which.value, place, flip=flip)
    if predictions is not None:
        found.write(predictions)
    if json:
        print_json(found.document)
    else:
        print_lines([title(found.document)])
        for one in found.document["verification"]:
            print_lines(verification_lines(one))
