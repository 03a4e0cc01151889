"""RayClient: a Ray cluster on this machine for as long as it is wanted.

SlurmRayClient: one over the nodes of a Slurm job.

with RayClient(num_cpus=8):
    pipeline.run(RayDataExecutor())
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tamis.backends.ray_cluster.head import Head, HeadOptions
from tamis.backends.registry import check_installed
from tamis.core.constants import (
    DEFAULT_RAY_CLIENT_SERVER_PORT,
    DEFAULT_RAY_DASHBOARD_HOST,
    DEFAULT_RAY_DASHBOARD_PORT,
    DEFAULT_RAY_METRICS_PORT,
    DEFAULT_RAY_PORT,
)
from tamis.errors import UsageError, WorkerError
from tamis.memory.kill_tree import end_within
from tamis.sizes import check_integer, check_optional_integer, check_seconds

_LOOK_S = 0.5
_GONE_S = 5.0  # so long the file through which nodes meet may be away before its head counts as gone
_LENT = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


@dataclass
class RayClient:
    """A local Ray cluster: started by `start()` or `with`, ended by `stop()`, or when this program is killed.

    Ports that are in use are skipped for the next free one. While it runs, ray.init() and the executors of this
    program find it: its address and its token are in the environment. `object_store_memory` in bytes; `ray_temp_dir`
    None: a folder of its own, removed at the end.
    """

    ray_port: int = DEFAULT_RAY_PORT
    ray_dashboard_port: int = DEFAULT_RAY_DASHBOARD_PORT
    ray_client_server_port: int = DEFAULT_RAY_CLIENT_SERVER_PORT
    ray_temp_dir: str | None = None
    include_dashboard: bool = True
    ray_metrics_port: int = DEFAULT_RAY_METRICS_PORT
    ray_dashboard_host: str = DEFAULT_RAY_DASHBOARD_HOST
    num_gpus: int | None = None
    num_cpus: int | None = None
    object_store_memory: int | None = None
    enable_object_spilling: bool = False
    ray_stdouterr_capture_file: str | None = None
    metrics_dir: str | None = None
    _head: Head | None = field(default=None, init=False, repr=False, compare=False)
    _before: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("num_cpus", "num_gpus", "object_store_memory"):
            check_optional_integer(getattr(self, name), f"RayClient: {name}", 0)
        for name in ("ray_port", "ray_dashboard_port", "ray_client_server_port", "ray_metrics_port"):
            check_integer(getattr(self, name), f"RayClient: {name}", 0, 65535)
        if self.metrics_dir is not None and os.path.exists(self.metrics_dir) and not os.path.isdir(self.metrics_dir):
            raise UsageError(f"RayClient: metrics_dir: {self.metrics_dir} is not a folder")

    @property
    def address(self) -> str:
        """For ray.init(address=...); "" while it does not run."""
        return self._head.address if self._head is not None else ""

    @property
    def is_running(self) -> bool:
        return self._head is not None and self._head.is_running

    def start(self) -> None:
        """Start the cluster and wait until it can be used; do nothing if it runs."""
        if self.is_running:
            return
        self.stop()  # one that died: what it lent is given back before it is lent again
        head = Head(self._options())
        head.start()
        self._head = head
        self.ray_dashboard_port = head.dashboard_port
        self._before = {name: os.environ.get(name) for name in _LENT}
        atexit.register(self.stop)
        try:
            os.environ.update({"RAY_ADDRESS": head.address, **{n: head.environment[n] for n in _LENT[1:]}})
            if self.metrics_dir is not None:
                self._point_to_metrics(head)
        except BaseException:  # no caller gets a client to stop
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes of the cluster; do nothing without a cluster."""
        head, self._head = self._head, None
        if head is None:
            return
        atexit.unregister(self.stop)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        head.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _options(self) -> HeadOptions:
        return HeadOptions(
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            object_store_bytes=self.object_store_memory,
            port=self.ray_port,
            dashboard=self.include_dashboard,
            dashboard_host=self.ray_dashboard_host,
            dashboard_port=self.ray_dashboard_port,
            client_port=self.ray_client_server_port,
            metrics_port=self.ray_metrics_port,
            temp_dir=self.ray_temp_dir,
            log=self.ray_stdouterr_capture_file,
            spills=self.enable_object_spilling,
        )

    def _point_to_metrics(self, head: Head) -> None:
        """Add the endpoint of this cluster to the Prometheus that is configured in `metrics_dir`."""
        from tamis import files

        assert self.metrics_dir is not None
        os.makedirs(self.metrics_dir, exist_ok=True)
        with files.replacing(os.path.join(self.metrics_dir, "ray_targets.json")) as file:
            host = head.address.rpartition(":")[0]
            file.write(f'[{{"targets": ["{host}:{head.metrics_port}"]}}]\n'.encode())


