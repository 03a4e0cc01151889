"""The driver of a run, as the placer and the ways of placing see it: what it wants, and what it is told."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import Any

_SHUTDOWN_S = 8.0  # Ray's own shutdown may take minutes; whatever is left then ends with this process


class Driver:
    """The process that wants agents. `ended` is set when it is gone or has had enough."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lines = sock, sock.makefile("rb")
        self._lock = threading.Lock()
        self.ended = threading.Event()

    def wish(self) -> dict[str, Any]:
        """Return the driver's request (session.Wish, with the address of the hub and the token)."""
        told: dict[str, Any] = json.loads(self._lines.readline())
        threading.Thread(target=self._wait, name="tamis-driver", daemon=True).start()
        return told

    def tell(self, **facts: Any) -> None:
        """`text`: what is being done; `n_nodes`: how many nodes can be counted on; `gpus`: that each offers; `error`: why there will be none."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.sendall(json.dumps(facts).encode() + b"\n")

    def _wait(self) -> None:
        with contextlib.suppress(OSError):
            self._lines.read()
        self.ended.set()
        threading.Timer(_SHUTDOWN_S, lambda: os._exit(0)).start()
