"""A backbone with its objective: modes, features, and frozen parts whose output is cached."""

import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading.loader import BatchLoader, TensorSplit
from marginctl.models.backbone import Backbone
from marginctl.models.factory import create_backbone
from marginctl.models.stages import frozen_modules
from marginctl.objectives.module import Objective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe.image_recipe import ImageRecipe
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
        self._frozen = FrozenModules(recipe, self.model)
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
        split = SplitBackbone(self.model, self._frozen)
        x, _ = next(iter(batches.test_batches(8)))
        if not split.reproduces(x) or cache_bytes(split, batches) > MAX_CACHE_BYTES:
            return None
        cached = CachedFeatureLoader(batches, split, self._device_config, self._seed)
        self._head = split.head
        self._head_forward = self._maybe_compile(split.head)
        return cached

    def train(self) -> None:
        """Set training mode, except for the frozen modules."""
        self._device_config.apply(fast=self._recipe.train.gpu_fast_path)
        self.model.train()
        if self._head is not None:
            self._head.train()
        self._frozen.eval()
        self.objective.train()

    def eval(self) -> None:
        """Set evaluation mode."""
        self._device_config.apply(fast=self._recipe.train.gpu_fast_path)
        self.model.eval()
        self.objective.eval()
        if self._head is not None:
            self._head.eval()

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

    def float_tensors(self) -> list[tuple[str, Tensor]]:
        """Return the weights and the buffers of floating-point numbers, by name."""
        return [
            (name, value.detach())
            for module in (self.model, self.objective)
            for name, value in (*module.named_parameters(), *module.named_buffers())
            if value.is_floating_point()
        ]

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


MAX_CACHE_BYTES = 2 * 2**30  # our choice
TOLERANCE = 1e-3  # of the largest feature: above the rounding of a different order of summation
BATCH_SIZE = 256  # while the cache is filled


class FrozenModules:
    """The modules of a backbone that a recipe does not train.

    Their parameters take no gradient. During training they stay in evaluation mode, so that batch
    statistics do not change and dropout is off.
    """

    def __init__(self, recipe: ImageRecipe, backbone: Backbone) -> None:
        self.paths: tuple[str, ...] = ()
        self.first_trainable: str | None = None
        blocks = recipe.trainable_blocks
        if blocks != "1-4":
            model = recipe.model
            self.paths, self.first_trainable = frozen_modules(model, backbone, blocks)
        self._modules = [backbone.get_submodule(path) for path in self.paths]
        for module in self._modules:
            module.requires_grad_(False)

    def eval(self) -> None:
        """Set evaluation mode, after the network was set to training mode."""
        for module in self._modules:
            module.eval()


class SplitBackbone:
    """A backbone split before its first trainable module."""

    def __init__(self, backbone: Backbone, frozen: FrozenModules) -> None:
        self._backbone = backbone
        first = frozen.first_trainable
        self._first = None if first is None else backbone.get_submodule(first)
        self.head = nn.Identity() if first is None else _without(backbone, frozen.paths)

    @torch.no_grad()
    def frozen_output(self, x: Tensor) -> Tensor:
        """Return the frozen part's output for images (N, c, H, W): (N, C, h, w) or (N, d)."""
        if self._first is None:
            features: Tensor = self._backbone(x)
            return features
        inputs: list[Tensor] = []

        def keep_input(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            inputs.append(arguments[0].clone())  # a later layer may compute in place

        hook = self._first.register_forward_pre_hook(keep_input)
        try:
            self._backbone(x)
        finally:
            hook.remove()
        (output,) = inputs
        pooled = output.dim() == 2 and any(
            isinstance(module, nn.Conv2d) for module in self._backbone.modules()
        )
        # the head pools over all pixels again, which does not change a single pixel
        return output[:, :, None, None] if pooled else output

    @torch.no_grad()
    def reproduces(self, x: Tensor) -> bool:
        """Return whether both parts in sequence give the features of the whole network."""
        try:
            expected, features = self._backbone(x), self.head(self.frozen_output(x))
        except (RuntimeError, ValueError, IndexError, TypeError):  # it cannot be split here
            return False
        if expected.shape != features.shape:
            return False
        return bool((expected - features).abs().max() <= TOLERANCE * expected.abs().max())


def _without(module: nn.Module, paths: tuple[str, ...]) -> nn.Module:
    """Return the module with identities in place of `paths`; all other modules are shared."""
    shallow = copy.copy(module)
    shallow._modules = dict(module._modules)
    for name in dict.fromkeys(path.partition(".")[0] for path in paths):
        inner = tuple(p.partition(".")[2] for p in paths if p.startswith(f"{name}."))
        shallow._modules[name] = (
            _without(module.get_submodule(name), inner) if inner else nn.Identity()
        )
    return shallow


class CachedFeatureLoader(BatchLoader):
    """Batches of a frozen part's output, computed once per image, in the images' own order."""

    train: TensorSplit
    test: TensorSplit

    def __init__(
        self, images: BatchLoader, split: SplitBackbone, device_config: DeviceConfig, seed: int
    ) -> None:
        super().__init__(
            images.train,
            images.test,
            device_config.device,
            seed,
            channels_last=device_config.channels_last,
            world=None,
            moments=(images.mean, images.std),
        )
        images.balance_classes(None)  # each image once
        order = torch.as_tensor(self._order(0), device=device_config.device)
        with device_config.autocast():
            train = _compute(split, images.train_batches(0, BATCH_SIZE))
            self.test = _compute(split, images.test_batches(BATCH_SIZE))
        inverse = order.argsort()
        self.train = TensorSplit(train.x[inverse], train.y[inverse])

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.as_tensor(self._order(epoch), device=self._device)
        for rows in torch.split(order, self.batch_sizes(size))[first:]:
            x = self._formatted(self.train.x.index_select(0, rows))
            yield x, self.train.y.index_select(0, rows)

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in zip(
            torch.split(self.test.x, size), torch.split(self.test.y, size), strict=True
        ):
            yield self._formatted(x.clone()), y  # a copy: the head may compute in place

    def _formatted(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=self._format) if x.dim() == 4 else x


def _compute(split: SplitBackbone, batches: Iterator[tuple[Tensor, Tensor]]) -> TensorSplit:
    outputs = [(split.frozen_output(x), y) for x, y in batches]
    return TensorSplit(*(torch.cat(tensors) for tensors in zip(*outputs, strict=True)))


@torch.no_grad()
def cache_bytes(split: SplitBackbone, batches: BatchLoader) -> int:
    """Return the size of the cache of all images in float32, from the shape of one output."""
    x, _ = next(iter(batches.test_batches(1)))
    return 4 * split.frozen_output(x).numel() * (len(batches.train) + len(batches.test))
