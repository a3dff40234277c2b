"""Trials of two stages: a second one goes on from the first of its own objective and seed"""

from marginctl.experiments.training_trial import expand_trials
from marginctl.recipe.train import TrainRecipe

TWICE = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"


def trials(**changes):
    recipe = TrainRecipe.model_validate({"task": "train", "model": "mlp", **changes})
    settings = recipe.settings()
    digests = {own.data.model_dump_json(): str(own.data.subset_fraction) for _, own in settings}
    return expand_trials(settings, digests, {}, {}, dict.fromkeys(digests.values(), ()))


def test_a_second_stage_knows_its_first_one():
    shares = {"grid": {"data.subset_fraction": [0.5, 1.0]}}
    more = {"objectives": [TWICE, "soft", "cosine-ls"], "seeds": [3, 4, 5], **shares}
    found = trials(second_stage={"epochs": 2}, **more)
    assert len(found) == len({trial.id for trial in found}) == 2 * 2 * 3 * 3
    for trial in found:
        assert (trial.first_stage is None) == (trial.setting["stage"] == "first")
        if trial.first_stage is not None:
            own, other = (
                (str(t.objective), t.seed, t.data, t.setting["data.subset_fraction"])
                for t in (trial, trial.first_stage)
            )
            assert own == other
            assert (trial.first_stage.first_stage, trial.first_stage.recipe.second_stage) == (
                None,
                None,
            )
            assert trial.identity["first_stage"] == trial.first_stage.id
    assert [t.id for t in found if t.first_stage is None] == [t.id for t in trials(**more)]


def test_a_second_stage_is_known_by_both():
    (_, one), (_, longer) = (trials(second_stage={"epochs": n}) for n in (1, 2))
    (_, other) = trials(second_stage={"epochs": 1}, train={"epochs": 3})
    (_, drawn) = trials(second_stage={"epochs": 1, "sampling": "random"})
    assert len({t.id for t in (one, longer, other, drawn)}) == 4
    assert (
        one.first_stage.id == longer.first_stage.id == drawn.first_stage.id != other.first_stage.id
    )
