"""A backbone with its objective: creation, modes and features."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading.loader import BatchLoader
from marginctl.models.factory import create_backbone
from marginctl.objectives.module import Objective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.training import feature_cache
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig
from marginctl.utils.seed import generator


class Classifier:
    """A backbone, the objective on its features, and the frozen part of the backbone."""

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
        device_config.apply(fast=recipe.train.gpu_fast_path)
        model = recipe.model
        seed_torch(device_config.device, seed, "weights")
        self.model = create_backbone(model, images.channels, images.image_size)
        stage = ("second stage",) if recipe.retrains_classifier else ()
        seed_torch(device_config.device, seed, "class weights", *stage)
        self.objective = Objective(spec, images.num_classes, self.model.feature_dim)
        self.model.to(device_config.device).to(memory_format=device_config.memory_format)
        self.objective.to(device_config.device)
        if recipe.train.sync_batch_norm and world.size > 1:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(  # type: ignore[no-untyped-call]
                self.model
            )
        self._frozen = feature_cache.FrozenModules(recipe, self.model)
        self._forward = self._maybe_compile(self.model)
        self._head: nn.Module | None = None  # the trainable part, once features are cached
        self.module: nn.Module = _ClassifierModule(self)
        if world.size > 1:
            self.module = nn.parallel.DistributedDataParallel(self.module)

    def _maybe_compile(self, network: nn.Module) -> Callable[[Tensor], Tensor]:
        return torch.compile(network) if self._recipe.train.compile else network

    def cache_frozen_features(self, batches: BatchLoader) -> BatchLoader | None:
        """Return batches of the frozen part's output, computed once, if every epoch allows it.

        None where nothing is frozen, where augmentation changes the images, where the cache would
        exceed `MAX_CACHE_BYTES`, and for several processes. Load weights and normalization first.
        """
        recipe = self._recipe
        if not self._frozen.paths or recipe.data.augment != "none" or self._world.size > 1:
            return None
        self.model.eval()
        split = feature_cache.SplitBackbone(self.model, self._frozen)
        x, _ = next(iter(batches.test_batches(8)))
        if (
            not split.reproduces(x)
            or feature_cache.cache_bytes(split, batches) > feature_cache.MAX_CACHE_BYTES
        ):
            return None
        cached = feature_cache.CachedFeatureLoader(batches, split, self._device_config, self._seed)
        self._head = split.head
        self._head_forward = self._maybe_compile(split.head)
        return cached

    def train(self, mode: bool = True) -> None:
        """Set training mode, except for the frozen modules; or evaluation mode."""
        self._device_config.apply(fast=self._recipe.train.gpu_fast_path)
        self.model.train(mode)
        if self._head is not None:
            self._head.train(mode)
        self._frozen.eval()
        self.objective.train(mode)

    def features(self, x: Tensor) -> Tensor:
        """Return (B, d) float32 features of images (B, c, H, W), whatever the precision."""
        return self._compute(self._forward, x)

    def batch_features(self, x: Tensor) -> Tensor:
        """Return (B, d) float32 features of a batch of images or of cached features."""
        return self._compute(self._forward if self._head is None else self._head_forward, x)

    def _compute(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with self._device_config.autocast():
            features = network(x)
        return features.float()

    @torch.no_grad()
    def activation_bytes(self, image_shape: tuple[int, int, int]) -> int:
        """Return the size of the largest output of a layer for one image (c, H, W)."""
        sizes: list[int] = []

        def note_size(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                sizes.append(output.numel() * output.element_size())

        hooks = [module.register_forward_hook(note_size) for module in self.model.modules()]
        self.model(torch.zeros(1, *image_shape, device=self._device_config.device))
        for hook in hooks:
            hook.remove()
        return max(sizes)

    def broadcast_buffers(self) -> None:
        """Copy the main process's buffers, such as batch statistics, to all processes."""
        if self._world.size > 1:
            for module in (self.model, self.objective):
                for buffer in module.buffers():
                    self._world.broadcast(buffer)


class _ClassifierModule(nn.Module):
    """Backbone and objective as one module: (x, y) -> (loss, features)."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model, self.objective = classifier.model, classifier.objective
        # in a cycle of references a finished network would stay until the next garbage collection
        self._classifier = weakref.proxy(classifier)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        features = self._classifier.batch_features(x)
        return self.objective(features, y), features


def seed_torch(device: torch.device, seed: int, *name: str | int) -> None:
    """Seed torch's generators of the CPU and of a device for the stream `name`.

    `torch.manual_seed` also prepares the generators of all absent kinds of devices, which takes a
    hundred times as long.
    """
    number = int(generator(seed, *name).integers(2**63))
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)
    elif device.type == "mps":
        torch.mps.manual_seed(number)
