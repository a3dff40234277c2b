"""The rounds of a search, on synthetic records."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from marginctl.crossval.search_space import Grid, column_alternatives, grid_size
from marginctl.data.tabular.uci import load_uci as uci
from marginctl.errors import RequestError
from marginctl.experiments.uci_cv_trial import cost_seconds, total_cost
from marginctl.papers import PublishedMean
from marginctl.recipe.load import find_recipe, load_recipe
from marginctl.recipe.uci_cv import Protocol, Search, SearchRound, UciCvRecipe
from marginctl.search import successive_halving
from marginctl.search.successive_halving import ALL, halve, round_trials, selections
from tests.crossval.factories import dataset

BASE = Protocol(folds=3, repeats=2)
NAMES = ["a", "b", "c", "d", "e", "f"]


def recipe(**search):
    space = {"lr": [0.1, 0.2, 0.3], "epochs": [5, 10]}
    return UciCvRecipe(
        task="uci-cv",
        objectives=["soft", "arcface"],
        protocol=BASE,
        search=Search(protocol=space, **search),
    )


def settings_of(space, base):
    grid = Grid(space, base)
    return [grid.setting(number) for number in grid.sample().tolist()]


def test_a_grid_numbers_its_settings():
    settings = settings_of(recipe().search, BASE)
    assert [s.number for s in settings] == [1, 2, 3, 4, 5, 6]
    pairs = [(s.protocol.lr, s.protocol.epochs) for s in settings]
    assert pairs == [(0.1, 5), (0.1, 10), (0.2, 5), (0.2, 10), (0.3, 5), (0.3, 10)]
    assert all(s.protocol.folds == 3 for s in settings)


def test_a_sample_is_reproducible_and_part_of_the_grid():
    all_of_them = {s.number: s for s in settings_of(recipe().search, BASE)}
    drawn = settings_of(recipe(settings=3).search, BASE)
    assert drawn == settings_of(recipe(settings=3).search, BASE)
    assert len({s.number for s in drawn}) == 3
    assert all(s == all_of_them[s.number] for s in drawn)
    assert grid_size(recipe(settings=3).search) == 6
    assert len(settings_of(recipe(settings=99).search, BASE)) == 6


def test_every_third_data_set_is_held_out_in_turn():
    found = selections(["f", "a", "e", "b", "d", "c"])
    assert found[ALL] == (["f", "a", "e", "b", "d", "c"],) * 2
    held = [part for key, (_, part) in found.items() if key != ALL]
    assert held == [["a", "d"], ["b", "e"], ["c", "f"]]
    assert all(set(on) == set(NAMES) - set(part) for on, part in list(found.values())[1:])
    assert list(selections(["a", "b"])) == [ALL]


def run_search(made, accuracy, published):
    """Run a search whose networks have the accuracy `accuracy(trial)`."""
    datasets = [dataset(name=name) for name in NAMES]
    trained = []

    def train(trials, part):
        trained.append((part.round, {s.number for s in trials.values()}))
        folds = [[-1.0, 0.0, 1.0]]
        return {
            t: SimpleNamespace(accuracies=[[accuracy(t) + f for f in repeat] for repeat in folds])
            for t in trials
        }

    return halve(made, datasets, published, train), trained


def test_the_nearest_setting_is_kept():
    made = recipe(rounds=[SearchRound(repeats=1, keep=2), SearchRound(repeats=2, keep=1)])
    published = {(d, o): PublishedMean(80.0, 1.0, 100) for d in NAMES for o in ("soft", "arcface")}
    result, trained = run_search(made, lambda t: 100 * t.protocol.lr + 60, published)
    assert trained == [(1, {1, 2, 3, 4, 5, 6}), (2, {3, 4})]
    assert result.rounds == [{"repeats": 1, "settings": 6}, {"repeats": 2, "settings": 2}]
    assert [m.setting.number for m in result.matches] == [3, 4]
    assert result.matches[0].distance.mean_absolute == pytest.approx(0)
    assert [m.distance.mean_absolute for _, m in result.held_out] == [pytest.approx(0)] * 3
    assert result.networks == 6 * 12 * 3 + 2 * 12 * 6


def test_a_held_out_part_does_not_influence_its_selection():
    """Each part is matched by another setting: the score on it is that of the others' choice."""
    lr_of = {"a": 0.1, "d": 0.1, "b": 0.2, "e": 0.2, "c": 0.2, "f": 0.2}
    published = {(d, o): PublishedMean(80.0, 1.0, 100) for d in NAMES for o in ("soft", "arcface")}

    def accuracy(trial):
        return 80 + 100 * abs(trial.protocol.lr - lr_of[trial.dataset.name])

    made = recipe(rounds=[SearchRound(repeats=1, keep=1), SearchRound(repeats=2, keep=1)])
    result, _ = run_search(made, accuracy, published)
    # b and e held out: a and d are matched by 0.1, c and f by 0.2, and the first of a tie is taken
    assert [m.setting.protocol.lr for _, m in result.held_out] == [0.2, 0.1, 0.1]
    assert result.held_out[0][1].distance.mean_absolute == pytest.approx(10)
    assert result.matches[0].setting.protocol.lr == 0.2


