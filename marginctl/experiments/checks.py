"""Requests of the image tasks: reading the recipe and the images, and checking them."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from marginctl.data.images.groups import ImageGroups, read_image_groups
from marginctl.data.images.image_sets import ImageDataset, load_image_set
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.images.registry import FOLDER_PREFIX, LIST_PREFIX
from marginctl.data.images.subsets import label_noise, long_tailed, split_indices, subsample
from marginctl.errors import RequestError
from marginctl.experiments.request import Request
from marginctl.experiments.tasks import load_task_recipe
from marginctl.models.factory import check_image_shape
from marginctl.objectives.parts import untrainable_reason
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.image_recipe import ImageRecipe, RateTuning
from marginctl.recipe.load import RecipeDocument, RecipeFile, find_recipe, folder_name, validate
from marginctl.utils.device import world_size

R = TypeVar("R", bound=ImageRecipe)
MAX_LOGIT_BYTES = 4 * 2**30  # of the logits of all test images


def runs_name(file: RecipeFile | None, default: str) -> str:
    """Return the name of the folder of a recipe's runs; without a file, one made of `default`."""
    return file.name if file else folder_name(default)[:60].strip(".-")


def read_recipe(schema: type[R], request: Request) -> tuple[R, RecipeFile | None]:
    """Return the recipe of a request, and its file with the name of the folder of its runs."""
    request.check_out()
    if request.recipe is None:
        document = RecipeDocument({"task": schema.minimal["task"]}, {}, "recipe")
        recipe = validate(schema, document, request.overrides, request.options)
        return _with_tuning(recipe, request), None
    file = find_recipe(request.recipe)
    recipe = load_task_recipe(file, schema, request.overrides, request.options)
    return _with_tuning(recipe, request), RecipeFile(_runs_folder_of(file, request.out), file.path)


def _with_tuning(recipe: R, request: Request) -> R:
    """Return the recipe with or without tuning: by the option, the recipe, or the default.

    By default, a comparison of objectives on a user's data is tuned, where that is possible.
    """
    if request.tune is False:
        return recipe.model_copy(update={"tune": None})
    if recipe.tune is not None:
        return recipe
    problem = recipe.tuning_problem
    is_untuned = "tune" in recipe.model_fields_set or not _compares_own_data(recipe, request)
    if request.tune is None and (is_untuned or problem is not None):
        return recipe
    if problem is not None:
        raise RequestError(f"--tune: {problem}")
    return recipe.model_copy(update={"tune": RateTuning()})


def _compares_own_data(recipe: ImageRecipe, request: Request) -> bool:
    """Whether a recipe compares objectives on the user's data, and not for a paper."""
    if recipe.paper is not None or len(recipe.objectives) < 2 or not recipe.tuned_by_default:
        return False
    _, option = request.options.get("data.name", ("", None))
    names = recipe.grid.get("data.name", [recipe.data.name])
    return option is not None or all(n.startswith((FOLDER_PREFIX, LIST_PREFIX)) for n in names)


def _runs_folder_of(file: RecipeFile, out: Path) -> str:
    """Return the folder of a recipe's runs in a runs folder.

    A recipe that `Session.write_recipe` has put into a runs folder keeps its folder there, which
    may lie below the folder of a paper.
    """
    folder = file.path.resolve().parent
    if folder.name == file.path.stem and folder.is_relative_to(out.resolve()):
        name = folder.relative_to(out.resolve()).as_posix()
        return file.name if name == "." else name
    return file.name


def load_recipe_images(data: ImageData, folder: Path, *, test_only: bool = False) -> ImageDataset:
    """Load the images of a recipe, with its subset, long tail and label noise by a fixed seed."""
    images = load_image_set(
        data.name,
        folder,
        data.resolved_size,
        stream=data.streamed,
        exclude=data.exclude,
        test_fraction=data.test_fraction,
        groups=recipe_groups(data, folder),
        test_only=test_only,
    )
    if isinstance(images, OnDiskImages):
        images = replace(images, resizing=data.test_resizing)
    if data.subset_size is not None or data.subset_fraction < 1:
        images = subsample(images, data.subset_fraction, size=data.subset_size, seed=0)
    if data.imbalance_factor is not None:
        images = long_tailed(
            images, data.imbalance_factor, max_per_class=data.max_per_class, seed=0
        )
    return label_noise(images, data.label_noise, seed=0) if data.label_noise else images


