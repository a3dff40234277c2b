"""Files of saved models: tensors and a JSON document in the safetensors format, without pickles."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from marginctl import __version__
from marginctl.errors import RequestError
from marginctl.runs.atomic_io import write_output
from marginctl.runs.base_record import first_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tensors = Mapping[str, "NDArray[Any]"]
FORMAT, SCHEMA = "marginctl-model", 1
_KEY, _DIGEST = "marginctl", "sha256"  # of the metadata


class ModelRecord(BaseModel):
    """The document of a saved model, without its format, schema and kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


R = TypeVar("R", bound=ModelRecord)


class ModelFile:
    """A saved model that was read: its kind, document and tensors."""

    def __init__(self, path: Path, document: dict[str, Any], tensors: Tensors) -> None:
        self.path, self.tensors = path, tensors
        header = ("format", "schema", "kind", "version")
        self.kind = str(document.get("kind"))
        self._content = {key: value for key, value in document.items() if key not in header}

    def record(self, kind: str, model: type[R]) -> R:
        """Return the document as a record.

        Raises:
            RequestError: the file is of another kind, or the document does not fit.
        """
        if self.kind != kind:
            raise RequestError(f"{self.path}: a model of {self.kind}: expected one of {kind}")
        try:
            return model.model_validate_json(json.dumps(self._content))
        except ValidationError as error:
            raise self.corrupt(first_problem(error)) from None
        except RequestError as error:
            raise self.corrupt(error.lines[0]) from None

    def corrupt(self, problem: str) -> RequestError:
        """Return the error of a document or tensors that do not fit."""
        return RequestError(f"{self.path}: a corrupt model ({problem}): save it again")


def save_model_file(path: Path, kind: str, record: ModelRecord, tensors: Tensors) -> None:
    """Write a model of a kind, `table` or `images`, atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    import numpy as np
    from safetensors.numpy import save

    header = {"format": FORMAT, "schema": SCHEMA, "kind": kind, "version": __version__}
    text = json.dumps({**header, **record.model_dump(mode="json")}, allow_nan=False)
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    write_output(path, save(arrays, {_KEY: text, _DIGEST: _digest(text, arrays)}))


def load_model_file(path: Path) -> ModelFile:
    """Return the content of a saved model; nothing in it is run.

    Raises:
        RequestError: the file cannot be read, is corrupt, or is no saved model.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb"):
            pass
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise _not_a_model(path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        document = json.loads(metadata[_KEY])
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, TypeError, ValueError):
        raise _not_a_model(path) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _not_a_model(path)
    if _digest(metadata[_KEY], tensors) != metadata.get(_DIGEST):
        raise RequestError(f"{path}: a corrupt model (checksum mismatch): save it again")
    if document.get("schema") != SCHEMA:
        raise RequestError(
            f"{path}: a model of schema {document.get('schema')}, by marginctl "
            f"{document.get('version')}: expected schema {SCHEMA}: install that version, or save "
            "the model again"
        )
    return ModelFile(path, document, tensors)


def _not_a_model(path: Path) -> RequestError:
    return RequestError(
        f"{path}: no intact model of marginctl: expected a file that --save-model has written"
    )


def _digest(text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
