"""Downloads of data sets: those of UCI are placed completely or not at all, once checked."""

import contextlib
import csv
import io
import re
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from marginctl.data.images.registry import IMAGE_SETS
from marginctl.data.images.torchvision_sets import fetch_image_set
from marginctl.data.tabular.uci import load_uci, uci_definitions
from marginctl.errors import RequestError
from marginctl.utils.text import shorten

OFFLINE_SECONDS = 10.0  # without any answer, there is no network
RESOLVE_SECONDS = 4.0
READ_SECONDS = 8.0  # the longest wait for an answer or for more bytes
DOWNLOAD_SECONDS = 60.0
MAX_BYTES = 50 * 2**20
NO_NETWORK = re.compile("host not found|no host has answered|no answer in")


class _DownloadError(Exception):
    """A source did not provide the data set."""


class _LimitedBuffer(io.BytesIO):
    """A buffer that refuses a download of too many bytes or too many seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._deadline = time.monotonic() + DOWNLOAD_SECONDS

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MAX_BYTES:
            raise _DownloadError(f"more than {MAX_BYTES} bytes")
        if time.monotonic() > self._deadline:
            raise _DownloadError(f"not complete after {DOWNLOAD_SECONDS:.0f} s")
        return super().write(data)


@dataclass
class Downloader:
    """Downloads data sets into one data folder; remembers unreachable hosts."""

    data_dir: Path
    # the reason for each host that could not be reached
    unreachable: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)  # when the first request could begin
    answered: bool = False  # whether any host has answered

    def fetch(self, name: str) -> str | None:
        """Download a data set; return the reason of a failure, or None.

        Sources are tried in order. A download is parsed and compared with the digest of the
        definition before it is placed, so that a data folder never holds other content.
        """
        definition = uci_definitions()[name]
        reasons = []
        for source in definition["sources"]:
            ((kind, url),) = ((k, v) for k, v in source.items() if k in ("zip", "arff"))
            try:
                self._place(name, definition, source, kind, self._download(url))
                return None
            except _DownloadError as error:
                reasons.append(f"{urlsplit(url).hostname}: {error}")
        return "; ".join(dict.fromkeys(reasons))

    def _download(self, url: str) -> bytes:
        import requests
        from pooch import HTTPDownloader

        host = str(urlsplit(url).hostname)
        if host in self.unreachable:
            raise _DownloadError(self.unreachable[host])
        proxied = urlsplit(url).scheme in urllib.request.getproxies()
        if not proxied and not _resolves(host, min(RESOLVE_SECONDS, self._timeout())):
            self.unreachable[host] = "host not found (no network?)"
            raise _DownloadError(self.unreachable[host])
        timeout = self._timeout()
        download = HTTPDownloader(timeout=timeout, headers={"User-Agent": "marginctl"})
        buffer = _LimitedBuffer()
        try:
            download(url, buffer, None)
        except requests.HTTPError as error:
            self.answered = True
            status = getattr(error.response, "status_code", "unknown")
            raise _DownloadError(f"HTTP status {status}") from None
        except requests.exceptions.ChunkedEncodingError:
            self.answered = True
            raise _DownloadError("incomplete: the connection closed early") from None
        except requests.RequestException as error:
            self.unreachable[host] = _connection_problem(error, timeout)
            raise _DownloadError(self.unreachable[host]) from None
        self.answered = True
        return buffer.getvalue()

    def _timeout(self) -> float:
        """Return the seconds to wait for a host: in total OFFLINE_SECONDS until one answers."""
        if self.answered:
            return READ_SECONDS
        left = self.started + OFFLINE_SECONDS - time.monotonic()
        if left <= 0:
            raise _DownloadError(f"no host has answered in {OFFLINE_SECONDS:.0f} s")
        return min(READ_SECONDS, left)

    def _place(
        self, name: str, definition: dict[str, Any], source: dict[str, Any], kind: str, data: bytes
    ) -> None:
        """Check a download in a temporary folder and move its files into the data folder."""
        wanted = [file["file"] for file in definition["files"]]
        files = _unzip(data, wanted) if kind == "zip" else _from_arff(data, wanted, source)
        target = self.data_dir / "uci" / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(target.parent)
            with tempfile.TemporaryDirectory(
                prefix=".tmp-", dir=target.parent, ignore_cleanup_errors=True
            ) as temporary:
                folder = Path(temporary, "uci", name)
                folder.mkdir(parents=True)
                for file, content in files.items():
                    (folder / file).write_bytes(content)
                try:
                    load_uci(name, Path(temporary))
                except RequestError as error:
                    raise _DownloadError(f"not the expected data: {error.lines[0]}") from None
                target.mkdir(exist_ok=True)
                for file in files:
                    (folder / file).replace(target / file)
        except OSError as error:
            raise _DownloadError(f"{target} cannot be written: {error.strerror or error}") from None


def fetch_datasets(names: Iterable[str], data_dir: Path) -> dict[str, str]:
    """Download data sets; return the reason of each failure by data set."""
    downloader = Downloader(data_dir)
    reasons = {
        name: fetch_image_set(name, data_dir) if name in IMAGE_SETS else downloader.fetch(name)
        for name in names
    }
    return {name: reason for name, reason in reasons.items() if reason}


def _connection_problem(error: Exception, timeout: float) -> str:
    """Return why a host could not be reached, from an exception of requests."""
    cause = error.args[0] if error.args else error
    text = str(getattr(cause, "reason", cause))
    if "timed out" in text:
        return f"no answer in {timeout:.0f} s"
    return re.sub(r"^\[Errno -?\d+\] ", "", text.rpartition(": ")[2].strip("'\")( "))


def _resolves(host: str, seconds: float) -> bool:
    """Return whether a host has an address, within a time limit that requests does not offer."""
    addresses: list[bool] = []

    def resolve() -> None:
        with contextlib.suppress(OSError):
            addresses.append(bool(socket.getaddrinfo(host, 443)))

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(addresses)


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders that a killed download left an hour or more ago."""
    for stale in folder.glob(".tmp-*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > 3600:
                shutil.rmtree(stale)


def _unzip(data: bytes, wanted: list[str]) -> dict[str, bytes]:
    """Return the wanted files of an archive, or of archives in it, by their base names.

    Members are read into memory and never extracted, so that no name can leave the data folder.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = {PurePosixPath(m.filename).name: m for m in archive.infolist()}
        files = {name: _read(archive, members[name]) for name in wanted if name in members}
        for name, member in members.items():
            if len(files) < len(wanted) and name.endswith(".zip"):
                inner = zipfile.ZipFile(io.BytesIO(_read(archive, member)))
                for m in inner.infolist():
                    base = PurePosixPath(m.filename).name
                    if base in wanted and base not in files:
                        files[base] = _read(inner, m)
    except _DownloadError:
        raise
    except Exception as error:  # a corrupt archive can make zipfile raise anything
        beginning = data[:200].lstrip().lower()
        is_html = beginning.startswith((b"<!doctype", b"<html"))
        reason = ": an HTML page" if is_html else f" that can be read: {error}"
        raise _DownloadError(f"not a zip archive{reason}") from None
    missing = [name for name in wanted if name not in files]
    if missing:
        raise _DownloadError(f"no member '{missing[0]}' in the archive")
    return files


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member's bytes, at most as many as its header says, and at most MAX_BYTES."""
    name = shorten(member.filename)
    if member.file_size > MAX_BYTES:
        raise _DownloadError(f"member '{name}' has {member.file_size} bytes")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _DownloadError(f"member '{name}' has another compression than deflate")
    with archive.open(member) as file:
        # archive.read would unpack up to 2 GiB at once, whatever the header says
        return file.read(member.file_size + 1)


def _from_arff(data: bytes, wanted: list[str], source: dict[str, Any]) -> dict[str, bytes]:
    """Return the original comma-separated file from an ARFF file."""
    parts = re.split("@data|@DATA", data.decode("utf-8", "replace"), maxsplit=1)
    if len(parts) < 2:
        raise _DownloadError("not an ARFF file")
    replace = {old: str(new) for old, new in source["replace"].items()}
    lines = (
        ",".join(replace.get(cell.strip(), cell.strip()) for cell in row)
        for row in csv.reader(parts[1].splitlines())
        if row and not row[0].startswith("%")
    )
    return {wanted[0]: ("\n".join(lines) + "\n").encode()}
