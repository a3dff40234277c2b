"""Recognition of image files by their content, whatever their suffix."""

import functools
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marginctl.utils.text import count_noun, join_names

HEAD_BYTES = 4096
LFS_HEADER = b"version https://git-lfs.github.com/spec/"
ANNEX_HEADER = b"/annex/objects/"
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
    *(".avif", ".pbm", ".pgm", ".ppm"),
)
# Formats with a signature; HEIF and JXL only where a plug-in of Pillow is imported.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF", "JXL")
# The last bytes of a complete file, unless other data follow the image.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}

# Why a file is passed over. The first ones are of files that should be images.
LFS_POINTER = "Git LFS pointer: run git lfs pull"
ANNEX_POINTER = "git-annex pointer: run git annex get"
TOO_MANY_PIXELS = "too many pixels for Pillow: make it smaller"
DEEP = "more than 8 bits a channel: convert it"
UNREADABLE = "unreadable image: repair or remove it"
MISSING = "missing file: add it, or remove it from the list"
UNOPENED = "cannot be opened"
REFUSED = (LFS_POINTER, ANNEX_POINTER, TOO_MANY_PIXELS, DEEP, UNREADABLE, MISSING)
HEIC = "HEIC, which Pillow cannot decode: convert it"
TEXT = "text"
OTHER = "no known image format"

EXAMPLES = 5


@dataclass(frozen=True)
class SkippedFiles:
    """Files that are not read for one reason; a few of them as examples."""

    reason: str
    count: int
    examples: list[str]

    @property
    def listed(self) -> str:
        """The examples, and how many more there are."""
        more = self.count - len(self.examples)
        return join_names(self.examples) + (f" and {more} more" if more else "")

    def line(self, name: str) -> str:
        """Return an error about them, for the name of their image set."""
        return f"data set '{name}': {count_noun(self.count, 'file')}: {self.reason}: {self.listed}"


def skipped_files(by_reason: Mapping[str, Sequence[str]]) -> list[SkippedFiles]:
    return [SkippedFiles(r, len(p), [*p[:EXAMPLES]]) for r, p in sorted(by_reason.items())]


@functools.cache
def image_formats() -> tuple[str, ...]:
    """Return the formats of Pillow in which images are read."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


class NotAnImageError(Exception):
    """A file is no image that can be read; `str` is the reason."""


@dataclass(frozen=True)
class Header:
    """What the beginning of an image file tells."""

    size: tuple[int, int]  # width and height
    mode: str  # of its pixels, as Pillow names it
    file_bytes: int  # the size of the file
    transparent: bool  # whether it has an alpha channel or a transparent colour
    start: bytes  # SHA-256 of the first `HEAD_BYTES` bytes


def read_header(path: str) -> Header | str:
    """Return the header of an image file, or why it cannot be read as one of 8 bits a channel.

    A file that does not end as its format does is decoded: it may be cut off.
    """
    from PIL import Image

    try:
        # without warnings about corrupt tags of intact images
        with open(path, "rb") as file, warnings.catch_warnings(action="ignore"):
            start = hashlib.sha256(file.read(HEAD_BYTES)).digest()
            image = Image.open(file, formats=image_formats())
            size, transparent = os.fstat(file.fileno()).st_size, image.has_transparency_data
            header = Header(image.size, image.mode, size, transparent, start)
            end = ENDS.get(image.format or "", b"")
            position = file.tell()
            file.seek(-len(end), os.SEEK_END)
            if file.read() != end:
                file.seek(position)
                image.load()
    except Exception as error:  # a corrupt image can make the decoders raise anything
        return problem_of(path, error)
    return DEEP if is_deep(header.mode) else header


def read_headers(root: Path, paths: Sequence[str]) -> list[Header | str]:
    """Return what `read_header` returns of each file below a folder."""
    return [read_header(os.path.join(root, path)) for path in paths]


def is_deep(mode: str) -> bool:
    """Return whether pixels have more than 8 bits: conversion would clip them at 255 silently."""
    return mode.startswith(("I", "F"))


def pass_over_reason(path: str) -> str | None:
    """Return why a file is passed over; None for an image, or what should be one.

    A usual suffix is trusted, and the file not read.
    """
    header = None if has_image_suffix(path) else read_header(path)
    return header if isinstance(header, str) and not is_refused(header) else None


def is_refused(reason: str) -> bool:
    """Return whether training refuses such a file, instead of passing it over."""
    return reason in REFUSED or reason.startswith(UNOPENED)


def has_image_suffix(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES


def problem_of(path: str, error: Exception) -> str:
    """Return why a file cannot be read as an image, by the error of the attempt and its content."""
    from PIL import Image

    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        head = b""
    if head.startswith(LFS_HEADER):
        return LFS_POINTER
    if head.startswith(ANNEX_HEADER):
        return ANNEX_POINTER
    if isinstance(error, Image.DecompressionBombError):
        return TOO_MANY_PIXELS
    if isinstance(error, OSError) and error.errno is not None:
        return f"{UNOPENED} ({error.strerror})"
    if has_image_suffix(path):
        return UNREADABLE
    if head[4:8] == b"ftyp" and head[8:12] in HEIC_BRANDS:
        return HEIC
    return TEXT if _is_text(head) else OTHER


def decoding_problem(path: str, error: Exception) -> str:
    """Return why a file that should be an image cannot be decoded."""
    if isinstance(error, NotAnImageError):
        return str(error)
    reason = problem_of(path, error)
    return reason if is_refused(reason) else UNREADABLE


def _is_text(head: bytes) -> bool:
    try:
        head[:-3].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return b"\0" not in head
