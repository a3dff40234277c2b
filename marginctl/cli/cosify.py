"""marginctl cosify."""

from typing import Annotated

from marginctl.cli import common_options, training_options
from marginctl.cli.common_options import option
from marginctl.cli.training_options import RunOptions, run_task, with_run_options


@with_run_options
def command(
    run: RunOptions,
    recipe: training_options.Recipe = None,
    source_model: Annotated[
        str | None,
        option(
            "MODEL",
            "Source model: a run directory, a checkpoint in it, or weights such as "
            "ResNet50_Weights.IMAGENET1K_V1, timm/NAME.TAG, efficientnet-lite0 or resnet50=FILE.",
            name="--from",
        ),
    ] = None,
    data: training_options.Data = None,
    blocks: Annotated[
        list[str] | None,
        option("BLOCKS", "Blocks to fine-tune: 1-4, 2-4, 3-4, 4, or head for none; repeatable."),
    ] = None,
    objective: common_options.Objectives = None,
    ood: common_options.Ood = None,
    epochs: training_options.Epochs = None,
) -> None:
    """Turn a softmax network into a cosine one: a new classifier, and some blocks fine-tuned.

    Replaces the classifier of the source model by one of the objective. Other blocks are frozen:
    weights, batch normalisation statistics and dropout. Prints accuracy, kappa* and detection
    before and after. The runs folder keeps finished trials and checkpoints: the same command again
    resumes.
    """
    recipe_options = {
        "source_model": ("--from", source_model),
        "data.name": ("--data", data),
        "grid.blocks": ("--blocks", blocks or None),
        "objectives": ("--objective", objective),
        "ood": ("--ood", ood),
        "train.epochs": ("--epochs", epochs),
    }
    run_task("cosify", recipe, recipe_options, run)