@dataclass
class SlurmRayClient(RayClient):
    """One cluster over all nodes of a Slurm job: call it from a script that `srun` starts once on every node.

    On the first node it starts the head and waits for the others; `start()` returns there only. On the others it joins
    the head and ends the program (status 0) when the head is gone. The head's address goes through a file in the folder
    from which the job was submitted; it has the number of the job, of the step and of how often the job was requeued in
    its name, so that no node joins a head of an earlier start that was killed.
    """

    worker_connect_timeout_s: float = 300.0
    cleanup_on_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self.worker_connect_timeout_s, "SlurmRayClient: worker_connect_timeout_s")

    def start(self) -> None:
        """Start the node: on the first one return when all have joined, on others never return."""
        where, rank, n_nodes = _slurm(os.environ)
        if rank == 0:
            self._lead(where, n_nodes)
        else:
            self._follow(where)

    def _options(self) -> HeadOptions:
        return replace(super()._options(), ip=socket.gethostbyname(socket.gethostname()))

    def _lead(self, where: str, n_nodes: int) -> None:
        from tamis import files

        if self.cleanup_on_start and os.path.exists(where):
            os.unlink(where)
        super().start()
        assert self._head is not None
        try:
            files.write_text(where, f"{self._head.address} {self._head.environment['RAY_AUTH_TOKEN']}\n", mode=0o600)
            self._where = where
            self._wait_for(n_nodes)
        except BaseException:
            self.stop()
            raise

    def _wait_for(self, n_nodes: int) -> None:
        deadline_s = time.monotonic() + self.worker_connect_timeout_s
        while (n := self._count_nodes()) < n_nodes:
            if time.monotonic() > deadline_s:
                raise WorkerError(
                    f"{n} of {n_nodes} nodes joined the cluster in {self.worker_connect_timeout_s:.0f} s; look at the "
                    "logs of the others"
                )
            time.sleep(1.0)

    def stop(self) -> None:
        where = getattr(self, "_where", None)
        if where is not None and os.path.exists(where):
            os.unlink(where)
        super().stop()

    def _count_nodes(self) -> int:
        """Count the live nodes of the cluster in a separate process, which keeps Ray out of this one."""
        code = (
            "import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR'); print(sum(n['Alive'] "
            "for n in ray.nodes()))"
        )
        environment = {**os.environ, "RAY_ADDRESS": self.address}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code.replace("'auto'", repr(self.address))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        counts = re.findall(r"^\d+$", done.stdout, re.MULTILINE)
        return int(counts[-1]) if counts else 0

    def _follow(self, where: str) -> None:
        """Join the head that the file names.

        One that cannot be joined and was replaced meanwhile (the head began again) is left for the new one.
        """
        check_installed("ray")
        deadline_s = time.monotonic() + self.worker_connect_timeout_s
        while True:
            meeting = _read_meeting(where)
            if meeting is None:
                if time.monotonic() > deadline_s:
                    raise WorkerError(
                        f"no head of a cluster was found in {where} in {self.worker_connect_timeout_s:.0f} s"
                    )
                time.sleep(_LOOK_S)
                continue
            code = self._stay(self._join(*meeting), where, meeting)
            now = _read_patiently(where)
            if now is None:  # the head is gone: this node has done its part
                sys.exit(0)
            if now == meeting and (not code or time.monotonic() > deadline_s):
                sys.exit(code)  # one that could not join says so
            time.sleep(_LOOK_S)

    def _join(self, address: str, token: str) -> subprocess.Popen[bytes]:
        """Run `ray start` of a node other than the head; it stays until the head is gone."""
        code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
        command = [
            sys.executable,
            "-P",
            "-c",
            code,
            "start",
            "--address",
            address,
            "--block",
            "--disable-usage-stats",
        ]
        for name, value in (("--num-cpus", self.num_cpus), ("--num-gpus", self.num_gpus)):
            command += [name, str(value)] if value is not None else []
        ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_memory_monitor_refresh_ms": "0"}
        return subprocess.Popen(command, env={**os.environ, **ours}, start_new_session=True)

    def _stay(self, process: subprocess.Popen[bytes], where: str, meeting: tuple[str, str]) -> int:
        """Wait until the node has ended, or the file no longer names this head; then end the node.

        Its exit status, 0 where we ended it.
        """
        try:
            while process.poll() is None and (_read_meeting(where) == meeting or _read_patiently(where) == meeting):
                time.sleep(_LOOK_S)
            return process.poll() or 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                end_within(process, 20.0)


def _read_meeting(where: str) -> tuple[str, str] | None:
    """Address and token of the head; None where there is none (yet, or any more)."""
    try:
        with open(where, encoding="ascii") as file:
            address, token = file.read().split()
        return address, token
    except (OSError, ValueError):
        return None


def _read_patiently(where: str) -> tuple[str, str] | None:
    """Read the meeting file like `_read_meeting`, retrying for a while.

    A shared file system may fail once, and a node must not leave because of that.
    """
    until_s = time.monotonic() + _GONE_S
    while (meeting := _read_meeting(where)) is None and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return meeting


def _slurm(environ: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the meeting file of head and nodes, this node's number in the job, and the number of nodes."""
    try:
        job, rank, n_nodes = environ["SLURM_JOB_ID"], int(environ["SLURM_NODEID"]), int(environ["SLURM_NNODES"])
    except KeyError as exc:
        raise UsageError(
            f"SlurmRayClient: {exc.args[0]} is not set: call it from a script that srun starts on every node of a "
            "job, or use RayClient"
        ) from None
    # A requeued job keeps its number, and the file of a start that was killed is still there.
    start = f"{job}-{environ.get('SLURM_STEP_ID', '0')}-{environ.get('SLURM_RESTART_COUNT', '0')}"
    return os.path.join(environ.get("SLURM_SUBMIT_DIR", os.getcwd()), f".tamis-ray-{start}"), rank, n_nodes
