"""marginctl eval."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, flag, integer, log_image_summary, option, refuse

Which = Literal["last", "best"]


def command(
    run: Annotated[
        str,
        argument(
            "RUN",
            "A run directory, a checkpoint, or pretrained weights: "
            "ResNet50_Weights.IMAGENET1K_V2, resnet50 for the newest, timm/NAME.TAG, "
            "efficientnet-lite0, or resnet50=FILE for other weights of that model.",
        ),
    ],
    data: Annotated[
        str | None, option("NAME", "Override the run's data set; required with weights.")
    ] = None,
    which: Annotated[
        Which, typer.Option("--checkpoint", help="Checkpoint of the run directory.")
    ] = "last",
    bins: Annotated[int, option("N", "Bins of the calibration errors.", integer(1, 1000))] = 15,
    calibration: Annotated[
        Path | None,
        option("FILE", "Saved calibrator (calibrate --save): also show the calibrated metrics."),
    ] = None,
    ood: common_options.Ood = None,
    figure: Annotated[
        Path | None,
        option("FILE", "Plot misclassification and OOD detection: histograms and ROC curves."),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "Verification pair list, evaluated instead of a test set: lines of LFW, or PATH "
            "PATH 1|0; repeatable.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Folder of the pairs' images (default: the folder of the list).",
            common_options.folder,
        ),
    ] = None,
    flip: Annotated[
        bool, flag("--flip", "Add the embedding of the flipped image (pairs only).")
    ] = False,
    predictions: Annotated[
        Path | None, option("FILE", "Write the score of each pair (CSV).")
    ] = None,
    report_format: common_options.ReportFormat = "table",
    json: common_options.Json = False,
    data_dir: common_options.DataDir = None,
    device: common_options.Device = "auto",
) -> None:
    """Evaluate a trained network: accuracy, calibration, angles, detection, confusion.

    Misclassification detection (MISS) separates wrong from correct predictions by a confidence
    score; OOD detection separates an OOD test set from the test images. OOD images are resized to
    the network's resolution (bilinear, antialiased), converted to its number of channels and
    normalised in the same way. AUPR-In and FPR95-In have the in-distribution (or correctly
    classified) images as the positive class, AUPR-Out and FPR95-Out, as OpenOOD, the others.

    --ood openood names the near and far sets of OpenOOD 1.5 for cifar-10, cifar-100 or imagenet.
    Their test parts are used as published. OpenOOD has its own archives and lists of images,
    filtered for DTD and Places365, so that its published numbers are not comparable.

    With --pairs: verification, whether the cosine of two embeddings tells that both images show one
    identity. The data set of the run is not needed then.
    """
    if pairs:
        test_set_options = {
            "--data": data,
            "--calibration": calibration,
            "--ood": ood,
            "--figure": figure,
        }
        refuse(test_set_options, "cannot be combined with --pairs: remove one of them")
    else:
        pair_options = {"--images": images, "--flip": flip, "--predictions": predictions}
        refuse(pair_options, "needs --pairs FILE")
    from marginctl.console.progress import log_lines, phase
    from marginctl.data.images.registry import expand_ood_names, parse_ood_name
    from marginctl.data.paths import default_data_dir
    from marginctl.experiments import evaluate, evaluate_pretrained
    from marginctl.models.pretrained import is_weights_name
    from marginctl.reports.figures.style import check_path
    from marginctl.reports.formats.output import print_report
    from marginctl.reports.tables.evaluation_table import evaluation_report, verification_report
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.utils.device import resolve_device

    output = "json" if json else report_format
    if pairs:
        check_outputs({"--predictions": predictions}, [Path(run), *pairs])
        place = resolve_device(device, accelerated=True)
        with phase("verifying pairs"):
            result = evaluate.verify(Path(run), pairs, images, which, place, flip=flip)
        title = evaluate.pairs_title(result.document)
        print_report(verification_report(title, result.document), output)
        if predictions is not None:
            result.write(predictions)
        return
    if figure is not None:
        check_path("--figure", figure)
    check_outputs({"--figure": figure}, [p for p in (Path(run), calibration) if p is not None])
    for name in ood or ():
        parse_ood_name(name)  # before anything takes its time
    folder = data_dir or default_data_dir()
    place = resolve_device(device, accelerated=True)
    shared = (folder, place, bins, calibration, ood or (), log_image_summary)
    with phase("evaluating"):
        if is_weights_name(run):
            document = evaluate_pretrained.evaluate_weights(run, data, *shared)
            title = evaluate_pretrained.title(document)
        else:
            document = evaluate.evaluate(Path(run), data, which, *shared)
            title = evaluate.title(document)
    log_lines(expand_ood_names(ood or (), document["data"])[1])
    print_report(evaluation_report(title, document), output)
    if warning := document.get("calibrated", {}).get("warning"):
        log_lines([f"warning: {calibration}: {warning}"])
    if figure is not None:
        from marginctl.reports.figures.detection_of_run import draw

        reason = draw(title, document["detection"], figure)
        log_lines([f"wrote {figure}" if reason is None else f"{figure}: nothing to plot: {reason}"])
    if document["run"] is None:
        common_options.print_next_step("transfer --from", run, "--data", document["data"])
    elif calibration is None:
        common_options.print_next_step("calibrate", run)