def recipe_groups(data: ImageData, folder: Path) -> ImageGroups | None:
    """Return the groups of a recipe's images; None if they are independent."""
    return None if data.groups is None else read_image_groups(data.groups, folder)


def check_images(recipe: ImageRecipe, images: ImageDataset) -> None:
    """Raise RequestError for images of fewer than two classes, or that the recipe cannot learn."""
    if images.num_classes < 2:
        raise RequestError(
            f"data set '{images.name}': {images.num_classes} class: expected at least 2"
        )
    for objective in recipe.objectives:
        if reason := untrainable_reason(objective.spec, images.num_classes):
            raise RequestError(
                f"objective '{objective}' on data set '{images.name}' "
                f"({images.num_classes} classes): {reason}: leave it out"
            )
    if images.has_validation and recipe.data.val_fraction is not None:
        raise RequestError(
            f"data.val_fraction = {recipe.data.val_fraction:g}: {images.name} has a validation "
            "part: leave data.val_fraction out"
        )
    if (
        recipe.train.patience is not None
        and recipe.validation_fraction is None
        and not images.has_validation
    ):
        raise RequestError(
            f"train.patience = {recipe.train.patience} without a validation part: set "
            "data.val_fraction = 0.15, or use a folder with train/, val/ and test/"
        )
    check_image_shape(recipe.model, images.channels, images.image_size)


def fitted_images(recipe: ImageRecipe, images: ImageDataset) -> int:
    """Return the number of images that a trial fits; a class of one image may change it."""
    fraction = recipe.validation_fraction
    if images.has_validation or fraction is None:
        return len(images.train_y)
    return len(images.train_y) - max(1, round(fraction * len(images.train_y)))


def fit_images(recipe: ImageRecipe, images: ImageDataset, seed: int) -> ImageDataset:
    """Return the images that a trial fits, with its validation part in place of the test part.

    They are the images themselves where there is no validation part.

    Args:
        seed: of the trial, which draws a validation part of the training images.
    """
    if images.has_validation:
        return images.validation_as_test()
    fraction = recipe.validation_fraction
    if fraction is None:
        return images
    return images.hold_out(*split_indices(images.train_y, fraction, seed, images.groups))


def check_logits_fit(images: ImageDataset) -> None:
    """Raise RequestError if the test logits, held several times, need too much memory."""
    tests, classes = len(images.test_y), images.num_classes
    if 4 * tests * classes > MAX_LOGIT_BYTES:
        raise RequestError(
            f"data set '{images.name}': {tests} test images of {classes} classes: their logits "
            f"take {4 * tests * classes / 2**30:.1f} GiB, at most {MAX_LOGIT_BYTES / 2**30:.0f}: "
            f"test on {MAX_LOGIT_BYTES // (4 * classes)} images or fewer, such as by a short "
            f"val.txt of {LIST_PREFIX}PATH"
        )


def check_device(recipe: ImageRecipe, device: str) -> None:
    """Raise RequestError for settings that the device or several processes do not support."""
    processes = world_size()
    if recipe.train.batch_size < 2 * processes and processes > 1:
        raise RequestError(
            f"train.batch_size = {recipe.train.batch_size} over {processes} processes: expected at "
            "least 2 images for each"
        )
    if recipe.train.sync_batch_norm and processes > 1 and not device.startswith("cuda"):
        raise RequestError(
            f"train.sync_batch_norm = true on {device}: PyTorch supports it on GPUs only: leave it "
            "out"
        )
    if recipe.train.cuda_graphs and processes > 1:
        raise RequestError(
            f"train.cuda_graphs = true with {processes} processes: a graph holds the step of one: "
            "leave it out"
        )
    for key in ("gpu_fast_path", "cuda_graphs"):
        if getattr(recipe.train, key) and not device.startswith("cuda"):
            raise RequestError(f"train.{key} = true on {device}: it is for CUDA only: leave it out")
    if recipe.train.precision == "tf32" and not device.startswith("cuda"):
        raise RequestError(
            f"train.precision = tf32 on {device}: it is a format of NVIDIA's GPUs: use fp32 or auto"
        )
    if recipe.train.precision == "fp16" and device == "cpu":
        raise RequestError(
            "train.precision = fp16 on cpu: its gradients vanish there: use bf16, fp32 or auto"
        )
