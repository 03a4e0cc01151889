"""Who gets how much memory, how large partitions are, how many workers there may be. Pure.

The caps of busy workers never add up to more than the pool, less what every living worker holds anyway. A cap is an equal
share of that, so that a worker that starts later finds one too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.engine.balance import share_workers
from tamis.engine.state import FEEDER, FEEDER_OWN_BYTES, MIN_CAP_BYTES, Config, Worker
from tamis.engine.units import Mode, Unit
from tamis.memory.predictor import Predictor

MIN_BLOCK_BYTES = 1 << 16


class Grants:
    """Reads the supervisor's workers; keeps the partition models and the measured work per byte of each segment."""

    def __init__(self, config: Config, predictors: list[Predictor], workers: Mapping[int, Worker]) -> None:
        self.config, self.predictors, self._workers = config, predictors, workers
        self._work_s = [0.0 for _ in config.fixed_workers]

    # -- memory ---------------------------------------------------------------------------------------------------------
    def pool(self, n_workers: int) -> int:
        """What caps may add up to when n workers live."""
        return self.config.pool_bytes - n_workers * self.config.worker_bytes

    @property
    def granted(self) -> int:
        return sum(w.cap_bytes for w in self._workers.values() if w.unit is not None)

    def next_cap(self, feeding: bool) -> int:
        """An equal share of the pool, and never more than what busy workers leave; 0 when that is too little to work with."""
        n = max(self.n_seats(feeding), len(self._workers))
        cap = min(self.pool(n) // n, self.pool(len(self._workers)) - self.granted)
        return cap if cap >= min(MIN_CAP_BYTES, self.pool(1)) else 0

    # -- workers --------------------------------------------------------------------------------------------------------
    def wanted_workers(self) -> list[int]:
        """By segment, from measured rates."""
        return share_workers(self.config.n_slots, self._work_s, self.config.fixed_workers, self.config.cpus)

    def n_seats(self, feeding: bool) -> int:
        """How many workers may live at once: those wanted, as far as each gets a cap it can work with."""
        wanted = sum(self.wanted_workers()) + (feeding or any(w.segment == FEEDER for w in self._workers.values()))
        return max(1, min(wanted, self.config.pool_bytes // (self.config.worker_bytes + MIN_CAP_BYTES)))

    def has_seat(self, feeding: bool) -> bool:
        n = len(self._workers) + 1
        return n <= self.n_seats(feeding) and self.granted <= self.pool(n)

    # -- sizes ----------------------------------------------------------------------------------------------------------
    def block_size(self, segment: int, cap_bytes: int, may_grow: bool) -> int:
        size = self.predictors[segment].next_size(cap_bytes, may_grow=may_grow)
        return max(MIN_BLOCK_BYTES, min(size, self.config.max_block_bytes))

    def feed_size(self, cap_bytes: int, may_grow: bool) -> int:
        """Blocks as large as partitions are now, as far as the feeder can hold one, a copy of it and the decoder's window."""
        size = min(
            self.block_size(0, cap_bytes, may_grow), (cap_bytes - FEEDER_OWN_BYTES) // 4, self.config.queue_bytes // 4
        )
        return max(MIN_BLOCK_BYTES, size)

    def budget_for(self, unit: Unit, failed_cap_bytes: int) -> int:
        """An estimate of the budget that a unit needs which failed alone: what the model says, at least half as much again."""
        size = unit.known_bytes or unit.block_bytes
        need = max(self.predictors[unit.segment].reserve(size, size), failed_cap_bytes * 3 // 2)
        return self.config.budget_bytes - self.pool(1) + need

    # -- learning -------------------------------------------------------------------------------------------------------
    def learn(self, unit: Unit, report: Mapping[str, Any]) -> None:
        decoded = int(report.get("decoded_bytes", 0))
        if unit.mode is not Mode.RUN or not decoded:
            return
        self.predictors[unit.segment].observe(decoded, int(report["largest_record"]), int(report.get("peak_bytes", 0)))
        rate = float(report.get("seconds", 0.0)) / decoded
        old = self._work_s[unit.segment]
        self._work_s[unit.segment] = rate if old == 0 else 0.8 * old + 0.2 * rate

    def learn_failure(self, unit: Unit, cap_bytes: int) -> None:
        if unit.mode is Mode.RUN:
            size = unit.known_bytes or unit.block_bytes
            self.predictors[unit.segment].observe_failure(max(size, 1), max(cap_bytes, 1))
