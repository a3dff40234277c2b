"""Images on the disk, and what is refused, for tests."""

from pathlib import Path

import pytest
from PIL import Image

from marginctl.data.images.image_sets import load_image_set

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 20054\n"
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def refusal(error, function, *arguments, **options) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(error) as caught:
        function(*arguments, **options)
    assert type(caught.value) is error
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def denied(*arguments):
    raise PermissionError(13, "Permission denied")


def paint(path: Path, colour=GREEN, size=(12, 10), **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)
    return path


def load_in_memory(name, data_dir, image_size=64, **options):
    return load_image_set(name, data_dir, image_size, stream=False, **options)


def load_on_disk(name, data_dir, image_size, **options):
    return load_image_set(name, data_dir, image_size, stream=True, **options)
