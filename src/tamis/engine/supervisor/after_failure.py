"""What becomes of a unit that failed: recovery.py decides, this does it: queues it again, cuts it, gives it up, or ends the run. Pure."""

from __future__ import annotations

from dataclasses import replace

from tamis.engine.activity import in_words
from tamis.engine.messages import Failure
from tamis.engine.supervisor import recovery
from tamis.engine.supervisor.actions import Action, Discard, Note
from tamis.engine.supervisor.cutting import halves
from tamis.engine.supervisor.dispatch import Dispatch
from tamis.engine.supervisor.grants import asked_of
from tamis.engine.supervisor.state import Worker
from tamis.engine.supervisor.unfit import Unfit
from tamis.engine.supervisor.units import Kind, Mode, Unit
from tamis.engine.supervisor.work import held_by

MAX_SETUP_DEATHS = 3
# So many documents in a row that do not fit even alone, and the stage is to blame, not they: where nothing has ever fitted and
# they are small, and in any case.
FEW_UNFIT, MANY_UNFIT = 3, 20
SMALL_RECORD_BYTES = 1 << 20


class Setbacks(Dispatch):
    """`_recover` is called with the unit, which is nobody's at that moment, and the worker that had it."""

    def _recover(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        was_fresh = worker.n_units == 0
        if report.kind == "threads" and was_fresh:
            report = replace(report, kind="memory")
        kind = report.kind
        if kind == "disk":
            return self._stop_fatal("disk", report.error)
        # Given up because of another of its units.
        if unit.mode in (Mode.RUN, Mode.QUARANTINE) and unit.partition not in self.partitions:
            return self._free_scratch(held_by(unit))
        if kind == "device":
            return self._no_room_on_device(unit, worker, report)
        if kind == "memory":
            self.counters["memory_failures"] += 1
            self.grants.learn_failure(worker, unit, report)
            if unit.mode is Mode.FEED:
                # A smaller node that cannot do it either says less than a larger one did.
                unit.need_bytes = max(unit.need_bytes, self.grants.feed_need(worker, report))
        if kind == "descriptors":
            self.handles.ran_out(worker)
        verdict = recovery.decide(unit, report, self._had_all(worker), was_fresh)
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
            kind = "usage" if report.is_usage else "input" if kind == "input" else "worker"
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
            return actions + self._leave_partition(unit)
        self.counters["splits" if verdict.what == "split" else "retries"] += 1
        if verdict.what == "quarantine":
            self.n_stage_failures += 1
            self.last_failure = in_words(unit.stage) or "a stage"
            self.first_failure = self.first_failure or recovery.told(report, unit)
        return actions + self._requeue(verdict)

    def _no_room_on_device(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        """Go on with the workers that fit their GPUs. Where this was the only one: end the run if the stages never fitted, else try again, for
        another process may have taken the memory for a while."""
        node = self.nodes.get(worker.node)
        others = [
            w
            for w in (node.workers if node is not None else {}).values()
            if w.segment == worker.segment and not w.dying
        ]
        if node is not None and others:
            node.devices.keep_to(worker.segment, len(others))
            text = f"no room on a GPU for another worker; the run goes on with {len(others)}: {recovery.told(report)}"
            note = Note("device", text, {"segment": worker.segment, "workers": len(others), "node": worker.node})
        else:
            self._n_setup_deaths += 1
            if not self.grants.was_set_up(worker.segment):
                return self._stop_fatal("budget", f"one worker alone does not fit its GPU: {recovery.told(report)}")
            if self._n_setup_deaths >= MAX_SETUP_DEATHS:
                return self._stop_fatal("worker", f"a worker does not fit its GPU any more: {recovery.told(report)}")
            note = Note(
                "device", f"no room on a GPU, trying again: {recovery.told(report)}", {"segment": worker.segment}
            )
        self.counters["retries"] += 1
        return [note, *self._requeue(recovery.Verdict("retry", unit))]

    def _died_setting_up(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        """Handle a worker that died while setting up a stage; no document is to blame.

        The unit is tried once more, then alone with the whole budget (libraries crash when an allocation fails),
        then the run ends with what is known.
        """
        report = replace(report, in_setup=True)
        if report.kind == "memory":
            return self._recover(unit, worker, report)
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

    def _had_all(self, worker: Worker) -> bool:
        """Return True if a worker had everything that any node has."""
        return all(node.grants.is_whole(worker.cap_bytes) for node in self.nodes.values()) and bool(self.nodes)

    def _does_not_fit(self, worker: Worker, report: Failure, verdict: recovery.Verdict) -> list[Action]:
        """Name the budget that one document, or setting up a stage, would need if it exceeds the whole pool.

        The rest of the run continues, unless it is the stage that needs so much, whatever the documents.
        """
        unit = verdict.unit
        found = Unfit(
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
        """Give up a unit that cannot be done in this run.

        For the first segment, that is its range of the input. A unit of a later segment cannot be separated from
        its neighbours any more, so everything of its partition is given up: its other units are forgotten too, and
        what they hold is freed.
        """
        if unit.segment == 0:
            return self._free_scratch(held_by(unit)) + self._leave_partition(unit)
        partition = self.partitions.pop(unit.partition, None)
        self.under_way.subtract(partition.counted() if partition is not None else ())
        gone = [unit]
        for queue in self.queues:
            for other in [u for u in queue if u.partition == unit.partition and u is not unit]:
                queue.remove(other)
                gone.append(other)
        paths = [path for u in gone for path in held_by(u)]
        made = [f.path for f in partition.files if f.kind != "listed"] if partition is not None else []
        return [
            *self._free_scratch(paths + (partition.scratch if partition is not None else [])),
            *([Discard(made)] if made else []),
        ]

    def _requeue(self, verdict: recovery.Verdict) -> list[Action]:
        unit = verdict.unit
        if verdict.what != "split":
            if unit.mode is Mode.FEED:
                if unit.pieces:  # one that waits for an empty queue does not hold up others
                    (self.feeds.append if unit.is_patient else self.feeds.appendleft)(unit)
                else:  # every block was handed out already
                    self.partitions.pop(unit.partition, None)
            else:
                self.queues[unit.segment].appendleft(unit)
            return []
        for path in [unit.handover] if unit.segment else {p.path for p in unit.pieces}:
            self.scratch.share(path)
        for half in halves(unit):
            child = self._unit(half.pieces, segment=unit.segment, partition=unit.partition)
            child.step, child.n_failures, child.last_error = unit.step, verdict.n_failures, unit.last_error
            child.handover, child.handover_rows = unit.handover, half.rows
            child.handover_check = unit.handover_check
            child.block_bytes, child.input_bytes = unit.block_bytes, unit.input_bytes // 2
            self.queues[unit.segment].appendleft(child)
        self.partitions[unit.partition].open_units += 1
        return []
