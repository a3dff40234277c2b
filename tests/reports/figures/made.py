"""Tables of runs with known numbers, on the disk as `train` leaves them."""

import json
from pathlib import Path

from marginctl.results.collect import Run, Trained


def line(epoch, top1, **more):
    return {"epoch": epoch, "train": {"loss": 100 - top1}, "test": {"top1": top1}, **more}


def run(folder, objective, seed, lines, *, setting=None, objectives=None, **record):
    """A finished run: `lines` of its metrics, `record` more of its result."""
    setting = setting or {}
    path = Path(folder) / f"{objective}-{seed}-{'-'.join(map(str, setting.values()))}"
    path.mkdir(parents=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    said = "".join(f", {key.partition('.')[2]}={value}" for key, value in setting.items())
    about = {
        "recipe": {
            "data": {"name": "digits"},
            "model": "mlp",
            "objectives": objectives or [objective],
        }
    }
    result = {
        "row": f"digits, mlp{said}",
        "setting": setting,
        "objective": objective,
        "seed": seed,
        "diverged": None,
        "last": {"epoch": lines[-1]["epoch"], **(lines[-1].get("test") or {})},
        **record,
    }
    return Run(path, about, result)


def table(*runs):
    places = {(r.record["row"], r.record["objective"], r.record["seed"]): r for r in runs}
    return Trained("made", "arcgrad", "VII", {"data": {}, "optim": {}, "train": {}}, places)


def kappa_run(folder, classes, seed, mean, *quantiles, objective="cosine-ls", **more):
    """A run with kappa*: `quantiles` of 5, 25, 50, 75 and 95 % of the images."""
    names = ("0.05", "0.25", "0.5", "0.75", "0.95")
    optimal = {"mean": mean, "quantiles": dict(zip(names, quantiles or [mean] * 5, strict=True))}
    more = {"evaluation": {"angles": {"classes": classes}}, **more}
    return run(folder, objective, seed, [line(1, 50)], state={"optimal_scale": optimal}, **more)


def calibration(*bins, ece=0.25):
    """evaluation.calibration with bins (count, confidence, accuracy) of equal width."""
    edges = [i / len(bins) for i in range(len(bins) + 1)]
    written = [
        {"lo": lo, "hi": hi, "count": n, "confidence": conf, "accuracy": acc}
        for lo, hi, (n, conf, acc) in zip(edges[:-1], edges[1:], bins, strict=True)
    ]
    return {"calibration": {"ece": ece, "reliability": written}, "angles": None}
