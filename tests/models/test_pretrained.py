"""Names of pretrained weights beside files and folders of these names."""

import pytest

from marginctl.models.pretrained import is_weights_name


@pytest.mark.parametrize(
    "name", ["resnet18", "vgg16_bn", "ResNet18_Weights.DEFAULT", "efficientnet-lite0"]
)
def test_a_folder_named_like_a_model_does_not_hide_it(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert is_weights_name(name)
    (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / name / "notes.txt").touch()
    assert is_weights_name(name)
    assert not is_weights_name(f"./{name}")
    (tmp_path / name / "inner" / "run.json").touch()
    assert not is_weights_name(name)  # a folder of runs is meant


@pytest.mark.parametrize("name", ["runs", "resnet", "checkpoint.pt", "résumé"])
def test_a_path_that_names_no_model_stays_a_path(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert not is_weights_name(name)
    (tmp_path / name).rmdir()
    (tmp_path / name).touch()
    assert not is_weights_name(name)
