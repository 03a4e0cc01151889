"""A Ray cluster of our own on this machine, started with `ray start --head`; keeper.py ends it.

It asks for a token, which is in the environment of this process and of those it starts: Ray listens on all interfaces,
whatever its options say.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

from tamis import files
from tamis.backends.registry import check_installed
from tamis.errors import UsageError, WorkerError
from tamis.memory import meter

START_S, STOP_S = 150.0, 20.0
DEFAULT_STORE_BYTES = 100_000_000  # only descriptors and results of leases go there; documents never do


@dataclass(frozen=True)
class HeadOptions:
    """Options of `ray start`; None and 0: its own choice, or any free port."""

    num_cpus: int | None = None
    num_gpus: int | None = None
    memory_bytes: int | None = None
    object_store_bytes: int | None = DEFAULT_STORE_BYTES
    port: int = 0
    dashboard: bool = False
    dashboard_host: str = "127.0.0.1"
    dashboard_port: int = 0
    client_port: int = 0
    metrics_port: int = 0
    temp_dir: str | None = None  # None: a separate folder, removed at the end
    log: str | None = None
    ip: str | None = None  # the address others reach this machine at; None: this machine alone
    spills: bool = False  # objects that do not fit go to files in its folder


class Head:
    """`start` returns when the cluster can be used; `stop` when nothing of it is left."""

    def __init__(self, options: HeadOptions | None = None) -> None:
        self.options = options or HeadOptions()
        self.address = ""
        self.keeper_pid = 0
        self.dashboard_port = self.metrics_port = 0
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Ours is the budget, and Ray's monitor would count agents without their workers and end a bystander.
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Xenna asks for lists of this length.
            "RAY_MAX_LIMIT_FROM_API_SERVER": "40000",
            "RAY_MAX_LIMIT_FROM_DATA_SOURCE": "40000",
        }
        self._sock: socket.socket | None = None
        self._own_folder: str | None = None

    @property
    def is_running(self) -> bool:
        return self._sock is not None and bool(self.keeper_pid) and meter.is_alive(self.keeper_pid)

    def start(self) -> str:
        """Start it; returns the address for ray.init().

        A port may be taken between the look at it and Ray's own: then with any others.
        """
        check_installed("ray")
        try:
            return self._start()
        except WorkerError:
            self.options = replace(self.options, port=0, dashboard_port=0, client_port=0, metrics_port=0)
            return self._start()

    def _start(self) -> str:
        folder = self.options.temp_dir
        if folder is None:  # short: it is part of the names of sockets, which have 107 bytes
            folder = self._own_folder = tempfile.mkdtemp(
                prefix="tamis-ray-", dir="/tmp" if os.path.isdir("/tmp") else None
            )
        os.makedirs(folder, exist_ok=True)
        log = self.options.log or os.path.join(folder, "start.log")
        self._sock, theirs = socket.socketpair()
        pointer = os.path.join(folder, "ray_current_cluster")
        with contextlib.suppress(OSError):
            os.unlink(pointer)
        try:
            with theirs:
                subprocess.run(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "tamis.backends.ray_cluster.keeper",
                        str(theirs.fileno()),
                        log,
                        self._own_folder or "",
                        *self._command(folder),
                    ],
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    timeout=START_S,
                )
            answer = self._read_answer()
            self.keeper_pid = int(answer.get("pid", 0))
            if answer.get("code") != 0:
                raise WorkerError(
                    f"Ray could not be started ({answer.get('error', 'see below')}):\n{files.tail(log, 3000)}"
                )
            with open(pointer, encoding="ascii") as file:
                self.address = file.read().strip()
        except BaseException:
            self.stop()
            raise
        return self.address

    def stop(self) -> None:
        """End all processes of the cluster; returns when they are gone."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        deadline_s = time.monotonic() + STOP_S
        while self.keeper_pid and meter.is_alive(self.keeper_pid) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self.keeper_pid, self.address = 0, ""
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None

    def _read_answer(self) -> dict[str, Any]:
        assert self._sock is not None
        self._sock.settimeout(START_S)
        data = b""
        with contextlib.suppress(OSError):
            while not data.endswith(b"\n") and (more := self._sock.recv(4096)):
                data += more
        self._sock.settimeout(None)
        return json.loads(data) if data else {"code": -1, "error": "its keeper died"}

    def _command(self, folder: str) -> list[str]:
        o = self.options
        self.dashboard_port, self.metrics_port = free_port(o.dashboard_port), free_port(o.metrics_port)
        options = {
            "--node-ip-address": o.ip or "127.0.0.1",
            "--port": free_port(o.port),
            "--temp-dir": folder,
            "--num-cpus": o.num_cpus,
            "--num-gpus": o.num_gpus,
            "--memory": o.memory_bytes,
            "--object-store-memory": o.object_store_bytes,
            "--include-dashboard": str(o.dashboard).lower(),
            "--dashboard-host": o.dashboard_host,
            "--dashboard-port": self.dashboard_port,
            "--ray-client-server-port": free_port(o.client_port),
            "--metrics-export-port": self.metrics_port,
            "--object-spilling-directory": os.path.join(folder, "spill") if o.spills else None,
        }
        arguments = [text for name, value in options.items() if value is not None for text in (name, str(value))]
        code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
        return [sys.executable, "-P", "-c", code, "start", "--head", "--disable-usage-stats", *arguments]


def free_port(preferred: int) -> int:
    """Return the wanted port if it is free, else the next free one; 0 means any port."""
    for port in [*range(preferred, min(preferred + 200, 65536)), 0] if preferred else [0]:
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", port))
            return int(sock.getsockname()[1])
    raise UsageError(f"no port is free from {preferred} on")
