"""The schema of a `transfer` recipe: trained networks on other images."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.objectives.parts import scale_source
from marginctl.objectives.schedules import parse_learning_rate
from marginctl.recipe import image_recipe
from marginctl.recipe.fields import Distinct, LearningRate, PositiveNumbers, Section
from marginctl.recipe.image_data import ImageData

Method = Literal["probe", "fine-tune"]

# Relative to the mean loss: scikit-learn's C is 1 / (n penalty). Ours: the paper gives none.
L2_PENALTIES = (10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


class Probe(Section):
    """A linear probe. The paper names L-BFGS (Section 7); all else is ours."""

    features: Literal["standardised", "unit", "raw"] = "standardised"
    """standardised: by mean and deviation of the training part; unit: of length 1"""
    l2_penalties: PositiveNumbers = Field(default=[*L2_PENALTIES], min_length=1, max_length=100)
    """penalties to choose from"""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """fraction of the training part that chooses the penalty"""
    tolerance: Annotated[float, Field(ge=1e-10, le=1e-2)] = 1e-6
    """on the gradient's largest entry; below a penalty of 1e-3 relative to it"""

    @field_validator("l2_penalties")
    @classmethod
    def _descending(cls, penalties: list[float]) -> list[float]:
        return sorted(set(penalties), reverse=True)


class TransferOptim(image_recipe.Optim):
    """The optimizer of fine-tuning: Table 8 of the temperature paper (Table 4b)."""

    lr: LearningRate = parse_learning_rate("cosine(end=0,start=0.1)")
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1e-4
    backbone_lr_factor: Annotated[float, Field(gt=0, le=1)] = 0.01
    """learning rate of the backbone relative to the classifier's"""


class TransferTraining(image_recipe.Training):
    """Epochs and batches of fine-tuning: Table 8 of the temperature paper (Table 4b)."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 60
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128


class TransferRecipe(image_recipe.ImageRecipe):
    """Linear probes or fine-tuning of trained networks: what `marginctl transfer` runs.

    `objectives`, `optim`, `train`, `tune` and `blocks` apply to fine-tuning only.
    """

    minimal: ClassVar[Mapping[str, Any]] = {"task": "transfer", "source_models": ["source"]}
    grid_keys: ClassVar[Sequence[str]] = (
        *("method", "blocks", "optim.backbone_lr_factor"),
        *(f"probe.{key}" for key in Probe.model_fields),
    )

    task: Literal["transfer"]
    source_models: Annotated[
        list[Annotated[str, Field(min_length=1)]], Field(min_length=1), Distinct
    ]
    """each a trial's folder, a folder of trials, a checkpoint, or weights:
    ResNet50_Weights.IMAGENET1K_V1, timm/resnet50.a1_in1k, efficientnet-lite0, resnet50=FILE"""
    method: Method = "probe"
    probe: Probe = Probe()
    blocks: image_recipe.Blocks = "1-4"
    model: ModelSpec | None = None
    """default: that of the source model"""
    objectives: image_recipe.Objectives = Field(default=[parse("soft:bias=true")])
    optim: TransferOptim = TransferOptim()
    train: TransferTraining = TransferTraining()
    baselines: list[Literal["probe"]] | None = None
    """classifiers to compare fine-tuning with; default: the probe on own data, none in a paper's
    recipe"""

    @model_validator(mode="after")
    def _valid_transfer(self) -> Self:
        data = self.data
        if any(scale_source(objective.spec) for objective in self.objectives):
            raise ValueError("objectives: transfer takes no scale from a run: give its value")
        if self.method == "probe" and (data.augment, data.label_noise) != ("none", 0.0):
            raise ValueError(
                f"data.augment = {data.augment} and data.label_noise = {data.label_noise:g} with "
                "method = probe: expected none and 0: its features are extracted once"
            )
        return self

    @property
    def tuned_by_default(self) -> bool:
        """Whether the recipe fine-tunes: a probe has no learning rate."""
        return "fine-tune" in self.grid.get("method", [self.method])

    @property
    def unused_by_a_probe(self) -> list[str]:
        """The keys that are set and have no effect, where every head is a probe."""
        if self.tuned_by_default:
            return []
        sections = {"optim": self.optim, "train": self.train}
        keys = [f"{name}.{k}" for name, one in sections.items() for k in one.model_fields_set]
        keys += ["blocks"] if "blocks" in self.model_fields_set else []
        keys += [key for key in self.grid if key.split(".")[0] in (*sections, "blocks")]
        return sorted(set(keys))

    def compares_heads(self, setting: Collection[str]) -> bool:
        """Whether an own recipe compares new classifiers; `setting` are the keys of its grid."""
        fine_tuned = self.method == "fine-tune" and len(self.objectives) > 1
        several = fine_tuned or self.adds_probe or not {*setting} <= {"data.name"}
        return self.paper is None and several

    @property
    def adds_probe(self) -> bool:
        """Whether a probe that the recipe does not ask for is the baseline of fine-tuning."""
        methods = self.grid.get("method", [self.method])
        if self.baselines is None:
            return self.paper is None and methods == ["fine-tune"] and not self.data.label_noise
        return bool(self.baselines)

    def as_probe(self) -> Self:
        """Return the recipe of the probe that is the baseline of this fine-tuning."""
        data = self.data.model_copy(update={"augment": "none"})
        changes = {"method": "probe", "data": data, "tune": None, "baselines": ["probe"]}
        train = self.train.model_copy(update={"precision": "fp32"})
        return self.model_copy(update={**changes, "train": train})

    @property
    def trainable_blocks(self) -> str:
        return self.blocks

    def for_source_model(
        self,
        source_model: str,
        model: ModelSpec,
        data: ImageData | None,
        image_size: int,
        resizing: Resizing = CENTER,
    ) -> Self:
        """Return the recipe of one source model, with images prepared as for its training.

        The other arguments are those of `data_like_source`.
        """
        image_recipe.check_same_model(self.model, model, source_model)
        section = self.data_like_source(data, image_size, resizing)
        document = self.model_dump(exclude={"grid"})
        if self.method == "probe":
            document["train"]["precision"] = "fp32"  # the precision of its features
        document |= {"source_models": [source_model], "model": model, "data": section}
        return self.revalidated(document, f"source_models = {source_model}")
