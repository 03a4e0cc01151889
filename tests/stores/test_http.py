"""Input from web servers: ranges of one version, or a refusal that says why."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import StoreError, UsageError
from tamis.formats.input_files.listing import list_files
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.stores import opening
from tamis.stores.reading import Changed

LINES = "".join(json.dumps({"id": i, "text": f"document {i}"}) + "\n" for i in range(3000)).encode()


class Web:
    """A server of one file, whose manners a test chooses."""

    def __init__(self) -> None:
        self.data, self.etag, self.ranges, self.faults = LINES, '"one"', True, 0
        self.redirect = ""
        self.total = ""  # what it says the file has, if not the truth
        web = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                if web.redirect and self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("Location", web.redirect)
                    self.end_headers()
                    return
                if self.headers.get("If-Match") not in (None, web.etag):
                    self.send_error(412)
                    return
                if web.faults:
                    web.faults -= 1
                    if web.faults % 2:
                        self.send_error(503)
                    else:
                        self.close_connection = True
                    return
                data, status = web.data, 200
                asked = self.headers.get("Range")
                if asked and web.ranges:
                    first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
                    data, status = data[first : last + 1], 206
                self.send_response(status)
                if status == 206:
                    self.send_header(
                        "Content-Range", f"bytes {first}-{first + len(data) - 1}/{web.total or len(web.data)}"
                    )
                if web.etag:
                    self.send_header("ETag", web.etag)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(opening, "_sources", {})
    made = Web()
    yield made
    made.close()


def test_a_file_on_the_web_is_input_like_any_other(web: Web, tmp_path: Path) -> None:
    url = f"{web.url}/data/a.jsonl?download=true"
    pipeline = Pipeline("copy", stages=[JsonlReader(url, blocksize="20kB"), JsonlWriter(str(tmp_path / "out"))])
    pipeline.run(InProcessExecutor(), progress=False)
    assert pipeline.last_result.ledger.written.n == 3000


def test_faults_pass_and_changes_do_not(web: Web) -> None:
    web.faults = 3
    with opening.open_input(f"{web.url}/a.jsonl") as file:
        assert file.read(10) == LINES[:10]
        web.faults = 2
        file.seek(0)
        file.source.read_into(100, memoryview(held := bytearray(50)))  # type: ignore[attr-defined]
        assert held == LINES[100:150]
        web.etag = '"two"'
        with pytest.raises(Changed, match="changed during the run"):
            file.source.read_into(100, memoryview(held))  # type: ignore[attr-defined]


def test_servers_that_cannot_be_read_safely_are_refused(web: Web) -> None:
    web.ranges = False
    with pytest.raises(StoreError, match="does not give ranges"):
        opening.open_input(f"{web.url}/a.jsonl")
    web.ranges = True
    for n, total in enumerate(("*", "\u00b2", "9" * 5000)):
        web.total = total
        with pytest.raises(StoreError, match="does not give ranges"):
            opening.open_input(f"{web.url}/{n}.jsonl")
    web.total, web.etag = "", ""
    with pytest.raises(StoreError, match="names no version"):
        opening.open_input(f"{web.url}/b.jsonl")
    web.etag = '"one"'
    for target in ("ftp://127.0.0.1/a.jsonl", "file:///etc/passwd", "https://127.0.0.1:9/a.jsonl"):
        web.redirect = target
        with pytest.raises(StoreError, match=r"another scheme|not allowed"):
            opening.open_input(f"{web.url}/moved-{target[:3]}.jsonl")
    web.redirect = f"{web.url}/c.jsonl"
    with opening.open_input(f"{web.url}/moved.jsonl") as file:
        assert file.read(5) == LINES[:5]


def test_addresses_that_mean_no_file_are_refused(web: Web) -> None:
    with pytest.raises(UsageError, match="name one file, as web servers list no folders"):
        list_files(f"{web.url}/folder/?token=hush", (".jsonl",))
    with pytest.raises(UsageError, match="no name or password"):
        list_files("http://me:hush@127.0.0.1:9/a.jsonl", (".jsonl",))
    for secret in ("X-Amz-Signature=hush", "token=hush", "sig=hush"):
        with pytest.raises(UsageError, match="is a secret, and addresses of input are kept") as told:
            list_files(f"{web.url}/a.jsonl?{secret}", (".jsonl",))
        assert "hush" not in str(told.value)
    with pytest.raises(UsageError, match="cannot write there"):
        JsonlWriter(f"{web.url}/out")