def test_a_column_uses_its_nearest_alternative():
    made = recipe(options={"arcface": ["arcface:margin=0.1", "arcface:scale=20"]})
    texts = {column: [str(o) for o in way] for column, way in column_alternatives(made).items()}
    assert texts == {
        "soft": ["soft"],
        "arcface": ["arcface", "arcface:margin=0.1", "arcface:scale=20"],
    }
    published = {(d, o): PublishedMean(80.0, 1.0, 100) for d in NAMES for o in ("soft", "arcface")}
    result, _ = run_search(
        made, lambda t: 80 if str(t.objective) in ("soft", "arcface:scale=20") else 70, published
    )
    assert result.matches[0].objectives == {"soft": "soft", "arcface": "arcface:scale=20"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("protocol: {lrr: [1]}", "unknown key 'lrr'"),
        ("protocol: {repeats: [1]}", "unknown key 'repeats'"),
        ("protocol: {lr: [-1.0]}", "protocol.lr = -1.0: expected a number above 0"),
        ("protocol: {lr: []}", "search.protocol.lr"),
        ("protocol: {lr: [0.1]}\n  rounds: [{repeats: 0, keep: 1}]", "repeats = 0"),
        ("protocol: {lr: [0.1]}\n  options: {arcfac: [soft]}", "Did you mean 'arcface'?"),
        ("protocol: {lr: [0.1]}\n  option: {}", "unknown key 'search.option'"),
        ("protocol: {lr: [0.1]}\n  rounds: [{repeat: 1}]", "unknown key 'search.rounds.0.repeat'"),
    ],
)
def test_an_invalid_search_is_refused(tmp_path, section, message):
    from marginctl.recipe.load import RecipeFile
    from marginctl.recipe.uci_cv import UciCvRecipe

    path = tmp_path / "r.yaml"
    path.write_text(f"task: uci-cv\nobjectives: [soft]\nsearch:\n  {section}\n")
    with pytest.raises(RequestError) as caught:
        load_recipe(RecipeFile("r", path), UciCvRecipe)
    assert message in str(caught.value)


def test_a_round_in_parts_equals_a_single_part(monkeypatch):
    """Settings that share a stack stay together, and each selection keeps its own nearest."""
    made = recipe(rounds=[SearchRound(repeats=1, keep=2), SearchRound(repeats=2, keep=1)])
    published = {(d, o): PublishedMean(80.0, 1.0, 100) for d in NAMES for o in ("soft", "arcface")}

    def accuracy(trial):
        return 100 * trial.protocol.lr + 55 + trial.protocol.epochs + ord(trial.dataset.name) % 3

    at_once, _ = run_search(made, accuracy, published)
    monkeypatch.setattr(successive_halving, "TRIALS_PER_PART", 1)
    in_parts, trained = run_search(made, accuracy, published)
    assert [numbers for number, numbers in trained if number == 1] == [{1, 3, 5}, {2, 4, 6}]
    assert in_parts.rounds == at_once.rounds
    assert in_parts.networks == at_once.networks
    for one, other in (
        (in_parts.matches, at_once.matches),
        *zip(([m] for _, m in in_parts.held_out), ([m] for _, m in at_once.held_out), strict=True),
    ):
        assert [m.as_json() for m in one] == [m.as_json() for m in other]


MILLION = """
paper: arcgrad
table: I
task: uci-cv
datasets: [iris]
objectives: [soft, "arcface:margin=0.1,scale=20"]
search:
  protocol:
    epochs: [{hundred}]
    batch_size: [{hundred}]
    lr: [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 9e-3, 1e-2]
    momentum: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
  rounds: [{{repeats: 1, keep: 3}}]
"""


def test_planning_a_million_settings_takes_little_memory(tmp_path, marginctl):
    """Ten million trials and more are refused in one line."""
    path = tmp_path / "million.yaml"
    path.write_text(MILLION.format(hundred=", ".join(map(str, range(1, 101)))))
    code = (
        # ru_maxrss would have the peak of this process, whose fork it was
        "import re, sys; from marginctl.cli import run; assert run(sys.argv[1:]) == 0; "
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)"
    )
    line = ["uci-cv", "--search", str(path), "--dry-run", "--json", "--out", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-c", code, *line], capture_output=True, text=True, check=True, timeout=60
    )
    document, mebibytes = ran.stdout.rsplit("\n", 2)[:2]
    planned = json.loads(document)["dry_run"]
    assert planned["settings"] == 1_000_000
    assert planned["networks"] == 2 * 10 * 1_000_000
    assert int(mebibytes) < 400
    more = "search.protocol.weight_decay=[" + ", ".join(f"{i}e-6" for i in range(11)) + "]"
    refused = marginctl(*line, "--set", more)
    assert refused.status == 2
    assert "a grid of 11000000 settings: expected at most 10000000" in refused.err


def test_a_plan_equals_the_sum_over_its_trials(marginctl, tmp_path):
    """The arithmetic by kinds of settings against the sum over every trial."""
    path = tmp_path / "near.yaml"
    path.write_text(
        MILLION.format(hundred="3, 9, 27").replace("[iris]", "[iris, balance-scale]")
        + "  settings: 130\n"
    )
    line = ["uci-cv", "--search", path, "--dry-run", "--json", "--workers", "1"]
    planned = marginctl(*line, "--out", tmp_path).json["dry_run"]
    made = load_recipe(find_recipe(str(path)), UciCvRecipe)
    settings = [s.with_repeats(1) for s in settings_of(made.search, made.protocol)]
    trials = round_trials(settings, [uci(n, tmp_path) for n in made.datasets], made)
    assert planned["networks"] == sum(trial.networks for trial in trials)
    assert planned["seconds"] == pytest.approx(cost_seconds(total_cost(trials), 1), abs=1.01)
