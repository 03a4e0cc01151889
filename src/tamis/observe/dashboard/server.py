"""The web server of the dashboard: five addresses, GET only, nothing but the standard library.

/               the page            /page.js, /page.css, /icon.svg    its parts
/fragments      what changed        /report.html                      the report of the run, if there is one
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import stat
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tamis.observe.dashboard.guard import Guard
from tamis.observe.dashboard.watching import Watcher
from tamis.observe.pictures.style import CSS

MAX_CONNECTIONS = 32
MAX_REPORT_BYTES = 8 << 20
_IDLE_S = 30.0
_LAST_LOOK_S = 2.0  # how long a dashboard that is told to end waits for its pages to see the end of the run
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# The report was written into the run directory, which nobody vouches for: styles only, and no rights at all.
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0072b2"/>'
    '<path d="M6 10h20l-3 9a5 5 0 0 1-5 4h-4a5 5 0 0 1-5-4z" fill="#fff"/><g fill="#0072b2"><circle cx="12" cy="14" r="1.5"/>'
    '<circle cx="16" cy="14" r="1.5"/><circle cx="20" cy="14" r="1.5"/><circle cx="14" cy="18" r="1.5"/><circle cx="18" cy="18" r="1.5"/></g>'
    '<circle cx="16" cy="27" r="1.7" fill="#f0e442"/></svg>'
)


class Ended(Exception):
    """The server is to end, in the ordinary way."""


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, host: str, port: int, watcher: Watcher, token: str = "", parent: int = 0) -> None:
        """OSError where the port is taken. `parent`: the process with which this one ends."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.watcher, self.parent = watcher, parent
        super().__init__((host, port), Handler)
        self.guard = Guard(host, int(self.server_address[1]), token)
        self.files = _files()
        self.asked_s = 0.0
        self.ending_s = 0.0
        self._told = threading.Event()
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        if host in ("0.0.0.0", "[::]"):
            host = socket.gethostname()
        return f"http://{host}:{self.guard.port}/" + (f"?token={self.guard.token}" if self.guard.token else "")

    def end_soon(self, *_: object) -> None:
        """End once the pages that are open have seen the last state."""
        self.ending_s = self.ending_s or time.monotonic()

    def news(self, range_: str, seen: str) -> dict[str, Any]:
        self.asked_s = time.monotonic()
        found = self.watcher.news(range_, seen, self.asked_s + (3600 if self.ending_s else 0))
        return {**found, "ended": bool(self.ending_s)}

    def told(self) -> None:
        self._told.set()

    # -- socketserver ---------------------------------------------------------------------------------------------------
    def service_actions(self) -> None:
        """Called twice a second."""
        if self.parent and os.getppid() != self.parent:
            raise Ended
        if self.ending_s:
            now_s = time.monotonic()
            somebody = now_s - self.asked_s < 5.0
            if not somebody or self._told.is_set() or now_s - self.ending_s > _LAST_LOOK_S:
                raise Ended

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):  # too many at once: the page asks again
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        kind, error, _ = sys.exc_info()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(f"dashboard: {kind.__name__ if kind else ''}: {error}", file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Tamis", ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        guard = self.server.guard
        if not guard.knows_host(self.headers.get("Host")):
            self._say(403, "this name is not one of this machine; open the address that the command printed")
            return
        try:
            address = urlsplit(self.path)
            query = parse_qs(address.query, max_num_fields=8)
        except ValueError:
            self._say(400, "the address cannot be read")
            return
        given = query.get("token", [""])[0]
        if not guard.lets_in(given, self.headers.get("Cookie", "")):
            self._say(401, "a token is needed; open the address that the command printed, with its token")
            return
        if address.path == "/fragments":
            try:
                found = self.server.news(query.get("range", ["all"])[0], query.get("seen", [""])[0])
            except Exception as exc:  # whatever the run directory holds, the page gets a sentence
                self._say(500, f"the run cannot be shown: {type(exc).__name__}: {exc}")
                return
            self._send(200, "application/json", json.dumps(found).encode())
            if found["ended"]:
                self.server.told()
        elif address.path == "/report.html":
            self._report()
        elif address.path in self.server.files:
            kind, body = self.server.files[address.path]
            # The token goes into a cookie with the page itself: a redirection that another site began would lose it.
            more = {"Set-Cookie": guard.new_cookie()} if given and guard.token else {}
            self._send(200, kind, body, **more)
        else:
            self._say(404, "there is no such page")

    do_HEAD = do_GET

    def _report(self) -> None:
        try:
            place = self.server.watcher.run_dir / "report.html"
            handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            with open(handle, "rb") as file:
                body = file.read(MAX_REPORT_BYTES + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
        except OSError:
            body = b""
        if not body or len(body) > MAX_REPORT_BYTES:
            self._say(404, "there is no report yet; it is written when the run ends")
            return
        self._send(200, "text/html; charset=utf-8", body, **{"Content-Security-Policy": _REPORT_POLICY})

    def _say(self, code: int, sentence: str) -> None:
        self._send(code, "text/plain; charset=utf-8", (sentence + "\n").encode())

    def _send(self, code: int, kind: str, body: bytes, **more: str) -> None:
        self.send_response(code)
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY, "Content-Type": kind, **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses (a request it cannot read, another method) is a sentence as well."""
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # what cannot be read counts as 0.9 there, whose answers have no status
        self._say(int(code), "this request cannot be answered")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _files() -> dict[str, tuple[str, bytes]]:
    here = Path(__file__).parent
    style = CSS + (here / "page.css").read_text(encoding="utf-8")
    return {
        "/": ("text/html; charset=utf-8", (here / "page.html").read_bytes()),
        "/page.js": ("text/javascript; charset=utf-8", (here / "page.js").read_bytes()),
        "/page.css": ("text/css; charset=utf-8", style.encode()),
        "/icon.svg": ("image/svg+xml", _ICON.encode()),
    }


def serve(server: Server) -> None:
    """Until Ctrl-C, SIGTERM, or the end of the parent."""
    signal.signal(signal.SIGTERM, server.end_soon)
    try:
        server.serve_forever(0.5)
    except (KeyboardInterrupt, Ended):
        pass
    finally:
        server.server_close()
