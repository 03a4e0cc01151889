"""An HTTP server on loopback with ranges, validators and faults on demand, for tests of downloading."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    path: str
    range: str | None
    if_range: str | None


@dataclass
class Loopback:
    """`files`: path -> contents. `faults`: path -> what goes wrong with the next requests for it, one each.

    Faults: "503" (any status), "503 after 7" (with Retry-After), "cut 10" (breaks off behind 10 bytes), "hang up" (no
    answer), "no range" (ignores Range), "shift" (a range that nobody asked for), "to URL" (a redirect), "ok".
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    validators: bool = True
    lengths: bool = True

    def paths(self) -> list[str]:
        return [r.path for r in self.requests]


@contextmanager
def serve() -> Iterator[Loopback]:
    state = Loopback()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Loopback

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        state, path = self.state, self.path
        state.requests.append(Request(path, self.headers.get("Range"), self.headers.get("If-Range")))
        fault = state.faults[path].pop(0) if state.faults.get(path) else "ok"
        word, _, rest = fault.partition(" ")
        if word == "hang":
            self.close_connection = True
            return
        if word == "to":
            self._head(302, {"Location": rest})
            return
        if word.isdecimal() or path not in state.files:
            self._head(int(word) if word.isdecimal() else 404, {"Retry-After": rest[6:]} if rest else {})
            return
        self._send(state.files[path], word, rest)

    def _send(self, data: bytes, fault: str, rest: str) -> None:
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        headers = {"ETag": etag} if self.state.validators else {}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, etag)
        status, body = 200, data
        if asked and same and fault != "no":
            start = int(asked[1]) + (1 if fault == "shift" else 0)
            end = min(int(asked[2]) if asked[2] else len(data) - 1, len(data) - 1)
            if start >= len(data):
                self._head(416, {"Content-Range": f"bytes */{len(data)}"})
                return
            status, body = 206, data[start : end + 1]
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        if self.state.lengths:
            headers["Content-Length"] = str(len(body))
        self._head(status, headers)
        self.wfile.write(body[: int(rest)] if fault == "cut" else body)
        self.close_connection = True

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status >= 300:
            self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
