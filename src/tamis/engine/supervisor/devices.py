"""Assign GPUs to workers, which bounds the number of workers of segments that need GPUs. Pure.

A worker gets whole devices (`gpus=2`) or a share of one (`gpus=0.5`); shares of one device add up to at most one. It
keeps them until its process is gone: a device has no room for a worker that comes before the one it replaces has left.

Memory of devices is kept in the same books: a share is a share of what the run may take of a device (`limit_bytes`,
--gpu-memory), so that the workers on one device never may take more than that together. Each worker receives its part,
and enforces it on itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_ALMOST = 1e-6


class Devices:
    """`names`: as CUDA_VISIBLE_DEVICES calls them. `shares`: GPUs that one worker of each segment asks for; 0 for none.

    `limit_bytes`: memory that the run may take of each device; 0: all there is.
    """

    def __init__(self, names: Sequence[str] = (), shares: Sequence[float] = (), limit_bytes: int = 0) -> None:
        self._names, self._shares, self.limit_bytes = list(names), list(shares), limit_bytes
        self._assigned: dict[int, tuple[tuple[str, ...], float]] = {}
        self._segment_of: dict[int, int] = {}
        self._most: dict[int, int] = {}  # by segment: workers that its devices turned out to have room for

    def share(self, segment: int) -> float:
        return self._shares[segment] if 0 <= segment < len(self._shares) else 0.0

    def has_room(self, segment: int) -> bool:
        """Return True if there are devices for one more worker of this segment."""
        living = sum(other == segment for other in self._segment_of.values())
        if living >= self._most.get(segment, living + 1):
            return False
        return not self.share(segment) or self._choose(self.share(segment)) is not None

    def limit_workers(self, segment: int, n_workers: int) -> None:
        """Start no more workers of a segment than this, one at least: another did not fit."""
        self._most[segment] = max(1, n_workers)

    def take(self, worker: int, segment: int) -> tuple[str, ...]:
        """Assign devices to a new worker; empty for a segment that needs none."""
        share = self.share(segment)
        chosen = self._choose(share) if share else None
        if not chosen:
            return ()
        self._assigned[worker] = chosen, min(share, 1.0)
        self._segment_of[worker] = segment
        return chosen

    def free(self, worker: int) -> None:
        self._assigned.pop(worker, None)
        self._segment_of.pop(worker, None)

    def _used(self) -> dict[str, float]:
        used = dict.fromkeys(self._names, 0.0)
        for names, share in self._assigned.values():
            for name in names:
                used[name] += share
        return used

    def _choose(self, share: float) -> tuple[str, ...] | None:
        """Return the emptiest devices that have room for `share` of each, or None."""
        used = self._used()
        n, each = max(1, math.ceil(share - _ALMOST)), min(share, 1.0)
        free = [
            name
            for name in sorted(self._names, key=lambda d: (used[d], self._names.index(d)))
            if used[name] + each <= 1 + _ALMOST
        ]
        return tuple(free[:n]) if len(free) >= n else None


def most_workers(n_devices: int, share: float) -> int:
    """Return how many workers with this share the devices have room for.

    >>> [most_workers(2, share) for share in (1.0, 0.5, 0.3, 2.0, 3.0)]
    [2, 4, 6, 1, 0]
    """
    if share > 1:
        return n_devices // math.ceil(share - _ALMOST)
    return n_devices * int(1 / share + _ALMOST)


def fixed_workers(requested: Sequence[int | None], shares: Sequence[float], n_devices: int) -> list[int | None]:
    """Return fixed numbers of workers by segment: as requested by a stage and, with GPUs, as many as find theirs.

    >>> fixed_workers([None, None, 8], [0.0, 1.0, 0.5], 2)
    [None, 2, 4]
    """
    return [
        n if not share else max(1, min(most_workers(n_devices, share), n if n is not None else n_devices * 1000))
        for n, share in zip(requested, shares, strict=True)
    ]


def gpu_share(gpus: float, gpu_memory_gb: float, device_bytes: int) -> float:
    """Return the GPUs that one worker asks for.

    Memory counts as a share of a device, in tenths, at least one of them.

    >>> [gpu_share(0.5, 0, 0), gpu_share(0, 20, 80 * 10**9), gpu_share(0, 1, 80 * 10**9), gpu_share(0, 20, 0)]
    [0.5, 0.3, 0.1, 1.0]
    """
    if gpus or not gpu_memory_gb:
        return gpus
    if not device_bytes:  # unknown: the worker has the device to itself
        return 1.0
    return min(1.0, max(1, math.ceil(gpu_memory_gb * 1e9 / device_bytes * 10 - _ALMOST)) / 10)


def environment(
    devices: Sequence[str], share: float, limit_bytes: int = 0, overflow: str = "quarantine"
) -> Mapping[str, str]:
    """Return the environment that a worker's process needs before any library looks for GPUs.

    It defines which GPUs the process sees, what share of each it may take (and, with a limit, how many bytes
    that is), and what happens to a document that does not fit there (memory/device_limits.py reads it).

    >>> environment(["1"], 0.5, 40 * 10**9)["TAMIS_GPU_MEMORY"]
    '20000000000'
    """
    if not devices:
        return {}
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(devices), "TAMIS_GPU_SHARE": f"{min(share, 1.0):g}"}
    if limit_bytes:
        variables["TAMIS_GPU_MEMORY"] = str(int(min(share, 1.0) * limit_bytes))
    if overflow != "quarantine":
        variables["TAMIS_GPU_OVERFLOW"] = overflow
    return variables
