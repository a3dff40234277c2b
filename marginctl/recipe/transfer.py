"""The schema of a `transfer` recipe: what trained networks are worth on other images."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from marginctl.data.images.registry import loading_modes
from marginctl.objectives.parsing import parse
from marginctl.objectives.spec import from_run
from marginctl.recipe.cosify import CosifyOptim, CosifyRecipe, CosifyTraining
from marginctl.recipe.fields import STRICT, Rate
from marginctl.recipe.image_data import ImageData

Method = Literal["probe", "fine-tune"]
_Strength = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]

# Of the mean loss: scikit-learn's C is 1 / (n strength). Ours: the paper does not say.
L2_PENALTIES = (10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


class Probe(BaseModel):
    """A linear probe: the paper says L-BFGS (Section 7); all else here is ours."""

    model_config = STRICT

    features: Annotated[
        Literal["standardised", "unit", "raw"],
        Field(description="by mean and deviation of the training part, of length 1, or as is"),
    ] = "standardised"
    l2_penalties: Annotated[
        list[_Strength],
        Field(min_length=1, max_length=100, description="of the penalty, to choose from"),
    ] = list(L2_PENALTIES)
    validation_fraction: Annotated[
        float, Field(gt=0, lt=1, description="of the training part, on which one is chosen")
    ] = 0.2
    tolerance: Annotated[
        float, Field(ge=1e-10, le=1e-2, description="on the gradient's largest entry")
    ] = 1e-6

    @field_validator("l2_penalties")
    @classmethod
    def _from_strong_to_weak(cls, strengths: list[float]) -> list[float]:
        return sorted(set(strengths), reverse=True)


class TransferOptim(CosifyOptim):
    """How the weights are moved in fine-tuning: Table 8 of the temperature paper (Table 4b)."""

    lr: Rate = "cosine(end=0,start=0.1)"
    backbone_lr_factor: Annotated[
        float,
        Field(gt=0, le=1, description="the backbone's rate, of 1 that the class weights have"),
    ] = 0.01


class TransferTraining(CosifyTraining):
    """How long and in what batches: Table 8 of the temperature paper (Table 4b)."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 60
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128


class TransferRecipe(CosifyRecipe):
    """Linear probes or fine-tuning of trained networks: what `marginctl transfer` runs.

    `objectives`, `optim`, `train` and `blocks` are those of fine-tuning alone.
    """

    least: ClassVar[dict[str, Any]] = {"task": "transfer", "source_models": ["source"]}
    own_keys: ClassVar[tuple[str, ...]] = (
        *("method", "blocks", "optim.backbone_lr_factor"),
        *(f"probe.{key}" for key in Probe.model_fields),
    )

    task: Literal["transfer"]  # type: ignore[assignment]
    source_models: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(
            min_length=1,
            description="each a trial's folder, a folder of trials, a checkpoint, or weights: "
            "ResNet50_Weights.IMAGENET1K_V1, efficientnet-lite0",
        ),
    ]
    source_model: Annotated[
        str, Field(description="of one trial: which of them; not to be given")
    ] = ""
    method: Method = "probe"
    probe: Probe = Probe()
    objectives: Annotated[list[str], Field(min_length=1)] = Field(default=["soft:bias=true"])
    optim: TransferOptim = TransferOptim()
    train: TransferTraining = TransferTraining()

    @field_validator("ood", "pairs")
    @classmethod
    def _not_here(cls, written: list[str], info: ValidationInfo) -> list[str]:
        if written:
            does = {"ood": "tells no foreign images apart", "pairs": "verifies none"}
            name = str(info.field_name)
            raise ValueError(f"{name}: transfer {does[name]}: leave it out")
        return written

    @field_validator("source_models")
    @classmethod
    def _distinct_starts(cls, starts: list[str]) -> list[str]:
        return list(dict.fromkeys(starts))

    @model_validator(mode="after")
    def _fits_transfer(self) -> Self:
        data = self.data
        if any(from_run(parse(objective).spec) for objective in self.objectives):
            raise ValueError("objectives: transfer takes no scale from a run: give its value")
        if self.method == "probe" and (data.augment, data.label_noise) != ("none", 0.0):
            raise ValueError(
                f"data.augment = {data.augment} and data.label_noise = {data.label_noise:g} with "
                "method = probe: expected none and 0: its features are extracted once"
            )
        return self

    def settings(self) -> list[tuple[dict[str, Any], Self]]:
        """As of training; of a probe the blocks, of which it fine-tunes none, are left out."""
        own: list[tuple[dict[str, Any], Self]] = []
        for setting, made in super().settings():
            without = {k: v for k, v in setting.items() if k != "blocks" or k in self.grid}
            own.append((without, made))
        return own

    def for_start(self, start: str, model: str, data: ImageData | None, pixels: int) -> Self:
        """The recipe of one start: with its network, and images prepared as its own were.

        Args:
            start: what names it.
            model: canonical.
            data: what it was trained with; None for published weights, whose images are streamed
                as `eval` has them.
            pixels: the side of its images; of other images in files, where the recipe has none.

        Raises:
            ValidationError: another model, or settings that do not go together.
        """
        own = self.data.model_dump()
        if "stream" in loading_modes(self.data.name):
            own["image_size"] = own["image_size"] or pixels
            if own["load"] is None and (data is None or data.streamed):
                own["load"] = "stream"
        document = self.model_dump(exclude={"grid"})
        if self.method == "probe":
            document["train"]["precision"] = "fp32"  # so its features are
        changed = {"source_models": [start], "source_model": start, "model": model, "data": own}
        return type(self).model_validate(document | changed)


def names_images(recipe: TransferRecipe) -> bool:
    """Whether a recipe says which images: those of `train`'s default are never meant."""
    return "data.name" in recipe.grid or "name" in recipe.data.model_fields_set
