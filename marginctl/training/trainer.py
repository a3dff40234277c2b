"""The training loop of one trial: steps, epochs and evaluation, resumable after any step."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading.loader import BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.metrics.detection import Outputs
from marginctl.models.state_dicts import check_shapes
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.objectives.schedules import rate_at, rate_in_epoch
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.runs.run_dir import versions
from marginctl.training import checkpoint
from marginctl.training.classifier import Classifier, seed_torch
from marginctl.training.graphed_step import GraphedStep
from marginctl.training.optimizer import build_optimizer
from marginctl.training.running_metrics import RunningMetrics
from marginctl.utils.device import to_host
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

# Errors of loading the state of another network.
MISMATCH_ERRORS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
CHECK_INTERVAL = 20  # steps between checks of the loss, where a check waits for the device
EVALUATION_BATCH = 1000
EVALUATION_BYTES = 2**30  # of a layer's outputs for a batch of an evaluation on an accelerator


class DivergedError(Exception):
    """The loss, a weight or a feature is not finite; the message says where."""


@dataclass(frozen=True)
class Predictions:
    """The outputs of a network for N images, in float32 or wider on the CPU."""

    features: Tensor  # (N, d)
    logits: Tensor  # (N, C): scale x similarity, without margin
    similarities: Tensor  # (N, C)
    labels: Tensor  # (N,)

    @property
    def outputs(self) -> Outputs:
        """The outputs as the metrics take them, in float64."""
        tensors = (self.features, self.logits, self.similarities)
        return Outputs(*(tensor.double().numpy() for tensor in tensors))


class Trainer:
    """Trains one network and its objective.

    Args:
        seed: of weights, order, augmentation and dropout, each with its own stream.
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
        self._classifier = Classifier(recipe, spec, images, seed, device_config, self._world)
        self.model, self.objective = self._classifier.model, self._classifier.objective
        self.features = self._classifier.features
        # the loss scaler of fp16 would wait for another optimizer in every step
        fused = recipe.train.gpu_fast_path or device_config.precision == "fp16"
        self.optimizer = build_optimizer(
            recipe.optim, self._classifier.module, self.model, fused=fused
        )
        self._scaler = torch.amp.GradScaler(
            device_config.device.type, enabled=device_config.precision == "fp16"
        )
        self.batches: BatchLoader = make_loader(
            images, device_config, seed, recipe.data.augment, self._world
        )
        self._balanced = images.train_y if recipe.train.sampling == "class-balanced" else None
        self.batches.balance_classes(self._balanced)
        self._classes, self._image_size = images.classes, images.image_size
        self._image_shape = (images.channels, images.image_size, images.image_size)
        self.batch_sizes = self.batches.batch_sizes(recipe.train.batch_size)
        self._graphed: GraphedStep | None = None
        # there are no training images where a trained network is evaluated on others
        self.total_steps = max(1, len(self.batch_sizes)) * recipe.train.epochs
        self.step = 0
        self.last_lr = self._learning_rate()
        self._running = RunningMetrics(self.objective, device_config.device, self._world)
        # a check waits for the device, or for the other processes
        is_cheap = device_config.device.type == "cpu" and self._world.size == 1
        self._check_interval = 1 if is_cheap else CHECK_INTERVAL

    def load_backbone(
        self, backbone: Mapping[str, Tensor], moments: tuple[Sequence[float], Sequence[float]]
    ) -> None:
        """Load a pretrained backbone and the normalization of its images, not its classifier."""
        check_shapes(self.model, backbone)
        self.model.load_state_dict(backbone)
        if moments[0]:
            self.batches.set_normalization(*moments)

    def cache_frozen_features(self) -> bool:
        """Compute the frozen part of the network once, if possible; return whether it was.

        `Classifier.cache_frozen_features` has the conditions. Load weights and normalization
        first.
        """
        cached = self._classifier.cache_frozen_features(self.batches)
        if cached is not None:
            self.batches = cached
            self.batches.balance_classes(self._balanced)
        return cached is not None

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.step // len(self.batch_sizes)

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last step finished an epoch."""
        return self.step % len(self.batch_sizes) == 0

    def run_epoch(self, after_step: Callable[[], None]) -> dict[str, Any]:
        """Train to the end of the current epoch; return its training metrics."""
        for _ in self.steps():
            after_step()
        return self._running.compute()

    def steps(self) -> Iterator[None]:
        """Train to the end of the current epoch; yield after every step.

        Raises:
            DivergedError: the loss is not finite.
        """
        epoch, first = divmod(self.step, len(self.batch_sizes))
        if first == 0:
            self._running.reset()
        self._classifier.train()
        for x, y in self.batches.train_batches(epoch, self.recipe.train.batch_size, first):
            self._train_step(x, y)
            self.step += 1
            is_due = self.step % self._check_interval == 0 or self.at_epoch_end
            if is_due and not math.isfinite(self._running.total_loss().item()):
                raise DivergedError(f"the loss is not finite {self._position}")
            yield

    def _train_step(self, x: Tensor, y: Tensor) -> None:
        # dropout draws from torch's own stream; one seed per step makes a resumed run identical
        rank = () if self._world.is_main_process else (self._world.rank,)
        seed_torch(self.device_config.device, self._seed, "step", self.step, *rank)
        self.last_lr = lr = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_factor", 1.0)
        self.objective.set_progress(self.step, self.total_steps)
        self.optimizer.zero_grad(set_to_none=True)
        if self.recipe.train.cuda_graphs:
            if self._graphed is None:
                batch_size = self.batch_sizes[0]
                self._graphed = GraphedStep(self._classifier.module, self.objective, batch_size)
            self._graphed(self._add_gradients, x, y)
        else:
            self._add_gradients(x, y)
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def _add_gradients(self, x: Tensor, y: Tensor) -> None:
        """Compute the gradients of a batch, in parts, and add it to the running metrics."""
        # the same number of parts on every process, and no part with a single image
        world_size = self._world.size
        batch_size = self.batch_sizes[self.step % len(self.batch_sizes)]
        num_parts = max(1, min(self.recipe.train.grad_accum_steps, batch_size // world_size // 2))
        parts = list(zip(x.tensor_split(num_parts), y.tensor_split(num_parts), strict=True))
        # DDP takes the mean over the processes, whose parts of the batch may differ in size
        module = self._classifier.module
        no_sync = getattr(module, "no_sync", contextlib.nullcontext)  # of several processes
        for i, (images, labels) in enumerate(parts, 1):
            # the gradients of all but the last part of a batch stay in this process
            with no_sync() if i < len(parts) else contextlib.nullcontext():
                loss, features = module(images, labels)
                self._scaler.scale(loss * (len(labels) * world_size / batch_size)).backward()
            self._running.update(loss.detach(), features.detach(), labels)

    def _learning_rate(self) -> float:
        optim, steps = self.recipe.optim, max(1, len(self.batch_sizes))
        if optim.lr_interval == "step":
            return rate_at(optim.lr, self.step, self.total_steps)
        return rate_in_epoch(optim.lr, self.step // steps, self.recipe.train.epochs)

    def check_finite(self) -> None:
        """Check the loss and the weights, on every process; wait for the device once."""
        tensors = [("the loss", self._running.total_loss())]
        tensors += [
            (f"'{name}'", value.detach())
            for module in (self.model, self.objective)
            for name, value in (*module.named_parameters(), *module.named_buffers())
            if value.is_floating_point()
        ]
        finite = torch.stack([value.isfinite().all() for _, value in tensors]).tolist()
        if not all(finite):
            raise DivergedError(f"{tensors[finite.index(False)][0]} is not finite {self._position}")

    @property
    def _position(self) -> str:
        return f"at step {self.step} (epoch {(self.step - 1) // len(self.batch_sizes) + 1})"

    @torch.no_grad()
    def predict(
        self, batches: BatchLoader | None = None, split: str | None = "test"
    ) -> Predictions:
        """Return the network's outputs for the test images, in order.

        Args:
            batches: loader of other images, whose test part is evaluated.
            split: name of the images in errors; None where features need not be finite.
        """
        self.check_finite()
        self._classifier.broadcast_buffers()
        self._classifier.train(False)
        compute = self._classifier.batch_features if batches is None else self.features
        outputs, batches = [], batches or self.batches
        for x, y in batches.test_batches(self.evaluation_batch):
            features = compute(x)
            scores = self.objective.similarities(features)
            outputs.append(
                (features, self.objective.scale_similarities(scores, features), scores, y)
            )
        local = to_host(torch.cat(tensors) for tensors in zip(*outputs, strict=True))
        predictions = Predictions(*map(self._world.all_gather_rows, local))
        n, expected = len(predictions.labels), len(batches.test)
        if n != expected:
            raise AssertionError(f"{n} of {expected} images were evaluated")
        finite = predictions.features.isfinite().all() and predictions.similarities.isfinite().all()
        if split is not None and not bool(finite):
            raise DivergedError(f"a feature of a {split} image is not finite {self._position}")
        return predictions

    @cached_property
    def evaluation_batch(self) -> int:
        """The images of an evaluation's batch; on the CPU, the bits of an output depend on it."""
        if self.device_config.device.type == "cpu":
            return EVALUATION_BATCH
        fitting = EVALUATION_BYTES // self._classifier.activation_bytes(self._image_shape)
        return min(EVALUATION_BATCH, max(1, fitting))

    def state_dict(self) -> dict[str, Any]:
        """Return all that training resumes from; every process must call it.

        Raises:
            DivergedError: the loss or a weight is not finite, so that resuming is pointless.
        """
        self.check_finite()
        return self._network_state() | {
            "running_metrics": self._running.state(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def network_snapshot(self) -> dict[str, Any]:
        """Return the network for evaluation, as copies on the CPU; every process must call it."""
        state = self._network_state()
        modules = state["model"], state["objective"]
        copies = iter(to_host((t for tensors in modules for t in tensors.values()), copy=True))
        model, objective = ({name: next(copies) for name in tensors} for tensors in modules)
        return state | {"model": model, "objective": objective}

    def _network_state(self) -> dict[str, Any]:
        self._classifier.broadcast_buffers()
        return {
            "step": self.step,
            "steps_per_epoch": len(self.batch_sizes),
            "world_size": self._world.size,
            "device": self.device_config.device.type,
            "precision": self.device_config.precision,
            "versions": versions(),
            "normalization": [list(self.batches.mean), list(self.batches.std)],
            "classes": list(self._classes),
            "image_size": self._image_size,
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: it is of another network, or of another number of processes, which see
                other batches.
        """
        steps, world_size = len(self.batch_sizes), self._world.size
        if (state["world_size"], state["steps_per_epoch"]) != (world_size, steps):
            raise ValueError(
                f"was written by {state['world_size']} processes with {state['steps_per_epoch']} "
                f"steps per epoch: expected {world_size} with {steps}"
            )
        if state["step"] > self.total_steps:
            raise ValueError(f"is at step {state['step']} of {self.total_steps}")
        self.load_weights(state)
        if "optimizer" in state:  # not where training has ended
            self.optimizer.load_state_dict(state["optimizer"])
            self._scaler.load_state_dict(state["scaler"])
            self._running.load_state(state["running_metrics"])

    def load_weights(self, state: dict[str, Any]) -> None:
        """Restore the network and the normalization of its images alone, for evaluation."""
        for module, kind in ((self.model, "model"), (self.objective, "objective")):
            check_shapes(module, state[kind])
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.batches.set_normalization(*state["normalization"])
        self.step = state["step"]

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights of backbone and objective."""
        return checkpoint.weights_digest(self.model.state_dict(), self.objective.state_dict())
