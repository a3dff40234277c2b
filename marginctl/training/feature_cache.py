"""The frozen part of a network: it stands still, and what it makes of images is kept."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.data.loading.batches import BatchLoader, TensorSplit
from marginctl.models.backbone import Backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.stages import frozen_modules
from marginctl.recipe import ImageRecipe

MAX_CACHE_BYTES = 2 * 2**30  # bytes of kept maps; our choice
CLOSE = 1e-3  # of the largest feature: beyond it two orders of the same sums are not the reason
AT_ONCE = 256  # images, while their maps are made


class FrozenBlocks:
    """The modules of a backbone that are not trained: none but where blocks are fine-tuned.

    Their parameters take no gradient. In training they stay in evaluation mode: neither statistics
    of batch normalisation nor dropout know of it.

    Args:
        recipe: of a trial.
        backbone: its whole network.

    Raises:
        RequestError: the network has no such blocks.
    """

    def __init__(self, recipe: ImageRecipe, backbone: Backbone) -> None:
        self._backbone = backbone
        paths: tuple[str, ...] = ()
        self.first: str | None = None
        chosen = recipe.trainable_blocks
        if chosen != "1-4":
            model = ModelSpec.parse(recipe.model)
            paths, self.first = frozen_modules(model, backbone, chosen)
        self.paths = paths
        self._modules = [backbone.get_submodule(path) for path in self.paths]
        for module in self._modules:
            module.requires_grad_(False)

    def hold(self) -> None:
        """Puts them in evaluation mode, after the network was put in training mode."""
        for module in self._modules:
            module.eval()


class _LeavingError(Exception):
    """What comes after the frozen part has its input."""


class SplitBackbone:
    """A backbone in two parts: up to the first trained module, and from there on.

    Args:
        backbone: the whole; its modules are shared, not copied.
        frozen: that it has; some.
    """

    def __init__(self, backbone: Backbone, frozen: FrozenBlocks) -> None:
        self._backbone = backbone
        self._first = None if frozen.first is None else backbone.get_submodule(frozen.first)
        self.rest = nn.Identity() if self._first is None else _without(backbone, frozen.paths)

    @torch.no_grad()
    def maps(self, x: Tensor) -> Tensor:
        """What the frozen part makes of images (N, c, H, W): (N, C, h, w), or (N, d) of rows."""
        if self._first is None:
            rows: Tensor = self._backbone(x)
            return rows
        found: list[Tensor] = []

        def take(module: nn.Module, given: tuple[Any, ...]) -> None:
            found.append(given[0])
            raise _LeavingError

        hook = self._first.register_forward_pre_hook(take)
        try:
            with contextlib.suppress(_LeavingError):
                self._backbone(x)
        finally:
            hook.remove()
        (maps,) = found
        averaged = maps.dim() == 2 and any(isinstance(m, nn.Conv2d) for m in self._modules())
        # the rest averages over all pixels once more: of one pixel that changes nothing
        return maps[:, :, None, None] if averaged else maps

    def _modules(self) -> Iterator[nn.Module]:
        return self._backbone.modules()

    @torch.no_grad()
    def fits(self, x: Tensor) -> bool:
        """Whether both parts, one after the other, make of images what the whole makes of them."""
        try:
            whole, parted = self._backbone(x), self.rest(self.maps(x))
        except (RuntimeError, ValueError, IndexError, TypeError):  # it cannot be parted
            return False
        same = whole.shape == parted.shape
        return same and bool((whole - parted).abs().max() <= CLOSE * whole.abs().max())


def _without(module: nn.Module, paths: tuple[str, ...]) -> nn.Module:
    """The same with nothing in place of the modules at `paths`; all others are shared."""
    shallow = copy.copy(module)
    shallow._modules = dict(module._modules)
    for name in dict.fromkeys(path.partition(".")[0] for path in paths):
        inner = tuple(p.partition(".")[2] for p in paths if p.startswith(f"{name}."))
        shallow._modules[name] = (
            _without(module.get_submodule(name), inner) if inner else nn.Identity()
        )
    return shallow


class CachedBatches(BatchLoader):
    """Batches of what a frozen part makes of images, each made once, in the images' own order.

    Args:
        images: their batches, without augmentation, of one process.
        parted: the network, in evaluation mode.
        autocast: the context in which it computes.
        device: where the maps are kept.
        seed: of orders, that of `images`.
        channels_last: the memory format of the batches.
    """

    train: TensorSplit
    test: TensorSplit

    def __init__(
        self,
        images: BatchLoader,
        parted: SplitBackbone,
        autocast: contextlib.AbstractContextManager[Any],
        device: torch.device,
        seed: int,
        *,
        channels_last: bool,
    ) -> None:
        super().__init__(
            *(images.train, images.test, device, seed),
            channels_last=channels_last,
            world=None,
            moments=(images.mean, images.std),
        )
        images.balance_classes(None)  # each once
        shuffled = torch.as_tensor(self._order(0), device=device)
        with autocast:
            train = _made(parted, images.train_batches(0, AT_ONCE))
            self.test = _made(parted, images.test_batches(AT_ONCE))
        back = shuffled.argsort()
        self.train = TensorSplit(train.x[back], train.y[back])

    def train_batches(
        self, epoch: int, size: int, first: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.as_tensor(self._order(epoch), device=self._device)
        for rows in torch.split(order, self.batch_sizes(size))[first:]:
            x = self._formatted(self.train.x.index_select(0, rows))
            yield x, self.train.y.index_select(0, rows)

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        parts = (torch.split(whole, size) for whole in (self.test.x, self.test.y))
        for x, y in zip(*parts, strict=True):
            # a copy: what comes after may compute in place
            yield self._formatted(x.clone()), y

    def _formatted(self, maps: Tensor) -> Tensor:
        return maps.contiguous(memory_format=self._format) if maps.dim() == 4 else maps


def _made(parted: SplitBackbone, batches: Iterator[tuple[Tensor, Tensor]]) -> TensorSplit:
    made = [(parted.maps(x), y) for x, y in batches]
    return TensorSplit(*(torch.cat(part) for part in zip(*made, strict=True)))


@torch.no_grad()
def cache_bytes(parted: SplitBackbone, batches: BatchLoader) -> int:
    """How large the maps of all images are in float32, by the shape of one's: no measurement."""
    x, _ = next(iter(batches.test_batches(1)))
    return 4 * parted.maps(x).numel() * (len(batches.train) + len(batches.test))
