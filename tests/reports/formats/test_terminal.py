"""Tables as text at any width: no name and no number is broken."""

import os
import re
import subprocess
import sys

import pytest

from marginctl.reports.formats.terminal import FILE_WIDTH, render
from marginctl.reports.tables.table import Cell, Report, Row, Table, table_of_texts

NAMES = ("a-long-name-of-a-recipe/table1", "b", "c")
ROWS = [(name, "several words of text", "2026-11-29, n = 5", "94.86 ± 2.16") for name in NAMES]


def texts(width, rows=ROWS):
    table = table_of_texts("", ["name", "data", "run by", "accuracy"], rows, text_columns=2)
    return render(Report([table], [], {}), width)


def numbers(width, columns=9, label="breast-cancer-wisconsin-prognostic"):
    row = Row(label, tuple(Cell(f"{i}4.86 ± 2.16") for i in range(columns)))
    names = tuple(f"arcgrad:scale={i}" for i in range(columns))
    return render(Report([Table("k", "", "", "data set", names, (row,))], [], {}), width)


@pytest.mark.parametrize("width", [40, 60, 80, 120, None])
def test_words_and_numbers_stay_whole(width):
    shown = texts(width)
    for words in ROWS:
        pieces = [word for text in words[:3] for word in text.split()] + ["94.86±2.16"]
        assert all(re.search(rf"(?<!\S){re.escape(piece)}(?!\S)", shown) for piece in pieces)
    assert max(map(len, shown.split("\n"))) <= (width or FILE_WIDTH)


def test_a_table_that_is_too_wide_becomes_paragraphs():
    assert texts(40).startswith("One paragraph a row, as the table is \nwider than 40 columns:\n")
    assert "a-long-name-of-a-recipe/table1\n  data: several words of text\n" in texts(40)
    assert "paragraph" not in texts(80)
    assert "several words of text" in texts(120)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_of_numbers_that_do_not_fit_go_below_and_that_is_said(width):
    shown = numbers(width)
    parts = re.findall(r"columns (\d) to (\d) of 9:", shown)
    assert parts[0][0] == "1"
    assert parts[-1][1] == "9"
    assert re.findall(r"\d4\.86±2\.16", shown) == [f"{i}4.86±2.16" for i in range(9)]
    assert max(map(len, shown.split("\n"))) <= width


def test_a_long_label_folds_at_its_hyphens_and_slashes():
    assert "breast-cancer-\n" in re.sub(r" +[\d.± ]+\n", "\n", numbers(60))
    path = "folder:/data/photographs-of-2026/all, resnet18"
    shown = numbers(80, 2, path)
    pieces = re.findall(r"[^ /-]+[/-]?", path)
    assert all(piece.strip() in shown for piece in pieces)


@pytest.mark.parametrize("width", [20, 30, 60, 80])
@pytest.mark.parametrize("label", ["name_" * 14, "breast-cancer-wisconsin", "数据集名称长"])
@pytest.mark.parametrize("columns", [1, 3])
def test_no_number_is_cut_for_a_long_label(width, label, columns):
    shown = numbers(width, columns, label)
    assert "…" not in shown
    assert all(f"{i}4.86±2.16" in shown for i in range(columns))
    assert "columns 1 to 1" not in shown


def test_one_column_of_several_is_counted_in_the_singular():
    assert "column 1 of 2:" in numbers(40, 2, "a-name-of-this-length")


@pytest.mark.parametrize("width", [60, None])
def test_wide_characters_are_counted_as_a_terminal_shows_them(width):
    table = table_of_texts(
        "", ["name", "data"], [("数据集名称长", "一個很長的字串")], text_columns=1
    )
    shown = render(Report([table], [], {}), width)
    assert "数据集名称长" in shown
    assert "一個很長的字串" in shown


def test_rows_of_a_label_alone_are_shown():
    table = table_of_texts("", ["name"], [("a",), ("b",)])
    assert render(Report([table], [], {}), 40).split() == ["name", "────", "a", "b"]


@pytest.mark.parametrize("command", [("recipes", "list"), ("data", "list"), ("objectives", "list")])
@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_columns_is_honored_in_a_pipe(command, columns):
    ran = subprocess.run(
        [sys.executable, "-m", "marginctl", *command],
        env=os.environ | {"COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "…" not in ran.stdout
    assert "\x1b" not in ran.stdout


def test_a_file_is_not_folded(marginctl, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    (tmp_path / "runs").mkdir()
    assert max(map(len, marginctl("recipes", "list").out.split("\n"))) <= 40
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, marginctl("recipes", "list").out.split("\n"))) > 120
