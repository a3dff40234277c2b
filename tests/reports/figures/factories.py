"""TrainingRuns runs with known numbers, on the disk as `train` leaves them."""

import json
from pathlib import Path

from marginctl.recipe.train import TrainRecipe
from marginctl.reports.figures.seed_groups import seed_tables
from marginctl.results.collect import TrainingRuns
from tests.results.factories import training_result, training_run


def record(epoch, top1, **more):
    """Return a record of metrics.jsonl."""
    return {"epoch": epoch, "train": {"loss": 100 - top1}, "test": {"top1": top1}, **more}


def run(folder, objective, seed, records, *, setting=None, objectives=None, **result):
    """Return a finished run with `records` of its epochs and more keys of its `result`."""
    setting = setting or {}
    path = Path(folder) / f"{objective}-{seed}-{'-'.join(map(str, setting.values()))}"
    path.mkdir(parents=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    changes = "".join(f", {key.partition('.')[2]}={value}" for key, value in setting.items())
    recipe = {"task": "train", "data": {"name": "digits"}, "model": "mlp"}
    fields = {
        "row": f"digits, mlp{changes}",
        "setting": setting,
        "objective": objective,
        "seed": seed,
        "last": {"epoch": records[-1]["epoch"], **(records[-1].get("test") or {"top1": 0.0})},
        **result,
    }
    if fields["last"] is not None:
        fields["last"]["top1"] = min(100.0, fields["last"]["top1"])
    made_with = TrainRecipe.model_validate({**recipe, "objectives": objectives or [objective]})
    return training_run(path, training_result(**fields), made_with)


def trained_table(*runs):
    """Return the runs as `collect` finds them."""
    by_place = {(r.result.row, r.result.objective, r.result.seed): r for r in runs}
    return TrainingRuns(
        "made", "arcgrad", "VII", {"data": {}, "optim": {}, "train": {}}, runs=by_place
    )


def seed_table(*runs):
    """Return the runs as the figures take them."""
    return seed_tables([trained_table(*runs)])[0]


def kappa_run(folder, classes, seed, mean, *quantiles, objective="cosine-ls", **more):
    """Return a run with kappa* and its quantiles of 5, 25, 50, 75 and 95 % of the images."""
    names = ("0.05", "0.25", "0.5", "0.75", "0.95")
    optimal = {"mean": mean, "quantiles": dict(zip(names, quantiles or [mean] * 5, strict=True))}
    more = {"evaluation": {"angles": {"classes": classes}}, **more}
    records = [record(1, 50)]
    return run(folder, objective, seed, records, state={"optimal_scale": optimal}, **more)


def calibration(*bins, ece=0.25):
    """Return evaluation.calibration with bins (count, confidence, accuracy) of equal width."""
    edges = [i / len(bins) for i in range(len(bins) + 1)]
    written = [
        {"lo": lo, "hi": hi, "count": n, "confidence": conf, "accuracy": acc}
        for lo, hi, (n, conf, acc) in zip(edges[:-1], edges[1:], bins, strict=True)
    ]
    return {"calibration": {"ece": ece, "reliability": written}, "angles": None}
