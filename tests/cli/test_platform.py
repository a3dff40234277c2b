"""Where a command runs: its locale, its streams, and what it imports before it answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marginctl.results.statistics import student_cdf, student_quantile


def command(arguments, folder, **changed):
    """A command line in a process of its own, stdin closed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **changed}
    return subprocess.run(
        [sys.executable, "-m", "marginctl", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "locale",
    [
        {},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_file_has_the_same_name_in_every_locale(locale, tmp_path):
    """The name is in the identity of a trial: another one would be computed anew."""
    folder = tmp_path / "größe é"
    folder.mkdir()
    rows = "".join(f"{i % 4},{i % 7},ä{i % 2}\n" for i in range(30))
    (folder / "daten ä.csv").write_text(f"a,b,ziel\n{rows}", "utf-8")
    ran = command(
        ["uci-cv", "--csv", "daten ä.csv", "--target", "ziel", "--dry-run"],
        folder,
        **locale,
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stderr.decode()
    assert (
        "daten \\xe4.csv (comma-separated): 30 rows"
        if locale
        else "daten ä.csv (comma-separated): 30 rows"
    ) in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_output_is_one_line():
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "marginctl", "recipes", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert ran.returncode == 1
    assert ran.stderr.decode() == "error: output: No space left on device\n"


def test_lists_import_no_numpy():
    """It takes a tenth of a second, as long as all else that a list does."""
    code = """
import sys
from marginctl.cli import run
assert run(["recipes", "list"]) == run(["objectives", "list"]) == 0
print(sorted({"numpy", "scipy", "torch"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stdout.decode().splitlines()[-1] == "[]"


def test_a_report_that_compares_nothing_imports_no_scipy(tmp_path, marginctl):
    marginctl(
        *("uci-cv", "--dataset", "iris", "--objective", "soft", "--folds", "2", "--repeats", "2"),
        *("--set", "protocol.epochs=1", "--workers", "1", "--out", tmp_path),
    )
    code = f"""
import sys
from marginctl.cli import run
assert run(["report", {str(tmp_path)!r}]) == 0
print(sorted({{"scipy.stats", "torch"}} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stdout.decode().splitlines()[-1] == "[]"


def test_the_distributions_by_their_tables():
    assert student_cdf(10, -2.228138852) == pytest.approx(0.025, rel=1e-8)
    assert student_quantile(10, 0.975) == pytest.approx(2.228138852, rel=1e-8)


def test_doctor_in_a_checkout_that_is_not_installed(marginctl, monkeypatch, tmp_path):
    from marginctl import doctor

    def absent(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", absent)
    ran = marginctl("doctor", "--out", tmp_path)
    assert ran.status == 0
    assert "marginctl is not installed: its requirements are unknown" in ran.out


def test_doctor_without_torch(marginctl, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    ran = marginctl("doctor", "--out", tmp_path)
    assert ran.status == 1
    assert "torch cannot be imported" in ran.out
    assert "threads" not in ran.out
