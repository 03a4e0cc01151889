"""The memory arbiter: how much memory each worker gets, how large partitions are, how many workers there may be. Pure.

The caps of busy workers never add up to more than the pool, less what every living worker holds anyway. A cap is an
equal share of that, so that a worker that starts later finds one too. There are as many workers as get the least cap
that their stages can work with: what a worker keeps (models, libraries), what a partition costs whatever its size, and
a little data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tamis.engine.messages import Done, Failure, Vitals
from tamis.engine.supervisor.state import FEEDER, MIN_CAP_BYTES, Config, Worker
from tamis.engine.units import Mode, Unit
from tamis.memory.predictor import Predictor

MIN_UNIT_BYTES = 1 << 16
_UNKNOWN_NEED = 1.5  # the assumed need of a unit, in caps that it did not fit, where its failed request is unknown
_SIGNIFICANT = 16  # an allocation of less than this part of the cap was one of many: it says nothing about what follows
_LEAST_GROWTH = 1.25  # of what a worker had that had everything, and that was too little
_KNOWN_NEED = 1.1  # ... in the bytes that it had and requested when it failed: the next allocation may follow
_LEAST_ROOM = 8  # of a cap: what a worker that grows must leave, however little its last partitions took
_SOLO_SHARE = 16  # of a cap: blocks of a feeder next to which no worker fits, while their cost is unknown
_LESS_BY = 0.8  # the least cap falls when it has fallen by this much: the number of workers should not follow its noise


class MemoryArbiter:
    """Grants the caps of the workers on one node, and sizes their partitions.

    Reads the workers of its node; keeps the partition models and the measured work per byte of each segment, which the
    arbiters of all nodes share.
    """

    def __init__(self, config: Config, predictors: list[Predictor], workers: Mapping[int, Worker]) -> None:
        self.config, self.predictors, self._workers = config, predictors, workers
        n = len(config.fixed_workers)
        self._work_s = [0.0] * n
        self._retained_bytes = [0] * n  # what a worker keeps after its first unit
        self._setup_bytes = [0] * n  # what setting up took at most
        self._is_set_up = [not has for has in config.has_setup or [False] * n]
        self._least_bytes = MIN_CAP_BYTES
        self.active_segment: int | None = None  # of batch mode: the only one that has work; None: all have
        self.n_done = [0] * n  # units that fitted

    def for_node(self, config: Config, workers: Mapping[int, Worker]) -> MemoryArbiter:
        """Return an arbiter for another node and its workers; both share what was learned on either."""
        other = MemoryArbiter(config, self.predictors, workers)
        other._work_s, other._retained_bytes, other._setup_bytes = self._work_s, self._retained_bytes, self._setup_bytes
        other._is_set_up, other.n_done = self._is_set_up, self.n_done
        return other

    # -- memory -------------------------------------------------------------------------------------------------------
    def cap_total(self, n_workers: int) -> int:
        """Return the sum that caps may reach when `n_workers` workers live."""
        return self.config.pool_bytes - n_workers * self.config.worker_bytes

    @property
    def granted_bytes(self) -> int:
        return sum(w.cap_bytes for w in self._workers.values() if w.unit is not None)

    def next_cap(self, feeding: bool, segment: int = FEEDER) -> int:
        """Return an equal share of the pool, but never more than what busy workers leave.

        0 if that is too little to work with.
        """
        n = max(self.n_seats(feeding), len(self._workers))
        cap = min(self.cap_total(n) // n, self.cap_total(len(self._workers)) - self.granted_bytes)
        least = MIN_CAP_BYTES if segment == FEEDER else self._least_bytes
        return cap if cap >= min(least, self.cap_total(1)) else 0

    def feeder_cap(self, need_bytes: int) -> int:
        """Return the cap of a feeder that needs `need_bytes`; 0 if it has to wait.

        It gets its share, or what it needs if that is free, or everything if others cannot work next to it.
        """
        fair = self.next_cap(feeding=True)
        if need_bytes <= self.fair_cap():
            return fair
        cap_bytes = need_bytes if self.fits_next_to_others(need_bytes) else self.cap_total(1)
        return cap_bytes if self.cap_total(len(self._workers)) - self.granted_bytes >= cap_bytes else 0

    def fair_cap(self) -> int:
        """Return the share of a feeder among all workers that may live."""
        n = self.n_seats(feeding=True)
        return self.cap_total(n) // n

    def fits_next_to_others(self, need_bytes: int) -> bool:
        """Return True if a worker can do anything next to a feeder that needs `need_bytes`."""
        return self.cap_total(2) - need_bytes >= self._least_bytes

    def feed_need(self, worker: Worker, report: Failure) -> int:
        """Return the next cap of a feeder that failed for lack of memory."""
        requested, had = significant_request(worker, report), report.peak_bytes
        return (
            max(int((had + requested) * _KNOWN_NEED), worker.cap_bytes * 5 // 4) if requested else worker.cap_bytes * 2
        )

    @property
    def can_work(self) -> bool:
        """True if one worker with the whole pool could do any work, as far as is known."""
        self._update_least_cap()
        return self.cap_total(1) >= self._least_bytes

    def is_everything(self, cap_bytes: int) -> bool:
        """Return True if a worker with this cap had everything there is."""
        return cap_bytes >= self.cap_total(1)

    def _least_of(self, segment: int) -> int:
        need = self._retained_bytes[segment] + self.predictors[segment].least_cap()
        return max(MIN_CAP_BYTES, self._setup_bytes[segment], need)

    def _update_least_cap(self) -> None:
        """Update the least cap that every segment which has work can work with."""
        active = self.active_segment
        least = max(self._least_of(i) for i in (range(len(self.predictors)) if active is None else (active,)))
        if least > self._least_bytes or least < self._least_bytes * _LESS_BY:
            self._least_bytes = least

    # -- workers ------------------------------------------------------------------------------------------------------
    def was_set_up(self, segment: int) -> bool:
        """Return True if the stages of a segment were set up in some worker."""
        return self._is_set_up[segment]

    def target_workers(self) -> list[int]:
        """Return the workers wanted by segment, from measured rates; one where the cost of setting up is not known yet.

        In batch mode the active segment gets all of them.
        """
        config, active = self.config, self.active_segment
        if active is None:
            shares = share_workers(config.n_slots, self._work_s, config.fixed_workers, config.cpus)
        else:
            cpus = None if config.cpus is None else [config.cpus[active]]
            shares = [0] * len(self._work_s)
            (shares[active],) = share_workers(config.n_slots, [1.0], [config.fixed_workers[active]], cpus)
        return [n if known_bytes else min(n, 1) for n, known_bytes in zip(shares, self._is_set_up, strict=True)]

    def n_seats(self, feeding: bool) -> int:
        """Return how many workers may live at once: those wanted, as far as each gets a cap it can work with."""
        self._update_least_cap()
        n_workers = sum(self.target_workers()) + (feeding or any(w.segment == FEEDER for w in self._workers.values()))
        return max(1, min(n_workers, self.config.pool_bytes // (self.config.worker_bytes + self._least_bytes)))

    def has_seat(self, feeding: bool) -> bool:
        """Return True if one more worker may start: with it, what is left of the pool is still a usable cap."""
        n = len(self._workers) + 1
        return n <= self.n_seats(feeding) and self.granted_bytes + min(
            self._least_bytes, self.cap_total(1)
        ) <= self.cap_total(n)

    # -- sizes --------------------------------------------------------------------------------------------------------
    def unit_size(self, segment: int, cap_bytes: int, may_grow: bool, worker: Worker | None = None) -> int:
        free = cap_bytes - self.retained_bytes(worker, segment)
        size = self.predictors[segment].next_size(free, may_grow=may_grow)
        return max(MIN_UNIT_BYTES, min(size, self.config.max_partition_bytes))

    def whole_size(self, cap_bytes: int, worker: Worker) -> int:
        """Return the largest unit of the first segment that is expected to fit, whatever the sizes tried before."""
        return self.predictors[0].best_size(cap_bytes - self.retained_bytes(worker, 0))

    def feed_size(self, cap_bytes: int, may_grow: bool) -> int:
        """Return a size for blocks: that of partitions for the workers next to (or after) a feeder with this cap."""
        n, share = self.n_seats(feeding=True), self.fair_cap()
        if self.fits_next_to_others(cap_bytes) and n > 1:
            share = min(share, max((self.cap_total(n) - cap_bytes) // (n - 1), MIN_CAP_BYTES))
        size = self.unit_size(0, share, may_grow)
        if (
            not self.fits_next_to_others(cap_bytes) and not self.n_done[0]
        ):  # the cost of a block is not learned meanwhile
            size = max(size, min(share // _SOLO_SHARE, self.config.max_partition_bytes))
        return max(MIN_UNIT_BYTES, min(size, self.config.queue_bytes // 4))

    def retained_bytes(self, worker: Worker | None, segment: int) -> int:
        """Return what a worker holds between units.

        As it last was, or as others were after their first unit.
        """
        return worker.retained_bytes if worker is not None and worker.n_units else self._retained_bytes[segment]

    def has_room(self, worker: Worker, vitals: Vitals) -> bool:
        """Return True if the next partition is expected to fit next to what the worker holds.

        Partitions of the first segment are cut to the room there is, so the smallest sensible one counts; later
        segments take what they are handed.
        """
        predictor = self.predictors[worker.segment]
        need = predictor.typical_need() if worker.segment else predictor.least_cap()
        return self.used_of_cap(worker, vitals) + max(need, worker.cap_bytes // _LEAST_ROOM) <= worker.cap_bytes

    def used_of_cap(self, worker: Worker, vitals: Vitals) -> int:
        """Return how much of its cap a worker holds between units; address space counts, as its limit counts it."""
        used = max(worker.retained_bytes, vitals.level_bytes - worker.base_bytes)
        if worker.base_data_bytes:
            used = max(used, vitals.data_bytes + vitals.shared_bytes - worker.base_data_bytes)
        return used

    # -- what would be enough -----------------------------------------------------------------------------------------
    def need_of(self, worker: Worker, unit: Unit, report: Failure) -> int:
        """Return the cap that a unit which failed for lack of memory is assumed to need."""
        requested = significant_request(worker, report)
        had = worker.retained_bytes + report.peak_bytes
        seen = (had + requested) * _KNOWN_NEED if requested else max(worker.cap_bytes, had) * _UNKNOWN_NEED
        if report.in_setup:
            return int(seen)
        # A large record may have failed before anything was made of it: what as much text usually takes.
        fixed, by_byte, _ = self.predictors[unit.segment].coefficients
        typical = fixed + by_byte * unit.largest_record if self.n_done[unit.segment] else 3.0 * unit.largest_record
        return int(max(seen, self.retained_bytes(worker, unit.segment) + typical))

    def budget_for(self, cap_bytes: int) -> int:
        """Return the budget in which one worker could get this cap, which did not fit: more than there is now."""
        had = self.cap_total(1)
        needed = max(cap_bytes, int(had * _LEAST_GROWTH))
        return self.config.budget_bytes + int((needed - had) / self.config.usable)

    # -- learning -----------------------------------------------------------------------------------------------------
    def learn_setup(self, worker: Worker, retained_bytes: int, peak_bytes: int) -> None:
        """Record what setting up the stages of a worker took, and what they keep."""
        segment = worker.segment
        if segment != FEEDER:
            before = self._setup_bytes[segment] if self._is_set_up[segment] else 0  # a guess, where it failed before
            self._setup_bytes[segment] = max(before, retained_bytes, peak_bytes)
            self._retained_bytes[segment] = max(self._retained_bytes[segment], retained_bytes)
            self._is_set_up[segment] = True

    def learn(self, worker: Worker, unit: Unit, report: Done) -> None:
        """Record what a unit took, and what its worker retains."""
        before = worker.retained_bytes + worker.file_bytes
        file_bytes = report.vitals.file_bytes if report.vitals is not None else 0
        worker.file_bytes = min(file_bytes, worker.file_bytes + self.config.shared_bytes)
        if worker.base_bytes and report.vitals is not None:
            worker.retained_bytes = max(0, report.vitals.floor_bytes - worker.base_bytes) + report.outside_bytes
        decoded = report.decoded_bytes
        if unit.mode is not Mode.RUN or not decoded:
            return
        self.n_done[unit.segment] += 1
        self._is_set_up[unit.segment] = True
        if worker.n_units == 1:
            self._retained_bytes[unit.segment] = max(self._retained_bytes[unit.segment], worker.retained_bytes)
        # What came to stay is no part of what the next unit takes. The budget leaves room for pages of libraries by
        # itself.
        peak = report.peak_bytes - max(0, worker.retained_bytes + worker.file_bytes - before)
        self.predictors[unit.segment].observe(decoded, report.largest_record, max(0, peak))
        rate = report.worked_s / decoded
        old = self._work_s[unit.segment]
        self._work_s[unit.segment] = rate if old == 0 else 0.8 * old + 0.2 * rate

    def learn_failure(self, worker: Worker, unit: Unit, report: Failure) -> None:
        """Record that a unit failed for lack of memory."""
        if unit.mode is not Mode.RUN:
            return
        need = self.need_of(worker, unit, report)
        if report.in_setup:
            self._setup_bytes[unit.segment] = max(self._setup_bytes[unit.segment], need)
            return
        retained_bytes = self.retained_bytes(worker, unit.segment)
        requested = report.requested_bytes
        known_bytes = max(0, worker.retained_bytes + report.peak_bytes + requested - retained_bytes) if requested else 0
        cap = max(worker.cap_bytes - retained_bytes, 1)
        self.predictors[unit.segment].observe_failure(max(unit.size_bytes, 1), cap, known_bytes, unit.largest_record)


def significant_request(worker: Worker, report: Failure) -> int:
    """Return the bytes of the failed allocation if they indicate what is needed; else 0."""
    requested = report.requested_bytes
    return requested if requested * _SIGNIFICANT >= worker.cap_bytes else 0


def share_workers(
    n_cpus: float, work_s: Sequence[float], fixed: Sequence[int | None], cpus: Sequence[float] | None = None
) -> list[int]:
    """Return the workers per segment: proportional to the work per input byte, at least one; fixed numbers are kept.

    `cpus` is what one worker of each segment asks for (one each by default); together they ask for at most `n_cpus`,
    beyond the one that every segment needs to get anywhere.

    >>> share_workers(8, [1.0, 3.0], [None, None])
    [2, 6]
    >>> share_workers(2, [1.0, 1.0, 1.0], [None, None, None])
    [1, 1, 1]
    >>> share_workers(4, [0.0, 0.0], [None, 2])
    [2, 2]
    >>> share_workers(4, [1.0], [None], cpus=[2.0])
    [2]
    """
    cpus = [max(c, 0.1) for c in cpus] if cpus is not None else [1.0] * len(work_s)
    counts = [f if f is not None else 1 for f in fixed]
    total = sum(w for w, f in zip(work_s, fixed, strict=True) if f is None)
    while True:
        n_free = n_cpus - sum(n * c for n, c in zip(counts, cpus, strict=True))
        free = [i for i, f in enumerate(fixed) if f is None and cpus[i] <= n_free + 1e-9]
        if not free:
            return counts
        # the segment that is furthest below its share
        best = max(free, key=lambda i: ((work_s[i] / total if total > 0 else 1.0) / counts[i], -i))
        counts[best] += 1
