"""Who gets which work next, as far as memory allows: units to workers, blocks to feeders, and workers started and ended for it. Pure."""

from __future__ import annotations

from tamis.engine.supervisor.actions import Action, More
from tamis.engine.supervisor.nodes import Node
from tamis.engine.supervisor.state import FEEDER, Worker
from tamis.engine.supervisor.units import Mode, Unit
from tamis.engine.supervisor.work import Work


class Dispatch(Work):
    """Called after every event, with the node where something changed (or for all of them)."""

    def _dispatch(self, now_s: float, at: Node | None = None) -> list[Action]:
        """Start what can be started: on the node where something happened, or on all (with every tick)."""
        if self.stopping or self.fatal or self.remedies.holds_back(now_s):
            return []
        if self.config.mode == "batch":
            active = self._active_segment()
            for node in self.nodes.values():
                node.grants.active_segment = active
        alone = next((u for q in self.queues for u in q if u.alone), None)
        emptied = max(self.nodes.values(), key=lambda n: (n.config.pool_bytes, -n.id), default=None)
        actions: list[Action] = []
        for node in [at] if at is not None else sorted(self.nodes.values(), key=lambda n: n.n_busy):
            if alone is not None and node is emptied:
                actions += self._dispatch_alone(node, alone, now_s)
            elif node is not emptied and not node.grants.is_enough:  # the larger ones do it
                # A feeder that waits for room in the queue would wait for ever: nothing here asks it for more.
                spare = [w for w in node.workers.values() if not w.dying and (w.held or (w.ready and w.unit is None))]
                actions += [a for worker in spare for a in self._retire(worker)]
            else:
                actions += self._dispatch_on(node, now_s)
        return actions

    def _dispatch_on(self, node: Node, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.held and not worker.dying and self._queue_has_room():
                worker.held, worker.since_s = False, now_s
                size = node.grants.feed_size(worker.cap_bytes, node.decision.allow_growth)
                actions.append(More(worker.id, self._in_time(size, now_s)))
        if self._feed_is_large(node):
            made_way = self._make_way(node, now_s)
            if made_way is not None:
                return actions + made_way
        for segment in reversed(range(len(self.queues))):
            if self._may_start(node, segment):
                actions += self._give_work(node, segment, now_s)
        actions += self._give_feeds(node, now_s) + self._start_workers(node)
        return actions or self._unstick(node)

    def _dispatch_alone(self, node: Node, unit: Unit, now_s: float) -> list[Action]:
        """Dispatch a unit that needs the whole pool of a node.

        Waits until no other worker lives there (a feeder that waits can end), then grants it everything.
        """
        if node.progressing:
            return []
        idle = [w for w in node.workers.values() if w.segment == unit.segment and w.unit is None and not w.dying]
        others = [w for w in node.workers.values() if w not in idle[:1] and not w.dying]
        if others:
            return [a for w in others for a in self._retire(w)]
        if not node.workers:
            return [self._start(node, unit.segment)]
        if len(node.workers) > 1 or not idle or not idle[0].ready:
            return []
        self.queues[unit.segment].remove(unit)
        return [self._assign(idle[0], unit, node.grants.pool(1), now_s)]

    def _may_start(self, node: Node, segment: int) -> bool:
        last = len(self.queues) - 1
        if node.decision.downstream_only and segment != last and node.progressing:
            return False
        if self.unsynced_bytes > self.config.unsynced_bytes:
            return False
        if self.config.mode == "batch":
            return segment <= self._active_segment()
        waiting = sum(self.scratch.bytes_of(u.handover) for q in self.queues[segment + 1 :] for u in q)
        return segment == last or waiting < self.config.queue_bytes

    def _active_segment(self) -> int:
        """Return the first segment that has work, waiting or under way: in batch mode later ones wait until it is done."""
        busy = {max(w.segment, 0) for w in self.workers.values() if w.unit is not None}  # a feeder works for the first
        if not self.cursor.exhausted or 0 in busy:
            return 0
        last = len(self.queues) - 1
        return next((i for i, queue in enumerate(self.queues) if queue or i in busy), last)

    def _give_work(self, node: Node, segment: int, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.segment != segment or not worker.ready or worker.unit is not None or worker.dying:
                continue
            if node.decision.serial and node.progressing:
                break
            cap = node.grants.next_cap(bool(self.feeds), segment)
            unit = self._next_unit_of(node, segment, cap, worker, now_s) if cap else None
            if unit is None:
                break
            actions.append(self._assign(worker, unit, cap, now_s))
        return actions

    def _next_unit_of(self, node: Node, segment: int, cap_bytes: int, worker: Worker, now_s: float) -> Unit | None:
        waiting = next((u for u in self.queues[segment] if not u.alone), None)
        if waiting is not None:
            self.queues[segment].remove(waiting)
            waiting.block_bytes = waiting.block_bytes or node.grants.block_size(
                segment, cap_bytes, node.decision.allow_growth, worker
            )
            return waiting
        if segment > 0:
            return None
        size = self._in_time(node.grants.block_size(0, cap_bytes, node.decision.allow_growth, worker), now_s)
        while (work := self.cursor.next(size)) is not None:
            unit = self._unit(work.pieces)
            unit.block_bytes = size
            if work.mode is Mode.FEED:
                unit.mode = Mode.FEED
                unit.block_bytes = self._in_time(node.grants.feed_size(cap_bytes, node.decision.allow_growth), now_s)
                self.feeds.append(unit)
                if len(self.feeds) > 1:
                    return None
                continue
            unit.describe = work.describe
            return unit
        return None

    def _in_time(self, size: int, now_s: float) -> int:
        """Return the size of the next unit, or less where stages are slow.

        A backlog for a segment that has not completed any unit means that its pace is not known yet.
        """
        if not self.config.bounded_in_time:
            return size
        untold = [i for i in range(len(self.queues)) if not self.pace.knows(i)]
        busy = {w.segment for w in self.workers.values() if w.unit is not None} if untold else set()
        # In batch mode a later segment begins when all of an earlier one is done: nobody waits for it to tell.
        waits = [i for i in untold if i == 0 or (self.config.mode != "batch" and (self.queues[i] or i in busy))]
        return self.pace.bound(size, now_s, not waits)

    def _queue_has_room(self) -> bool:
        # In batch mode a block stays until all stages are through, which is after all feeding: nothing to wait for.
        patient = any(w.unit is not None and w.unit.is_patient for w in self.workers.values())
        limit = max(self.config.queue_bytes, self.config.patient_queue_bytes if patient else 0)
        return self.config.mode == "batch" or self.scratch.total_bytes < limit

    def _feed_may_start(self, node: Node) -> bool:
        """Return True if the next feeder could hand out blocks now.

        A feeder that would have to start over waits until all other blocks are used up.
        """
        if not self.feeds or not self._queue_has_room():
            return False
        unit = self.feeds[0]
        own_bytes = node.grants.pool(1)
        if unit.need_bytes > own_bytes and any(n.grants.pool(1) > own_bytes for n in self.nodes.values()):
            return False  # a larger node does it
        if self._feed_is_large(node) and not node.grants.fits_beside(unit.need_bytes):
            return not self.busy and not any(self.queues)
        return not unit.is_patient or not self.queues[0]

    def _feed_is_large(self, node: Node) -> bool:
        """Return True if the next feeder needs more than its share of the memory of a node."""
        return bool(self.feeds) and self.feeds[0].need_bytes > node.grants.fair_cap()

    def _give_feeds(self, node: Node, now_s: float) -> list[Action]:
        feeder = next((w for w in node.workers.values() if w.segment == FEEDER and not w.dying), None)
        if feeder is None or not feeder.ready or feeder.unit is not None or not self._feed_may_start(node):
            return []
        cap = node.grants.feeder_cap(self.feeds[0].need_bytes)
        if not cap:
            return []
        unit = self.feeds.popleft()
        if not node.grants.fits_beside(cap):  # it will have to make room for others, and to start over
            unit.is_patient = True
        return [self._assign(feeder, unit, cap, now_s)]

    def _make_way(self, node: Node, now_s: float) -> list[Action] | None:
        """Room for a feeder that needs more than its share: others get no more work until it has it. None: they may go on."""
        if any(w.unit is not None and w.unit.mode is Mode.FEED for w in self.workers.values()):
            return None
        if not self._feed_may_start(node) or (not self.busy and self.cursor.has_other_work):
            return None
        given = self._give_feeds(node, now_s)
        living = [w for w in node.workers.values() if not w.dying]
        if given or len(living) < len(node.workers):
            return given
        feeder = next((w for w in living if w.segment == FEEDER), None)
        if feeder is None and not living:
            return [self._start(node, FEEDER)]
        idle = [w for w in living if w.ready and w.unit is None and w is not feeder]
        if feeder is None and node.grants.has_seat(feeding=True) and node.grants.fits_beside(0):
            return [self._start(node, FEEDER)]
        return self._retire(idle[0]) if idle else []

    def _unstick(self, node: Node) -> list[Action]:
        """Nobody works, though there is work, because of who holds the memory: fewer workers get more each, and a feeder ends."""
        settled = all(w.ready and not w.dying for w in node.workers.values())
        if self.progressing or self.n_committing or not settled or not any(self.queues):
            return []
        idle = [w for w in node.workers.values() if w.unit is None]
        held = [w for w in node.workers.values() if w.held]
        return self._retire(idle[0]) if len(idle) > 1 else self._retire(held[0]) if held else []

    def _start_workers(self, node: Node) -> list[Action]:
        """Workers for segments that have work, as far as there are seats; where none is left, one that idles makes room."""
        actions = self._end_surplus(node)
        grow = node.decision.allow_new_workers or not node.progressing
        for segment, n in [*reversed(list(enumerate(node.grants.wanted_workers()))), (FEEDER, 1)]:
            living = [w for w in node.workers.values() if w.segment == segment and not w.dying]
            idle = [w for w in living if w.unit is None]
            if segment == FEEDER:
                more = self._feed_may_start(node)
            else:
                more = any(not u.alone for u in self.queues[segment]) or (segment == 0 and not self.cursor.exhausted)
            if more and not idle and len(living) < n and grow and self._may_start(node, segment):
                if self._is_full(segment, n):
                    continue
                if node.grants.has_seat(bool(self.feeds)) and node.devices.has_room(segment):
                    actions.append(self._start(node, segment))
                elif not living:
                    actions += self._make_room(node, segment)
            elif len(living) > n:
                ready = [w for w in idle if w.ready]
                # One at a time while rates are being learned; all of a segment that has no more work.
                actions += [a for w in (ready[:1] if n else ready) for a in self._retire(w)]
        return actions

    def _is_full(self, segment: int, n: int) -> bool:
        """Return True if a segment with a fixed number of workers for the whole run has them, on whatever nodes."""
        if segment == FEEDER or len(self.nodes) < 2 or not self.config.in_all or not self.config.in_all[segment]:
            return False
        return sum(w.segment == segment and not w.dying for w in self.workers.values()) >= n

    def _end_surplus(self, node: Node) -> list[Action]:
        """Retire a surplus worker when workers turn out to need larger caps.

        An idle one is chosen, of the segment that has most.
        """
        living = [w for w in node.workers.values() if not w.dying]
        if len(living) <= node.grants.n_seats(bool(self.feeds)):
            return []
        idle = [w for w in living if w.ready and w.unit is None]
        if idle:
            return self._retire(max(idle, key=lambda w: sum(v.segment == w.segment for v in living)))
        held = [w for w in living if w.held]
        return self._retire(held[0]) if held and not node.progressing else []
