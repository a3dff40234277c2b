"""What a transfer will take: features are timed on a few images, fine-tuning as training is."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marginctl.experiments.estimate import plan
from marginctl.experiments.transfer_trial import TransferTrial
from marginctl.transfer import cached_features
from marginctl.utils.precision import device_config_for

if TYPE_CHECKING:
    from marginctl.experiments.transfer_session import TransferSession


def planned(session: "TransferSession") -> dict[str, Any]:
    """The document of `transfer --dry-run`, as `training.cost.plan` has it of fine-tuning.

    Of a probe the time is that of its features, where none are kept: a few images are timed. Those
    of one network and image set are made once; the fit that follows is not counted.
    """
    trials = [t for t in session.trials if isinstance(t, TransferTrial)]
    probes = [t for t in trials if t.transfer.method == "probe"]
    document = plan(replace(session, trials=[t for t in trials if t not in probes]))
    made: set[tuple[str, str]] = set()
    todo = [t for t in probes if session.find(t).result is None]
    for trial in todo:
        images, key = session.images[trial.data], (trial.origin.weights, trial.data)
        count = len(images.train_y) + len(images.test_y)
        kept = key in made or cached_features.are_cached(trial.origin, images, session.store)
        seconds = 0.0
        if not kept:
            device_config = device_config_for(session.device, "fp32")
            seconds = count * cached_features.seconds_per_image(trial.origin, images, device_config)
        made.add(key)
        row = {"trial": str(trial), "images": count, "features_kept": kept, "seconds": seconds}
        document["rows"].append(row)
        document["seconds"] += seconds
    return document | {
        "trials": len(trials),
        "done": document["done"] + len(probes) - len(todo),
        "to_do": document["to_do"] + len(todo),
        "not_counted": document["not_counted"] + ["the fit of a probe"] * bool(todo),
    }
