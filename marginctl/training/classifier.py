"""A backbone and its objective as they are trained: what they make of images, and their modes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from marginctl.data.images.base import ImageDataset
from marginctl.data.loading.batches import BatchLoader
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.objectives.module import Objective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe import ImageRecipe
from marginctl.training.feature_cache import (
    MAX_CACHE_BYTES,
    CachedBatches,
    FrozenBlocks,
    SplitBackbone,
    cache_bytes,
)
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig
from marginctl.utils.seed import generator


class Classifier:
    """A backbone, the objective on its features, and the frozen part whose output may be kept.

    Args:
        recipe, spec, images, seed, device_config, world: as `Trainer` takes them.

    Attributes:
        model, objective: the modules, on their device.
        trained: both as one module, as DDP and an optimiser need them.
    """

    def __init__(
        self,
        recipe: ImageRecipe,
        spec: ObjectiveSpec,
        images: ImageDataset,
        seed: int,
        device_config: DeviceConfig,
        world: World,
    ) -> None:
        self._recipe, self._device_config, self._seed = recipe, device_config, seed
        self._world = world
        model = ModelSpec.parse(recipe.model)
        torch.manual_seed(torch_seed(seed, "weights"))
        self.model = create_backbone(model, images.channels, images.image_size)
        stage = ("second stage",) if recipe.retrains_classifier else ()
        torch.manual_seed(torch_seed(seed, "class weights", *stage))
        self.objective = Objective(spec, images.num_classes, self.model.feature_dim)
        memory = torch.channels_last if device_config.channels_last else torch.contiguous_format
        self.model.to(device_config.device).to(memory_format=memory)
        self.objective.to(device_config.device)
        if recipe.train.sync_batch_norm and world.size > 1:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(  # type: ignore[no-untyped-call]
                self.model
            )
        self._frozen = FrozenBlocks(recipe, self.model)
        self._features = self._compiled(self.model)
        self._rest: nn.Module | None = None  # after a frozen part whose output is kept
        self.trained: nn.Module = _Trained(self)
        if world.size > 1:
            self.trained = nn.parallel.DistributedDataParallel(self.trained)

    def _compiled(self, network: nn.Module) -> Callable[[Tensor], Tensor]:
        return torch.compile(network) if self._recipe.train.compile else network

    def cached_batches(self, batches: BatchLoader) -> BatchLoader | None:
        """Batches of what the frozen part makes of images, where every epoch sees the same ones.

        None where they would be larger than `MAX_CACHE_BYTES`, and for several processes. Weights
        and normalisation have been loaded before.
        """
        recipe = self._recipe
        if not self._frozen.paths or recipe.data.augment != "none" or self._world.size > 1:
            return None
        self.model.eval()
        parted = SplitBackbone(self.model, self._frozen)
        x, _ = next(iter(batches.test_batches(8)))
        if not parted.fits(x) or cache_bytes(parted, batches) > MAX_CACHE_BYTES:
            return None
        maps = CachedBatches(
            *(
                batches,
                parted,
                self._device_config.autocast(),
                self._device_config.device,
                self._seed,
            ),
            channels_last=self._device_config.channels_last,
        )
        self._rest = parted.rest
        self._features_of_maps = self._compiled(parted.rest)
        return maps

    def train(self) -> None:
        """Training mode, for all but what is frozen."""
        self.model.train()
        if self._rest is not None:
            self._rest.train()
        self._frozen.hold()
        self.objective.train()

    def eval(self) -> None:
        """Evaluation mode."""
        self.model.eval()
        self.objective.eval()
        if self._rest is not None:
            self._rest.eval()

    def features(self, x: Tensor) -> Tensor:
        """(B, d) in float32 of images (B, c, H, W), whatever the backbone computes in."""
        with self._device_config.autocast():
            found = self._features(x)
        return found.float()

    def features_of_batch(self, x: Tensor) -> Tensor:
        """(B, d) in float32 of a batch of training, which may hold maps in place of images."""
        if self._rest is None:
            return self.features(x)
        with self._device_config.autocast():
            found = self._features_of_maps(x)
        return found.float()

    def not_finite(self) -> str | None:
        """The name of a weight or buffer that holds what is not finite, if there is one."""
        for module in (self.model, self.objective):
            for named in (module.named_parameters(), module.named_buffers()):
                for name, value in named:
                    if value.is_floating_point() and not bool(value.isfinite().all()):
                        return name
        return None

    def share_buffers(self) -> None:
        """The first process's buffers on all: statistics of batch normalisation are its own."""
        if self._world.size > 1:
            for module in (self.model, self.objective):
                for buffer in module.buffers():
                    self._world.broadcast(buffer)


class _Trained(nn.Module):
    """Backbone and objective as one module, as DDP needs them."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.model, self.objective = network.model, network.objective
        self._features = network.features_of_batch

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        features = self._features(x)
        return self.objective(features, y), features


def torch_seed(seed: int, *name: str | int) -> int:
    """The seed of torch's own stream that belongs to `name`, as `generator` takes it."""
    return int(generator(seed, *name).integers(2**63))
