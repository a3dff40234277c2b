"""Evaluates a trained network: what `marginctl eval` computes."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from marginctl.data.images import Images
from marginctl.errors import RequestError
from marginctl.evaluation import accuracy, angles, calibration
from marginctl.objectives.names import parse
from marginctl.recipe import TrainRecipe
from marginctl.recipe.train import ImageData
from marginctl.runs.store import parse_run
from marginctl.training import checkpoint
from marginctl.training.loop import DivergedError, Trainer, setup
from marginctl.training.record import is_run
from marginctl.training.session import images_of


def evaluate(
    path: Path, data: str | None, which: str, data_dir: Path, device: str, bins: int
) -> dict[str, Any]:
    """Evaluates a run's folder or a checkpoint in one: the document of `eval --json`.

    Args:
        path: the folder of a trial, or a checkpoint file in its `checkpoints`.
        data: other images than those that it was trained with, or None.
        which: `last` or `best`, for a folder.
        data_dir: where the images are.
        device: a torch device.
        bins: of the calibration.

    Raises:
        RequestError: no run or checkpoint, a damaged one, or images that do not fit the network.
    """
    folder, file, state = _located(path.absolute(), which)
    run = _run_of(folder)
    recipe = TrainRecipe.model_validate(
        {key: value for key, value in run["recipe"].items() if key != "name"}
    )
    # of other images the test part alone is used, as it is
    own = recipe.data if data is None else ImageData(name=data, pixels=recipe.data.pixels)
    images = images_of(own, data_dir)
    if data is None and images.digest != run["data"]:
        raise RequestError(
            f"{folder}: was trained on other content of {own.name} than there is now: name the "
            "folder that has it with --data-dir, or say --data to evaluate on this one"
        )
    _check_fit(state, images, file)
    how = setup(device, recipe.train.precision)
    spec = parse(str(run["objective"])).spec
    trainer = Trainer(recipe, spec, images, int(run["seed"]), how)
    try:
        trainer.load_weights(state)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        if data is not None:
            shape = f"{images.channels} x {images.pixels} x {images.pixels}"
            raise RequestError(
                f"{file}: {recipe.model} does not take the images of {data} ({shape}): evaluate it "
                f"on images as those of {recipe.data.name}"
            ) from None
        raise RequestError(
            f"{file}: holds another network than {recipe.model} with {run['objective']}, which "
            f"{folder / 'run.json'} says: train it again"
        ) from None
    try:
        tested = trainer.tested()
    except DivergedError as error:
        raise RequestError(f"{file}: {error}: there is nothing to evaluate") from None
    logits, labels = tested.logits.double().numpy(), tested.labels.numpy()
    scores = tested.similarities.double().numpy()
    classes = images.num_classes
    predicted = scores.argmax(1)
    right, n = int((predicted == labels).sum()), len(labels)
    document: dict[str, Any] = {
        "schema": 1,
        "command": "eval",
        "run": str(folder),
        "checkpoint": file.name,
        "step": int(state["step"]),
        "data": own.name,
        "model": recipe.model,
        "objective": str(run["objective"]),
        "n": n,
        "top1": 100 * right / n,
        "top1_interval": [100 * end for end in accuracy.interval(right, n)],
        "top5": 100 * accuracy.top_k(scores, labels, 5) if classes > 5 else None,
        "rho": None,
        "nll": None,
        "brier": None,
        "calibration": None,
        "angles": None,
        "reasons": {},
    }
    if list(images.classes) != state["classes"]:
        document["reasons"]["per_class"] = "the classes have other names: compared by their number"
    if classes <= 5:
        document["reasons"]["top5"] = f"{classes} classes"
    if np.isfinite(logits).all():
        probabilities = calibration.softmax(logits)
        document["nll"] = calibration.nll(logits, labels)
        document["brier"] = calibration.brier(probabilities, labels)
        document["calibration"] = calibration.reliability(probabilities, labels, bins).as_json()
        document["rho"] = angles.mean_bias(logits, labels)
    else:
        for key in ("nll", "brier", "calibration", "rho"):
            document["reasons"][key] = "logits are not finite"
    if parse(str(run["objective"])).spec.similarity.kind == "gaussian":
        document["reasons"]["angles"] = "a gaussian similarity has means, no directions"
    else:
        weight = trainer.objective.weight.detach().cpu().double().numpy()
        document["angles"] = angles.measure(
            tested.features.double().numpy(), labels, weight
        ).as_json()
    document["per_class"] = [
        {"name": images.classes[row["class"]], **row}
        for row in accuracy.per_class(labels, predicted, classes)
    ]
    document["confusion"] = accuracy.confusion(labels, predicted, classes).tolist()
    return document


def _located(path: Path, which: str) -> tuple[Path, Path, dict[str, Any]]:
    """The trial's folder, the checkpoint and what it holds."""
    if path.is_file() and path.parent.name == checkpoint.FOLDER:
        return path.parent.parent, path, checkpoint.load(path)
    if not path.is_dir():
        raise RequestError(
            f"{path}: expected the folder of a trial of marginctl train, or a checkpoint in it"
        )
    kind = checkpoint.LAST if which == "last" else checkpoint.BEST
    found, problems = checkpoint.last_good(path, kind)
    if found is None:
        raise RequestError(
            *problems,
            f"{path}: has no whole checkpoint: expected a trial that has been trained; without "
            "that folder, marginctl train trains it anew",
        )
    return path, *found


