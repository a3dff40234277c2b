"""Recipes: every problem at once, each with its place; YAML's traps; overrides."""

from pathlib import Path

import pytest

import marginctl
from marginctl.errors import RequestError
from marginctl.experiments.tasks import load_any_recipe
from marginctl.recipe import load as recipes
from marginctl.recipe.load import RecipeFile, load_recipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.utils.yaml import parse

GOOD = """\
task: uci-cv
datasets: [iris, haberman]
objectives: [soft, "arcgrad:scale=5"]
protocol:
  lr: 1e-3
  epochs: 5
"""


BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> RecipeFile:
        path = tmp_path / "r.yaml"
        path.write_text(text)
        return RecipeFile("r", path)

    return write


def problems(source, *overrides, options=None) -> list[str]:
    with pytest.raises(RequestError) as caught:
        load_recipe(source, UciCvRecipe, overrides, options)
    return [line.replace(f"{source.path}", "r.yaml") for line in caught.value.lines]


@pytest.mark.parametrize("name", recipes.shipped_recipes())
def test_every_shipped_recipe_is_valid_and_opens_with_a_comment(name):
    path = recipes.shipped_recipes()[name]
    loaded = load_any_recipe(recipes.find_recipe(name))
    head = path.read_text().split("\n\n")[0].split("about:")[0].split("paper:")[0]
    assert all(line.startswith("#") for line in head.strip().splitlines())
    for word in ("Needs:", "Time:", "Expect:"):
        assert word in head
    assert loaded.about.cost
    assert loaded.about.data


def test_table1_has_the_papers_rows_and_columns():
    loaded = load_recipe(recipes.find_recipe("arcgrad/table1"), UciCvRecipe)
    assert len(loaded.dataset_names) == 15
    assert [str(o) for o in loaded.objectives] == [
        "soft",
        "center",
        "m-soft",
        "arcface:margin=0.1,scale=20",
        "adacos",
        "arcgrad:scale=30",
        "arcgrad:scale=5",
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ["protocol.batch_norm=after-relu", "protocol.batch_size=1"],
        ["grid.batch_norm=[none,before-relu]", "protocol.batch_size=1"],
        ["protocol.batch_norm=before-relu", "grid.batch_size=[1,32]"],
        ["tune.protocol.batch_size=[32,1]", "protocol.batch_norm=after-relu"],
        ["search.protocol.batch_size=[1]", "search.protocol.batch_norm=[after-relu]"],
    ],
    ids=str,
)
def test_batch_normalisation_of_single_rows_is_refused(overrides):
    with pytest.raises(RequestError) as caught:
        load_recipe(recipes.find_recipe("arcgrad/table1"), UciCvRecipe, overrides)
    (line,) = caught.value.lines
    assert "protocol.batch_size = 1, expected at least 2 with protocol.batch_norm" in line
    load_recipe(recipes.find_recipe("arcgrad/table1"), UciCvRecipe, [*overrides[:1]])


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "rates: [0.1], protocol: {lr: [0.1]}",
            "tune.rates: expected no 'options' and no 'protocol.lr'",
        ),
        ("rates: [0.1], options: {soft: [center]}", "tune.rates: expected no 'options'"),
        ("settings: 3", "tune.settings: draws from a grid: name 'options' or 'protocol.lr'"),
        ("rates: []", "tune.rates"),
        ("rates: [0]", "tune.rates.0 = 0: expected greater than 0"),
    ],
)
def test_a_section_tune_has_one_form(write, section, expected):
    found = problems(write(GOOD + f"tune: {{{section}}}\n"))
    assert any(expected in line for line in found), found


def test_a_rate_without_a_largest_value_cannot_be_tuned(write):
    text = GOOD.replace("lr: 1e-3", "lr: l-softmax")
    assert text != GOOD
    load_recipe(write(text), UciCvRecipe)
    (line,) = problems(write(text + "tune: {}\n"))
    assert "no largest value that tuning could change: use another schedule" in line


