"""The web server of the dashboard: five addresses, GET only, nothing but the standard library.

/               the page            /page.js, /page.css, /icon.svg    its parts
/fragments      what changed        /report.html                      the report of the run, if there is one

A page asks with `wait=1` and is answered when something has changed, or at once when the run ends: its process need not
wait until the page asks again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import socketserver
import stat
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tamis.observe.charts.passes import CSS as STEPPER_CSS
from tamis.observe.charts.style import CSS
from tamis.observe.dashboard.watching import Watcher
from tamis.observe.report.page import policy as report_policy
from tamis.observe.serving import AccessGuard
from tamis.terminal import printable

MAX_CONNECTIONS = 32
MAX_REPORT_BYTES = 8 << 20
HEADER_S = 5.0  # from the first byte of a connection to the end of its first request
_IDLE_S = 30.0  # between two requests of a connection
_HOLD_S = 10.0  # the longest that a page waits for an answer
_LOOK_S = 0.25  # how often a waiting page looks whether something has changed; the watcher bounds what that costs
_RECENT_S = 1.5  # who asked so lately will ask again
_LAST_LOOK_S = 2.0  # how long a dashboard that is asked to end waits for its pages to see the end of the run
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# The report was written into the run directory, which is not trusted: styles, exactly the script of reports, and no
# rights at all.
_REPORT_POLICY = f"sandbox allow-scripts; {report_policy()}; frame-ancestors 'none'"
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
    '<path d="M6 10h20l-3 9a5 5 0 0 1-5 4h-4a5 5 0 0 1-5-4z" fill="#fff"/><g fill="#0072b2"><circle cx="12" cy="14" '
    'r="1.5"/>'
    '<circle cx="16" cy="14" r="1.5"/><circle cx="20" cy="14" r="1.5"/><circle cx="14" cy="18" r="1.5"/><circle '
    'cx="18" cy="18" r="1.5"/></g>'
    '<circle cx="16" cy="27" r="1.7" fill="#f0e442"/></svg>'
)


class Connections:
    """The open connections of a server, bounded in number and in the time that each may take to send a request.

    Where there are too many, the one that has waited longest for its request makes room, one without any complete
    request first. Shared by the accepting thread, the handlers' threads and the main thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        # When the next request must be complete (inf while one is answered), and the connections that had one before.
        self._deadlines: dict[socket.socket, float] = {}
        self._known: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> bool:
        """Return False if there is no room: all other connections are being answered."""
        with self._lock:
            if len(self._deadlines) >= self._most:
                quiet = [other for other, deadline_s in self._deadlines.items() if deadline_s < math.inf]
                if not quiet:
                    return False
                self._end(next((other for other in quiet if other not in self._known), quiet[0]))
            self._deadlines[connection] = time.monotonic() + HEADER_S
            return True

    @contextlib.contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Keep a connection open, however long its answer takes."""
        self._set(connection, math.inf)
        try:
            yield
        finally:
            self._set(connection, time.monotonic() + _IDLE_S)

    def _set(self, connection: socket.socket, deadline_s: float) -> None:
        with self._lock:
            if self._deadlines.pop(connection, None) is not None:  # else it was ended just now
                self._deadlines[connection] = deadline_s  # as the last: those before have been quiet for longer
                self._known.add(connection)

    def end_overdue(self, now_s: float) -> None:
        """End the connections whose request is not complete in time."""
        with self._lock:
            for connection in [other for other, deadline_s in self._deadlines.items() if deadline_s < now_s]:
                self._end(connection)

    def remove(self, connection: socket.socket) -> None:
        """Forget a connection. Call it before the socket is closed."""
        with self._lock:
            self._deadlines.pop(connection, None)
            self._known.discard(connection)

    def _end(self, connection: socket.socket) -> None:
        """Wake the handler's thread, which reads the end of the stream and closes the socket."""
        del self._deadlines[connection]
        self._known.discard(connection)
        with contextlib.suppress(OSError):  # the client has gone
            connection.shutdown(socket.SHUT_RDWR)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, host: str, listening: socket.socket, watcher: Watcher, token: str = "", parent: int = 0) -> None:
        """Create the server; it ends with the process `parent`."""
        super().__init__((host, 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.watcher, self.parent = watcher, parent
        self.guard = AccessGuard(host, int(self.server_address[1]), token)
        self.files = _files()
        self._asked_s = 0.0
        self._ending_s = 0.0
        self._n_asking = 0
        self.knows_the_end = False  # a page does
        self._change = threading.Condition()
        self._wake = os.pipe()  # a signal handler may write to it, whatever lock is held
        self.connections = Connections(MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        if host in ("0.0.0.0", "[::]"):
            host = socket.gethostname()
        return f"http://{host}:{self.guard.port}/" + (f"?token={self.guard.token}" if self.guard.token else "")

    def end_soon(self, *_: object) -> None:
        """End once the pages that are open have seen the last state."""
        self._ending_s = self._ending_s or time.monotonic()
        self._nudge()

    def news(self, range_: str, seen: str, wait: bool = False) -> dict[str, Any]:
        deadline_s = time.monotonic() + (_HOLD_S if wait else 0.0)
        while True:
            ending, now_s = bool(self._ending_s), time.monotonic()
            news = self.watcher.news(range_, seen, now_s + (3600 if ending else 0))
            if news["fragments"] or ending or now_s >= deadline_s:
                return {**news, "ended": ending}
            with self._change:
                self._change.wait(_LOOK_S)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Keep the server running while a page is being answered."""
        with self._change:
            self._n_asking += 1
        try:
            yield
        finally:
            with self._change:
                self._n_asking -= 1
                self._asked_s = time.monotonic()
            if self._ending_s:
                self._nudge()

    def until_the_end(self) -> None:
        """Return when the parent has gone, or when the server was asked to end and the pages know."""
        while not (self.parent and os.getppid() != self.parent):
            self.connections.end_overdue(time.monotonic())
            if self._ending_s:
                with self._change:
                    self._change.notify_all()
                    n_asking, now_s = self._n_asking, time.monotonic()
                is_watched = n_asking > 0 or (now_s - self._asked_s < _RECENT_S and not self.knows_the_end)
                if not is_watched or now_s - self._ending_s > _LAST_LOOK_S:
                    return
            if select.select([self._wake[0]], [], [], 0.02 if self._ending_s else 0.5)[0]:
                os.read(self._wake[0], 512)

    def _nudge(self) -> None:
        os.write(self._wake[1], b".")

    # -- socketserver ------------------------------------------------------------------------------------------------
    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.add(request):  # too many at once: the page asks again
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        kind, error, _ = sys.exc_info()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(printable(f"dashboard: {kind.__name__ if kind else ''}: {error}"), file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Tamis", ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        with self.server.connections.answering(self.connection):
            self._answer()

    def _answer(self) -> None:
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
        token = query.get("token", [""])[0]
        if not guard.lets_in(token, self.headers.get("Cookie", "")):
            self._say(401, "a token is needed; open the address that the command printed, with its token")
            return
        if address.path == "/fragments":
            with self.server.answering():
                self._fragments(*(query.get(name, [""])[0] for name in ("range", "seen", "wait")))
        elif address.path == "/report.html":
            self._report()
        elif address.path in self.server.files:
            kind, body = self.server.files[address.path]
            # The token goes into a cookie with the page itself: a redirection that another site began would lose it.
            more = {"Set-Cookie": guard.new_cookie()} if token and guard.token else {}
            self._send(200, kind, body, **more)
        else:
            self._say(404, "there is no such page")

    do_HEAD = do_GET  # noqa: N815 - a name of BaseHTTPRequestHandler

    def _fragments(self, range_: str, seen: str, wait: str) -> None:
        try:
            news = self.server.news(range_, seen, wait == "1")
        except Exception as exc:  # whatever the run directory holds, the page gets a sentence
            self._say(500, f"the run cannot be shown: {type(exc).__name__}: {exc}")
            return
        self._send(200, "application/json", json.dumps(news).encode())
        self.server.knows_the_end |= news["ended"]

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
        self._send(code, "text/plain; charset=utf-8", (printable(sentence) + "\n").encode())

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
        """Answer requests that the base class rejects (unreadable, or another method) with a sentence, too."""
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # what cannot be read counts as 0.9 there, whose answers have no status
        self._say(int(code), "this request cannot be answered")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _files() -> dict[str, tuple[str, bytes]]:
    here = Path(__file__).parent
    style = CSS + STEPPER_CSS + (here / "page.css").read_text(encoding="utf-8")
    return {
        "/": ("text/html; charset=utf-8", (here / "page.html").read_bytes()),
        "/page.js": ("text/javascript; charset=utf-8", (here / "page.js").read_bytes()),
        "/page.css": ("text/css; charset=utf-8", style.encode()),
        "/icon.svg": ("image/svg+xml", _ICON.encode()),
    }


def serve(server: Server) -> None:
    """Serve until Ctrl-C, SIGTERM, or the end of the parent."""
    signal.signal(signal.SIGTERM, server.end_soon)
    threading.Thread(target=server.serve_forever, args=(60.0,), daemon=True).start()
    try:
        server.until_the_end()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
