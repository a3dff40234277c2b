"""Files of models: read as written; corrupt and foreign ones are one line."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from marginctl.errors import RequestError
from marginctl.runs.model_file import ModelRecord, load_model_file, save_model_file


class Example(ModelRecord):
    width: int


TENSORS = {
    "number": np.array(3),
    "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "b": np.array([7]),
}


@pytest.fixture
def path(tmp_path):
    save_model_file(tmp_path / "m.safetensors", "table", Example(width=3), TENSORS)
    return tmp_path / "m.safetensors"


def test_a_model_is_read_as_it_was_written(path):
    file = load_model_file(path)
    assert file.record("table", Example) == Example(width=3)
    assert set(file.tensors) == {"a", "b", "number"}
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(file.tensors[name], value)
        assert file.tensors[name].shape == value.shape


@pytest.mark.parametrize("position", ["first", "document", "last"])
def test_a_flipped_bit_is_found(path, position):
    data = bytearray(path.read_bytes())
    at_byte = {"first": 0, "document": data.index(b"width"), "last": len(data) - 1}[position]
    data[at_byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(RequestError, match=r"corrupt model|no intact model") as raised:
        load_model_file(path)
    assert len(raised.value.lines) == 1


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\x80\x04pickle", b"PK\x03\x04"])
def test_a_foreign_file_is_refused(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(RequestError, match="f: no intact model of marginctl"):
        load_model_file(tmp_path / "f")


def test_other_problems_are_named(path, tmp_path):
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RequestError, match="no intact model of marginctl"):
        load_model_file(path)
    save_file(TENSORS, tmp_path / "other")
    with pytest.raises(RequestError, match="no intact model of marginctl"):
        load_model_file(tmp_path / "other")
    for missing in (tmp_path / "gone", tmp_path):
        with pytest.raises(RequestError, match="cannot be read"):
            load_model_file(missing)


def test_another_schema_and_unknown_keys_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("marginctl.runs.model_file.SCHEMA", 2)
    save_model_file(tmp_path / "m", "table", Example(width=3), TENSORS)
    monkeypatch.undo()
    with pytest.raises(
        RequestError, match=r"a model of schema 2, by marginctl 0.* expected schema"
    ):
        load_model_file(tmp_path / "m")

    class Wider(Example):
        depth: int

    save_model_file(tmp_path / "m", "table", Wider(width=3, depth=1), TENSORS)
    with pytest.raises(RequestError, match=r"a corrupt model .unknown key 'depth'"):
        load_model_file(tmp_path / "m").record("table", Example)
