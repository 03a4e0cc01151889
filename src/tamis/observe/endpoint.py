"""The address that Prometheus scrapes: GET /metrics, one request per connection, one connection at a time.

It runs as a thread of the supervisor (`tamis run --metrics-port`), where it takes 2 MB and no start; a process of its own would
take 13 MB of the budget and 0.08 s of CPU. So it must be modest: whoever asks too often gets the last answer again (looking takes
at most 1 % of a core), a client that is slow or says too much is left, and nothing it does can raise into the run. http.server
is not used, since it waits for slow clients as long as they like.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from tamis.errors import UsageError
from tamis.observe.dashboard.guard import host_of, is_loopback
from tamis.observe.dashboard.listening import listen
from tamis.observe.exposition import CONTENT_TYPE
from tamis.terminal import printable

PATH = "/metrics"
MAX_REQUEST_BYTES = 16_384
_REQUEST_S = 2.0  # for all of a request, and again for all of its answer
_LEAST_S = 0.5  # between two looks at the run
_FACTOR = 100  # times the CPU time of a look pass before the next one
_PAUSE_S = 0.01  # between two connections
_PAGE = "<!DOCTYPE html><title>Tamis</title><p>Metrics of this run, for Prometheus: <a href=/metrics>/metrics</a></p>\n"


class Endpoint:
    """`make` gives the text to be served. UsageError where the address cannot be used."""

    def __init__(self, make: Callable[[], str], host: str = "127.0.0.1", port: int = 0) -> None:
        self._make, self._host = make, host
        self._text = b""
        self._not_before_s = float("-inf")
        self._closing = False
        self._thread: threading.Thread | None = None
        try:
            self._socket = listen(host, port)
        except (OSError, OverflowError) as exc:
            why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            raise UsageError(
                f"no metrics at {host} port {port}: {why}; give another port, or 0 for any that is free"
            ) from None
        self._socket.settimeout(0.5)  # how soon it notices that it is to end
        self.port = int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{socket.gethostname() if host in ('0.0.0.0', '[::]') else host}:{self.port}{PATH}"

    def start(self) -> Endpoint:
        """Serve from a thread that ends with the process."""
        self._thread = threading.Thread(target=self.serve, name="tamis-metrics", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        self._closing = True
        if self._thread is not None:
            self._thread.join(5.0)
        self._socket.close()

    def serve(self) -> None:
        """Until `close`."""
        while not self._closing:
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # too many open files, or a client that is gone already
                time.sleep(0.1)
                continue
            with contextlib.suppress(Exception), client:
                self._answer(client)
            time.sleep(_PAUSE_S)

    def _answer(self, client: socket.socket) -> None:
        request = _received(client)
        status, kind, body = self._reply(request)
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        ).encode("latin-1")
        client.settimeout(_REQUEST_S)
        client.sendall(head if request.startswith(b"HEAD ") else head + body)
        client.shutdown(socket.SHUT_WR)

    def _reply(self, request: bytes) -> tuple[str, str, bytes]:
        """Status, type and body of the answer."""
        plain = "text/plain; charset=utf-8"
        lines = request.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if not request.endswith(b"\r\n\r\n") or len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "400 Bad Request", plain, b"this request cannot be read\n"
        if words[0] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", plain, b"this address can be read, not written\n"
        if not self._knows(lines[1:]):
            return "403 Forbidden", plain, b"this name is not one of this machine\n"
        path = words[1].partition("?")[0]
        if path == "/":
            return "200 OK", "text/html; charset=utf-8", _PAGE.encode()
        if path != PATH:
            return "404 Not Found", plain, b"there is no such page; the metrics are at /metrics\n"
        try:
            return "200 OK", CONTENT_TYPE, self._look()
        except Exception as exc:
            return "500 Internal Server Error", plain, (printable(f"{type(exc).__name__}: {exc}") + "\n").encode()

    def _knows(self, headers: list[str]) -> bool:
        """Asked by a name of this machine, if only this machine may ask: a web page elsewhere could make its name point here."""
        if not is_loopback(self._host):
            return True
        names = [host_of(line.partition(":")[2]) for line in headers if line.lower().startswith("host:")]
        return all(is_loopback(name) for name in names)

    def _look(self) -> bytes:
        now_s = time.monotonic()
        if now_s >= self._not_before_s:
            began_s = time.thread_time()
            self._text = self._make().encode("utf-8", "replace")
            self._not_before_s = now_s + max(_LEAST_S, _FACTOR * (time.thread_time() - began_s))
        return self._text


def _received(client: socket.socket) -> bytes:
    """A request up to the blank line behind its headers; what came so far when it takes too long or is too much."""
    until_s = time.monotonic() + _REQUEST_S
    found = b""
    while not found.endswith(b"\r\n\r\n") and len(found) < MAX_REQUEST_BYTES:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        client.settimeout(left_s)
        try:
            more = client.recv(4096)
        except TimeoutError:
            break
        if not more:
            break
        found += more
    return found
