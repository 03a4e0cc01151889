"""The supervisor: plans, grants memory, recovers, decides what to commit. A pure state machine.

Events come in as method calls with the time; decisions go out as actions (actions.py). It never reads a clock, a file or
/proc, so tests drive it with lists of events and simulate faults by the thousand.

One rule for memory: the caps of busy workers never add up to more than the pool, and a worker gets a cap only together with
a unit. One rule for failures: every retry changes something (recovery.py).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

from tamis.engine.activity import in_words, is_setting_up
from tamis.engine.ledger import Ledger
from tamis.engine.messages import Covered, Done, Failure, RowsTooLarge, StreamTooLarge
from tamis.engine.supervisor import recovery
from tamis.engine.supervisor.actions import (
    Action,
    Commit,
    Discard,
    Kill,
    More,
    Note,
    Replace,
    Stop,
)  # fmt: skip
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.grants import asked_of
from tamis.engine.supervisor.nodes import Node
from tamis.engine.supervisor.pool import Pool
from tamis.engine.supervisor.remedies import Remedies
from tamis.engine.supervisor.scratch import Scratch
from tamis.engine.supervisor.state import FEEDER, Config, NodeSpec, Root, Worker, counts_of
from tamis.engine.supervisor.units import MIN_ROWS_BYTES, Kind, Mode, Piece, Recast, Unit
from tamis.memory.predictor import Predictor

MAX_STILLBORN = 20
MAX_SETUP_DEATHS = 3
_OWN_DEATHS = ("", "timeout", "over its cap")  # why a worker was killed: not for the sake of others
# So many documents in a row that do not fit even alone, and the stage is to blame, not they: where nothing has ever fitted and
# they are small, and in any case.
FEW_UNFIT, MANY_UNFIT = 3, 20
SMALL_RECORD_BYTES = 1 << 20


class Supervisor(Pool):
    def __init__(
        self,
        config: Config,
        cursor: Cursor,
        predictors: list[Predictor],
        step: int = 0,
        remedies: Remedies | None = None,
    ) -> None:
        super().__init__(config, predictors)
        self.cursor, self.step = cursor, step
        self.queues: list[deque[Unit]] = [deque() for _ in config.fixed_workers]
        self.feeds: deque[Unit] = deque()
        self.roots: dict[int, Root] = {}
        self.ledger = Ledger()
        self.under_way: Counter[str] = Counter()  # counted by units whose partition is not through all segments yet
        self._n_roots = 0
        self.schemas: dict[str, str] = {}  # output file -> schema, as committed
        self.stopping: str = ""
        self.fatal: str = ""
        self.fatal_kind: str = ""
        self.infeasible: list[str] = []
        self.n_stage_failures = 0
        self.last_failure = "a stage"  # that set a document aside
        self.first_failure = ""  # of a document: stage, error, place, line of code
        self.n_seen = 0  # records of units that are done, committed or not
        self._unfit: list[
            recovery.Unfit
        ] = []  # the last documents that did not fit, with nothing that fitted in between
        self.n_committing = 0
        self.unsynced_bytes = 0
        self.scratch = Scratch()  # blocks waiting or being worked on
        self.remedies = remedies or Remedies()  # those of an earlier sampling step stay in force
        self._next_unit = 1
        self._n_stillborn = 0  # workers in a row that died before they were ready
        self._n_setup_deaths = 0  # ... in a row that died while a stage was set up

    # -- events ---------------------------------------------------------------------------------------------------------
    def tick(self, now_s: float) -> list[Action]:
        """Time passes: deadlines, then whatever can be started."""
        actions: list[Action] = []
        for worker in self.workers.values():
            if (
                worker.unit is not None
                and not worker.dying
                and not worker.held
                and now_s - worker.since_s > self.config.timeout_s
            ):
                actions += self._kill(worker, "timeout")
        return actions + self.remedies.due(self, now_s) + self._dispatch(now_s)

    def ready(self, worker_id: int, now_s: float, floor_bytes: int = 0, file_bytes: int = 0) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None:
            return self._dispatch(now_s)
        worker.ready, worker.base_bytes, worker.file_bytes = True, floor_bytes, file_bytes
        self._n_stillborn = 0
        # A kill that was asked for before the process existed has hit nobody.
        again: list[Action] = [Kill(worker.id, worker.why_killed)] if worker.dying else []
        return again + self._dispatch(now_s, self._at(worker))

    def set_up(self, worker_id: int, fence: int, kept_bytes: int, peak_bytes: int, now_s: float) -> list[Action]:
        """A worker's stages are set up: what they keep, and what it took at most. Others may follow, if there is room for them."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.fence != fence:
            return []
        self._n_setup_deaths = 0
        self.grants.learn_setup(worker, kept_bytes, peak_bytes)
        return self._dispatch(now_s, self._at(worker))

    def read(
        self, worker_id: int, fence: int, n_records: int, cut: int, decoded_bytes: int = -1, largest_record: int = 0
    ) -> None:
        """A worker tells what its unit holds, before stages run: how to cut it, should it fail."""
        worker = self.workers.get(worker_id)
        if worker is not None and worker.unit is not None and worker.fence == fence:
            unit = worker.unit
            unit.n_records, unit.cut = n_records, cut
            unit.decoded_bytes, unit.largest_record = decoded_bytes, largest_record

    def block(
        self, worker_id: int, fence: int, piece: Piece, n_bytes: int, compressed: int, now_s: float
    ) -> list[Action]:
        """A feeder has written a block, having read `compressed` bytes of its file so far."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return [Discard([piece.path])]
        worker.since_s = now_s
        worker.unit.compressed_bytes = compressed
        worker.unit.n_failures = 0
        worker.unit.pieces = recovery.without(worker.unit.pieces, piece)
        self.scratch.add(piece.path, n_bytes)
        self.queues[0].append(self._unit([piece]))
        worker.held = True
        return self._dispatch(now_s, self._at(worker))

    def done(self, worker_id: int, fence: int, report: Done, now_s: float) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            self.counters["late"] += 1
            return self._discard_report(report)
        unit, worker.unit = worker.unit, None
        worker.n_units += 1
        if (node := self.nodes.get(worker.node)) is not None:
            node.n_units += 1
        self.grants.learn(worker, unit, report)
        if unit.mode is Mode.RUN:
            self._unfit.clear()
        actions: list[Action] = self._recycle(worker, report) + self.remedies.after_unit(self, worker.id)
        if unit.mode is Mode.RECAST:
            return actions + self._recast_done(unit, report, now_s)
        root = self.roots.get(unit.root)
        if root is None:  # given up because of another of its units
            return (
                actions
                + self._discard_report(report)
                + self._free_scratch(_held_by(unit))
                + self._dispatch(now_s, self._at(worker))
            )
        if unit.segment == 0:
            self.n_seen += report.ledger.records.n - report.ledger.not_sampled.n
        root.add(unit, report.files)
        root.covered += report.covered
        root.parts.append((unit.segment, report.ledger))
        self.under_way.update(counts_of(report.ledger))
        made = report.handover
        if made is not None and not made.rows:
            actions.append(Discard([made.path]))
        elif made is not None:
            self.scratch.add(made.path, made.n_bytes)
            root.open_units += 1
            nxt = self._unit(unit.pieces, segment=unit.segment + 1, root=unit.root)
            nxt.handover, nxt.handover_rows, nxt.n_records = made.path, (0, made.rows), made.rows
            nxt.handover_check = made.check
            self.queues[nxt.segment].append(nxt)
        actions += self._close_unit(unit) + self._check_rate()
        return actions + self._dispatch(now_s, self._at(worker))

    def too_large(
        self, worker_id: int, fence: int, report: StreamTooLarge | RowsTooLarge, now_s: float
    ) -> list[Action]:
        """A unit decodes to more than was thought: cut it with what the worker found out."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return []
        unit, worker.unit = worker.unit, None
        actions: list[Action] = []
        file = report.file
        rest = [p for p in unit.pieces if p.file != file]
        if rest:
            self.queues[0].appendleft(self._unit(rest))
        if isinstance(report, StreamTooLarge):
            if report.compressed_bytes:
                ratio = min(report.decoded_bytes / report.compressed_bytes, 1000.0)
                self.cursor.ratio = max(self.cursor.ratio, ratio)
            self.cursor.feed(file)
        else:
            first = next(p.start for p in unit.pieces if p.file == file)
            block_bytes = max(unit.block_bytes, MIN_ROWS_BYTES)
            self.cursor.expand_rows(file, report.groups, report.n_rows, block_bytes, first, report.measured)
            if report.whole:
                actions.append(self._commit_size(file, report.n_rows))
        return actions + self._leave_root(unit) + self._dispatch(now_s, self._at(worker))

    def _commit_size(self, file: int, n_rows: int) -> Commit:
        """Let the log know where the file ends, so that the end of the run can tell whether all of it was done."""
        self.n_committing += 1
        piece = Piece(file, Kind.ROWS, self.cursor.files.paths[file], n_rows, n_rows)
        return Commit(-1, piece, self.step, [(file, n_rows, n_rows, True)], [], Ledger().to_dict())

    def failed(self, worker_id: int, fence: int, report: Failure, now_s: float) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return []
        unit, worker.unit = worker.unit, None
        actions: list[Action] = []
        if report.kind != "memory":  # after a memory failure the worker exits by itself
            actions += [Stop(worker.id)]
        worker.why_killed = worker.why_killed or "replaced"
        return actions + self._recover(unit, worker, report, now_s) + self._dispatch(now_s, self._at(worker))

    def died(self, worker_id: int, how: str, signal: int, now_s: float, stage: str = "") -> list[Action]:
        """A worker is gone, from within `stage`. `how` says with which status; what that means depends on who killed it and how
        full it was."""
        worker = self._drop(worker_id)
        if worker is not None:
            self.leakage.gone(worker.id, worker.segment, heir=False)
        if worker is None or worker.unit is None:
            if worker is not None and not worker.ready and not worker.dying:
                self._n_stillborn += 1
                if self._n_stillborn >= MAX_STILLBORN:
                    return self._stop_fatal(
                        "worker", f"{self._n_stillborn} workers in a row died while starting, the last one with {how}"
                    )
            return self._dispatch(now_s)
        unit = worker.unit
        self.counters["crashes"] += 0 if worker.why_killed else 1
        node = self.nodes.get(worker.node)
        grown = worker.used_bytes - (node or self).config.worker_bytes  # the cap counts from what a worker holds anyway
        report = recovery.judge_death(worker.why_killed, how, signal, grown, worker.cap_bytes, worker.was_alone, stage)
        if is_setting_up(stage) and unit.mode is Mode.RUN and worker.why_killed in _OWN_DEATHS:
            return self._died_setting_up(unit, worker, report, now_s) + self._dispatch(now_s, self._at(worker))
        return self._recover(unit, worker, report, now_s) + self._dispatch(now_s, self._at(worker))

    def _died_setting_up(self, unit: Unit, worker: Worker, report: Failure, now_s: float) -> list[Action]:
        """No document is to blame: once more, then alone with the whole budget (libraries crash when an allocation fails), then the
        run ends with what is known."""
        report = replace(report, in_setup=True)
        if report.kind == "memory":
            return self._recover(unit, worker, report, now_s)
        self._n_setup_deaths += 1
        if self._n_setup_deaths >= MAX_SETUP_DEATHS:
            told = f"{in_words(report.stage)} ended {self._n_setup_deaths} workers in a row: {report.error}"
            return self._stop_fatal("worker", told)
        unit.alone = self._n_setup_deaths + 1 == MAX_SETUP_DEATHS
        self.counters["retries"] += 1
        return [
            Note("recovery", recovery.told(report), {"unit": unit.id}),
            *self._requeue(recovery.Verdict("retry", unit)),
        ]

    def committed(self, root_id: int, covered: list[Covered], n_bytes: int, now_s: float) -> list[Action]:
        self.n_committing -= 1
        self.unsynced_bytes -= n_bytes
        self.counters["committed"] += 1
        return self._dispatch(now_s) if len(self.nodes) == 1 else []  # of many, the next tick looks at all

    def commit_failed(self, why: str) -> list[Action]:
        self.n_committing -= 1
        return self._stop_fatal("disk", why)

    def stop(self, why: str) -> list[Action]:
        """Finish what is committed, start nothing new."""
        self.stopping = self.stopping or why
        actions = [a for w in self.workers.values() if not w.dying for a in self._kill(w, "stopping")]
        # What is done of partitions that were cut is not done again. Where documents went on to a later segment, it is not whole.
        if len(self.queues) == 1 and self.fatal_kind != "disk":
            actions += [a for root, about in list(self.roots.items()) if about.n_done for a in self._commit_root(root)]
        return [Note("stop", why), *actions]

    def remedy(self, remedy: str, now_s: float) -> list[Action]:
        """What an alert asks for (remedies.py)."""
        return self.remedies.apply(self, remedy, now_s)

    def node_up(self, spec: NodeSpec, now_s: float) -> list[Action]:
        """A machine has joined (again): work can be given to it."""
        lost = self.node_down(spec.id, now_s) if spec.id in self.nodes else []
        return [*lost, *self._dispatch(now_s, self._admit(spec))]

    def node_down(self, node_id: int, now_s: float) -> list[Action]:
        """A machine is gone, and with it its workers: what they were doing is done again elsewhere."""
        node = self._forget(node_id)
        actions: list[Action] = []
        for worker in list(node.workers.values()) if node is not None else ():
            worker.why_killed = worker.why_killed or "its node is gone"
            actions += self.died(worker.id, "its node is gone", 9, now_s)
        return actions

    # -- state ----------------------------------------------------------------------------------------------------------
    @property
    def finished(self) -> bool:
        """Nothing left that could still be done (in this step)."""
        if self.n_committing or (self.busy and not self.stopping):
            return False
        if self.stopping:
            return not self.workers
        return self.cursor.exhausted and not any(self.queues) and not self.feeds

    @property
    def bytes_left(self) -> int:
        """Input bytes that are not done yet (compressed bytes where the input is compressed)."""
        feeds = [w.unit for w in self.workers.values() if w.unit is not None and w.unit.mode is Mode.FEED] + list(
            self.feeds
        )
        left = self.cursor.bytes_left
        for unit in feeds:
            if unit.pieces:
                left += max(0, self.cursor.files.sizes[unit.pieces[0].file] - unit.compressed_bytes)
        busy = [w.unit for w in self.workers.values() if w.unit is not None] + list(self.queues[0])
        n = len(self.queues)  # what waits for the last of two segments is half done
        left += sum((p.end - p.start) * (n - u.segment) // n for u in busy for p in u.pieces if p.kind is Kind.BYTES)
        each = (self.cursor.files.total_bytes - self.cursor.bytes_left) // max(1, self._n_roots)
        return left + sum(len(queue) * each * (n - i) // n for i, queue in enumerate(self.queues) if i)

    def recast(self, schema: str, names: list[str], folder: str) -> None:
        """Rewrite these output files with the schema of the whole run."""
        for name in names:
            self.queues[0].append(self._recast_unit(Recast(schema=schema, path=f"{folder}/{name}", old=name)))

    def join_schemas(self, schemas: list[str]) -> None:
        self.queues[0].append(self._recast_unit(Recast(join=schemas)))

    def _recast_unit(self, recast: Recast) -> Unit:
        unit = self._unit([Piece(0, Kind.START, "", 0, 1)])
        self.roots.pop(unit.root)
        unit.mode, unit.recast = Mode.RECAST, recast
        return unit

    # -- starting work --------------------------------------------------------------------------------------------------
    def _dispatch(self, now_s: float, at: Node | None = None) -> list[Action]:
        """Start what can be started: on the node where something happened, or on all (with every tick)."""
        if self.stopping or self.fatal or self.remedies.holds_back(now_s):
            return []
        alone = next((u for q in self.queues for u in q if u.alone), None)
        emptied = max(self.nodes.values(), key=lambda n: (n.config.pool_bytes, -n.id), default=None)
        actions: list[Action] = []
        for node in [at] if at is not None else sorted(self.nodes.values(), key=lambda n: n.n_busy):
            if alone is not None and node is emptied:
                actions += self._dispatch_alone(node, alone, now_s)
            elif node is not emptied and not node.grants.is_enough:  # the larger ones do it
                idle = [w for w in node.workers.values() if w.ready and w.unit is None and not w.dying]
                actions += [a for worker in idle for a in self._retire(worker)]
            else:
                actions += self._dispatch_on(node, now_s)
        return actions

    def _at(self, worker: Worker | None) -> Node | None:
        """The node of a worker, for `_dispatch`."""
        return self.nodes.get(worker.node) if worker is not None else None

    def _dispatch_on(self, node: Node, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.held and not worker.dying and self._queue_has_room():
                worker.held, worker.since_s = False, now_s
                actions.append(More(worker.id, node.grants.feed_size(worker.cap_bytes, node.decision.allow_growth)))
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
        """A unit that needs the whole pool of a node: wait until nobody else lives there (a feeder that waits can end), then give it
        everything.
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
            return (
                not any(self.queues[:segment])
                and not any(w.unit is not None and w.segment < segment for w in self.workers.values())
                and (segment == 0 or self.cursor.exhausted)
            )
        waiting = sum(self.scratch.bytes_of(u.handover) for q in self.queues[segment + 1 :] for u in q)
        return segment == last or waiting < self.config.queue_bytes

    def _give_work(self, node: Node, segment: int, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for worker in list(node.workers.values()):
            if worker.segment != segment or not worker.ready or worker.unit is not None or worker.dying:
                continue
            if node.decision.serial and node.progressing:
                break
            cap = node.grants.next_cap(bool(self.feeds), segment)
            unit = self._next_unit_of(node, segment, cap, worker) if cap else None
            if unit is None:
                break
            actions.append(self._assign(worker, unit, cap, now_s))
        return actions

    def _next_unit_of(self, node: Node, segment: int, cap_bytes: int, worker: Worker) -> Unit | None:
        waiting = next((u for u in self.queues[segment] if not u.alone), None)
        if waiting is not None:
            self.queues[segment].remove(waiting)
            waiting.block_bytes = waiting.block_bytes or node.grants.block_size(
                segment, cap_bytes, node.decision.allow_growth, worker
            )
            return waiting
        if segment > 0:
            return None
        size = node.grants.block_size(0, cap_bytes, node.decision.allow_growth, worker)
        while (work := self.cursor.next(size)) is not None:
            unit = self._unit(work.pieces)
            unit.block_bytes = size
            if work.mode is Mode.FEED:
                unit.mode = Mode.FEED
                unit.block_bytes = node.grants.feed_size(cap_bytes, node.decision.allow_growth)
                self.feeds.append(unit)
                if len(self.feeds) > 1:
                    return None
                continue
            unit.describe = work.describe
            return unit
        return None

    def _queue_has_room(self) -> bool:
        # In batch mode a block stays until all stages are through, which is after all feeding: nothing to wait for.
        patient = any(w.unit is not None and w.unit.is_patient for w in self.workers.values())
        limit = max(self.config.queue_bytes, self.config.patient_queue_bytes if patient else 0)
        return self.config.mode == "batch" or self.scratch.total_bytes < limit

    # -- feeders --------------------------------------------------------------------------------------------------------
    def _feed_may_start(self, node: Node) -> bool:
        """Whether the next feeder could hand out blocks now. One that would have to start over waits until all others are used up."""
        if not self.feeds or not self._queue_has_room():
            return False
        unit = self.feeds[0]
        if self._feed_is_large(node) and not node.grants.fits_beside(unit.need_bytes):
            return not self.busy and not any(self.queues)
        return not unit.is_patient or not self.queues[0]

    def _feed_is_large(self, node: Node) -> bool:
        """Whether the next feeder needs more than its share of the memory of a node."""
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
            elif len(living) > n and idle and idle[0].ready:
                actions += self._retire(idle[0])
        return actions

    def _is_full(self, segment: int, n: int) -> bool:
        """Whether a segment whose stages fixed the number of workers of the whole run has them, on whatever nodes."""
        if segment == FEEDER or len(self.nodes) < 2 or not self.config.in_all or not self.config.in_all[segment]:
            return False
        return sum(w.segment == segment and not w.dying for w in self.workers.values()) >= n

    def _end_surplus(self, node: Node) -> list[Action]:
        """Where workers turn out to need larger caps, some have to go: one that idles, of the segment that has most."""
        living = [w for w in node.workers.values() if not w.dying]
        if len(living) <= node.grants.n_seats(bool(self.feeds)):
            return []
        idle = [w for w in living if w.ready and w.unit is None]
        if idle:
            return self._retire(max(idle, key=lambda w: sum(v.segment == w.segment for v in living)))
        held = [w for w in living if w.held]
        return self._retire(held[0]) if held and not node.progressing else []

    # -- workers come and go --------------------------------------------------------------------------------------------
    def _discard_report(self, report: Done) -> list[Action]:
        """Remove what a report that nobody wants any more has made."""
        return [Discard(report.made_paths)]

    # -- ending and recovering units ------------------------------------------------------------------------------------
    def _unit(self, pieces: list[Piece], segment: int = 0, root: int = -1) -> Unit:
        unit = Unit(self._next_unit, pieces, segment=segment, root=root, step=self.step)
        self._next_unit += 1
        if root < 0:
            self.roots[unit.root] = Root(pieces[0], self.step)
            self._n_roots += 1
        return unit

    def _close_unit(self, unit: Unit) -> list[Action]:
        """One unit of a root is over; commit the root when it was the last."""
        root = self.roots[unit.root]
        root.open_units -= 1
        root.n_done += 1
        root.scratch += _held_by(unit)
        return self._commit_root(unit.root) if not root.open_units else []

    def _leave_root(self, unit: Unit) -> list[Action]:
        """What a unit was to do is done under another root, or not in this run; its root goes on without it."""
        root = self.roots.get(unit.root)
        if root is None:
            return []
        root.open_units -= 1
        if root.open_units:
            return []
        if root.n_done:
            return self._commit_root(unit.root)
        del self.roots[unit.root]
        return []

    def _commit_root(self, root_id: int) -> list[Action]:
        root = self.roots.pop(root_id)
        self.under_way.subtract(root.counted())
        ledger = Ledger()
        for _, part in sorted(root.parts, key=lambda p: p[0]):
            ledger.merge(part)
        self.n_committing += 1
        self.unsynced_bytes += sum(f.n_bytes or 0 for f in root.files)
        self.ledger.merge(ledger)
        actions: list[Action] = [Commit(root_id, root.first, root.step, root.covered, root.files, ledger.to_dict())]
        return actions + self._free_scratch(root.scratch)

    def _free_scratch(self, paths: list[str]) -> list[Action]:
        gone = self.scratch.free(paths)
        return [Discard(gone)] if gone else []

    def _check_rate(self) -> list[Action]:
        """A stage that fails on (nearly) everything is a mistake in the stage, not in the data: stop early."""
        n = self.n_stage_failures
        seen = max(self.ledger.records.n - self.ledger.not_sampled.n, self.n_seen, n)
        if n >= 20 and n > max(self.config.rate_limit * 10, 0.01) * seen and not self.stopping:
            first = f"; first: {self.first_failure}" if self.first_failure else ""
            return self.stop(
                f"{self.last_failure} fails on {n} of {seen} documents so far: see `tamis quarantine`{first}"
            )
        return []

    def _recover(self, unit: Unit, worker: Worker, report: Failure, now_s: float) -> list[Action]:
        kind = report.kind
        if kind == "disk":
            return self._stop_fatal("disk", report.error)
        if (
            unit.mode in (Mode.RUN, Mode.QUARANTINE) and unit.root not in self.roots
        ):  # given up because of another of its units
            return self._free_scratch(_held_by(unit))
        if kind == "memory":
            self.counters["memory_failures"] += 1
            self.grants.learn_failure(worker, unit, report)
            if unit.mode is Mode.FEED:
                unit.need_bytes = self.grants.feed_need(worker, report)
        verdict = recovery.decide(unit, report, self._had_all(worker))
        unit = verdict.unit
        actions: list[Action] = []
        if verdict.note:
            actions.append(
                Note(
                    "recovery",
                    verdict.note,
                    {"unit": unit.id, "kind": kind, "stage": report.stage, "error": report.error},
                )
            )
        if verdict.what == "fail":
            kind = "usage" if report.is_usage else "worker"
            return actions + self._stop_fatal(kind, recovery.told(report))
        if verdict.what in ("infeasible", "unfit"):
            return actions + self._does_not_fit(worker, report, verdict)
        if verdict.what == "unreadable":
            self.infeasible.append(verdict.note)
            return actions + self._give_up(unit)
        if verdict.what == "feed":
            if unit.pieces[0].kind is Kind.ROWS:
                self.cursor.feed_rows(unit.pieces[0])
            else:
                self.cursor.feed(unit.pieces[0].file)
            return actions + self._leave_root(unit)
        self.counters["splits" if verdict.what == "split" else "retries"] += 1
        if verdict.what == "quarantine":
            self.n_stage_failures += 1
            self.last_failure = in_words(unit.stage) or "a stage"
            self.first_failure = self.first_failure or recovery.told(report, unit)
        return actions + self._requeue(verdict)

    def _had_all(self, worker: Worker) -> bool:
        """Whether a worker had everything that any node has."""
        return all(node.grants.is_whole(worker.cap_bytes) for node in self.nodes.values()) and bool(self.nodes)

    def _does_not_fit(self, worker: Worker, report: Failure, verdict: recovery.Verdict) -> list[Action]:
        """One document, or setting up a stage, needs more than the whole pool: name the budget that would do. The rest of the run
        goes on, unless it is the stage that needs so much, whatever the documents.
        """
        unit = verdict.unit
        found = recovery.Unfit(
            report.stage, unit.largest_record, asked_of(worker, report), worker.cap_bytes,
            self.grants.budget_for(self.grants.need_of(worker, unit, report)),
        )  # fmt: skip
        if verdict.what == "unfit":
            return self._stop_fatal("budget", f"{verdict.note}: {found.advice()}")
        if unit.mode is Mode.FEED:
            self.infeasible.append(f"{verdict.note}: {found.advice()}")
            return self._give_up(unit)
        self._unfit.append(found)
        n, worst = len(self._unfit), max(self._unfit, key=lambda u: (u.asked_bytes, u.budget_bytes))
        small = all(u.size_bytes <= SMALL_RECORD_BYTES for u in self._unfit)
        if n >= MANY_UNFIT or (n >= FEW_UNFIT and small and not self.grants.n_done[unit.segment]):
            who = next((in_words(u.stage) for u in self._unfit if u.stage), "every partition")
            return self._stop_fatal(
                "budget",
                f"{who} needs more memory than the budget leaves, whatever the documents: {n} in a row failed, each of them alone: "
                + worst.advice(),
            )
        self.infeasible.append(f"{verdict.note}: {found.advice(found.size_bytes > SMALL_RECORD_BYTES)}")
        return self._give_up(unit)

    def _give_up(self, unit: Unit) -> list[Action]:
        """A unit cannot be done in this run. Of the first segment that is its range of the input; of a later one, which cannot be
        told from its neighbours any more, everything of its root: forget its other units too, and free what they hold.
        """
        if unit.segment == 0:
            return self._free_scratch(_held_by(unit)) + self._leave_root(unit)
        root = self.roots.pop(unit.root, None)
        self.under_way.subtract(root.counted() if root is not None else ())
        gone = [unit]
        for queue in self.queues:
            for other in [u for u in queue if u.root == unit.root and u is not unit]:
                queue.remove(other)
                gone.append(other)
        paths = [path for u in gone for path in _held_by(u)]
        made = [f.path for f in root.files if f.kind != "listed"] if root is not None else []
        return [
            *self._free_scratch(paths + (root.scratch if root is not None else [])),
            *([Discard(made)] if made else []),
        ]

    def _requeue(self, verdict: recovery.Verdict) -> list[Action]:
        unit = verdict.unit
        if verdict.what != "split":
            if unit.mode is Mode.FEED:
                if unit.pieces:  # one that waits for an empty queue does not hold up others
                    (self.feeds.append if unit.is_patient else self.feeds.appendleft)(unit)
                else:  # every block was handed out already
                    self.roots.pop(unit.root, None)
            else:
                self.queues[unit.segment].appendleft(unit)
            return []
        halves = recovery.halves(unit)
        for path in [unit.handover] if unit.segment else {p.path for p in unit.pieces}:
            self.scratch.share(path)
        for half in halves:
            child = self._unit(half.pieces, segment=unit.segment, root=unit.root)
            child.step, child.n_failures, child.last_error = unit.step, verdict.n_failures, unit.last_error
            child.handover, child.handover_rows = unit.handover, half.rows
            child.handover_check = unit.handover_check
            child.block_bytes = unit.block_bytes
            self.queues[unit.segment].appendleft(child)
        self.roots[unit.root].open_units += 1
        return []

    def _recast_done(self, unit: Unit, report: Done, now_s: float) -> list[Action]:
        assert unit.recast is not None
        if unit.recast.join:
            self.schemas["*"] = report.schema
            return self._dispatch(now_s)
        self.n_committing += 1
        return [Replace(unit.id, unit.recast.old, report.files[0]), *self._dispatch(now_s)]

    def _stop_fatal(self, kind: str, why: str) -> list[Action]:
        if not self.fatal:
            self.fatal, self.fatal_kind = why, kind
        return self.stop(why)


def _held_by(unit: Unit) -> list[str]:
    """The scratch files that a unit reads."""
    if unit.segment > 0:
        return [unit.handover]
    return [p.path for p in unit.pieces if p.kind in (Kind.BLOCK, Kind.ROW_BLOCK)]
