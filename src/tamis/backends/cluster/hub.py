"""The driver's end of the wires: a listening socket, and one link for each agent that has called and proved that it knows the token."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.backends.cluster.handshake import prove
from tamis.backends.cluster.messages import FROM_AGENT, Hello
from tamis.engine.channel import Channel

MAX_GREETINGS = 256  # callers that have not proved themselves yet
SEND_S = 30  # an agent that takes nothing for so long is as good as gone


@dataclass
class Link:
    """One agent. `hello`: what it told of its node; `node`: the number that the engine knows it by, new with every agent."""

    channel: Channel
    hello: Hello
    node: int
    heard_s: float = field(default_factory=time.monotonic)


class Hub:
    """Listens from `open` to `close`. New links wait in `arrivals`; `on_arrival` is called after each, in another thread."""

    def __init__(self, host: str) -> None:
        self.token = secrets.token_hex(32)
        self.arrivals: queue.SimpleQueue[Link] = queue.SimpleQueue()
        self.on_arrival: Callable[[], None] = lambda: None
        self._n_links = 0
        self._lock = threading.Lock()
        self._greetings: dict[socket.socket, None] = {}  # oldest first
        self._sock = socket.create_server((host, 0), backlog=256)
        self.host, self.port = host, int(self._sock.getsockname()[1])
        threading.Thread(target=self._accept, name="tamis-hub", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self._make_room(sock)
            threading.Thread(target=self._greet, args=(sock,), name="tamis-greeting", daemon=True).start()

    def _make_room(self, sock: socket.socket) -> None:
        """Bound the callers that are greeted at the same time: the oldest one is turned away."""
        with self._lock:
            if len(self._greetings) >= MAX_GREETINGS:
                oldest = next(iter(self._greetings))
                del self._greetings[oldest]
                with contextlib.suppress(OSError):  # it has gone
                    oldest.shutdown(socket.SHUT_RDWR)
            self._greetings[sock] = None

    def _greet(self, sock: socket.socket) -> None:
        """Authenticate an incoming connection and queue its link.

        Runs in a thread of its own, so that a peer that connects and sends nothing does not block other peers.
        """
        hello = None
        if prove(sock, self.token, "driver", "agent"):
            make_lively(sock)
            channel = Channel(sock, FROM_AGENT)
            hello = channel.receive() if channel.wait(20.0) else None
        with self._lock:
            self._greetings.pop(sock, None)
        if not isinstance(hello, Hello):
            sock.close()
            return
        with self._lock:
            self._n_links += 1
            link = Link(channel, hello, self._n_links)
        self.arrivals.put(link)
        self.on_arrival()


def make_lively(sock: socket.socket) -> None:
    """Small messages go at once; a peer whose machine vanished is noticed; sending never blocks for ever."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
