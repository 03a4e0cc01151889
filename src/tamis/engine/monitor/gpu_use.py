"""GPU utilisation of a run: how busy they were once their workers were warm, and how often one was full.

Pure; the monitor passes it what it sees, and stores `changed` in the run database, where report, dashboard and diff
find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tamis.engine.ledger import Ledger
from tamis.engine.schema import GpuUseFigures
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.memory.device_limits import CUT_TO_FIT, OUT_OF_DEVICE_MEMORY
from tamis.memory.gpu import GpuSample

_UNITS_OF_FEW = 50  # done by fewer workers than planned: no more will come


class GpuUse:
    def __init__(self, past: Ledger) -> None:
        self._past = past
        self._busy: dict[int, list[float]] = {}  # by device: sum of busy shares, number of looks
        self._last: dict[int, GpuSample] = {}
        self._is_warm = False
        self._n_warm: Counter[int] = Counter()  # by device: looks since then
        self._counts = {OUT_OF_DEVICE_MEMORY: 0, CUT_TO_FIT: 0}
        self._reported: GpuUseFigures | None = None

    def sample(self, gpus: Sequence[GpuSample], s: Supervisor) -> None:
        """Count samples from the first units of the GPU workers (loading is no waiting) until no work is left.

        Until all of them have, what the first ones do is the best estimate; once they have, it is
        forgotten, with the first look after that.
        """
        on_gpu = [i for i, share in enumerate(s.config.gpus or ()) if share]
        done = [w.n_units for w in s.pool.workers.values() if w.segment in on_gpu]
        if not any(done) or not _more_to_come(s, max(on_gpu)):
            return
        self._is_warm = self._is_warm or _all_warm(done, sum(s.config.fixed_workers[i] or 1 for i in on_gpu))
        for gpu in gpus:
            if gpu.busy is None or gpu is self._last.get(gpu.gpu):  # the same answer is no second look
                continue
            self._last[gpu.gpu] = gpu
            if self._is_warm:
                self._n_warm[gpu.gpu] += 1
                # The first one covers the time since the previous sample, when not all were.
                if self._n_warm[gpu.gpu] <= 2:
                    self._busy.pop(gpu.gpu, None)
            seen = self._busy.setdefault(gpu.gpu, [0.0, 0])
            seen[0] += gpu.busy
            seen[1] += 1

    def count(self, s: Supervisor) -> None:
        for name in self._counts:
            n = sum(int(b.metrics.get(name, 0)) for ledger in (self._past, s.queue.ledger) for b in ledger.stages)
            self._counts[name] = max(n, self._counts[name])

    @property
    def busy_shares(self) -> dict[int, float]:
        """The mean busy share of each device so far."""
        return {gpu: total / n for gpu, (total, n) in sorted(self._busy.items())}

    def changed(self) -> GpuUseFigures | None:
        """Return the busy share of each device and the counts if they differ from the last report, else None."""
        if not self._busy and not any(self._counts.values()):
            return None
        busy = {str(gpu): round(share, 4) for gpu, share in self.busy_shares.items()}
        figures = GpuUseFigures(busy, self._counts[OUT_OF_DEVICE_MEMORY], self._counts[CUT_TO_FIT])
        if figures == self._reported:
            return None
        self._reported = figures
        return figures


def _all_warm(done: Sequence[int], n_planned: int) -> bool:
    """Return True if every worker on a GPU has finished a unit.

    Counts all planned workers or, where memory has no room for so many, those that started.

    >>> [_all_warm([3], 2), _all_warm([3, 0], 2), _all_warm([3, 1], 2)]
    [False, False, True]
    >>> [_all_warm([_UNITS_OF_FEW], 2), _all_warm([_UNITS_OF_FEW, 0], 2)]
    [True, False]
    """
    return all(done) and (len(done) >= n_planned or sum(done) >= _UNITS_OF_FEW)


def _more_to_come(s: Supervisor, segment: int) -> bool:
    """Return True if any unit has yet to go through this segment, or is in progress in it."""
    if not s.queue.cursor.exhausted or s.queue.feeds or any(s.queue.segments[: segment + 1]):
        return True
    return any(w.unit is not None and w.unit.segment <= segment for w in s.pool.workers.values())
