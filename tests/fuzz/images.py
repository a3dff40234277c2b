"""Folders of images: files of every format with their bytes changed, and folders that lack some."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import BYTES

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".bmp": "BMP", ".tif": "TIFF", ".gif": "GIF"}
FORMATS |= {".webp": "WEBP", ".ppm": "PPM"}
NAMES = ["cat", "dog", "grüne Blätter", "a\nb", "\x1b[31mred", "<b>", "$x$", "x" * 200, "_", "%s"]


def prepare(base: Path) -> None:
    """Nothing: images are made."""


def make(draft: Draft) -> Case:
    """A folder of two classes with some files changed; in memory or streamed."""
    stream = draft.stream("base")
    for part in ("train", "val"):
        for label in (0, 1):
            name = NAMES[label] if stream.random() < 0.9 else stream.choice(NAMES)
            folder = draft.folder / "set" / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(stream.choice([0, 1, 3, 3, 3])):
                suffix, data = _image(stream)
                if stream.random() < 0.25:
                    data = draft.changed(data, [*BYTES, _huge, _huge, _other], 2, least=1)
                (folder / f"{stream.choice(NAMES)[:9]}{i}{suffix}").write_bytes(data)
    draft.changed(draft.folder / "set", FOLDERS, 1)
    load = stream.choice(["memory", "memory", "stream"])
    arguments = ["train", "--data", "folder:set", "--model", "mlp:width=4", "--epochs", "1"]
    arguments += [
        "--set",
        f"data.image_size={stream.choice([1, 8, 8, 30])}",
        "--set",
        f"data.load={load}",
    ]
    arguments += ["--device", "cpu", "--json", "--quiet", "--out", "runs"]
    return Case(tuple(arguments), ("set", "data"))


def _image(stream: Random) -> tuple[str, bytes]:
    suffix = stream.choice(sorted(FORMATS))
    mode = stream.choice(
        ["RGB", "RGB", "L", "P", "1"] + ["RGBA", "I;16", "LA"] * (suffix == ".png")
    )
    side = stream.choice([1, 2, 9, 24])
    random = np.random.default_rng(stream.randrange(2**32))
    pixels = random.integers(0, 256, (side, side + 3, 3), np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 200)
    content = io.BytesIO()
    keeps: dict[str, tuple[str, ...]] = {".jpg": ("RGB", "L"), ".webp": ("RGB",)}
    keeps[".ppm"] = ("RGB", "L", "1")
    fits = mode in keeps.get(suffix, (mode,))
    made = image if mode == "I;16" else image.convert(mode if fits else "RGB")
    made.save(content, FORMATS[suffix])
    return suffix, content.getvalue()


def _huge(stream: Random, data: bytes) -> bytes:
    """A header that declares far more pixels than there are."""
    side = stream.choice([2**31 - 1, 2**16, 30_000, 9_000, 0])
    short = struct.pack("<HH", min(side, 65535), min(side, 65535))
    made: list[Callable[[], bytes]] = [
        lambda: _png(side),
        lambda: b"BM" + struct.pack("<IHHIIiiHHI20x", 54, 0, 0, 54, 40, side, side, 1, 24, 0),
        lambda: b"GIF89a" + short + b"\xf0\0\0" * 9,
        lambda: b"P6\n%d %d\n255\n" % (side, side),
    ]
    return stream.choice(made)()


def _png(side: int) -> bytes:
    """A whole PNG of black rows as long as it says, of which only the first thousand come."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    body = zlib.compress(b"\0" * (min(side, 10_000) * 3 + 1) * 100)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _other(stream: Random, data: bytes) -> bytes:
    """Another image format than the name says, or text in a name's place."""
    return stream.choice(
        [_image(stream)[1], b"<svg onload='x'/>", b"%PDF-1.4", b"%!PS-Adobe-3.0 EPSF"]
    )


def _no_part(stream: Random, folder: Path) -> Path:
    (folder / stream.choice(["train", "val"])).rename(folder / stream.choice(["test", "x"]))
    return folder


def _more_entries(stream: Random, folder: Path) -> Path:
    """A folder named as an image, a link to nothing, a link upwards, hidden files, an odd class."""
    inside = folder / stream.choice(["train", "val"])
    inside.mkdir(exist_ok=True)
    (inside / "cat" / "folder.png").mkdir(parents=True, exist_ok=True)
    (inside / ".hidden").touch()
    for name, to in (("loop", inside), ("cat/up.png", folder), ("cat/none.png", folder / "none")):
        if stream.random() < 0.5 and not (inside / name).is_symlink():
            (inside / name).symlink_to(to)
    if stream.random() < 0.3:
        (inside / stream.choice(["bird", "\x1b]0;x\x07"])).mkdir(exist_ok=True)
    return folder


FOLDERS: list[Any] = [_no_part, _more_entries, _more_entries]
