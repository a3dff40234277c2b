"""The schema of a `cosify` recipe: a cosine classifier for a trained softmax network."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.errors import RequestError
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import parse_learning_rate
from marginctl.recipe.fields import LearningRate
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.image_recipe import Blocks, Objectives, Optim, Training, check_same_model
from marginctl.recipe.train import EvaluatedRecipe


class CosifyOptim(Optim):
    """The optimizer: Table 8 of the temperature paper (Cosify)."""

    lr: LearningRate = parse_learning_rate("cosine(end=0,start=0.01)")
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1e-4


class CosifyTraining(Training):
    """Epochs and batches: Table 8 of the temperature paper (Cosify)."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 30
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256


class CosifyRecipe(EvaluatedRecipe):
    """Fine-tuning of a trained network with a new classifier: what `marginctl cosify` runs.

    The seed draws the new classifier as in `train`: the paper does not say how.
    """

    minimal: ClassVar[Mapping[str, Any]] = {"task": "cosify", "source_model": "source"}
    grid_keys: ClassVar[Sequence[str]] = ("blocks",)

    task: Literal["cosify"]
    source_model: Annotated[str, Field(min_length=1)]
    """a trial's folder, a checkpoint, or weights: ResNet50_Weights.IMAGENET1K_V1,
    timm/resnet50.a1_in1k, efficientnet-lite0, resnet50=FILE"""
    blocks: Blocks = "1-4"
    model: ModelSpec | None = None
    """default: that of the source model"""
    objectives: Objectives = Field(default=[parse("cosine-ls")])
    optim: CosifyOptim = CosifyOptim()
    train: CosifyTraining = CosifyTraining()

    def stages(self, values: dict[str, Any]) -> list[tuple[dict[str, Any], Self]]:
        return [({**values, "blocks": self.blocks}, self)]

    @property
    def trainable_blocks(self) -> str:
        return self.blocks

    def with_source_model(
        self, model: ModelSpec, data: ImageData | None, image_size: int, resizing: Resizing = CENTER
    ) -> Self:
        """Return the recipe with the missing fields taken from its source model."""
        check_same_model(self.model, model, self.source_model)
        if self.names_data:
            section = self.data_like_source(data, image_size, resizing)
        elif data is not None:
            section = data.model_dump() | self.data.model_dump(include=self.data.model_fields_set)
        else:
            raise RequestError(
                f"source_model = {self.source_model}: its images are unknown: name images with "
                "--data"
            )
        document = self.model_dump() | {"model": model, "data": section}
        return self.revalidated(document, f"source_model = {self.source_model}")
