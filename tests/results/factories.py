"""Runs and results with chosen fields, and defaults for the others."""

from pathlib import Path

from marginctl.experiments.records import (
    CVInfo,
    CVResult,
    TrainingInfo,
    TrainingResult,
    TransferResult,
)
from marginctl.recipe.train import TrainRecipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.results.load_run import Run


def cv_result(dataset="iris", objective="soft", accuracies=((50.0, 60.0), (70.0, 80.0)), **fields):
    """Return the result of a cross-validation with 5 test rows in each fold."""
    document = {
        "trial": f"{dataset}-{objective}-{fields.get('seed', 0)}",
        "dataset": dataset,
        "objective": objective,
        "seed": 0,
        "classes": 3,
        "accuracies": [[float(a) for a in repeat] for repeat in accuracies],
        "tested": [[5] * len(repeat) for repeat in accuracies],
        "rows": 5 * len(accuracies[0]),
        "split": "folds",
        "diverged": [],
        "collapsed": [],
        "timing": {"seconds": 1.5},
        **fields,
    }
    return CVResult.model_validate(document)


def training_result(result_class=TrainingResult, **fields):
    """Return the result of a training; `last` and `best` may have an accuracy only."""
    document = {
        "task": "train",
        "trial": "trial",
        "row": "digits, mlp",
        "setting": {},
        "data": "digits",
        "model": "mlp",
        "objective": "soft",
        "seed": 0,
        "epochs": 1,
        "diverged": None,
        "collapsed": False,
        "timing": {"seconds": 1.0},
        "last": {"epoch": 1, "top1": 50.0},
        **fields,
    }
    document.setdefault("best", document["last"])
    if document["last"] is None and document["diverged"] is None:
        document["diverged"] = "step 1"
    return result_class.model_validate(document)


def transfer_result(**fields):
    """Return the result of a linear probe."""
    source = {"path": "runs/x", "weights_sha256": "0" * 64, "row": "digits, mlp"}
    source |= {"objective": "soft", "seed": 0, **fields.pop("source_model", {})}
    defaults = {"method": "probe", "probe": None, "objective": "soft:bias=true"}
    return training_result(
        TransferResult, **{"task": "transfer", **defaults, **fields, "source_model": source}
    )


def cv_run(path, result, recipe_object=None, recipe_name="arcgrad/table1", **info):
    """Return the run of a result of cross-validation."""
    default = {"task": "uci-cv", "objectives": ["soft"]}
    recipe = recipe_object or UciCvRecipe.model_validate(default)
    document = _info(result, recipe, recipe_name, {"dataset": result.dataset, **info})
    return Run(Path(path), CVInfo.model_validate(document), result, recipe)


def training_run(path, result, recipe=None, recipe_name="mine", **info):
    """Return the run of a result of training."""
    recipe = recipe or TrainRecipe.model_validate(
        {"task": "train", "data": {"name": "digits"}, "model": "mlp", "objectives": ["soft"]}
    )
    document = _info(result, recipe, recipe_name, {"task": result.task, **info})
    return Run(Path(path), TrainingInfo.model_validate(document), result, recipe)


def _info(result, recipe, recipe_name, fields):
    return {
        "trial": result.trial,
        "data": "0" * 64,
        "objective": result.objective,
        "seed": result.seed,
        "numerics": 1,
        "recipe": {"name": recipe_name, **recipe.model_dump(mode="json", exclude={"about"})},
        "git_commit": None,
        "timing": {"started": "2026-11-28T06:35:33+00:00"},
        **fields,
    }
