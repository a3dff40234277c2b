"""data list, fetch and verify."""

import shutil

import pytest

from marginctl.data import fetch
from marginctl.data.tabular import uci

pytestmark = pytest.mark.smoke


def test_without_data(marginctl, tmp_path):
    rows = marginctl("data", "list", "--data-dir", tmp_path, "--json").json
    assert {r["name"]: r["state"] for r in rows if r["state"] != "absent"} == {
        "iris": "built in",
        "balance-scale": "built in",
        "digits": "built in",
    }
    assert "haberman" in marginctl("data", "list", "--data-dir", tmp_path).out
    assert marginctl("data", "verify", "--data-dir", tmp_path).status == 0
    ran = marginctl("data", "verify", "haberman", "--data-dir", tmp_path)
    assert ran.status == 2
    assert "no file 'haberman.data'" in ran.err
    assert marginctl("data", "verify", "habermann").status == 2
    ran = marginctl("data", "fetch", "haberman", "--data-dir", tmp_path)
    assert ran.status == 1
    assert "cannot be downloaded: archive.ics.uci.edu: host not found" in ran.err
    assert marginctl("data", "fetch", "iris", "--data-dir", tmp_path).out == "iris: built in\n"


def test_present_and_corrupt(marginctl, tmp_path, data_dir):
    listed = marginctl("data", "list", "--json").json
    assert {r["state"] for r in listed if r["features"] and r["name"] != "digits"} == {"present"}
    assert marginctl("data", "verify").status == 0
    shutil.copytree(data_dir / "uci" / "haberman", tmp_path / "uci" / "haberman")
    path = tmp_path / "uci" / "haberman" / "haberman.data"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("30,64,1,1", "31,64,1,1"))
    ran = marginctl("data", "verify", "--data-dir", tmp_path)
    assert ran.status == 2
    assert "differs from the original files" in ran.err


def test_uci_cv_downloads_missing_data(marginctl, tmp_path, quick, data_dir, monkeypatch):
    def place(names, folder):
        for name in names:
            shutil.copytree(data_dir / "uci" / name, folder / "uci" / name)
        return {}

    from marginctl.experiments import uci_cv_session

    monkeypatch.setattr(uci_cv_session, "fetch_datasets", place)
    ran = marginctl(
        *("uci-cv", "--dataset", "haberman", "--objective", "soft", *quick),
        *("--data-dir", tmp_path / "data", "--out", tmp_path / "runs"),
    )
    assert ran.status == 0
    assert "fetching 1 data sets into" in ran.err


def test_offline_downloads_nothing(marginctl, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_resolves", lambda host, seconds: 1 / 0)
    ran = marginctl("uci-cv", "--dataset", "haberman", "--offline", "--data-dir", tmp_path)
    assert ran.status == 2
    assert "; not fetched" in ran.err
    assert len(uci.uci_definitions()) == 15


def test_images(marginctl, tmp_path, data_dir):
    rows = {r["name"]: r for r in marginctl("data", "list", "--json").json}
    assert rows["digits"]["state"] == "built in"
    assert rows["mnist"]["state"] == rows["cifar-100"]["state"] == "present"
    assert rows["mnist"]["instances"] == 70_000
    assert rows["svhn"]["state"] == "absent"
    verified = marginctl("data", "verify", "digits", "mnist", "cifar-100")
    assert verified.out == "digits: built in\nmnist: present\ncifar-100: present\n"
    assert marginctl("data", "verify", "images").status == 0
    assert marginctl("data", "verify", "svhn").status == 2
    assert rows["flowers-102"]["parts"] == {"train": 1020, "test": 6149, "val": 1020}
    assert rows["flowers-102"]["metric"] == "balanced_accuracy"
    assert (rows["eurosat"]["split"], rows["eurosat"]["terms"]) == ("ours", "MIT")
    present = marginctl("data", "fetch", "mnist", "--offline")
    assert (present.status, present.out) == (0, "mnist: present (terms of use: CC BY-SA 3.0)\n")


def test_images_that_cannot_be_had(marginctl, tmp_path, monkeypatch):
    from torchvision.datasets import Food101

    def fail(dataset):
        raise OSError("no network")

    monkeypatch.setattr(Food101, "_download", fail)
    ran = marginctl("data", "fetch", "food-101", "--data-dir", tmp_path)
    assert (ran.status, ran.out) == (
        1,
        "food-101: failed (terms of use: research; the images' authors hold the copyright)\n",
    )
    assert ran.err == (
        "error: data set 'food-101': cannot be downloaded: no network: put meta/train.json, "
        f"images/CLASS/IMAGE into {tmp_path / 'food-101'}\n"
    )
    offline = marginctl("data", "fetch", "food-101", "--offline", "--data-dir", tmp_path)
    assert offline.status == 2
    assert offline.out.startswith("food-101: absent")
    assert offline.err.startswith("error: data set 'food-101': no meta/train.json and images/CLASS")


def test_a_half_extracted_set_is_no_success(marginctl, tmp_path, monkeypatch):
    """torchvision downloads nothing where the folders exist."""
    from tests.data.miniatures import write_miniature

    write_miniature("food-101", tmp_path, monkeypatch)
    images = tmp_path / "food-101" / "images" / "waffles"
    (images / "3.jpg").unlink()
    ran = marginctl("data", "fetch", "food-101", "--data-dir", tmp_path)
    assert ran.status == 1
    assert ran.out.startswith("food-101: failed")
    (line,) = ran.err.splitlines()
    assert line.startswith(f"error: data set 'food-101': no image file {images / '3.jpg'}, of 6 ")


def test_all_images_are_too_many_to_fetch(marginctl, tmp_path):
    ran = marginctl("data", "fetch", "images", "--data-dir", tmp_path)
    assert (ran.status, ran.out, ran.err) == (
        2,
        "",
        "error: data fetch images: hundreds of gigabytes: name the sets one by one\n",
    )


def test_unknown_terms_are_not_invented(marginctl, tmp_path):
    ran = marginctl("data", "fetch", "flowers-102", "--offline", "--data-dir", tmp_path)
    assert (ran.status, ran.out) == (2, "flowers-102: absent\n")
