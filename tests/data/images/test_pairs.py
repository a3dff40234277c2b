"""Lists of pairs: LFW's format, the plain format, and errors."""

import pytest

from marginctl.data.images.pairs import read_pairs
from marginctl.errors import RequestError
from tests.data.helpers import refusal, write

LFW = """2\t2
Ann\t1\t2
Bo B\t1\t3
Ann\t1\tBo B\t2
Cy\t1\tAnn\t2
Cy\t1\t2
Ann\t2\t3
Cy\t1\tBo B\t3
Ann\t3\tCy\t2
"""


@pytest.fixture
def faces(tmp_path):
    for name in ("Ann", "Bo B", "Cy"):
        for i in (1, 2, 3):
            ending = "png" if name == "Cy" else "jpg"
            write(tmp_path / name / f"{name}_{i:04d}.{ending}", b"x")
    return tmp_path


def listed(folder, text, root=None):
    return read_pairs(write(folder / "pairs.txt", text.encode()), root)


def images_of(found, pair):
    return tuple(found.files[row] for row in found.rows[pair])


def test_lfws_form_with_its_folds(faces):
    found = listed(faces, LFW)
    assert found.same.tolist() == [True, True, False, False] * 2
    assert found.folds.tolist() == [0] * 4 + [1] * 4
    assert found.lines.tolist() == list(range(2, 10))
    assert found.folds_from == "file"
    assert images_of(found, 1) == tuple(faces / f"Bo B/Bo B_000{i}.jpg" for i in (1, 3))
    assert images_of(found, 3) == (faces / "Cy/Cy_0001.png", faces / "Ann/Ann_0002.jpg")


def test_lfws_development_form_has_no_folds(faces):
    text = "2\n" + "\n".join(LFW.split("\n")[1:5])
    found = listed(faces, text)
    assert (found.folds_from, found.folds.tolist()) == ("order", [0, 1, 0, 1])


def test_the_plain_form_elsewhere_with_blanks_and_empty_lines(faces, tmp_path_factory):
    own = tmp_path_factory.mktemp("lists")
    text = "\ufeffAnn/Ann_0001.jpg\tBo B/Bo B_0001.jpg\t0\r\n\nCy/Cy_0001.png Cy/Cy_0002.png 1\n"
    found = listed(own, text, faces)
    assert (found.same.tolist(), found.lines.tolist()) == ([False, True], [1, 3])
    absolute = f"{faces}/Cy/Cy_0001.png {faces}/Cy/Cy_0002.png 1\nAnn/Ann_0001.jpg x.jpg 0"
    write(faces / "x.jpg", b"x")
    assert images_of(listed(own, absolute, faces), 0) == images_of(found, 1)


def test_an_image_is_the_same_one_however_its_path_is_written(faces):
    plain = listed(faces, "Ann/Ann_0001.jpg Ann/Ann_0002.jpg 1\nAnn/Ann_0001.jpg Cy/Cy_0001.png 0")
    text = "Ann/Ann_0001.jpg Ann/Ann_0002.jpg 1\n./Ann/Ann_0001.jpg Ann/../Cy/Cy_0001.png 0"
    found = listed(faces, text)
    assert (len(found.files), found.digest) == (3, plain.digest)
    assert found.rows.tolist() == [[0, 1], [0, 2]]


def test_without_folds_each_has_both_kinds_in_the_order_of_the_file(tmp_path):
    for i in range(60):
        write(tmp_path / f"{i}.png", b"x")
    rows = [f"{i}.png {i + 1}.png {int(i < 25)}" for i in range(55)]
    found = listed(tmp_path, "\n".join(rows))
    assert found.folds.tolist() == [i * 10 // 25 for i in range(25)] + [i // 3 for i in range(30)]
    few = listed(tmp_path, "\n".join(rows[20:28]))
    assert few.folds.tolist() == [0, 0, 1, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "pairs.txt: is empty: expected lines of NAME I J"),
        ("\n \n", "pairs.txt: is empty"),
        ("a.jpg b.jpg", "pairs.txt:1: 'a.jpg b.jpg': expected two paths and 1 (one identity) or 0"),
        ("a.jpg b.jpg 2", "pairs.txt:1: 'a.jpg b.jpg 2': expected two paths and 1"),
        ("Ann 1 Cy 1", "pairs.txt:1: 'Ann 1 Cy 1': expected two paths"),
        ("a.jpg ./a.jpg 1", "pairs.txt:1: a.jpg with itself: expected two images"),
        ("Ann/Ann_0001.jpg Ann/Ann_0002.jpg 1", "pairs.txt: no pair of two identities among 1"),
        ("Ann/Ann_0001.jpg Ann/Ann_0002.jpg 0", "pairs.txt: no pair of one identity among 1"),
        (
            "Ann/Ann_0001.jpg gone.jpg 0\nlost.jpg gone.jpg 1",
            "pairs.txt:1: no image {}/gone.jpg and 1 more: add them",
        ),
        (LFW.replace("2\t2\n", "2\t3\n"), "pairs.txt:1: says 2 x 2 x 3 pairs, but the file has 8"),
        ("0 0", "pairs.txt:1: says 0 x 2 x 0 pairs, but the file has 0"),
        (LFW.replace("Ann\t1\t2", "Ann\t1\tx"), "pairs.txt:2: 'Ann 1 x': expected NAME I J or"),
        (LFW.replace("Ann\t1\t2", "Ann\t1"), "pairs.txt:2: 'Ann 1': expected NAME I J or"),
        (
            LFW.replace("Ann\t1\tBo B\t2", "Ann\t1\tAnn\t2"),
            "pairs.txt:4: 'Ann 1 Ann 2': expected two names that differ, or Ann 1 2",
        ),
        (
            LFW.replace("Ann\t1\tBo B\t2", "Ann\t1\t3"),
            "pairs.txt:4: pair 3 of its fold: expected NAME I OTHER J: the first 2 pairs",
        ),
        ("1\nAnn 1 7\nAnn 1 Cy 1", "pairs.txt:2: no image {}/Ann/Ann_0007.jpg: add"),
        (
            "Ann/Ann_0001.jpg Cy/Cy_0001.png 0\nAnn/Ann_0001.jpg Ann/Ann_0002.jpg 1\n"
            "Cy/Cy_0001.png Ann/Ann_0001.jpg 1",
            "pairs.txt:3: repeats the pair of line 1 with the other kind: expected one of the two",
        ),
        ("a\0b c 1", "pairs.txt: a binary file: expected a list of pairs"),
    ],
)
def test_a_wrong_list_is_one_line(faces, text, said):
    assert said.format(faces) in refusal(RequestError, listed, faces, text)


def test_files_that_are_no_list(faces):
    assert "cannot be read" in refusal(RequestError, read_pairs, faces / "none.txt", None)
    assert "cannot be read" in refusal(RequestError, read_pairs, faces, None)
    image = write(faces / "i.bin", b"\xff\xd8\xff\xe0")
    assert "i.bin: not UTF-8 text at byte 0" in refusal(RequestError, read_pairs, image, None)
    good = write(faces / "pairs.txt", LFW.encode())
    said = refusal(RequestError, read_pairs, good, faces / "elsewhere")
    assert said.startswith(f"--images {faces}/elsewhere: no such folder")
