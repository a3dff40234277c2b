"""The schema of a `train` recipe."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, field_validator

from marginctl.data.images.registry import parse_ood_name
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.recipe.fields import LearningRate, Section, map_all
from marginctl.recipe.image_recipe import ImageRecipe, Objectives, Sampling


class SecondStage(Section):
    """Classifier retraining: the second stage of a long-tailed training (Temperature, Table 8).

    Settings that are left out are those of the first stage. The backbone is frozen, statistics of
    batch normalisation included, and the seed draws a new classifier, as usual for long tails
    (cRT in Kang et al. 2020); the paper's text available to us says only "2nd".
    """

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 30
    sampling: Sampling = "class-balanced"
    """class-balanced: a random class, then a random image of that class"""
    lr: LearningRate | None = None
    """default: that of the first stage"""
    weight_decay: Annotated[float | None, Field(ge=0, le=1e6, allow_inf_nan=False)] = None
    """default: that of the first stage"""
    batch_size: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """default: that of the first stage"""

    def sections(self, optim: BaseModel, train: BaseModel) -> dict[str, Any]:
        """Return the sections `optim` and `train` of the second stage.

        Diagnostics of training images belong to the first stage alone.
        """
        changes = self.model_dump(exclude_none=True)
        for_optim = {k: v for k, v in changes.items() if k in type(optim).model_fields}
        for_train = {k: v for k, v in changes.items() if k not in for_optim}
        for_train |= {"reference_run": None, "difficulty_groups": 5, "gradient_norm_samples": 0}
        return {
            "optim": optim.model_copy(update=for_optim),
            "train": train.model_copy(update=for_train),
        }

    def __str__(self) -> str:
        """Return `second` and the settings that are not at their default: the name of a row."""
        changed = self.model_dump(exclude_defaults=True)
        return "second" + "".join(f":{key}={value}" for key, value in changed.items())


class EvaluatedRecipe(ImageRecipe):
    """A recipe whose networks are tested on out-of-distribution images and image pairs too."""

    ood: list[str] = Field(default=[])
    """out-of-distribution test sets, NAME, near=NAME or far=NAME, or openood, the sets of OpenOOD
    1.5: their test parts are detected at the end"""
    pairs: list[Annotated[str, Field(min_length=1)]] = Field(default=[])
    """lists of image pairs to verify at the end: the same identity or not"""

    @field_validator("ood")
    @classmethod
    def _known_ood(cls, names: list[str]) -> list[str]:
        map_all(names, parse_ood_name)
        return names


class TrainRecipe(EvaluatedRecipe):
    """Training of objectives on images: what `marginctl train` runs."""

    minimal: ClassVar[Mapping[str, Any]] = {"task": "train"}

    task: Literal["train"]
    model: ModelSpec = ModelSpec.parse("resnet18")
    """a backbone: NAME:option=value,..."""
    weights: Annotated[str | None, Field(min_length=1)] = None
    """of the backbone at the start: pretrained, for the published weights of the model; a name,
    such as ResNet50_Weights.IMAGENET1K_V1 or timm/resnet50.a1_in1k; or a file with a state dict"""
    objectives: Objectives = Field(default=[parse("soft")])
    second_stage: SecondStage | None = None
    """a second stage that trains a new classifier on the frozen backbone"""

    @property
    def tuned_by_default(self) -> bool:
        return True

    def row_name(self, setting: Mapping[str, Any]) -> str:
        row = super().row_name(setting)
        return row if self.weights is None else f"{row}, weights={self.weights}"

    @property
    def tuning_problem(self) -> str | None:
        if self.second_stage is not None:
            return "a second stage has the learning rate of its own section: leave one of them out"
        return super().tuning_problem

    def stages(self, values: dict[str, Any]) -> list[tuple[dict[str, Any], Self]]:
        if self.second_stage is None:
            return [(values, self)]
        first = self.model_copy(update={"second_stage": None})
        return [
            ({**values, "stage": "first"}, first),
            ({**values, "stage": str(self.second_stage)}, self),
        ]

    def in_stage(self) -> Self:
        if self.second_stage is None:
            return self
        return self.model_copy(update=self.second_stage.sections(self.optim, self.train))

    @property
    def trainable_blocks(self) -> str:
        return "head" if self.retrains_classifier else "1-4"

    @property
    def retrains_classifier(self) -> bool:
        return self.second_stage is not None
