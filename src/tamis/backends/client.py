"""Workers of this machine for functions of one's own: one per GPU with its memory pools set up, or one per core.

`with get_client("gpu") as client:`

Nothing has to be started before a pipeline runs. A client is for what a script does outside of pipelines
(`client.submit`, `client.map`, `client.run`), and while it is open the pipelines of the program take its number of
workers and its limit of GPU memory as their defaults.

Each worker is a separate process (client_worker.py) that starts when it is first needed, with CUDA_VISIBLE_DEVICES
set before any library looks for GPUs: a fresh interpreter, since CUDA does not survive a fork, which does not import
the script again. Functions and results travel by cloudpickle, over a pipe that only these two processes have.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from tamis.errors import UsageError, WorkerError
from tamis.files import Closing
from tamis.memory.gpu import device_names
from tamis.memory.gpu_pools import Pools
from tamis.memory.kill_tree import end_within
from tamis.sizes import check_optional_integer, parse_size

_log = logging.getLogger(__name__)
_open: list[weakref.ref[Client]] = []


@dataclass(frozen=True)
class ClientWorker:
    """One worker: its number, and the GPU it sees ("" for none)."""

    number: int
    device: str = ""


class Client(Closing):
    """Made by `get_client`. Close it, or use it with `with`."""

    def __init__(self, workers: Sequence[ClientWorker], threads: int, pools: Pools) -> None:
        self.workers, self.pools, self._threads = list(workers), pools, threads
        self._processes: dict[int, _ClientProcess] = {}
        self._turn = itertools.cycle(self.workers)
        self.closed = False
        _open.append(weakref.ref(self))

    # -- work ---------------------------------------------------------------------------------------------------------
    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it on the next worker; the result, or what it raised, comes with `.result()`."""
        return self._call(next(self._turn), function, args, kwargs)

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> list[Future[Any]]:
        """Submit one call for each item (of several lists: for each row of them)."""
        return [self.submit(function, *row) for row in zip(*items, strict=True)]

    def gather(self, futures: Iterable[Future[Any]]) -> list[Any]:
        """Return the results of `futures`, in order."""
        return [future.result() for future in futures]

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Call it once on every worker: results by the number of the worker."""
        futures = {worker.number: self._call(worker, function, args, kwargs) for worker in self.workers}
        return {number: future.result() for number, future in futures.items()}

    def _call(
        self, worker: ClientWorker, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        if self.closed:
            raise UsageError("this client is closed; get another one with get_client()")
        if worker.number not in self._processes:
            self._processes[worker.number] = _ClientProcess(worker, self._threads, self.pools)
        return self._processes[worker.number].call(cloudpickle.dumps((function, args, kwargs)))

    # -- life ---------------------------------------------------------------------------------------------------------
    @property
    def n_workers(self) -> int:
        return len(self.workers)

    def settings(self) -> dict[str, Any]:
        """Return the default settings for pipeline runs while this client is open."""
        defaults: dict[str, Any] = {"workers": self.n_workers} if not any(w.device for w in self.workers) else {}
        return defaults | ({"gpu_memory": self.pools.limit_bytes} if self.pools.limit_bytes else {})

    def close(self) -> None:
        """End the workers, once what was submitted is done."""
        self.closed = True
        for process in self._processes.values():
            process.end()
        self._processes.clear()

    shutdown = close

    def __repr__(self) -> str:
        shown = ", ".join(f"GPU {w.device}" if w.device else "CPU" for w in self.workers[:8])
        return f"Client({self.n_workers} workers: {shown}{', ...' if self.n_workers > 8 else ''})"


def default_settings() -> dict[str, Any]:
    """Return the settings of the most recently opened client that is still open; {} if there is none."""
    for reference in reversed(_open):
        client = reference()
        if client is not None and not client.closed:
            return client.settings()
    return {}


class _ClientProcess:
    """A worker's process, and the thread that waits for its answers: calls are answered one after the other."""

    def __init__(self, worker: ClientWorker, threads: int, pools: Pools) -> None:
        ours, theirs = Pipe()
        environment = {"CUDA_VISIBLE_DEVICES": worker.device, "OMP_NUM_THREADS": str(threads)}
        limit = {"TAMIS_GPU_MEMORY": str(pools.limit_bytes)} if pools.limit_bytes else {}
        self._name, self._connection = f"worker {worker.number}", ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tamis.backends.client_worker", str(theirs.fileno())],
            env={**os.environ, **environment, **limit},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._thread = ThreadPoolExecutor(1, f"tamis client {self._name}")
        self._weakly = weakref.finalize(self, _end, self._process, ours)
        if worker.device:
            self.call(cloudpickle.dumps((pools.set_up, (), {})))

    def call(self, pickled: bytes) -> Future[Any]:
        return self._thread.submit(self._ask, pickled)

    def _ask(self, pickled: bytes) -> Any:
        try:
            self._connection.send_bytes(pickled)
            raised, result = cloudpickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self._process.wait()
            raise WorkerError(f"{self._name} of the client died, status {self._process.returncode}") from None
        if raised:
            raise result
        return result

    def end(self) -> None:
        self._thread.shutdown(wait=True)
        self._weakly()


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    """Close the worker's pipe, which makes it exit; kill it if it does not."""
    connection.close()
    end_within(process, 5.0)


