"""Hostile files and names: real commands run no code of a file and obey no name in a terminal."""

import hashlib
import io
import os
import pickle
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from marginctl.cli import run as run_command
from tests.reports.formats.html.test_page import ParsedPage

pytestmark = pytest.mark.smoke

SMALL = ("--device", "cpu", "--quiet")
MARKUP = "<script>alert(1)</script>\" onload='x"  # a folder's name has no slash
MARKUP = MARKUP.replace("/", "\u2215")
ADDRESS = "javascript:alert(1)"
CONTROL = "\x1b[31m\x1b]0;title\x07\u202e"
LATEX = "a_b%c&d#e$f{g}h~i^j\\k"
NAMES = (f"{MARKUP}{CONTROL}", f"{ADDRESS}{LATEX}|`*")


class Payload:
    """Creates the file `ran` if a pickle of it is loaded."""

    def __reduce__(self):
        return os.system, ("touch ran",)


PAYLOAD = pickle.dumps(Payload())


def array_of_payload():
    content = io.BytesIO()
    value = np.empty(1, object)
    value[0] = Payload()
    np.savez(content, logits=value, labels=value)
    return content.getvalue()


def checkpoint_of_payload():
    content = io.BytesIO()
    torch.save({"model": Payload()}, content)
    return content.getvalue()


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A runs folder of training and cross-validation on data whose names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    stream = np.random.default_rng(0)
    data = folder / f"set{LATEX[:-2]}{CONTROL}"
    for part in ("train", "val"):
        for name in NAMES:
            (data / part / name).mkdir(parents=True)
            for i in range(6):
                pixels = stream.integers(0, 256, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).save(data / part / name / f"{i}.png")
    table = folder / f"{MARKUP[:20]}{CONTROL}{LATEX[:-2]}.csv"
    rows = [f"{i % 7},{i % 5},{'xy'[i % 2]}{LATEX}{MARKUP.replace(chr(34), '')}" for i in range(40)]
    table.write_text("\n".join([f"a{CONTROL},b{MARKUP.replace(chr(34), '')},kind", *rows]))
    store = folder / "store"
    for arguments in (
        *(
            ("train", "--data", f"folder:{data}", "--model", "mlp:width=4", "--epochs", "2", *more)
            for more in (("--objective", "soft"), ("--objective", "cosine-ls"))
        ),
        (
            *("uci-cv", "--csv", table, "--target", "kind", "--folds", "2", "--repeats", "1"),
            *("--set", "protocol.epochs=1", "--objective", "soft", "--workers", "1"),
        ),
    ):
        small = ("--quiet",) if arguments[0] == "uci-cv" else (*SMALL, "--set", "data.image_size=4")
        assert run_command([*map(str, arguments), *small, "--out", str(store)]) == 0
    return folder, data, table, store


def test_the_payload_would_run():
    pickle.loads(PAYLOAD)
    assert Path("ran").exists()


def test_no_checkpoint_runs_code(marginctl, hostile):
    shutil.copytree(hostile[3], "store")
    for data in (PAYLOAD, checkpoint_of_payload()):
        for path in Path("store").rglob("checkpoints/*.pt"):
            path.unlink()
            name = f"{path.name.rpartition('-')[0]}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
            path.with_name(name).write_bytes(data)
        trial = next(Path("store").rglob("checkpoints")).parent
        for command in (
            ("eval", trial),
            ("calibrate", trial),
            ("transfer", "--from", trial, "--data", "digits"),
            ("cosify", "--from", trial),
        ):
            ran = marginctl(*command)
            assert ran.status == 2, command
            assert "is not a checkpoint of marginctl train" in ran.err
    assert not Path("ran").exists()


def test_no_array_runs_code(marginctl):
    for name, data in (("o.npz", array_of_payload()), ("p.npz", PAYLOAD), ("q.npz", b"")):
        Path(name).write_bytes(data)
        ran = marginctl("calibrate", name)
        assert ran.status == 2
        assert ran.err.startswith(f"error: {name}: ")
    Path("map.json").write_bytes(PAYLOAD)
    assert marginctl("eval", ".", "--calibration", "map.json").status == 2
    assert not Path("ran").exists()


