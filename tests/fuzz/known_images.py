"""Folders of images whose content is known, with files among them that are passed over."""

import io
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from marginctl.data.images.summary import inspect_images
from marginctl.errors import RequestError

SUFFIXES = {"PNG": [".png", ".PNG", ""], "JPEG": [".jpg", ".jpe", ".jfif", ".JPEG", ""]}
SUFFIXES |= {"GIF": [".gif"], "BMP": [".bmp"], "WEBP": [".webp"], "TIFF": [".tif", ".tiff"]}
CLASSES = ["cat", "dog", "grüne Blätter", "a b", "Ärzte", "0"]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
# name and content of a file that is passed over, and a word of the reason
OTHERS = [
    (".DS_Store", b"\0\1", "hidden"),
    ("readme.txt", b"text", "text"),
    ("labels", b"a,b\n1,2\n", "text"),
    ("photo.png", LFS, "lfs"),
    ("photo.jpg", b"\xff\xd8\xff", "unreadable"),
    ("photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0", "heic"),
    ("data.bin", bytes(range(256)), "no known"),
]


@dataclass
class KnownImages:
    """What a folder holds.

    Attributes:
        parts: images by part and class; `""` is a folder without parts.
        skipped: files by a word of the reason.
        duplicates: as in the summary.
    """

    parts: dict[str, Counter[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)


def make_images(stream: Random, root: Path) -> KnownImages:
    """Write a random folder; return what it holds."""
    known = KnownImages()
    parts = stream.choice([["train", "val"], ["train", "test"], ["train", "val", "test"], [""]])
    classes = stream.sample(CLASSES, stream.randint(2, 3))
    written: list[tuple[str, str, bytes]] = []
    for part in parts:
        known.parts[part] = Counter()
        for name in classes:
            form = stream.choice(["NFC", "NFC", "NFD"])
            folder = root / part / unicodedata.normalize(form, name)
            for i in range(stream.randint(2, 5)):
                inside = folder / stream.choice(["", "", "2024", "a/b"])
                inside.mkdir(parents=True, exist_ok=True)
                suffix, content = _image(stream)
                contents = [content for *_, content in written]
                once = [w for w in written if contents.count(w[2]) == 1]
                if part and once and stream.random() < 0.15:
                    of_part, of_class, content = stream.choice(once)
                    suffix = ""
                    known.duplicates["within_parts" if of_part == part else "across_parts"] += 1
                    known.duplicates["across_classes"] += of_class != name
                (inside / f"{i}{suffix}").write_bytes(content)
                known.parts[part][unicodedata.normalize("NFC", name)] += 1
                written.append((part, name, content))
            for other, content, reason in stream.sample(OTHERS, stream.choice([0, 0, 1, 2])):
                (folder / other).write_bytes(content)
                known.skipped[reason] += 1
        if stream.random() < 0.2:
            (root / part / "__MACOSX" / classes[0]).mkdir(parents=True)
            (root / part / "__MACOSX" / classes[0] / "._0.png").write_bytes(b"\0")
            known.skipped["macosx"] += 1
    if stream.random() < 0.2:
        (root / parts[0] / classes[0]).mkdir(exist_ok=True)
        (root / parts[0] / classes[0] / "none.png").symlink_to(root / "nowhere")
        known.skipped["link"] += 1
    return known


def _image(stream: Random) -> tuple[str, bytes]:
    """Return a suffix and an image that no other image equals."""
    kind = stream.choice(list(SUFFIXES))
    mode = stream.choice(["RGB", "L", "RGBA"]) if kind == "PNG" else "RGB"
    noise = np.random.default_rng(stream.randrange(2**32))
    side = stream.choice([4, 9, 16])
    image = Image.fromarray(noise.integers(0, 256, (side, side + 1, 3), np.uint8)).convert(mode)
    content = io.BytesIO()
    image.save(content, kind)
    return stream.choice(SUFFIXES[kind]), content.getvalue()


def differences(known: KnownImages, root: Path) -> list[str]:
    """Return a line for each difference between a folder and its summary."""
    try:
        summary = inspect_images(root)
    except RequestError as error:
        return [f"refused: {error}"]
    parts = {name: Counter(part.classes) for name, part in summary.parts.items()}
    if "" in known.parts:  # split 80/20
        parts = {"": sum(parts.values(), Counter())}
    pairs: list[tuple[str, object, object]] = [
        ("parts", known.parts, parts),
        (
            "images",
            sum(part.total() for part in known.parts.values()),
            sum(part.images for part in summary.parts.values()),
        ),
        ("skipped", known.skipped.total(), sum(s.count for s in summary.skipped)),
    ]
    for word, count in known.skipped.items():
        found = sum(s.count for s in summary.skipped if word in s.reason.lower())
        pairs.append((f"skipped: {word}", count, found))
    pairs += [
        (kind, known.duplicates[kind], getattr(summary.duplicates, kind))
        for kind in ("within_parts", "across_parts", "across_classes")
    ]
    return [f"{name}: expected {a!r}, got {b!r}" for name, a, b in pairs if a != b]