def _run_of(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        run = parse_run(path.read_text("utf-8"), (is_run,))
    except (OSError, UnicodeDecodeError):
        run = None
    if run is None:
        raise RequestError(f"{path}: is missing, damaged or not of marginctl train")
    return run


def _check_fit(state: dict[str, Any], images: Images, file: Path) -> None:
    weight = state["objective"].get("weight")
    found = len(weight) if isinstance(weight, Tensor) and weight.dim() else None
    if found != images.num_classes:
        raise RequestError(
            f"{file}: was trained for {found} classes, and {images.name} has {images.num_classes}: "
            "evaluate it on data with as many"
        )


def as_text(document: dict[str, Any]) -> list[str]:
    """The numbers for a reader, a line each."""
    low, high = document["top1_interval"]
    lines = [
        f"{document['model']} with {document['objective']} on {document['data']} "
        f"({document['checkpoint']}, step {document['step']})",
        f"top-1     {document['top1']:.2f} %  (95 %: {low:.2f} to {high:.2f}, Wilson, "
        f"n = {document['n']})",
    ]
    if document["top5"] is not None:
        lines.append(f"top-5     {document['top5']:.2f} %")
    if document["nll"] is not None:
        found = document["calibration"]
        lines += [
            f"NLL       {document['nll']:.4f}",
            f"Brier     {document['brier']:.4f}",
            f"ECE, MCE  {100 * found['ece']:.2f} %, {100 * found['mce']:.2f} %  "
            f"({found['bins']} bins)",
            f"mean bias rho  {document['rho']:.4f}",
        ]
    if document["angles"] is not None:
        found = document["angles"]
        shown = {
            "W-Inter": found["w_inter"],
            "C-Inter (centers)": found["c_inter_centers"],
            "C-Inter (centers and weights)": found["c_inter_weights"],
            "WC-Intra": found["wc_intra"],
            "to the own weight": found["intra_weight"],
            "to the own center": found["intra_center"],
        }
        said = [f"{name} {v:.2f}" for name, v in shown.items() if v is not None]
        lines.append("angles in degrees: " + ", ".join(said))
    rows = sorted(
        (r for r in document["per_class"] if r["accuracy"] is not None),
        key=lambda r: (r["accuracy"], r["class"]),
    )
    worst = ", ".join(f"{r['name']} {100 * r['accuracy']:.1f} % of {r['n']}" for r in rows[:5])
    lines.append(f"lowest classes: {worst}")
    lines += [f"{key}: {why}" for key, why in document["reasons"].items()]
    return lines
