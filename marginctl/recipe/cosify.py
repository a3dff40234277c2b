"""The schema of a `cosify` recipe: a softmax network goes on with a cosine classifier."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator

from marginctl.data.images.registry import loading_modes
from marginctl.errors import RequestError
from marginctl.recipe.fields import Rate
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.train import Optim, Training, TrainRecipe

Blocks = Literal["1-4", "2-4", "3-4", "4", "head"]


class CosifyOptim(Optim):
    """How the weights are moved: Table 8 of the temperature paper (Cosify)."""

    lr: Rate = "cosine(end=0,start=0.01)"
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1e-4


class CosifyTraining(Training):
    """How long and in what batches: Table 8 of the temperature paper (Cosify)."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 30
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256


class CosifyRecipe(TrainRecipe):
    """Fine-tuning of a trained network with a new classifier: what `marginctl cosify` runs.

    The new classifier is drawn by the seed, as one of `train` is: the paper does not say how.
    """

    least: ClassVar[dict[str, Any]] = {"task": "cosify", "source_model": "source"}
    own_keys: ClassVar[tuple[str, ...]] = ("blocks",)

    task: Literal["cosify"]  # type: ignore[assignment]
    source_model: Annotated[
        str,
        Field(
            min_length=1,
            description="a trial's folder, a checkpoint, or weights: ResNet50_Weights."
            "IMAGENET1K_V1, efficientnet-lite0",
        ),
    ]
    blocks: Annotated[
        Blocks,
        Field(
            description="which are fine-tuned; what is before them stays as it is; head: none of "
            "them, the new classifier alone"
        ),
    ] = "1-4"
    model: Annotated[str, Field(description="of the start; left out: whatever it is")] = ""
    objectives: Annotated[list[str], Field(min_length=1)] = Field(default=["cosine-ls"])
    optim: CosifyOptim = CosifyOptim()
    train: CosifyTraining = CosifyTraining()

    @field_validator("model")
    @classmethod
    def _canonical_model(cls, written: str) -> str:
        return super()._canonical_model(written) if written else ""

    @field_validator("second_stage")
    @classmethod
    def _one_stage(cls, second: Any) -> Any:
        if second is not None:
            raise ValueError(
                "second_stage: a stage of marginctl train: here the network that "
                "it starts from is the "
                "first stage: use blocks = head and train.sampling"
            )
        return second

    @field_validator("blocks", mode="before")
    @classmethod
    def _number(cls, written: Any) -> Any:
        return "4" if type(written) is int and written == 4 else written  # YAML has it so

    def settings(self) -> list[tuple[dict[str, Any], Self]]:
        """As of training; the blocks are always in the setting, which names a row."""
        return [({**setting, "blocks": made.blocks}, made) for setting, made in super().settings()]

    @property
    def _names(self) -> list[str]:
        """Of the sets of images that it names: those of a grid take the place of its own."""
        return self.grid.get("data.name", [self.data.name])

    def from_start(self, model: str, data: ImageData | None, pixels: int) -> Self:
        """The recipe with what it leaves open taken from its start.

        Args:
            model: of the start.
            data: what that was trained with, None where nothing says it.
            pixels: the side of its images; of other images in files, where the recipe has none.

        Raises:
            RequestError: another model, no images, or settings that do not go together.
        """
        if self.model not in ("", model):
            raise RequestError(
                f"model = {self.model}: the network of {self.source_model} is "
                f"{model}: leave 'model' out"
            )
        own = self.data.model_dump(include=self.data.model_fields_set)
        named = "name" in own or "data.name" in self.grid
        if not named and data is None:
            raise RequestError(
                f"source_model = {self.source_model}: nothing says its images: name some: --data"
            )
        if not named and data is not None:
            own = data.model_dump() | own
        elif "image_size" not in own and any(
            "stream" in loading_modes(name) for name in self._names
        ):
            own["image_size"] = pixels
        try:
            return type(self).model_validate(self.model_dump() | {"model": model, "data": own})
        except ValidationError as error:
            (problem, *_) = error.errors(include_url=False)
            said = str(problem.get("ctx", {}).get("error", problem["msg"])).splitlines()[0]
            raise RequestError(f"source_model = {self.source_model}: {said}") from None
