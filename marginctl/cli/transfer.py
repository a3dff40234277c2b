"""marginctl transfer."""

import enum
from pathlib import Path
from typing import Annotated, Any

from marginctl.cli import common_options, completion, training_options
from marginctl.cli.common_options import option
from marginctl.cli.training_options import RunOptions, run_task, with_run_options


class Method(enum.StrEnum):
    probe = "probe"
    fine_tune = "fine-tune"


@with_run_options
def command(
    run: RunOptions,
    recipe: training_options.Recipe = None,
    source_models: Annotated[
        list[str] | None,
        option(
            "MODEL",
            "Source model: a run directory, a folder of them, a checkpoint, or weights such as "
            "ResNet50_Weights.IMAGENET1K_V1, timm/NAME.TAG, efficientnet-lite0 or resnet50=FILE; "
            "repeatable.",
            name="--from",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Image data set: folder:PATH with train/CLASS/IMAGE and val/CLASS/IMAGE, digits, "
            "mnist, ...; repeatable.",
            complete=completion.images,
        ),
    ] = None,
    groups: training_options.Groups = None,
    method: Annotated[
        list[Method] | None,
        option(
            "[probe|fine-tune]",
            "Linear classifier on frozen features, or fine-tuning, which on own data is compared "
            "with a probe; repeatable.",
        ),
    ] = None,
    objective: common_options.Objectives = None,
    epochs: training_options.Epochs = None,
    tune: training_options.Tune = None,
    metric: common_options.Metric = "accuracy",
    predictions: Annotated[
        Path | None, option("FILE", "Write per-image predictions as CSV.")
    ] = None,
    save_model: training_options.SaveModel = None,
) -> None:
    """Evaluate transfer learning: linear probes or fine-tuning of trained networks.

    A probe is a linear classifier on the features of the frozen network, fitted by L-BFGS; the
    validation part, or a part of the training images, chooses its L2 penalty. The runs folder keeps
    features and finished trials: the same command again computes what is missing.
    """
    from marginctl.runs.atomic_io import check_outputs

    check_outputs({"--predictions": predictions})

    def write_predictions(session: Any) -> None:
        if predictions is not None:
            session.write_predictions(predictions)

    recipe_options = {
        "source_models": ("--from", source_models or None),
        # the grid needs a base recipe that is valid by itself: its first values
        "data.groups": ("--groups", groups),
        "data.name": ("--data", data[0] if data else None),
        "grid.data.name": ("--data", data or None),
        "method": ("--method", str(method[0]) if method else None),
        "grid.method": ("--method", list(map(str, method)) if method else None),
        "objectives": ("--objective", objective),
        "train.epochs": ("--epochs", epochs),
    }
    run_task(
        "transfer",
        recipe,
        recipe_options,
        run,
        write_predictions,
        tune=tune,
        save_model=save_model,
        metric=metric,
    )