def test_no_cached_feature_runs_code(marginctl):
    train = ("train", "--data", "digits", "--set", "data.subset_size=40", "--model", "mlp:width=4")
    assert marginctl(*train, "--epochs", "1", *SMALL, "--out", "sources").status == 0
    probe = ("transfer", "--from", "sources/digits-mlp-width-4", "--data", "digits", *SMALL)
    probe += ("--set", "data.subset_size=40", "--set", "probe.l2_penalties=[0.1]", "--out", "store")
    first = marginctl(*probe, "--json").json
    cached = list(Path("store").rglob("*.npy"))
    assert cached
    for path in cached:
        path.unlink()
        name = f"{path.stem.rpartition('-')[0]}-{hashlib.sha256(PAYLOAD).hexdigest()[:16]}.npy"
        path.with_name(name).write_bytes(PAYLOAD)
    for path in Path("store").rglob("result.json"):
        path.unlink()
    again = marginctl(*probe, "--json")
    assert again.err.count("is corrupt: recomputing") == len(cached)
    assert again.json["cells"][0]["top1"] == first["cells"][0]["top1"]
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['touch ran']",
        "!!python/object/new:os.system ['touch ran']",
        "!!python/name:os.system",
        "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch ran']",
    ],
)
def test_no_recipe_runs_code(marginctl, value):
    Path("r.yaml").write_text(f"task: train\npaper: {value}\nobjectives: [soft]\n")
    for command in (("recipes", "validate", "r.yaml"), ("train", "r.yaml")):
        ran = marginctl(*command)
        assert ran.status == 2
        assert ran.err.startswith("error: r.yaml:2: ")
    assert marginctl("train", "--set", f"paper={value}").status == 2
    assert not Path("ran").exists()


FORMATS = ("table", "markdown", "latex", "csv", "json")


def test_no_name_reaches_the_terminal_raw(marginctl, hostile):
    _, data, table, store = hostile
    train = ("train", "--data", f"folder:{data}", "--model", "mlp:width=4", "--epochs", "2")
    train += ("--set", "data.image_size=4", "--device", "cpu", "--out", store)
    uci = ("uci-cv", "--csv", table, "--target", "kind", "--folds", "2", "--repeats", "1")
    uci += ("--set", "protocol.epochs=1", "--objective", "soft", "--out", store)
    trial = next(p.parent for p in store.rglob("checkpoints"))
    refused = data.parent / f"{CONTROL}.yaml"
    refused.write_text(f"task: train\n# {CONTROL}\nobjectivs: [soft]\n")
    runs = [
        *(marginctl("report", store, "--format", kind) for kind in FORMATS),
        *(marginctl(*command, "--format", k) for command in (train, uci) for k in FORMATS[::3]),
        *(marginctl(*command, *more) for command in (train, uci) for more in (["--dry-run"],)),
        marginctl("report", store, "--explain", f"{table.name}/soft"),
        marginctl("report", "--diff", store, store),
        marginctl("eval", trial, "--device", "cpu"),
        marginctl("eval", trial, "--device", "cpu", "--ood", f"folder:{data}"),
        marginctl("calibrate", trial, "--method", "none", "--bootstrap", "0", "--repeats", "1"),
        marginctl("recipes", "show", refused),
        marginctl("recipes", "validate", refused),
        marginctl("recipes", "show", CONTROL),
        marginctl("uci-cv", "--dataset", CONTROL),
        marginctl("uci-cv", "--csv", table, "--target", CONTROL),
        marginctl("train", "--set", CONTROL),
        marginctl("data", "verify", CONTROL),
    ]
    assert {ran.status for ran in runs} == {0, 2}
    for i, ran in enumerate(runs):
        raw = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", ran.out + ran.err)
        assert raw is None, (i, ran)
    assert sum("\\x1b[31m" in ran.out + ran.err for ran in runs) > 12


def test_latex_of_hostile_names_is_text(marginctl, hostile):
    out = marginctl("report", hostile[3], "--format", "latex").out
    shown = re.findall(r"a.{0,2}b\\%c\\&d\\#e\\\$f\\\{g\\\}h", out)
    assert len(shown) >= 2
    for line in out.splitlines():
        bare = re.sub(r"\\[&%$#_{}]", "", line.removeprefix("% "))
        assert "%" not in bare.removesuffix("%")
        assert "#" not in bare


def test_markup_in_names_is_text_in_the_page_and_its_figures(marginctl, hostile):
    ran = marginctl("report", hostile[3], "--format", "html", "--output", "r.html")
    assert ran.status == 0, ran.err
    page = Path("r.html").read_text("utf-8")
    parsed = ParsedPage(page)
    assert len(parsed.all("script")) == 1
    assert "<script>alert" not in page
    assert "\x1b" not in page
    for _, attributes, _ in parsed.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert "&lt;script&gt;" in page
    drawn = marginctl("report", hostile[3], "--figures", "f", "--figure-format", "svg")
    assert drawn.status == 0, drawn.err
    figures = list(Path("f").glob("*.svg"))
    assert len(figures) > 2
    for path in figures:
        for element in ElementTree.parse(path).iter():
            assert not element.tag.endswith(("script", "foreignObject"))
            assert not any(name.startswith("on") for name in element.attrib)
            for name, value in element.attrib.items():
                is_image = value.startswith("data:image/png;base64,")  # of an example
                assert not name.endswith("href") or value.startswith("#") or is_image
