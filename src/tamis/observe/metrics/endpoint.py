"""The address that Prometheus scrapes: GET /metrics, one request per connection.

It runs as a thread of the supervisor (`tamis run --metrics-port`), where it takes 2 MB and no start; a process of its
own would take 13 MB of the budget and 0.08 s of CPU. So it must be modest: a client that asks too often gets the last
answer again (looking takes at most 1 % of a core), and nothing it does can raise into the run. One thread serves all
connections, none of which it waits for: their number is bounded (the oldest makes room), and so is the time that a
request and its answer may take.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.errors import UsageError
from tamis.observe.metrics.exposition import CONTENT_TYPE
from tamis.observe.serving import host_of, is_loopback, listen
from tamis.terminal import printable

PATH = "/metrics"
MAX_CONNECTIONS = 64
MAX_REQUEST_BYTES = 16_384
_REQUEST_S = 2.0  # for all of a request, and again for all of its answer
_LEAST_S = 0.5  # between two looks at the run
_FACTOR = 100  # times the CPU time of a look pass before the next one
_PAUSE_S = 0.01  # between two rounds over the connections
_LOOK_S = 0.5  # how soon it notices that it is to end
_PAGE = "<!DOCTYPE html><title>Tamis</title><p>Metrics of this run, for Prometheus: <a href=/metrics>/metrics</a></p>\n"


@dataclass
class _Connection:
    """A client connection: the request received so far, then the part of the answer that is still to be sent."""

    client: socket.socket
    deadline_s: float
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview = field(default_factory=lambda: memoryview(b""))

    def receive(self) -> bool:
        """Receive more of the request; return True if its headers are complete, the stream ended, or it is too long."""
        data = self.client.recv(MAX_REQUEST_BYTES)
        self.request += data
        return not data or self.request.endswith(b"\r\n\r\n") or len(self.request) >= MAX_REQUEST_BYTES

    def send(self) -> bool:
        """Return True if all of the answer has been sent."""
        self.answer = self.answer[self.client.send(self.answer) :]
        if self.answer:
            return False
        self.client.shutdown(socket.SHUT_WR)
        return True


class MetricsEndpoint:
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
        self._socket.setblocking(False)
        self._open: dict[socket.socket, _Connection] = {}  # oldest first
        self.port = int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{socket.gethostname() if host in ('0.0.0.0', '[::]') else host}:{self.port}{PATH}"

    def start(self) -> MetricsEndpoint:
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
        """Serve until `close`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            try:
                while not self._closing:
                    now_s = time.monotonic()
                    due_s = min((c.deadline_s for c in self._open.values()), default=now_s + _LOOK_S)
                    for key, _ in selector.select(min(_LOOK_S, max(0.0, due_s - now_s))):
                        if key.fileobj is self._socket:
                            self._accept(selector)
                        elif key.fileobj in self._open:  # not dropped in this round
                            self._advance(selector, self._open[key.fileobj])
                    self._end_overdue(selector)
                    time.sleep(_PAUSE_S)
            finally:
                for connection in list(self._open.values()):
                    self._drop(selector, connection)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        """Take all clients that wait; where there are too many, the oldest connections make room."""
        for _ in range(MAX_CONNECTIONS):
            try:
                client, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files, or a client that is gone already
                time.sleep(0.1)
                return
            if len(self._open) >= MAX_CONNECTIONS:
                self._drop(selector, next(iter(self._open.values())))
            client.setblocking(False)
            connection = self._open[client] = _Connection(client, time.monotonic() + _REQUEST_S)
            selector.register(client, selectors.EVENT_READ)
            self._advance(selector, connection)  # what a well-behaved client sends is mostly there by now

    def _advance(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        """Receive or send what is possible without waiting."""
        try:
            if not connection.answer and connection.receive():
                self._begin_answer(selector, connection)
            if connection.answer and connection.send():
                self._drop(selector, connection)
        except BlockingIOError:
            return
        except Exception:  # a client that has gone, or a request that nothing foresaw: the run must not notice
            self._drop(selector, connection)

    def _begin_answer(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        request = bytes(connection.request)
        status, kind, body = self._reply(request)
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        ).encode("latin-1")
        connection.answer = memoryview(head if request.startswith(b"HEAD ") else head + body)
        connection.deadline_s = time.monotonic() + _REQUEST_S
        selector.modify(connection.client, selectors.EVENT_WRITE)

    def _end_overdue(self, selector: selectors.BaseSelector) -> None:
        """Refuse requests that are not complete in time; leave clients that do not take their answer."""
        now_s = time.monotonic()
        for connection in [c for c in self._open.values() if c.deadline_s <= now_s]:
            with contextlib.suppress(OSError):  # it does not read either
                if not connection.answer:
                    self._begin_answer(selector, connection)
                    connection.send()
            self._drop(selector, connection)

    def _drop(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        del self._open[connection.client]
        selector.unregister(connection.client)
        connection.client.close()

    def _reply(self, request: bytes) -> tuple[str, str, bytes]:
        """Return status, type and body of the answer."""
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
        """Return True if the Host header may ask: a web page elsewhere could make its own name point here."""
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
