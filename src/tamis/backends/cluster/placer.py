"""The placer: a process beside the driver that talks to Ray, so that the driver need not: Ray ends its drivers when the cluster is gone.

It connects to the cluster, has agents started on its nodes in one of the ways of placing/, and starts others where agents or nodes go and come.
Told what to do in one line of JSON; tells what it does in lines of JSON; ends when the driver is gone or has had enough.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import sys
import threading
import traceback
from typing import Any

from tamis.backends.forking import leave, name_process

_SHUTDOWN_S = 8.0  # Ray's own shutdown may take minutes; whatever is left then ends with this process


class Driver:
    """The process that wants agents. `ended` is set when it is gone or has had enough."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lines = sock, sock.makefile("rb")
        self._lock = threading.Lock()
        self.ended = threading.Event()

    def wish(self) -> dict[str, Any]:
        """What it wants (session.Wish, with the address of the hub and the token)."""
        told: dict[str, Any] = json.loads(self._lines.readline())
        threading.Thread(target=self._wait, name="tamis-driver", daemon=True).start()
        return told

    def tell(self, **facts: Any) -> None:
        """`text`: what is being done; `n_nodes`: how many nodes can be counted on; `error`: why there will be none."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.sendall(json.dumps(facts).encode() + b"\n")

    def _wait(self) -> None:
        with contextlib.suppress(OSError):
            self._lines.read()
        self.ended.set()
        threading.Timer(_SHUTDOWN_S, lambda: os._exit(0)).start()


def main(fd: int, parent: int, how: str = "") -> None:
    name_process("tamis-placer")
    import gc

    gc.enable()
    driver = Driver(socket.socket(fileno=fd))
    wish = driver.wish()
    try:
        import ray

        driver.tell(text=f"connecting to Ray at {wish['address']}")
        ray.init(address=wish["address"], log_to_driver=False, ignore_reinit_error=True, configure_logging=False)
        importlib.import_module(f"tamis.backends.cluster.placing.{wish['how']}").place(wish, driver)
    except BaseException as exc:
        traceback.print_exc()
        driver.tell(error=f"Ray: {type(exc).__name__}: {str(exc)[:2000]}")
    with contextlib.suppress(BaseException):
        import ray

        ray.shutdown()
    sys.stderr.flush()
    leave(0)
