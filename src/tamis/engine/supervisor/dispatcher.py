"""Assigns units to workers and blocks to feeders as far as memory allows, and starts and retires workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.engine.supervisor.actions import Action, AssignUnit, RequestBlock
from tamis.engine.supervisor.alert_orders import AlertOrders
from tamis.engine.supervisor.state import FEEDER, RunState, Worker
from tamis.engine.supervisor.work_queue import WorkQueue
from tamis.engine.supervisor.worker_health import WorkerHealth
from tamis.engine.supervisor.worker_pool import PoolNode, WorkerPool
from tamis.engine.units import Mode, Unit

_LONGEST_S = 120.0
_SHORT_S = 5.0  # shorter ones are not worth the trouble
_PART = 8  # of the time so far
_UNTRIED_BYTES = 4 << 20  # of a unit, while it is not known how long one takes
_FIRST_BYTES = 1 << 20  # of a unit, however slow earlier runs were: what they took may have been setting up
_LEAST_BYTES = 1 << 16
_OLD_WEIGHT = 0.8  # of the known rate, when the next unit is done
_BLOCKS_AHEAD = 2  # of a feeder, for each worker
_LAST_BYTES = 4 << 20  # of the last blocks of a file: smaller ones cost more than workers that wait for each other


class InputPace:
    """The measured speed of the input, and the amount of it that is handed out at once.

    A unit that is killed is done again, and at the end all wait for the last one. So a unit should take an eighth of
    the time that the run has taken so far, two minutes at most, and a tenth of the timeout. A partition goes through
    all segments: the slowest one counts. `expected_s`: for a byte of the input, by earlier runs; 0: not known.
    """

    def __init__(self, n_segments: int, timeout_s: float, expected_s: float = 0.0) -> None:
        self._longest_s, self._expected_s = min(_LONGEST_S, timeout_s / 10), expected_s
        self._rates = [0.0] * n_segments  # seconds for a byte of the input, in each segment
        self._steady = [0.0] * n_segments  # the same of units that are not so small that starting is most of it
        self._started_s: float | None = None

    def learn(self, segment: int, input_bytes: int, seconds: float) -> None:
        """Record how long a unit took for what came of `input_bytes` of the input."""
        if input_bytes > 0:
            rate, old = max(seconds, 1e-6) / input_bytes, self._rates[segment]
            self._rates[segment] = _OLD_WEIGHT * old + (1 - _OLD_WEIGHT) * rate if old else rate
            if input_bytes >= _FIRST_BYTES:
                self._steady[segment] = rate

    def knows(self, segment: int) -> bool:
        """Return True if a unit of this segment is done."""
        return self._rates[segment] > 0

    def bound(self, size: int, now_s: float, is_tried: bool) -> int:
        """Return `size`, or less where that would take too long.

        `is_tried`: the pace of every segment that has something to do is known.
        """
        self._started_s = now_s if self._started_s is None else self._started_s
        longest_s = min(self._longest_s, max(_SHORT_S, (now_s - self._started_s) / _PART))
        if is_tried:
            return min(size, max(_LEAST_BYTES, int(longest_s / max(self._rates))))
        if self._expected_s:
            return min(size, max(_FIRST_BYTES, int(longest_s / max(self._expected_s, *self._rates))))
        return min(size, _UNTRIED_BYTES)

    def longest(self, size: int) -> int:
        """Return `size`, or less where that is known to take longer than any unit should."""
        rate = max(self._steady)
        return min(size, max(_LEAST_BYTES, int(self._longest_s / rate))) if rate else size


class Dispatcher:
    """Called after every event, with the node where something changed (or for all of them)."""

    def __init__(
        self, status: RunState, pool: WorkerPool, queue: WorkQueue, health: WorkerHealth, orders: AlertOrders
    ) -> None:
        self._config, self._status, self._pool, self._queue = pool.config, status, pool, queue
        self._health, self._orders = health, orders
        config = pool.config
        self.pace = InputPace(len(queue.segments), config.timeout_s, config.expected_s)

    def dispatch(self, now_s: float, node: PoolNode | None = None) -> list[Action]:
        """Start what can be started: on the node where something happened, or on all (with every tick)."""
        if self._status.is_ending or self._orders.hold_back(now_s):
            return []
        if self._config.mode == "batch":
            active = self._active_segment()
            for each in self._pool.nodes.values():
                each.arbiter.active_segment = active
        alone = next((u for q in self._queue.segments for u in q if u.alone), None)
        largest = max(self._pool.nodes.values(), key=lambda n: (n.config.pool_bytes, -n.id), default=None)
        actions: list[Action] = []
        for each in [node] if node is not None else sorted(self._pool.nodes.values(), key=lambda n: n.n_busy):
            if alone is not None and each is largest:
                actions += self._dispatch_alone(each, alone, now_s)
            elif each is not largest and not each.arbiter.can_work:  # the larger ones do it
                # A feeder that waits for room in the queue would wait forever: nothing here asks it for more.
                actions += self._pool.retire_all([w for w in each.living() if w.is_blocked or w.is_idle])
            else:
                actions += self._dispatch_on(each, now_s)
        return actions

    def _dispatch_on(self, node: PoolNode, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.is_blocked and not worker.dying and self._queue_has_room() and not self._is_far_ahead():
                worker.is_blocked, worker.since_s = False, now_s
                size = node.arbiter.feed_size(worker.cap_bytes, node.decision.allow_growth)
                actions.append(RequestBlock(worker.id, self._bound_by_rest(self._bound_in_time(size, now_s), worker)))
        if self._feed_is_large(node):
            cleared = self._clear_for_feed(node, now_s)
            if cleared is not None:
                return actions + cleared
        for segment in reversed(range(len(self._queue.segments))):
            if self._may_start(node, segment):
                actions += self._assign_units(node, segment, now_s)
        actions += self._assign_feed(node, now_s) + self._start_workers(node)
        return actions or self._unstick(node)

    def _dispatch_alone(self, node: PoolNode, unit: Unit, now_s: float) -> list[Action]:
        """Dispatch a unit that needs the whole pool of a node.

        Waits until no other worker lives there (a feeder that waits can end), then grants it everything.
        """
        if node.progressing:
            return []
        idle = [w for w in node.workers.values() if w.segment == unit.segment and w.unit is None and not w.dying]
        others = [w for w in node.workers.values() if w not in idle[:1] and not w.dying]
        if others:
            return self._pool.retire_all(others)
        if not node.workers:
            return [self._pool.start(node, unit.segment)]
        if len(node.workers) > 1 or not idle or not idle[0].ready:
            return []
        self._queue.segments[unit.segment].remove(unit)
        return [self._assign(idle[0], unit, node.arbiter.cap_total(1), now_s)]

    def _may_start(self, node: PoolNode, segment: int) -> bool:
        last = len(self._queue.segments) - 1
        if node.decision.downstream_only and segment != last and node.progressing:
            return False
        if self._queue.unsynced_bytes > self._config.unsynced_bytes:
            return False
        if self._config.mode == "batch":
            return segment <= self._active_segment()
        waiting = sum(self._queue.scratch.bytes_of(u.handover) for q in self._queue.segments[segment + 1 :] for u in q)
        return segment == last or waiting < self._config.queue_bytes

    def _active_segment(self) -> int:
        """Return the first segment that has work, waiting or under way: in batch mode later ones wait for it."""
        busy = {
            max(w.segment, 0) for w in self._pool.workers.values() if w.unit is not None
        }  # a feeder works for the first
        if not self._queue.cursor.exhausted or 0 in busy:
            return 0
        last = len(self._queue.segments) - 1
        return next((i for i, queue in enumerate(self._queue.segments) if queue or i in busy), last)

    def _assign_units(self, node: PoolNode, segment: int, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.segment != segment or not worker.ready or worker.unit is not None or worker.dying:
                continue
            if node.decision.serial and node.progressing:
                break
            cap = node.arbiter.next_cap(bool(self._queue.feeds), segment)
            unit = self._next_unit(node, segment, cap, worker, now_s) if cap else None
            if unit is None:
                break
            actions.append(self._assign(worker, unit, cap, now_s))
        return actions

    def _next_unit(self, node: PoolNode, segment: int, cap_bytes: int, worker: Worker, now_s: float) -> Unit | None:
        waiting = next((u for u in self._queue.segments[segment] if not u.alone), None)
        if waiting is not None:
            self._queue.segments[segment].remove(waiting)
            waiting.max_bytes = waiting.max_bytes or node.arbiter.unit_size(
                segment, cap_bytes, node.decision.allow_growth, worker
            )
            return waiting
        if segment > 0:
            return None
        size = self._bound_in_time(node.arbiter.unit_size(0, cap_bytes, node.decision.allow_growth, worker), now_s)
        whole = self._whole_size(node, cap_bytes, worker)
        while (work := self._queue.cursor.next(size, whole_bytes=whole)) is not None:
            unit = self._queue.new_unit(work.pieces)
            unit.max_bytes = max(size, whole) if work.whole else size
            if work.mode is Mode.FEED:
                unit.mode = Mode.FEED
                unit.max_bytes = self._bound_in_time(
                    node.arbiter.feed_size(cap_bytes, node.decision.allow_growth), now_s
                )
                self._queue.feeds.append(unit)
                if len(self._queue.feeds) > 1:
                    return None
                continue
            unit.describe = work.describe
            return unit
        return None

    def _whole_size(self, node: PoolNode, cap_bytes: int, worker: Worker) -> int:
        """Return the size up to which a file is one unit: what fits the worker, and does not take too long."""
        if not self._config.whole_file_bytes:
            return 0
        size = min(self._config.whole_file_bytes, node.arbiter.whole_size(cap_bytes, worker))
        return self.pace.longest(size)

    def _bound_in_time(self, size: int, now_s: float) -> int:
        """Return the size of the next unit, or less where stages are slow.

        A backlog for a segment that has not completed any unit means that its pace is not known yet.
        """
        if not self._config.bounded_in_time:
            return size
        unknown = [i for i in range(len(self._queue.segments)) if not self.pace.knows(i)]
        busy = {w.segment for w in self._pool.workers.values() if w.unit is not None} if unknown else set()
        # In batch mode a later segment begins when all of an earlier one is done: nothing waits for its pace.
        others = [
            i for i in unknown if i == 0 or (self._config.mode != "batch" and (self._queue.segments[i] or i in busy))
        ]
        return self.pace.bound(size, now_s, not others)

    def _bound_by_rest(self, size: int, feeder: Worker) -> int:
        """Return the size of a feeder's next block, or less near the end of its file, where all workers should end."""
        unit = feeder.unit
        if unit is None or not unit.pieces or not unit.compressed_bytes or not self._config.bounded_in_time:
            return size
        piece = unit.pieces[0]
        left_bytes = max(0, self._queue.cursor.files.sizes[piece.file] - unit.compressed_bytes)
        rest_bytes = piece.start * left_bytes // unit.compressed_bytes  # decoded, if it is like what was read
        n_workers = sum(w.segment == 0 and not w.dying for w in self._pool.workers.values())
        return min(size, max(_LAST_BYTES, rest_bytes // (2 * max(1, n_workers))))

    def _queue_has_room(self) -> bool:
        # In batch mode a block stays until all stages are through, which is after all feeding: nothing to wait for.
        limit = max(self._config.queue_bytes, self._config.patient_queue_bytes if self._has_patient_feed else 0)
        return self._config.mode == "batch" or self._queue.scratch.total_bytes < limit

    @property
    def _has_patient_feed(self) -> bool:
        return any(w.unit is not None and w.unit.is_patient for w in self._pool.workers.values())

    def _is_far_ahead(self) -> bool:
        """Return True if enough blocks wait for the workers that live.

        Blocks get larger as workers report what they cost. A feeder that runs ahead, while workers are being set up,
        would cut most of a file into the small blocks of the beginning.
        """
        if self._config.mode == "batch" or self._has_patient_feed:
            return False
        n_workers = sum(w.segment == 0 and not w.dying for w in self._pool.workers.values())
        return 0 < _BLOCKS_AHEAD * n_workers <= len(self._queue.segments[0])

    def _feed_may_start(self, node: PoolNode) -> bool:
        """Return True if the next feeder could hand out blocks now.

        A feeder that would have to start over waits until all other blocks are used up.
        """
        if not self._queue.feeds or not self._queue_has_room():
            return False
        unit = self._queue.feeds[0]
        own_bytes = node.arbiter.cap_total(1)
        if unit.need_bytes > own_bytes and any(n.arbiter.cap_total(1) > own_bytes for n in self._pool.nodes.values()):
            return False  # a larger node does it
        if self._feed_is_large(node) and not node.arbiter.fits_next_to_others(unit.need_bytes):
            return not self._pool.busy and not self._queue.has_units
        return not unit.is_patient or not self._queue.segments[0]

    def _feed_is_large(self, node: PoolNode) -> bool:
        """Return True if the next feeder needs more than its share of the memory of a node."""
        return bool(self._queue.feeds) and self._queue.feeds[0].need_bytes > node.arbiter.fair_cap()

    def _assign_feed(self, node: PoolNode, now_s: float) -> list[Action]:
        feeder = next(iter(node.living(FEEDER)), None)
        if feeder is None or not feeder.ready or feeder.unit is not None or not self._feed_may_start(node):
            return []
        cap = node.arbiter.feeder_cap(self._queue.feeds[0].need_bytes)
        if not cap:
            return []
        unit = self._queue.feeds.popleft()
        if not node.arbiter.fits_next_to_others(cap):  # it will have to make room for others, and to start over
            unit.is_patient = True
        return [self._assign(feeder, unit, cap, now_s)]

    def _clear_for_feed(self, node: PoolNode, now_s: float) -> list[Action] | None:
        """Make room for a feeder that needs more than its share: other workers get no more work until it has it.

        Returns None if they may continue.
        """
        if any(w.unit is not None and w.unit.mode is Mode.FEED for w in self._pool.workers.values()):
            return None
        if not self._feed_may_start(node) or (not self._pool.busy and self._queue.cursor.has_other_work):
            return None
        assigned = self._assign_feed(node, now_s)
        living = node.living()
        if assigned or len(living) < len(node.workers):
            return assigned
        feeder = next((w for w in living if w.segment == FEEDER), None)
        if feeder is None and self._has_room_for_feeder(node, living):
            return [self._pool.start(node, FEEDER)]
        idle = [w for w in living if w.is_idle and w is not feeder]
        return self._pool.retire(idle[0]) if idle else []

    def _has_room_for_feeder(self, node: PoolNode, living: Sequence[Worker]) -> bool:
        return not living or (node.arbiter.has_seat(feeding=True) and node.arbiter.fits_next_to_others(0))

    def _unstick(self, node: PoolNode) -> list[Action]:
        """Free memory where no worker works although there is work: fewer workers get more each, and a feeder ends."""
        settled = all(w.ready and not w.dying for w in node.workers.values())
        if self._pool.progressing or self._queue.n_committing or not settled or not self._queue.has_units:
            return []
        idle = [w for w in node.workers.values() if w.unit is None]
        blocked = [w for w in node.workers.values() if w.is_blocked]
        return self._pool.retire(idle[0]) if len(idle) > 1 else self._pool.retire(blocked[0]) if blocked else []

    def _start_workers(self, node: PoolNode) -> list[Action]:
        """Start workers for segments that have work, as far as there are seats.

        Where none is left, an idle one makes room.
        """
        actions = self._end_surplus(node)
        grow = node.decision.allow_new_workers or not node.progressing
        for segment, n in [*reversed(list(enumerate(node.arbiter.target_workers()))), (FEEDER, 1)]:
            living = node.living(segment)
            idle = [w for w in living if w.unit is None]
            needs_more = self._has_work(node, segment) and not idle and len(living) < n
            if needs_more and grow and self._may_start(node, segment):
                actions += self._start_worker(node, segment, n, is_first=not living)
            elif len(living) > n:
                ready = [w for w in idle if w.ready]
                # One at a time while rates are being learned; all of a segment that has no more work.
                actions += self._pool.retire_all(ready[:1] if n else ready)
        return actions

    def _has_work(self, node: PoolNode, segment: int) -> bool:
        """Return True if a worker of a segment (or the feeder) would get work on this node."""
        if segment == FEEDER:
            return self._feed_may_start(node)
        if any(not u.alone for u in self._queue.segments[segment]):
            return True
        return segment == 0 and not self._queue.cursor.exhausted

    def _start_worker(self, node: PoolNode, segment: int, n: int, is_first: bool) -> list[Action]:
        """Start a worker if there is room for it; for the first of its segment on this node, make room."""
        if self._is_full(segment, n):
            return []
        if node.arbiter.has_seat(bool(self._queue.feeds)) and node.devices.has_room(segment):
            return [self._pool.start(node, segment)]
        return self._pool.make_room(node, segment) if is_first else []

    def _is_full(self, segment: int, n: int) -> bool:
        """Return True if a segment with a fixed number of workers for the whole run has them, on whatever nodes."""
        if (
            segment == FEEDER
            or len(self._pool.nodes) < 2
            or not self._config.in_all
            or not self._config.in_all[segment]
        ):
            return False
        return sum(w.segment == segment and not w.dying for w in self._pool.workers.values()) >= n

    def _end_surplus(self, node: PoolNode) -> list[Action]:
        """Retire a surplus worker when workers turn out to need larger caps.

        An idle one is chosen, of the segment that has most.
        """
        living = node.living()
        if len(living) <= node.arbiter.n_seats(bool(self._queue.feeds)):
            return []
        idle = [w for w in living if w.is_idle]
        if idle:
            return self._pool.retire(max(idle, key=lambda w: sum(v.segment == w.segment for v in living)))
        blocked = [w for w in living if w.is_blocked]
        return self._pool.retire(blocked[0]) if blocked and not node.progressing else []

    def _assign(self, worker: Worker, unit: Unit, cap_bytes: int, now_s: float) -> AssignUnit:
        self._health.before_unit(worker, unit)
        return self._pool.assign(worker, unit, cap_bytes, now_s)
