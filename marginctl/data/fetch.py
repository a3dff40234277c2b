"""Fetches data sets into the data folder: checked by digest, placed whole or not at all."""

import contextlib
import csv
import http.client
import io
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from marginctl.data.tabular.uci import load_uci, uci_definitions
from marginctl.errors import RequestError
from marginctl.utils.text import short

OFFLINE_SECONDS = 10.0  # without any success: then there is no network
RESOLVE_SECONDS = 4.0
SILENT_SECONDS = 8.0  # the longest wait for the next bytes
WHOLE_SECONDS = 60.0  # the longest download
MOST_BYTES = 50 * 2**20


ZIP_ERRORS = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError)
NO_NETWORK = re.compile("host not found|no host has answered|no answer in")


class _FetchError(Exception):
    """Why one source did not give the data set."""


@dataclass
class Fetcher:
    """Fetches into one data folder; remembers hosts that could not be reached."""

    data_dir: Path
    unreachable: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    reached: bool = False  # whether any host has answered

    def fetch(self, name: str) -> str | None:
        """Fetches a data set; the reason where it could not be had.

        The sources are tried in their order. What comes is parsed and compared with the digest of
        the definition before it is put in its place, so that nothing else can ever lie there.
        """
        definition = uci_definitions()[name]
        reasons = []
        for source in definition["sources"]:
            ((kind, url),) = ((k, v) for k, v in source.items() if k in ("zip", "arff"))
            try:
                self._place(name, definition, source, kind, self._download(url))
                return None
            except _FetchError as error:
                reasons.append(f"{urlsplit(url).hostname}: {error}")
        return "; ".join(dict.fromkeys(reasons))

    def _download(self, url: str) -> bytes:
        host = str(urlsplit(url).hostname)
        if host in self.unreachable:
            raise _FetchError(self.unreachable[host])
        proxied = urlsplit(url).scheme in urllib.request.getproxies()
        if not proxied and not _resolves(host, min(RESOLVE_SECONDS, self._patience())):
            self.unreachable[host] = "host not found (no network?)"
            raise _FetchError(self.unreachable[host])
        patience = self._patience()
        request = urllib.request.Request(url, headers={"User-Agent": "marginctl"})
        deadline = time.monotonic() + WHOLE_SECONDS
        content = io.BytesIO()
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                self.reached = True
                while block := answer.read1(65536):
                    content.write(block)
                    if content.tell() > MOST_BYTES:
                        raise _FetchError(f"more than {MOST_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise _FetchError(f"not done after {WHOLE_SECONDS:.0f} s")
                expected = answer.headers.get("Content-Length")
        except urllib.error.HTTPError as error:
            raise _FetchError(f"HTTP status {error.code}") from None
        except TimeoutError:
            self.unreachable[host] = f"silent for {patience:.0f} s"
            raise _FetchError(self.unreachable[host]) from None
        except http.client.HTTPException as error:  # cut short, or not HTTP
            raise _FetchError(f"a broken answer: {type(error).__name__}") from None
        except (OSError, ValueError) as error:  # URLError, a reset
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                reason = f"no answer in {patience:.0f} s"
            said = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
            self.unreachable[host] = said
            raise _FetchError(said) from None
        if expected is not None and content.tell() != int(expected):
            raise _FetchError(f"{content.tell()} of {expected} bytes came")
        return content.getvalue()

    def _patience(self) -> float:
        """Seconds to wait for a host: what is left of OFFLINE_SECONDS until one has answered."""
        if self.reached:
            return SILENT_SECONDS
        left = self.started + OFFLINE_SECONDS - time.monotonic()
        if left <= 0:
            raise _FetchError(f"no host has answered in {OFFLINE_SECONDS:.0f} s")
        return min(SILENT_SECONDS, left)

    def _place(
        self, name: str, definition: dict[str, Any], source: dict[str, Any], kind: str, data: bytes
    ) -> None:
        wanted = [file["file"] for file in definition["files"]]
        files = _unzip(data, wanted) if kind == "zip" else _from_arff(data, wanted, source)
        target = self.data_dir / "uci" / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target.parent)
            temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=target.parent))
        except OSError as error:
            reason = error.strerror or error
            raise _FetchError(f"{target.parent} cannot be written: {reason}") from None
        try:
            folder = temporary / "uci" / name
            folder.mkdir(parents=True)
            for file, content in files.items():
                (folder / file).write_bytes(content)
            try:
                found = load_uci(name, temporary)
            except RequestError as error:
                raise _FetchError(f"not the expected data: {error.lines[0]}") from None
            if found.digest != definition["digest"]:
                raise _FetchError("not the expected data: its digest differs")
            target.mkdir(exist_ok=True)
            for file in files:
                (folder / file).replace(target / file)
        except OSError as error:
            raise _FetchError(f"{target} cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Removes what a killed fetch left, an hour old or more."""
    for stale in folder.glob(".tmp-*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > 3600:
                shutil.rmtree(stale)


def _resolves(host: str, seconds: float) -> bool:
    """Whether the host has an address, asked with a time limit."""
    answer: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            answer.append(bool(socket.getaddrinfo(host, 443)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answer)


def _unzip(data: bytes, wanted: list[str]) -> dict[str, bytes]:
    """The wanted files of an archive, or of archives in it, by their bare names.

    Members are read into memory and never extracted: a name cannot lead out of the cache.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = {PurePosixPath(m.filename).name: m for m in archive.infolist()}
        found = {name: _read(archive, members[name]) for name in wanted if name in members}
        for name, member in members.items():
            if len(found) < len(wanted) and name.endswith(".zip"):
                inner = zipfile.ZipFile(io.BytesIO(_read(archive, member)))
                for m in inner.infolist():
                    bare = PurePosixPath(m.filename).name
                    if bare in wanted and bare not in found:
                        found[bare] = _read(inner, m)
    except (*ZIP_ERRORS, zlib.error, struct.error, EOFError) as error:
        start = data[:200].lstrip().lower()
        page = "an HTML page" if start.startswith((b"<!doctype", b"<html")) else f"{error}"
        raise _FetchError(f"not a zip archive: {page}") from None
    except RuntimeError as error:  # encrypted
        raise _FetchError(str(error)) from None
    absent = [name for name in wanted if name not in found]
    if absent:
        raise _FetchError(f"no member '{absent[0]}' in the archive")
    return found


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A member's bytes; never more are unpacked than it says, or than `MOST_BYTES`."""
    name = short(member.filename)
    if member.file_size > MOST_BYTES:
        raise _FetchError(f"member '{name}' has {member.file_size} bytes")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _FetchError(f"member '{name}' is packed in another way than zip's own")
    with archive.open(member) as file:
        # archive.read would unpack up to 2 GiB at once, whatever the header says
        return file.read(member.file_size + 1)


def _from_arff(data: bytes, wanted: list[str], source: dict[str, Any]) -> dict[str, bytes]:
    """The original comma-separated file from an ARFF one."""
    text = data.decode("utf-8", "replace")
    _, found, rows = text.partition("@data")
    if not found:
        _, found, rows = text.partition("@DATA")
    if not found:
        raise _FetchError("not an ARFF file")
    replace = {old: str(new) for old, new in source["replace"].items()}
    lines = (
        ",".join(replace.get(cell.strip(), cell.strip()) for cell in row)
        for row in csv.reader(rows.splitlines())
        if row and not row[0].startswith("%")
    )
    return {wanted[0]: ("\n".join(lines) + "\n").encode()}


def fetch_missing(names: Iterable[str], data_dir: Path) -> dict[str, str]:
    """Fetches what is not there; the reasons of what could not be had, by data set."""
    fetcher = Fetcher(data_dir)
    reasons = {}
    for name in names:
        reason = fetcher.fetch(name)
        if reason:
            reasons[name] = reason
    return reasons
