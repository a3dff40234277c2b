"""The second stage of a training: a new classifier on the frozen backbone of the first one."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from marginctl.recipe.fields import STRICT, OwnRate

Sampling = Literal["random", "class-balanced"]


class Second(BaseModel):
    """How long, and how, the second stage of a long-tailed training takes (Temperature, Table 8).

    What is left out is as in the first stage. That the backbone stands still meanwhile, statistics
    of batch normalisation included, and that the classifier is drawn anew by the seed, is usual for
    long tails (Kang et al. 2020, classifier re-training); of the paper's own our text has "2nd".
    """

    model_config = STRICT

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 30
    sampling: Annotated[
        Sampling, Field(description="class-balanced: a class at random, then an image of it")
    ] = "class-balanced"
    lr: Annotated[OwnRate, Field(description="left out: as in the first stage")] = None
    weight_decay: Annotated[
        float | None,
        Field(ge=0, le=1e6, allow_inf_nan=False, description="left out: as in the first stage"),
    ] = None
    batch_size: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="left out: as in the first stage")
    ] = None

    def over(self, optim: BaseModel, train: BaseModel) -> dict[str, Any]:
        """The sections `optim` and `train` of the second stage, from those of the first.

        What becomes of training images (`train.reference_run`, `train.gradient_norm_samples`) is
        recorded in the
        first stage alone.
        """
        own = self.model_dump(exclude_none=True)
        of_optim = {key: value for key, value in own.items() if key in type(optim).model_fields}
        of_train = {key: value for key, value in own.items() if key not in of_optim}
        of_train |= {"reference_run": None, "difficulty_groups": 5, "gradient_norm_samples": 0}
        return {
            "optim": optim.model_copy(update=of_optim),
            "train": train.model_copy(update=of_train),
        }

    def __str__(self) -> str:
        """`second`, and what is not at its default: of two second stages the rows differ."""
        own = self.model_dump(exclude_defaults=True)
        return "second" + "".join(f":{key}={value}" for key, value in own.items())
