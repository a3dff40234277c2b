"""What a call that trains asks for: its recipe, its images, and whether they can be done."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from marginctl import recipe as recipes
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.image_sets import load_image_set
from marginctl.data.images.registry import LIST_PREFIX
from marginctl.data.images.subsets import label_noise, long_tailed, subsample
from marginctl.errors import RequestError
from marginctl.experiments.tasks import load_task_recipe
from marginctl.recipe import ImageRecipe
from marginctl.recipe.image_data import ImageData
from marginctl.utils.device import world_size

R = TypeVar("R", bound=ImageRecipe)
MOST_SCORES = 4 * 2**30  # bytes, of the scores of all test images


def read_recipe(
    name: str | None,
    schema: type[R],
    overrides: Iterable[str],
    options: Mapping[str, tuple[str, Any]],
    out: Path,
) -> tuple[R, str | None, Path | None]:
    """The recipe of a call, as `Session.open` takes it.

    Returns:
        The recipe, the name that its runs are stored under, and its file; the last two are None
        where the options alone make it.

    Raises:
        RequestError: anything in it is wrong, or `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise RequestError(f"--out {out}: is a file: name a folder")
    if name is None:
        document = recipes.RecipeDocument({"task": schema.minimal["task"]}, {}, "recipe")
        return recipes.validate(schema, document, overrides, options), None, None
    source = recipes.find_recipe(name)
    recipe = load_task_recipe(source, schema, overrides, options)
    return recipe, _stored_as(source, out), source.path


def _stored_as(source: recipes.RecipeFile, out: Path) -> str:
    """The folder of a recipe's runs in a store; one that the store itself holds stays in its own.

    `write_recipe` has put it there, also below the folder of a paper.
    """
    folder = source.path.resolve().parent
    if folder.name == source.path.stem and folder.is_relative_to(out.resolve()):
        own = folder.relative_to(out.resolve()).as_posix()
        return source.name if own == "." else own
    return source.name


def images_of(data: ImageData, folder: Path) -> ImageDataset:
    """Loads or lists images and leaves out and corrupts what the recipe says, by a fixed seed.

    Raises:
        RequestError: they are not there, or damaged.
    """
    images = load_image_set(
        data.name,
        folder,
        data.resolved_size,
        stream=data.streamed,
        exclude=data.exclude,
        test_fraction=data.test_fraction,
    )
    if data.subset_size is not None or data.subset_fraction < 1:
        images = subsample(images, data.subset_fraction, size=data.subset_size, seed=0)
    if data.imbalance_factor is not None:
        images = long_tailed(
            images, data.imbalance_factor, max_per_class=data.max_per_class, seed=0
        )
    return label_noise(images, data.label_noise, seed=0) if data.label_noise else images


def check_scores(images: ImageDataset) -> None:
    """Raises RequestError where the scores of the test images of many classes need too much memory.

    Several such matrices are held at once, some of them in float64.
    """
    tests, classes = len(images.test_y), images.num_classes
    if 4 * tests * classes > MOST_SCORES:
        raise RequestError(
            f"data set '{images.name}': {tests} test images of {classes} classes: their scores "
            f"take {4 * tests * classes / 2**30:.1f} GiB, at most {MOST_SCORES / 2**30:.0f}: test "
            f"on {MOST_SCORES // (4 * classes)} images or fewer, such as by a short val.txt of "
            f"{LIST_PREFIX}PATH"
        )


def check_processes(recipe: ImageRecipe, device: str) -> None:
    """Raises RequestError for what several processes, or a device, cannot do."""
    processes = world_size()
    if recipe.train.batch_size < 2 * processes and processes > 1:
        raise RequestError(
            f"train.batch_size = {recipe.train.batch_size} over {processes} processes: expected at "
            "least 2 images for each"
        )
    if recipe.train.sync_batch_norm and processes > 1 and not device.startswith("cuda"):
        raise RequestError(
            f"train.sync_batch_norm = true on {device}: PyTorch has it on GPUs alone: leave it out"
        )
    if recipe.train.precision == "fp16" and device == "cpu":
        raise RequestError(
            "train.precision = fp16 on cpu: its gradients vanish there: use bf16, fp32 or auto"
        )