def test_a_good_recipe(write):
    loaded = load_recipe(write(GOOD), UciCvRecipe)
    assert loaded.protocol.lr == 0.001
    assert loaded.seeds == [0]
    assert loaded.dataset_names == ["iris", "haberman"]


def test_every_error_at_once_with_line_key_and_a_suggestion(write):
    text = """\
task: uci-cv
datasets: [iris, habermann]
objectives: [sofd, "arcgrad:scale=-1", "arcgrad:scal=3"]
protocol:
  epoch: 5
  lr: fast
  folds: 1
  hidden: [10, 0]
seeds: [-1]
sed: 3
"""
    found = problems(write(text))
    expected = [
        ("r.yaml:2: unknown data set 'habermann'", "Did you mean 'haberman'?"),
        ("r.yaml:3: unknown objective 'sofd'", "Did you mean 'soft'?"),
        ("r.yaml:3: objective 'arcgrad': scale = '-1': expected a finite number above 0", ""),
        ("r.yaml:3: objective 'arcgrad': unknown option 'scal'", "Did you mean 'scale'?"),
        ("r.yaml:5: unknown key 'protocol.epoch'", "Did you mean 'epochs'?"),
        ("r.yaml:6: protocol.lr = 'fast': expected a number above 0", ""),
        ("r.yaml:7: protocol.folds = 1: expected greater than or equal to 2", ""),
        ("r.yaml:8: protocol.hidden.1 = 0: expected greater than or equal to 1", ""),
        ("r.yaml:9: seeds.0 = -1: expected greater than or equal to 0", ""),
        ("r.yaml:10: unknown key 'sed'", "Did you mean 'seeds'?"),
    ]
    for start, end in expected:
        assert any(line.startswith(start) and line.endswith(end) for line in found), (start, found)
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "r.yaml:1: expected a mapping"),
        ("- a\n", "r.yaml:1: expected a mapping"),
        ("task: uci-cv\ntask: uci-cv\n", "r.yaml:2: duplicate key 'task'"),
        ("task: uci-cv\n\tdatasets: all\n", "r.yaml:2: not valid YAML"),
        ("task: [uci-cv\n", "not valid YAML"),
        (
            "task: !!python/object:os.system x\n",
            "with the tag !!python/object:os.system: leave tags out",
        ),
        ("task: *x\n", "not valid YAML"),
        ("task: !!bool foo\n", "r.yaml:1: 'foo' with the tag !!bool: leave tags out"),
        ("task: !!timestamp foo\n", "tag !!timestamp"),
        ("task: !!int ''\n", "tag !!int"),
        (BILLION, "more than 100000 values"),
        (GOOD + "paper: ../x\n", "r.yaml:7: paper = '../x'"),
        ("task: uci-cv\n", "r.yaml:1: key 'objectives' is missing"),
        (GOOD.replace("uci-cv", "ucicv"), "r.yaml:1: task = 'ucicv': expected 'uci-cv'"),
        (GOOD.replace("epochs: 5", "epochs: 010"), "r.yaml:6: protocol.epochs = '010'"),
        (GOOD.replace("epochs: 5", "epochs: yes"), "protocol.epochs = 'yes': expected an integer"),
        (GOOD.replace("epochs: 5", "epochs: 5.0"), "protocol.epochs = 5.0"),
        (GOOD.replace("epochs: 5", "epochs: true"), "protocol.epochs = True"),
        (
            GOOD.replace("epochs: 5", "stratified: no"),
            "protocol.stratified = 'no': expected true, false or equal-test-counts",
        ),
        (GOOD.replace("1e-3", ".nan"), "protocol.lr = nan"),
        (GOOD.replace("1e-3", ".inf"), "protocol.lr = inf"),
        (GOOD.replace("[iris, haberman]", "[]"), "r.yaml:2: datasets = []: expected"),
        (GOOD.replace("[iris, haberman]", "everything"), "datasets = 'everything'"),
        (GOOD.replace("[iris, haberman]", "{a: 1}"), "datasets = {'a': 1}"),
    ],
)
def test_traps_and_mistakes(write, text, message):
    assert any(message in line for line in problems(write(text))), problems(write(text))


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"task: \xff\xfe")
    assert problems(RecipeFile("r", path)) == ["r.yaml: not UTF-8 text at byte 6: save it as UTF-8"]


