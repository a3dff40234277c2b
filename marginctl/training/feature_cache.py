"""Frozen parts of a backbone, and training on their output, computed once."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.data.loading.loader import Batches, BatchLoader, TensorSplit
from marginctl.models.backbone import Backbone
from marginctl.models.stages import frozen_modules
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.utils.precision import DeviceConfig

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
        if (blocks := recipe.trainable_blocks) != "1-4":
            self.paths, self.first_trainable = frozen_modules(recipe.model, backbone, blocks)
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
        moments = images.mean, images.std
        super().__init__(images.train, images.test, device_config, seed, None, moments)
        images.balance_classes(None)  # each image once
        order = torch.as_tensor(self._order(0), device=device_config.device)
        with device_config.autocast():
            train = _compute(split, images.train_batches(0, BATCH_SIZE))
            self.test = _compute(split, images.test_batches(BATCH_SIZE))
        inverse = order.argsort()
        self.train = TensorSplit(train.x[inverse], train.y[inverse])

    def train_batches(self, epoch: int, size: int, first: int = 0) -> Batches:
        order = torch.as_tensor(self._order(epoch), device=self._device)
        for rows in torch.split(order, self.batch_sizes(size))[first:]:
            x = self._formatted(self.train.x.index_select(0, rows))
            yield x, self.train.y.index_select(0, rows)

    def test_batches(self, size: int) -> Batches:
        x_batches, y_batches = (torch.split(t, size) for t in (self.test.x, self.test.y))
        for x, y in zip(x_batches, y_batches, strict=True):
            yield self._formatted(x.clone()), y  # a copy: the head may compute in place

    def _formatted(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=self._format) if x.dim() == 4 else x


def _compute(split: SplitBackbone, batches: Batches) -> TensorSplit:
    outputs = [(split.frozen_output(x), y) for x, y in batches]
    return TensorSplit(*(torch.cat(tensors) for tensors in zip(*outputs, strict=True)))


@torch.no_grad()
def cache_bytes(split: SplitBackbone, batches: BatchLoader) -> int:
    """Return the size of the cache of all images in float32, from the shape of one output."""
    x, _ = next(iter(batches.test_batches(1)))
    return 4 * split.frozen_output(x).numel() * (len(batches.train) + len(batches.test))
