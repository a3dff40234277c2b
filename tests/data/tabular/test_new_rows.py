"""New rows are read by the columns of the training table, whatever form their file has."""

import numpy as np
import pytest

from marginctl.data.tabular.custom import read_table
from marginctl.data.tabular.new_rows import read_new_rows
from marginctl.errors import RequestError


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "train.csv"
    lines = [
        f"{i / 8:.3f},{1000 + 7 * i},{'abc'[i % 3]},{'YNyn'[i % 4]},{i % 2}" for i in range(30)
    ]
    path.write_text("\n".join(["size,price,kind,flag,label", *lines]))
    return read_table(path, "label")


def read(tmp_path, data, text, **options):
    path = tmp_path / "new.csv"
    path.write_text(text)
    return read_new_rows(path, data.columns, "label", data.summary.decimal_mark, **options)


def test_the_training_file_is_read_as_in_the_training(tmp_path, trained):
    new = read_new_rows(tmp_path / "train.csv", trained.columns, "label", ".")
    np.testing.assert_array_equal(new.x, trained.x)
    assert new.labels == [str(i % 2) for i in range(30)]
    assert new.remarks == []


def test_other_order_form_and_values(tmp_path, trained):
    text = "flag;kind;extra;price;size\nN;c;1;1.014,5;0,25\ny;d;2;?;\nmaybe;;3;1.021;2,75\n"
    new = read(tmp_path, trained, text)
    names = [c.name for c in trained.columns]
    assert names == ["size", "price", "kind", "flag"]
    nan = np.nan
    expected = [[0.25, 1014.5, 2, 0], [nan, nan, nan, 1], [2.75, 1021, nan, nan]]
    np.testing.assert_array_equal(new.x, expected)
    assert new.labels is None
    remarks = "\n".join(new.remarks)
    assert "column 'kind': 'd': not in the training table, read as missing (1)" in remarks
    assert "column 'flag': 'maybe': not in the training table, read as missing (1)" in remarks
    assert "columns that the model does not use: extra" in remarks
    assert "column 'price': points read as thousands separators" in remarks


def test_the_training_decimal_mark_decides_where_the_file_does_not_tell(tmp_path, trained):
    assert trained.summary.decimal_mark == "."
    text = "size,price,kind,flag\n1.204,5,a,y\n2.310,6,a,y\n"
    assert read(tmp_path, trained, text).x[:, 0].tolist() == [1.204, 2.31]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,prise,kind,flag\n1,2,a,y\n", "no column 'price', which the model was trained on: "),
        ("size,prise,kind,flag\n1,2,a,y\n", "Did you mean 'prise'?"),
        ("a,b\n1,2\n", "no column 'size', 'price', 'kind', 'flag', which"),
        ("size,price,kind,flag\nx,2,a,y\n", "column 'size': no number in 1 values, such as 'x'"),
    ],
)
def test_columns_that_do_not_match_are_one_line(tmp_path, trained, text, message):
    with pytest.raises(RequestError) as raised:
        read(tmp_path, trained, text)
    (line,) = raised.value.lines
    assert message in line


def test_files_without_a_header_number_their_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{i}.5,{'ab'[i % 2]}\n" for i in range(9)))
    new = read_new_rows(path, read_table_without_header(path).columns, "2", "", header=False)
    assert new.x[:, 0].tolist() == [i + 0.5 for i in range(9)]


def read_table_without_header(path):
    from marginctl.data.tabular.custom import ReadOptions

    return read_table(path, "2", ReadOptions(header=False))
