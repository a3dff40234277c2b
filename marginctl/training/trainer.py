"""The training loop of one trial: steps, epochs, evaluation; it stops and resumes at any step."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.data.images.base import ImageDataset
from marginctl.data.loading.batches import BatchLoader
from marginctl.data.loading.streaming import make_loader
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.objectives.schedules import rate_at
from marginctl.recipe import ImageRecipe
from marginctl.runs.run_dir import versions
from marginctl.training import checkpoint
from marginctl.training.classifier import Classifier, torch_seed
from marginctl.training.optimizer import build_optimizer
from marginctl.training.running_metrics import RunningMetrics
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

# What the state of another network raises, when a trainer takes it up.
MISMATCH_ERRORS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)


class DivergedError(Exception):
    """The loss is not finite. `str` says where and how."""


@dataclass(frozen=True)
class Predictions:
    """What a network makes of images, of the test part mostly, in float32 or wider on the CPU."""

    features: Tensor  # (N, d)
    logits: Tensor  # (N, C): scale x similarity, without margin
    similarities: Tensor  # (N, C)
    labels: Tensor  # (N,)


class Trainer:
    """One network and its objective in training.

    Args:
        recipe: of one trial: its grid is empty.
        spec: of the objective.
        images: what it is trained and tested on.
        seed: of weights, orders, augmentation and dropout, each by its own name.
        device_config: device, precision and memory format.
        world: the processes that train it together.
    """

    def __init__(
        self,
        recipe: ImageRecipe,
        spec: ObjectiveSpec,
        images: ImageDataset,
        seed: int,
        device_config: DeviceConfig,
        world: World | None = None,
    ) -> None:
        self.recipe, self.device_config, self._seed = recipe, device_config, seed
        self._world = world or World()
        self._network = Classifier(recipe, spec, images, seed, device_config, self._world)
        self.model, self.objective = self._network.model, self._network.objective
        self.optimizer = build_optimizer(recipe.optim, self._network.trained, self.model)
        self._scaler = torch.amp.GradScaler(
            device_config.device.type, enabled=device_config.precision == "fp16"
        )
        self.batches: BatchLoader = make_loader(
            *(images, device_config.device, seed, recipe.data.augment),
            channels_last=device_config.channels_last,
            world=self._world,
        )
        self._balanced = images.train_y if recipe.train.sampling == "class-balanced" else None
        self.batches.balance_classes(self._balanced)
        self._classes, self._pixels = images.classes, images.image_size
        self.sizes = self.batches.batch_sizes(recipe.train.batch_size)
        self.total = len(self.sizes) * recipe.train.epochs
        self.step = 0
        self.last_lr = self._rate()
        self._tally = RunningMetrics(self.objective, device_config.device, self._world)

    def load_backbone(
        self, backbone: Mapping[str, Tensor], moments: tuple[Sequence[float], Sequence[float]]
    ) -> None:
        """Takes a trained backbone, and the normalisation of its images; not its classifier.

        Raises:
            ValueError: it is another network.
        """
        checkpoint.check_shapes(self.model, backbone)
        self.model.load_state_dict(backbone)
        self.batches.set_normalization(*moments)

    def cache_frozen_features(self) -> bool:
        """Computes a frozen part once, where every epoch sees the same images; whether it does.

        See `Classifier.cached_batches`. Weights and normalisation have been loaded before.
        """
        maps = self._network.cached_batches(self.batches)
        if maps is not None:
            self.batches = maps
            self.batches.balance_classes(self._balanced)
        return maps is not None

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.step // len(self.sizes)

    def run_epoch(self, after_step: Callable[[], None]) -> dict[str, Any]:
        """Trains to the end of the epoch in which it stands; its record.

        Args:
            after_step: called after every step; what it raises leaves the trainer between steps.

        Raises:
            DivergedError: the loss is not finite.
        """
        epoch, first = divmod(self.step, len(self.sizes))
        if first == 0:
            self._tally.reset()
        self._network.train()
        for x, y in self.batches.train_batches(epoch, self.recipe.train.batch_size, first):
            self._train_on(x, y)
            self.step += 1
            # asking costs a wait for the device, or for the other processes
            cheap = self.device_config.device.type == "cpu" and self._world.size == 1
            if cheap or self.step % 20 == 0 or self._at_end:
                self._check_loss()
            after_step()
        return self._tally.record()

    @property
    def _at_end(self) -> bool:
        return self.step % len(self.sizes) == 0

    def _train_on(self, x: Tensor, y: Tensor) -> None:
        # dropout draws from torch's own stream: one for each step, so that a resumed run has it
        own = () if self._world.is_main_process else (self._world.rank,)
        torch.manual_seed(torch_seed(self._seed, "step", self.step, *own))
        lr = self._rate()
        self.last_lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("times", 1.0)
        self.objective.set_progress(self.step, self.total)
        self.optimizer.zero_grad(set_to_none=True)
        # the same number on every process, and no part of a single image
        size, whole = self._world.size, self.sizes[self.step % len(self.sizes)]
        number = max(1, min(self.recipe.train.grad_accum_steps, whole // size // 2))
        parts = list(zip(x.tensor_split(number), y.tensor_split(number), strict=True))
        # DDP takes the mean over the processes, whose parts of the batch may differ in size
        for i, (part, labels) in enumerate(parts, 1):
            with self._without_sync(i < len(parts)):
                loss, features = self._network.trained(part, labels)
                self._scaler.scale(loss * (len(labels) * size / whole)).backward()
            self._tally.add(loss.detach(), features.detach(), labels)
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def _rate(self) -> float:
        optim, steps = self.recipe.optim, len(self.sizes)
        if optim.lr_interval == "step":
            return rate_at(optim.lr, self.step, self.total)
        # the first epoch has the first value, the last epoch the last
        return rate_at(optim.lr, self.step // steps, max(1, self.recipe.train.epochs - 1))

    def _without_sync(self, wanted: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients of all but the last part of a batch stay in this process."""
        trained = self._network.trained
        if wanted and isinstance(trained, nn.parallel.DistributedDataParallel):
            return trained.no_sync()
        return contextlib.nullcontext()

    def _check_loss(self) -> None:
        if not self._tally.is_finite():
            raise DivergedError(f"the loss is not finite {self._where}")

    def check_finite(self) -> None:
        """Raises DivergedError where the loss or a weight is not finite, on every process."""
        self._check_loss()
        name = self._network.not_finite()
        if name is not None:
            raise DivergedError(f"'{name}' is not finite {self._where}")

    @property
    def _where(self) -> str:
        return f"at step {self.step} (epoch {(self.step - 1) // len(self.sizes) + 1})"

    @torch.no_grad()
    def predict(
        self, size: int = 1000, batches: BatchLoader | None = None, part: str | None = "test"
    ) -> "Predictions":
        """Runs the test images through the network, each once, in order.

        Args:
            size: images at once, at most.
            batches: of other images, whose test part is taken.
            part: what an error calls the images; None where their features need not be finite.

        Raises:
            DivergedError: a weight or a feature is not finite.
        """
        self.check_finite()
        self._network.share_buffers()
        self._network.eval()
        features_of = self._network.features_of_batch if batches is None else self.features
        parts, batches = [], batches or self.batches
        for x, y in batches.test_batches(size):
            features = features_of(x)
            scores = self.objective.similarities(features)
            parts.append((features, self.objective.scaled(scores, features), scores, y))
        own = [torch.cat(part).cpu() for part in zip(*parts, strict=True)]
        of_all = self._world.all_gather(own)
        found = Predictions(*(torch.cat(part) for part in zip(*of_all, strict=True)))
        if len(found.labels) != len(batches.test):
            raise AssertionError(
                f"{len(found.labels)} of {len(batches.test)} images were evaluated"
            )
        finite = bool(found.features.isfinite().all() and found.similarities.isfinite().all())
        if part is not None and not finite:
            raise DivergedError(f"a feature of a {part} image is not finite {self._where}")
        return found

    def features(self, x: Tensor) -> Tensor:
        """(B, d) in float32 of images (B, c, H, W), whatever the backbone computes in."""
        return self._network.features(x)

    def state(self) -> dict[str, Any]:
        """All that training goes on from; every process has a part in it.

        Raises:
            DivergedError: the loss or a weight is not finite: nothing to go on from.
        """
        self.check_finite()
        self._network.share_buffers()
        return {
            "step": self.step,
            "steps": len(self.sizes),
            "processes": self._world.size,
            "versions": versions(),
            "normalization": [list(self.batches.mean), list(self.batches.std)],
            "classes": list(self._classes),
            "pixels": self._pixels,
            "sums": self._tally.state(),
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes up what `state` gave.

        Raises:
            ValueError: it was written by another number of processes, which see other batches, or
                it is of another network.
        """
        if (state["processes"], state["steps"]) != (self._world.size, len(self.sizes)):
            raise ValueError(
                f"was written by {state['processes']} processes with {state['steps']} steps an "
                f"epoch, and these are {self._world.size} with {len(self.sizes)}"
            )
        if state["step"] > self.total:
            raise ValueError(f"is at step {state['step']} of {self.total}")
        self.load_weights(state)
        self.optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self._tally.load(state["sums"])

    def load_weights(self, state: dict[str, Any]) -> None:
        """Takes the network alone, with the normalisation of its images: to evaluate it.

        Raises:
            ValueError: it is another network.
        """
        for module, kind in ((self.model, "model"), (self.objective, "objective")):
            checkpoint.check_shapes(module, state[kind])
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.batches.set_normalization(*state["normalization"])
        self.step = state["step"]

    def weights_digest(self) -> str:
        return checkpoint.weights_digest(self.model.state_dict(), self.objective.state_dict())
