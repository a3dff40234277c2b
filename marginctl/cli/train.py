"""marginctl train."""

from typing import Annotated

from marginctl.cli import common_options, completion, training_options
from marginctl.cli.common_options import flag, option, refuse
from marginctl.cli.training_options import RunOptions, run_task, with_run_options


@with_run_options
def command(
    run: RunOptions,
    recipe: training_options.Recipe = None,
    data: training_options.Data = None,
    groups: training_options.Groups = None,
    model: Annotated[
        str | None, option("NAME", "Backbone: NAME:option=value,...", complete=completion.model)
    ] = None,
    pretrained: Annotated[
        bool, flag("--pretrained", "Start from the model's published weights.")
    ] = False,
    weights: Annotated[
        str | None,
        option("FILE", "Start from a state dict, or from published weights by their name."),
    ] = None,
    objective: common_options.Objectives = None,
    ood: common_options.Ood = None,
    pairs: common_options.Pairs = None,
    epochs: training_options.Epochs = None,
    tune: training_options.Tune = None,
    metric: common_options.Metric = "accuracy",
    save_model: training_options.SaveModel = None,
) -> None:
    """Train objectives on images, by a recipe or by options alone.

    Prints the test accuracy of the last and of the best epoch over the seeds. The runs folder keeps
    finished trials and checkpoints: the same command again resumes.
    """
    if pretrained:
        refuse({"--weights": weights}, "cannot be combined with --pretrained: remove one of them")
    remarks = []
    if not (recipe or data or model or objective or run.set_):
        remarks = ["defaults: --data digits --model resnet18 --objective soft"]
    recipe_options = {
        "data.groups": ("--groups", groups),
        "data.name": ("--data", data),
        "model": ("--model", model),
        "weights": ("--pretrained", "pretrained") if pretrained else ("--weights", weights),
        "objectives": ("--objective", objective),
        "ood": ("--ood", ood),
        "pairs": ("--pairs", pairs),
        "train.epochs": ("--epochs", epochs),
    }
    run_task(
        "train",
        recipe,
        recipe_options,
        run,
        tune=tune,
        save_model=save_model,
        metric=metric,
        remarks=remarks,
    )
