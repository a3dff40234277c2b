"""How kappa* grows with the number of classes, on one data set.

    python -m tests.training.kappa_by_classes CLASSES... [--data NAME] [--images N] [--seeds N]

Prints one JSON document. Two ways: a network is trained on the first C classes, with as many
training images in total for each C (`trained`); and a network of all classes is measured against
C of its class weights, those of a sample's own class and of C - 1 others (`same_features`).
"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from marginctl.data.images.image_sets import load_image_set
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.subsets import subsample
from marginctl.metrics.accuracy import top_k_accuracy
from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse
from marginctl.training.trainer import Predictions, Trainer
from tests.training import factories

LARGEST = 1000  # test images whose kappa* is measured against fewer class weights


def first_classes(images: InMemoryImages, count: int) -> InMemoryImages:
    """The images of the first classes."""
    test = images.test_y < count
    few = replace(images, test=images.test.select(np.flatnonzero(test)))
    few = replace(few, classes=images.classes[:count])
    return few.select(np.flatnonzero(images.train_y < count))


def trained(images: InMemoryImages, seed: int, epochs: int) -> tuple[Objective, Predictions]:
    """A small CNN trained with kappa*, and its predictions of the test images."""
    recipe = factories.recipe(
        model="mnist-cnn:feature_dim=64",
        optim={"optimizer": "adam", "lr": "one-cycle(max_lr=0.005)", "weight_decay": 0},
        train={"epochs": epochs, "batch_size": 64},
    )
    trainer = Trainer(recipe, parse("cosine-ls").spec, images, seed, factories.CPU)
    factories.run(trainer)
    return trainer.objective, trainer.predict()


@torch.no_grad()
def against_fewer(objective: Objective, predictions: Predictions, count: int) -> float:
    """The mean kappa* against the weights of each sample's class and of random others."""
    features, y = predictions.features[:LARGEST], predictions.labels[:LARGEST]
    order = torch.rand(len(y), objective.num_classes, generator=torch.Generator().manual_seed(0))
    chosen = order.scatter(1, y[:, None], -1).argsort(1)[:, :count]
    weights = objective.weight[chosen]
    kappa = objective.function.optimal_scale(features[:, None], weights)
    return kappa.mean().item()


def measure(images: InMemoryImages, counts, seeds, epochs=10, total=None):
    """The mean kappa* by the number of classes, a value for each seed, in both ways."""
    found = {"trained": {}, "accuracy": {}, "same_features": {}}
    for count in counts:
        few = first_classes(images, count)
        for seed in range(seeds):
            part = few if total is None else subsample(few, size=total, seed=seed)
            objective, tested = trained(part, seed, epochs)
            kappa = objective.optimal_scale(tested.features).mean().item()
            accuracy = top_k_accuracy(tested.similarities.numpy(), tested.labels.numpy(), 1)
            found["trained"].setdefault(count, []).append(kappa)
            found["accuracy"].setdefault(count, []).append(100 * accuracy)
            if count == max(counts):
                for fewer in counts:
                    value = against_fewer(objective, tested, fewer)
                    found["same_features"].setdefault(fewer, []).append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("classes", type=int, nargs="+")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    folder = Path(os.environ.get("MARGINCTL_DATA", "."))
    images = load_image_set(options.data, folder, 64, stream=False)
    print(json.dumps(measure(images, options.classes, options.seeds, total=options.images)))


if __name__ == "__main__":
    main()