def test_a_byte_order_mark_and_a_path_with_blanks_and_umlauts(tmp_path):
    folder = tmp_path / "Ordner für Läufe"
    folder.mkdir()
    path = folder / "mein rezept.yaml"
    path.write_text("\ufeff" + GOOD)
    source = recipes.find_recipe(str(path))
    assert source.name == "mein-rezept"
    assert load_recipe(source, UciCvRecipe).protocol.epochs == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("-2.5e-1", -0.25),
        (".5", 0.5),
        ("5.", 5.0),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("2026-01-01", "2026-01-01"),
        ("12:30:00", "12:30:00"),
        ("null", None),
        ("~", None),
        ("'1'", "1"),
        ("-3", -3),
        ("=", "="),
        ("[1, a]", [1, "a"]),
    ],
)
def test_scalars(text, value):
    got = parse(text, "x")[0]
    assert got == value
    assert type(got) is type(value)


def test_overrides(write):
    source = write(GOOD)
    changed = load_recipe(
        source, UciCvRecipe, ["protocol.epochs=7", "seeds=[1, 2]", "protocol.hidden=[3]"]
    )
    assert (changed.protocol.epochs, changed.seeds, changed.protocol.hidden) == (7, [1, 2], [3])
    other = load_recipe(source, UciCvRecipe, ["objectives=[arcgrad:scale=5]"])
    assert [str(o) for o in other.objectives] == ["arcgrad:scale=5"]
    assert (
        load_recipe(source, UciCvRecipe, (), {"protocol.folds": ("--folds", 4)}).protocol.folds == 4
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("protocol.epoch=7", "--set protocol.epoch=7: unknown key 'protocol.epoch'"),
        (
            "protocol.epochs=x",
            "--set protocol.epochs=x: protocol.epochs = 'x': expected an integer",
        ),
        ("protocol.epochs", "--set protocol.epochs: expected dotted.key=value"),
        ("=3", "--set =3: expected dotted.key=value"),
        ("task.x=3", "r.yaml:1: 'task' is not a mapping"),
        ("paper=\udcff", "--set paper=: '\\udcff' is not text: write it as UTF-8"),
        ("seeds=&a [*a]", "--set seeds=&a [*a]: not valid YAML: nested too deeply, or an anchor"),
        ("seeds=" + "9" * 5000, f"--set seeds={'9' * 51}...: '{'9' * 57}...' with the tag !!int"),
        ("seeds=[1", "--set seeds=[1: not valid YAML"),
        ("a.b.c=3", "--set a.b.c=3: unknown key 'a'"),
        ("protocol.str=1", "--set protocol.str=1: unknown key 'protocol.str'"),
        ("protocol.int=1", "--set protocol.int=1: unknown key 'protocol.int'"),
        ("str=1", "--set str=1: unknown key 'str'"),
        ("str.x=1", "--set str.x=1: unknown key 'str'"),
        (".seeds=1", "--set .seeds=1: expected dotted.key=value"),
        ("objectives.0=soft", "r.yaml:3: 'objectives' is not a mapping and has no keys below it"),
        *(
            (f"{key}=1", f"--set {key}=1: a key has no brackets: set a list as a whole")
            for key in ("objectives[0]", "x[0]", "[", "protocol[epochs]", "grid.lr[0]")
        ),
    ],
)
def test_bad_overrides(write, override, message):
    assert any(line.startswith(message) for line in problems(write(GOOD), override))


