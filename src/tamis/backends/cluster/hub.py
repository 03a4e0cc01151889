"""The driver's side of the connections: a listening socket, and one link for each agent that proved the token.

Both sides prove that they know the token of the session, which itself never goes over the socket: each sends a random
challenge and answers the other's with its keyed hash. Roles are part of it, so that an answer cannot be sent back. What
follows is neither encrypted nor signed: the network between nodes is trusted as far as the cluster itself trusts it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.backends.cluster.messages import FROM_AGENT, Hello
from tamis.engine.channel import Channel

_CHALLENGE_BYTES, _PROOF_BYTES = 32, 32
HANDSHAKE_S = 20.0
MAX_GREETINGS = 256  # callers that have not proved themselves yet
SEND_S = 30  # an agent that receives nothing for so long counts as lost


@dataclass
class Link:
    """The connection of one agent.

    `hello` describes its node; `node` is its number in the engine, new with every agent.
    """

    channel: Channel
    hello: Hello
    node: int
    heard_s: float = field(default_factory=time.monotonic)


class Hub:
    """Listens from `open` to `close`.

    New links wait in `arrivals`; `on_arrival` is called after each, in another thread.
    """

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
        """Bound the connections that are greeted at the same time: close the oldest one."""
        with self._lock:
            if len(self._greetings) >= MAX_GREETINGS:
                oldest = next(iter(self._greetings))
                del self._greetings[oldest]
                with contextlib.suppress(OSError):  # it has gone
                    oldest.shutdown(socket.SHUT_RDWR)
            self._greetings[sock] = None

    def _greet(self, sock: socket.socket) -> None:
        """Authenticate an incoming connection and queue its link.

        Runs in a separate thread, so that a peer that connects and sends nothing does not block other peers.
        """
        hello = None
        if prove(sock, self.token, "driver", "agent"):
            configure_socket(sock)
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


def configure_socket(sock: socket.socket) -> None:
    """Send small messages at once, notice a peer whose machine vanished, and never block forever while sending."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))


def prove(sock: socket.socket, token: str, role: str, other: str) -> bool:
    """Return True if the other side proved itself in time. `role`, `other`: "driver" and "agent"."""
    sock.settimeout(HANDSHAKE_S)
    challenge = os.urandom(_CHALLENGE_BYTES)
    try:
        sock.sendall(challenge)
        theirs = _read(sock, _CHALLENGE_BYTES)
        sock.sendall(_proof(token, role, theirs))
        proof = _read(sock, _PROOF_BYTES)
    except OSError:
        return False
    if not hmac.compare_digest(proof, _proof(token, other, challenge)):
        return False
    sock.settimeout(None)
    return True


def _proof(token: str, role: str, challenge: bytes) -> bytes:
    return hmac.digest(token.encode(), role.encode() + b":" + challenge, "sha256")


def _read(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data