def get_client(
    cluster_type: str = "cpu",
    scheduler_address: str | None = None,
    scheduler_file: str | None = None,
    n_workers: int | None = None,
    threads_per_worker: int = 1,
    nvlink_only: bool = False,
    protocol: str = "tcp",
    rmm_pool_size: str | int | None = "1024M",
    enable_spilling: bool = True,
    set_torch_to_use_rmm: bool = False,
    rmm_async: bool = True,
    rmm_maximum_pool_size: str | int | None = None,
    rmm_managed_memory: bool = False,
    rmm_release_threshold: str | int | None = None,
) -> Client:
    """Start workers on this machine and return a client for them.

    "gpu": one worker per GPU, and each worker sees only its own; "cpu": `n_workers`, by default one per core.

    Memory of a GPU worker: an RMM pool if RMM is installed (`rmm_pool_size` initially, `rmm_maximum_pool_size`
    at most, `rmm_async`, `rmm_managed_memory`, `rmm_release_threshold`; torch uses it with
    `set_torch_to_use_rmm`), else limits of `rmm_maximum_pool_size` for torch and CuPy. `enable_spilling`: cuDF
    may move frames to the host. Workers exchange nothing with each other, so there is no protocol to choose.
    Without a GPU, "gpu" starts one worker on the CPU and reports it.
    """
    if cluster_type not in ("cpu", "gpu"):
        raise UsageError(f"get_client: cluster_type must be 'cpu' or 'gpu', got {cluster_type!r}")
    if scheduler_address is not None or scheduler_file is not None:
        raise UsageError(
            "get_client: there is no scheduler of Dask to connect to; it starts workers on this machine (for several "
            "machines see docs/guides/cluster.md)"
        )
    if nvlink_only or protocol != "tcp":
        raise UsageError(
            f"get_client: protocol={protocol!r}, nvlink_only={nvlink_only!r}: workers exchange nothing with each "
            "other; leave both out"
        )
    for name, n in (("n_workers", n_workers), ("threads_per_worker", threads_per_worker)):
        check_optional_integer(n, f"get_client: {name}")
    pools = Pools(
        _size(rmm_pool_size, "rmm_pool_size"),
        _size(rmm_maximum_pool_size, "rmm_maximum_pool_size"),
        _size(rmm_release_threshold, "rmm_release_threshold"),
        rmm_async,
        rmm_managed_memory,
        set_torch_to_use_rmm,
        enable_spilling,
    )
    if cluster_type == "cpu":
        n = n_workers or len(os.sched_getaffinity(0))
        return Client([ClientWorker(i) for i in range(n)], threads_per_worker, pools)
    return Client(_gpu_workers(n_workers), threads_per_worker, pools)


def _gpu_workers(n_workers: int | None) -> list[ClientWorker]:
    """Return one worker per GPU, `n_workers` at most; one on the CPU where there is no GPU."""
    devices = device_names(os.environ)
    if n_workers is not None and devices and n_workers > len(devices):
        raise UsageError(
            f"get_client: {n_workers} workers, and this machine has {len(devices)} GPUs: each worker has one"
        )
    if not devices:
        _log.warning("get_client(cluster_type='gpu'): this machine has no GPU; there is one worker, on the CPU")
        return [ClientWorker(0)]
    return [ClientWorker(i, d) for i, d in enumerate(devices[: n_workers or None])]


def _size(value: str | int | None, name: str) -> int:
    """Parse a size in bytes, also as RMM's users write it ("1024M", "2GiB")."""
    if value is None:
        return 0
    text = str(value).strip()
    return parse_size(f"{text}B" if text[-1:] in "kKMGT" else text, f"get_client: {name}")