@pytest.mark.parametrize("key", ["x[0]", "[", "function-after[x]", "str", "list[str]"])
def test_an_unknown_key_that_is_spelt_like_a_union_s_branch(write, key):
    found = problems(write(f'{GOOD}"{key}": 1\n'))
    assert len(found) == 1
    assert found[0].startswith(f"r.yaml:7: unknown key '{key}': expected one of paper,")
    inner = problems(write(GOOD.replace("epochs: 5", f'"{key}": 5')))
    assert len(inner) == 1
    assert inner[0].startswith(f"r.yaml:6: unknown key 'protocol.{key}': expected one of")


@pytest.mark.parametrize(
    ("key", "option", "value", "override"),
    [
        ("objectives", "--objective", ["soft"], "objectives=[arcface]"),
        ("protocol.folds", "--folds", 5, "protocol.folds=3"),
        ("protocol.folds", "--folds", 5, "protocol={folds: 3}"),
        ("seeds", "--seed", [1], " seeds = [2]"),
        ("protocol.folds", "--folds", 5, "protocol.folds.x=3"),
    ],
)
def test_an_option_and_an_override_of_one_key_are_refused(write, key, option, value, override):
    found = problems(write(GOOD), override, options={key: (option, value)})
    assert len(found) == 1
    assert found[0].startswith(f"{option} and --set ")
    assert found[0].endswith(f": both set '{key}': give one of them")
    others = {key: (option, None), "protocol.repeats": ("--repeats", 2)}
    if ".x" not in override:
        assert load_recipe(write(GOOD), UciCvRecipe, [override], others).protocol.repeats == 2


def test_an_option_whose_key_the_grid_sets_is_refused(marginctl):
    ran = marginctl(
        *("train", "--data", "digits", "--epochs", 3, "--set", "grid.train.epochs=[1, 2]")
    )
    assert (ran.status, ran.err) == (
        2,
        "error: --epochs: the grid sets 'train.epochs': give --set grid.train.epochs=[...]\n",
    )


def test_an_option_names_itself(write):
    found = problems(write(GOOD), options={"protocol.folds": ("--folds", 1)})
    assert found == ["--folds: protocol.folds = 1: expected greater than or equal to 2"]


def test_what_is_no_text_is_one_line(write):
    """A path's byte that is no UTF-8, as the command line hands it over."""
    found = problems(write(GOOD), options={"datasets": ("--dataset", ["iris", "b\udcfc"])})
    assert found == [
        "--dataset: 'b\\udcfc': is no text in this locale: rename it, or set LC_ALL=C.UTF-8"
    ]


def test_objectives_from_parts(write):
    parts = """[{similarity: angle, scale: {kind: fixed, value: 5},
      regularizers: [center, {kind: label-smoothing, strength: 0.2}]}, "similarity=cosine"]"""
    loaded = load_recipe(write(GOOD.replace('[soft, "arcgrad:scale=5"]', parts)), UciCvRecipe)
    assert [str(o) for o in loaded.objectives] == [
        "similarity=angle;scale=fixed(value=5);regularizers=center+label-smoothing(strength=0.2)",
        "similarity=cosine",
    ]
    wrong = GOOD.replace('[soft, "arcgrad:scale=5"]', "[{similarity: angle, scale: adacos}, 3]")
    found = problems(write(wrong))
    assert len(found) == 2
    assert "r.yaml:3: objective: 'adacos' is defined on cosines" in found[0]
    assert found[1] == "r.yaml:3: objective 3: expected a name, or a mapping of parts"


def test_written_twice_counts_once(write):
    text = GOOD.replace('[soft, "arcgrad:scale=5"]', '["arcgrad:scale=5.0", "arcgrad:scale=5"]')
    loaded = load_recipe(write(text), UciCvRecipe)
    assert [str(o) for o in loaded.objectives] == ["arcgrad:scale=5"]


def test_an_unknown_recipe_suggests_a_shipped_one():
    with pytest.raises(RequestError, match=r"Did you mean 'arcgrad/table1'\?"):
        recipes.find_recipe("arcgrad/tabel1")


def test_shipped_recipes_are_read_live_in_a_checkout():
    assert recipes.recipes_folder() == Path(marginctl.__file__).parent.parent / "recipes"
