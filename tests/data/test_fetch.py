"""Downloads, from a local server that fails in every way."""

import io
import threading
import time
import tracemalloc
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from marginctl.data import fetch
from marginctl.data.fetch import Downloader, fetch_datasets
from marginctl.data.tabular import uci

HABERMAN = "".join(f"{30 + i % 50},{58 + i % 12},{i % 13},{1 + (i % 7 == 0)}\n" for i in range(306))


def archive(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in members.items():
            out.writestr(name.replace("__", "/").replace("UP", "..").replace("DOT", "."), text)
    return content.getvalue()


GOOD = archive(habermanDOTdata=HABERMAN)


def bomb(method):
    """A member of 100 MB whose header says 1,000 bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as out:
        out.writestr("haberman.data", bytes(100 * 10**6))
        out.filelist[0].file_size = 1000  # in the central directory
    return content.getvalue()


@pytest.fixture
def server():
    """Answers each path with what `pages` holds; a path `stall` never ends."""
    pages = {}
    requested = []
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requested.append(self.path)
            if self.path == "/stall":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"PK")
                self.wfile.flush()
                stop.wait(30)
                return
            status, body, length = pages.get(self.path, (404, b"", None))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    running.pages, running.requested = pages, requested
    running.url = f"http://127.0.0.1:{running.server_port}"
    yield running
    stop.set()
    running.shutdown()
    running.server_close()


@pytest.fixture
def haberman(monkeypatch, tmp_path, server):
    """Expect a small stand-in of haberman; return a function that sets its sources."""
    folder = tmp_path / "original" / "uci" / "haberman"
    folder.mkdir(parents=True)
    (folder / "haberman.data").write_text(HABERMAN)
    definition = uci.uci_definitions()["haberman"]
    table = (definition["files"][0], [line.split(",") for line in HABERMAN.splitlines()])
    digest = uci._parse("haberman", definition, [table], "").digest
    changed = {**definition, "digest": digest}

    def sources(*paths, kind="zip", **more):
        changed["sources"] = [{kind: server.url + p if p[0] == "/" else p, **more} for p in paths]

    everything = {**uci.uci_definitions(), "haberman": changed}
    for module in (fetch, uci):
        monkeypatch.setattr(module, "uci_definitions", lambda: everything)
    return sources


def fetch_haberman(tmp_path):
    return fetch_datasets(["haberman"], tmp_path / "data").get("haberman")


def nothing_left(tmp_path):
    folder = tmp_path / "data" / "uci"
    return not folder.exists() or not list(folder.rglob("*"))


def test_a_good_archive(tmp_path, server, haberman):
    server.pages["/good"] = (200, GOOD, None)
    haberman("/good")
    assert fetch_haberman(tmp_path) is None
    assert uci.load_uci("haberman", tmp_path / "data").num_rows == 306
    assert [p.name for p in (tmp_path / "data" / "uci").iterdir()] == ["haberman"]


@pytest.mark.parametrize(
    "content",
    [
        archive(deep__er__habermanDOTdata=HABERMAN),
        archive(innerDOTzip=GOOD, readme="x"),
        archive(UP__UP__UP__habermanDOTdata=HABERMAN),
    ],
    ids=["in a folder", "zip in a zip", "a path that leaves the cache"],
)
def test_members_are_placed_by_their_base_names(tmp_path, server, haberman, content):
    server.pages["/good"] = (200, content, None)
    haberman("/good")
    assert fetch_haberman(tmp_path) is None
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("haberman.data"))
    assert files == [
        "data/uci/haberman/haberman.data",
        "original/uci/haberman/haberman.data",
    ]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ((200, b"<!DOCTYPE html><html>Sorry</html>", None), "not a zip archive: an HTML page"),
        ((200, GOOD[:-40], None), "not a zip archive"),
        ((200, GOOD[:50], len(GOOD)), "incomplete: the connection closed early"),
        ((200, b"", None), "not a zip archive"),
        ((200, archive(otherDOTdata="1,2"), None), "no member 'haberman.data' in the archive"),
        (
            (200, archive(habermanDOTdata=HABERMAN[: HABERMAN.rindex("\n", 0, -1) + 1]), None),
            "305 instances",
        ),
        (
            (200, archive(habermanDOTdata=HABERMAN.replace("30,58", "31,58")), None),
            "differs from the original files (SHA-256)",
        ),
        ((200, GOOD.replace(GOOD[60:90], bytes(30)), None), "not a zip archive"),
        ((200, bomb(zipfile.ZIP_DEFLATED), None), "Bad CRC-32"),
        ((200, bomb(zipfile.ZIP_BZIP2), None), "has another compression than deflate"),
        ((200, bomb(zipfile.ZIP_LZMA), None), "has another compression than deflate"),
        ((200, archive(habermanDOTdata="1" * (51 * 2**20)), None), "has 53477376 bytes"),
        ((404, b"gone", None), "HTTP status 404"),
        ((503, b"busy", None), "HTTP status 503"),
    ],
)
def test_a_bad_download_is_reported_and_not_placed(tmp_path, server, haberman, page, message):
    server.pages["/bad"] = page
    haberman("/bad")
    assert message in fetch_haberman(tmp_path)
    assert nothing_left(tmp_path)
    server.pages["/good"] = (200, GOOD, None)
    haberman("/bad", "/good")
    assert fetch_haberman(tmp_path) is None


def test_a_link_or_an_absolute_name_in_an_archive_leads_nowhere(tmp_path, server, haberman):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as out:
        link = zipfile.ZipInfo("data")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        out.writestr(link, str(tmp_path / "outside"))
        out.writestr("data/evil.txt", "1")
        out.writestr(str(tmp_path / "outside" / "evil.txt"), "1")
        out.writestr("C:\\evil.txt", "1")
        out.writestr(str(tmp_path / "outside" / "haberman.data"), HABERMAN)
    server.pages["/good"] = (200, content.getvalue(), None)
    haberman("/good")
    assert fetch_haberman(tmp_path) is None
    assert not (tmp_path / "outside").exists()
    assert [p.name for p in (tmp_path / "data").rglob("*")] == ["uci", "haberman", "haberman.data"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_bomb_is_not_unpacked(tmp_path, server, haberman, method):
    server.pages["/bomb"] = (200, bomb(method), None)
    haberman("/bomb")
    tracemalloc.start()
    try:
        assert fetch_haberman(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 30 * 10**6
    finally:
        tracemalloc.stop()


def test_a_stalled_connection_times_out(tmp_path, server, haberman, monkeypatch):
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.5)
    haberman("/stall")
    started = time.monotonic()
    assert "no answer in 0 s" in fetch_haberman(tmp_path)
    assert time.monotonic() - started < 5
    assert nothing_left(tmp_path)


def test_an_unknown_host_is_requested_once(tmp_path, haberman, monkeypatch):
    requested = []

    def resolves(host, seconds):
        requested.append(host)
        return False

    monkeypatch.setattr(fetch, "_resolves", resolves)
    haberman("http://nowhere.invalid/a", "http://nowhere.invalid/b")
    assert fetch_haberman(tmp_path) == "nowhere.invalid: host not found (no network?)"
    assert requested == ["nowhere.invalid"]


def test_without_a_network_it_gives_up_in_time(tmp_path, haberman, monkeypatch):
    monkeypatch.setattr(fetch, "OFFLINE_SECONDS", 0.3)

    def slow(host, seconds):
        time.sleep(seconds)
        return False

    monkeypatch.setattr(fetch, "_resolves", slow)
    haberman(*(f"http://host{i}.invalid/a" for i in range(30)))
    started = time.monotonic()
    assert "no host has answered" in fetch_haberman(tmp_path)
    assert time.monotonic() - started < 2


def test_a_refused_connection(tmp_path, haberman, server):
    haberman("http://127.0.0.1:9/x")
    assert "refused" in fetch_haberman(tmp_path)


def test_an_arff_source_gives_the_original_file(tmp_path, server, haberman):
    rows = HABERMAN.replace(",1\n", ",lived\n").replace(",2\n", ",died\n")
    server.pages["/arff"] = (200, b"@relation x\n@data\n% note\n" + rows.encode(), None)
    haberman("/arff", kind="arff", replace={"lived": 1, "died": 2})
    assert fetch_haberman(tmp_path) is None
    assert (tmp_path / "data/uci/haberman/haberman.data").read_text() == HABERMAN
    server.pages["/arff"] = (200, b"<html>", None)
    assert fetch.Downloader(tmp_path / "other").fetch("haberman").endswith("not an ARFF file")


def test_a_folder_that_cannot_be_written(tmp_path, server, haberman):
    server.pages["/good"] = (200, GOOD, None)
    haberman("/good")
    (tmp_path / "data").write_text("a file")
    assert "cannot be written" in fetch_haberman(tmp_path)


def test_other_files_in_the_folder_stay(tmp_path, server, haberman):
    server.pages["/good"] = (200, GOOD, None)
    haberman("/good")
    notes = tmp_path / "data/uci/haberman/notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert fetch_haberman(tmp_path) is None
    assert notes.read_text() == "mine"


def test_every_definition_has_a_source_and_a_digest(data_dir):
    for name, definition in uci.uci_definitions().items():
        assert definition["sources"]
        assert uci.load_uci(name, data_dir).digest == definition["digest"]
    assert Downloader(data_dir).unreachable == {}
