"""Names that users bring from papers and other libraries: the line says what they are here."""

import pytest

IMAGES = ("train", "--data", "digits", "--dry-run")


def error_of(ran):
    assert (ran.status, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    return line.removeprefix("error: ")


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("softmax", "soft"),
        ("Softmax", "soft"),
        ("cross-entropy", "soft"),
        ("cross_entropy", "soft"),
        ("logistic", "soft"),
        ("ArcFace", "arcface"),
        ("am-softmax", "cosface"),
    ],
)
def test_an_objective_by_another_name(marginctl, name, ours):
    line = error_of(marginctl(*IMAGES, "--objective", name))
    assert line == f"--objective: objective '{name}' is named '{ours}' here"


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (("--objective", "arcface:m=0.5"), "Did you mean 'margin'?"),
        (("--objective", "arcface:s=64"), "Did you mean 'scale'?"),
        (("--set", "lr=0.1"), "Did you mean 'optim.lr'?"),
        (("--set", "learning_rate=0.1"), "Did you mean 'optim.lr'?"),
        (("--set", "epochs=3"), "Did you mean 'train.epochs'?"),
        (("--set", "optim.learning_rate=0.1"), "Did you mean 'optim.lr'?"),
    ],
)
def test_options_and_keys(marginctl, arguments, end):
    assert error_of(marginctl(*IMAGES, *arguments)).endswith(f". {end}")


def test_keys_of_a_table(marginctl):
    line = error_of(marginctl("uci-cv", "--set", "learning_rate=0.1", "--dry-run"))
    assert line.endswith(". Did you mean 'protocol.lr'?")


def test_images(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "train").mkdir(parents=True)
    line = error_of(marginctl("train", "--data", "photos"))
    assert line == "--data: image set 'photos': is a folder: write folder:photos"
    (tmp_path / "MNIST").mkdir()  # the folder of torchvision
    line = error_of(marginctl("train", "--data", "MNIST"))
    assert line == "--data: image set 'MNIST' is named 'mnist' here"
    line = error_of(marginctl("train", "--data", "CIFAR10"))
    assert line.endswith(". Did you mean 'cifar-10'?")


def test_tables_with_roman_numbers(marginctl):
    line = error_of(marginctl("report", "--list", "--paper", "arcgrad", "--table", "4"))
    assert line.endswith(". Did you mean 'IV'?")


def test_report_reads_the_default_runs_folder(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = error_of(marginctl("report"))
    assert line.startswith("RUNS is missing, and there is no folder runs: expected runs folders")
    options = ("--dataset", "iris", "--objective", "soft", "--set", "protocol.epochs=1")
    assert marginctl("uci-cv", *options, "--set", "protocol.repeats=1", "--quiet").status == 0
    assert marginctl("report").out == marginctl("report", "runs").out != ""


def test_train_without_anything_says_what_it_trains(marginctl, tmp_path, monkeypatch):
    from marginctl.recipe.train import TrainRecipe

    monkeypatch.chdir(tmp_path)
    line = "defaults: --data digits --model resnet18 --objective soft"
    assert marginctl("train", "--dry-run").err.splitlines()[0] == line
    default = TrainRecipe(task="train")
    assert (default.data.name, str(default.model), str(default.objectives[0])) == (
        "digits",
        "resnet18",
        "soft",
    )
    assert line not in marginctl("train", "--data", "digits", "--dry-run").err
