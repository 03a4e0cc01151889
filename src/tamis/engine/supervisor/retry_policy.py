"""The retry policy: what to do with a unit that failed.

Pure. Every decision changes something, so nothing is retried forever.

memory failure   split in two (the next attempt may have a larger cap: memory_arbiter.py); one record: alone with the
                 whole budget; still too much: infeasible, the run ends incomplete
in setup()       alone with the whole budget, then the run ends; any other error there ends the run: no document is to
                 blame
changed input    the run ends: records are not those that an earlier pass of the same workflow read
on a full GPU    in setup(): with the workers that fitted, and no more of them (recovery.py); without any the run ends
descriptors,     the worker had used them up before: again, unchanged, on a fresh one (five times); else descriptors as
threads          a stage error, threads as a memory failure: their stacks count against the cap
user's source    once more, then the run ends: what it reads or makes is not ours to quarantine
stage error,     once more on a fresh worker; then split until one record is left; that record goes to quarantine. With
crash, timeout   fail_fast the run ends; it also does if a stage fails on everything from the start (unproven.py)
killed for       again, unchanged: it was not its fault (five times, then as a crash)
others' sake
a feeder         after a memory failure again with more, up to everything there is (a reader of rows also in smaller
                 batches), then the file is refused; after other failures with everything, a few times; the rest of the
                 run continues

Covers the decision, and what the death of a worker says about its unit. Does not cover carrying it out: see
recovery.py.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum, auto
from typing import NamedTuple

from tamis.engine.activity import in_words
from tamis.engine.messages import Failure, FailureKind
from tamis.engine.supervisor.state import KillReason
from tamis.engine.units import TO_END, Mode, PieceKind, Unit, can_split
from tamis.sizes import format_size

MAX_INNOCENT_KILLS = 5
_USED_UP = {FailureKind.DESCRIPTORS: "file descriptors (EMFILE)", FailureKind.THREADS: "threads"}
MAX_FEED_FAILURES = 4  # in a row, with nothing handed out in between
MAX_BATCH_ROWS = 1 << 17  # that a reader of rows asks for at once, while it fits
EVERYTHING = 1 << 62  # what a feeder gets then is the whole pool
MAX_SETUP_DEATHS = 3
# So many documents in a row that do not fit even alone, and the stage is to blame, not they: where nothing has ever
# fitted and they are small, and in any case.
FEW_MISFITS, MANY_MISFITS = 3, 20
SMALL_RECORD_BYTES = 1 << 20
_NO_MACHINE_BYTES = 1 << 47  # the addresses of one process: a request beyond it is a wrong size, not a need
_SIGKILL = 9
_FAULTS = (FailureKind.ERROR, FailureKind.CRASH, FailureKind.TIMEOUT)
_MOST_FAILURES = {Mode.REWRITE: 3, Mode.QUARANTINE: 5}  # of units that run no stage: then the run ends


class RetryAction(StrEnum):
    """Actions for a unit that failed."""

    RETRY = auto()
    SPLIT = auto()
    ALONE = auto()  # retry with the whole memory of a node
    QUARANTINE = auto()  # the one record that is left
    FEED = auto()  # decode its file in blocks
    DESCRIBE = auto()  # have the row groups of its file listed, to cut it by them
    INFEASIBLE = auto()  # this record or file does not fit the budget
    UNFIT = auto()  # this stage does not
    UNREADABLE = auto()
    FAIL = auto()  # end the run


class SetupDeathAction(StrEnum):
    """Actions after the death of a worker whose stages were being set up."""

    RETRY = auto()
    ALONE = auto()
    FAIL = auto()


class RetryDecision(NamedTuple):
    """The next action, and the unit it applies to: the failed one, with a record of what has been tried."""

    action: RetryAction
    unit: Unit
    note: str = ""
    n_failures: int = 0  # of each half of a unit to split so far


class Misfit(NamedTuple):
    """A document, or the setup of a stage, that needs more memory than there is.

    `budget_bytes` is an estimate of what would do.
    """

    stage: str
    size_bytes: int  # of the document
    requested_bytes: int  # by the allocation that failed; 0: not known
    had_bytes: int
    budget_bytes: int

    @property
    def is_large(self) -> bool:
        """True if it is a document that could be quarantined for its size."""
        return self.size_bytes > SMALL_RECORD_BYTES

    def advice(self, may_quarantine: bool = False) -> str:
        """Return what the worker had and what to do about it."""
        how = "at once" if self.requested_bytes > self.had_bytes else "more than it had"
        had = f"it asked for {format_size(self.requested_bytes)} {how}" if self.requested_bytes else "it took all"
        if self.requested_bytes >= _NO_MACHINE_BYTES:
            return (
                f"{had}, which no machine has: the size is wrong, in damaged input or in the stage; "
                "more --memory will not help"
            )
        remedy = "set max_record below its size to quarantine it, or " if may_quarantine else ""
        needed = -(-self.budget_bytes // 10**6)
        return (
            f"{had}, one worker can get {format_size(self.had_bytes)}; {remedy}run again with --memory {needed}MB or "
            "more"
        )


class RetryPolicy:
    """Decides about failed units, and counts the failures in a row that end a run.

    The decision about one unit follows from the unit and its failure alone.
    """

    def __init__(self, fail_fast: bool = False) -> None:
        """Decide about failures. `fail_fast`: end the run at the first one that is not about resources."""
        self._fail_fast = fail_fast
        self.n_setup_deaths = 0  # workers in a row that died while a stage was set up
        self.misfits: list[Misfit] = []  # the last documents that did not fit, with nothing that fitted in between

    def may_reuse_worker(self, unit: Unit, report: Failure) -> bool:
        """Return True if the worker whose stage raised may continue with the halves of its unit.

        Only a record that fails alone needs a fresh worker, to separate its own fault from what an exception before it
        left behind: a fork for every half would take most of the time.
        """
        return (
            report.kind is FailureKind.ERROR
            and unit.mode is Mode.RUN
            and unit.n_failures > 0
            and not self._fail_fast
            and can_split(unit)
        )

    def decide(
        self, unit: Unit, report: Failure, had_all: bool = False, was_fresh: bool = True, is_clean: bool = True
    ) -> RetryDecision:
        """Decide what to do with a unit after this failure.

        `had_all`: its cap was the whole pool, so that no larger one can be tried. `was_fresh`: it was the first
        unit of its worker, which had not used up anything before. `is_clean`: no stage had raised in that worker
        before.

        The arguments are not modified: what is to be remembered of the failure is on the decision's unit.
        """
        kind, error = report.kind, report.error
        if kind is FailureKind.REPLACED:  # a feeder that had to wait; its blocks stay, so that this ends some day
            return RetryDecision(RetryAction.RETRY, replace(unit, is_patient=True))
        if kind is FailureKind.KILLED:
            unit = replace(unit, n_kills=unit.n_kills + 1)
            if unit.n_kills <= MAX_INNOCENT_KILLS:
                return RetryDecision(RetryAction.RETRY, unit)
            kind = FailureKind.CRASH
        if kind in _USED_UP:
            if not was_fresh and unit.n_kills < MAX_INNOCENT_KILLS:
                return _retry_used_up(unit, report)
            kind = FailureKind.MEMORY if kind is FailureKind.THREADS else kind
        return self._decide_fault(replace(unit, last_error=error), replace(report, kind=kind), had_all, is_clean)

    def _decide_fault(self, unit: Unit, report: Failure, had_all: bool, is_clean: bool) -> RetryDecision:
        """Decide what to do with a unit that failed by itself, not by what its worker had done before."""
        kind = report.kind
        if kind is FailureKind.INPUT:
            return RetryDecision(RetryAction.FAIL, unit)
        if self._fail_fast and unit.mode in (Mode.RUN, Mode.FEED) and kind in _FAULTS:
            return RetryDecision(RetryAction.FAIL, unit)
        if unit.mode is Mode.FEED:
            return _decide_feed(unit, kind, report.error, had_all)
        if kind is FailureKind.SETUP and unit.mode is not Mode.REWRITE:
            return RetryDecision(RetryAction.FAIL, unit)
        if kind is FailureKind.MEMORY and unit.mode is not Mode.REWRITE:
            return _decide_memory(unit, report, had_all or unit.alone)
        return _decide_failure(unit, report, is_clean)

    def after_setup_death(self) -> SetupDeathAction:
        """Decide after another worker died during setup: retry, then alone with the whole budget, then end the run.

        No document is to blame. Libraries crash when an allocation fails, so more memory may help.
        """
        self.n_setup_deaths += 1
        if self.n_setup_deaths >= MAX_SETUP_DEATHS:
            return SetupDeathAction.FAIL
        return SetupDeathAction.ALONE if self.n_setup_deaths + 1 == MAX_SETUP_DEATHS else SetupDeathAction.RETRY

    def setup_succeeded(self) -> None:
        self.n_setup_deaths = 0

    def unit_succeeded(self) -> None:
        self.misfits.clear()

    def add_misfit(self, misfit: Misfit, has_succeeded: bool) -> bool:
        """Record a document that did not fit; return True if so many did in a row that the stage is to blame.

        `has_succeeded`: some unit of the segment fitted before.
        """
        self.misfits.append(misfit)
        n = len(self.misfits)
        all_small = not any(m.is_large for m in self.misfits)
        return n >= MANY_MISFITS or (n >= FEW_MISFITS and all_small and not has_succeeded)

    def blame_stage(self) -> str:
        """Describe why the stage, not the documents, needs more memory than there is."""
        worst = max(self.misfits, key=lambda m: (m.requested_bytes, m.budget_bytes))
        stage = next((in_words(m.stage) for m in self.misfits if m.stage), "every partition")
        return (
            f"{stage} needs more memory than the budget leaves, whatever the documents: {len(self.misfits)} in a row "
            f"failed, each of them alone: {worst.advice()}"
        )


def _retry_used_up(unit: Unit, report: Failure) -> RetryDecision:
    """Try a unit again whose worker ran out of descriptors or threads, perhaps by earlier units."""
    prefix = f"{in_words(report.stage)}: " if report.stage else ""
    note = f"{prefix}the worker ran out of {_USED_UP[report.kind]}, trying again on a fresh one: {report.error}"
    return RetryDecision(RetryAction.RETRY, replace(unit, n_kills=unit.n_kills + 1), note)


def _decide_failure(unit: Unit, report: Failure, is_clean: bool) -> RetryDecision:
    """Decide after a failure other than memory: once more, then in halves; the last record goes to quarantine.

    It goes there after two failures, one of them at least in a clean worker.
    """
    unit = replace(unit, n_failures=unit.n_failures + 1, n_own_failures=unit.n_own_failures + 1)
    if unit.mode in _MOST_FAILURES:
        return RetryDecision(
            RetryAction.RETRY if unit.n_failures < _MOST_FAILURES[unit.mode] else RetryAction.FAIL, unit
        )
    prefix = f"{in_words(report.stage)} " if report.stage else ""
    if unit.n_failures == 1:
        return RetryDecision(
            RetryAction.RETRY, unit, f"{prefix}failed, trying once more on a fresh worker: {report.error}"
        )
    if can_split(unit):
        return RetryDecision(RetryAction.SPLIT, unit, n_failures=1)
    if (other := _cut_otherwise(unit)) is not None:
        return other
    if (
        report.kind is FailureKind.CRASH and not unit.alone
    ):  # libraries crash when an allocation fails: see whether more helps
        note = f"a worker crashed on one record, trying it alone with the whole budget: {report.error}"
        return RetryDecision(RetryAction.ALONE, replace(unit, alone=True), note)
    unit.has_failed_clean = unit.has_failed_clean or is_clean
    if unit.n_own_failures < 2 or not unit.has_failed_clean:
        return RetryDecision(RetryAction.RETRY, unit)
    if unit.segment == 0 and unit.pieces[0].kind in (PieceKind.START, PieceKind.FILES):
        return RetryDecision(
            RetryAction.FAIL, unit
        )  # no record of the input is to blame, so that nothing could be quarantined
    quarantined = replace(
        unit, mode=Mode.QUARANTINE, alone=False, reason=f"{report.kind}: {report.error}", stage=report.stage
    )
    return RetryDecision(
        RetryAction.QUARANTINE,
        quarantined,
        f"{prefix}failed twice on one record, which goes to quarantine: {report.error}",
    )


def _decide_memory(unit: Unit, report: Failure, had_all: bool) -> RetryDecision:
    prefix = f", in {in_words(report.stage)}" if report.stage else ""
    if report.in_setup:  # smaller partitions would not help
        if had_all:
            note = f"stage {report.stage!r} cannot be set up in the memory that the budget leaves"
            return RetryDecision(RetryAction.UNFIT, unit, note)
        note = "a stage could not be set up inside its cap, trying again with the whole budget"
        return RetryDecision(RetryAction.ALONE, replace(unit, alone=True), note)
    if _is_unread_group(unit):
        return RetryDecision(RetryAction.FEED, unit)
    if can_split(unit):
        return RetryDecision(RetryAction.SPLIT, replace(unit, alone=False), n_failures=unit.n_failures)
    if (other := _cut_otherwise(unit)) is not None:
        return other
    if not had_all:
        return RetryDecision(RetryAction.ALONE, replace(unit, alone=True))
    return RetryDecision(
        RetryAction.INFEASIBLE, unit, f"{_describe(unit)} does not fit the memory budget even alone{prefix}"
    )


def describe_failure(report: Failure, unit: Unit | None = None, label: bool = True) -> str:
    """Describe a failure in one line.

    Names the stage (unless `label` is false), the exception, the document (of `unit`), and the line of code that raised
    it.
    """
    stage, line = in_words(report.stage), report.at
    error = report.error or "a worker failed"
    where = f" on {_describe(unit)}" if unit is not None else ""
    if not stage:
        return error
    return (f"{stage}: " if label else "") + error + where + (f" [{line}]" if line else "")


def _describe(unit: Unit) -> str:
    """Describe the one record of a unit: its location, and its size where that is known."""
    piece = unit.pieces[0]
    if unit.segment > 0:  # which of the piece's records it was is not known any more
        return f"one document of {piece.input_path}"
    size = f", {unit.largest_record} bytes" if unit.largest_record and unit.n_records == 1 else ""
    return f"one record of {piece.input_path} (at {piece.start}{size})"


def _cut_otherwise(unit: Unit) -> RetryDecision | None:
    """Return how to cut a file that is not known to be one record and cannot be cut by position, or None."""
    piece = unit.pieces[0]
    if unit.segment > 0 or unit.n_records == 1:
        return None
    if piece.kind is PieceKind.STREAM:
        return RetryDecision(RetryAction.FEED, unit)
    if piece.kind is PieceKind.ROWS and piece.end == TO_END and not unit.describe:  # how many rows is not known
        return RetryDecision(RetryAction.DESCRIBE, replace(unit, describe=True, max_bytes=unit.max_bytes // 4))
    return None


def _is_unread_group(unit: Unit) -> bool:
    """Return True for rows of a file that failed before they were read.

    A part of them would have to decode as much, a feeder holds less.
    """
    piece = unit.pieces[0]
    return (
        len(unit.pieces) == 1
        and piece.kind is PieceKind.ROWS
        and piece.end != TO_END
        and unit.segment == 0
        and unit.n_records < 0
        and unit.mode is Mode.RUN
    )


def _decide_feed(unit: Unit, kind: FailureKind, error: str, had_all: bool) -> RetryDecision:
    path = unit.pieces[0].path if unit.pieces else "a file"
    if kind is FailureKind.MEMORY:
        rows = unit.max_rows or MAX_BATCH_ROWS
        if unit.pieces and unit.pieces[0].kind is PieceKind.ROWS and rows > 1:
            unit = replace(unit, max_rows=max(1, rows // 16))
        elif had_all:
            return RetryDecision(
                RetryAction.INFEASIBLE, unit, f"{path} cannot be decoded in the memory that the budget leaves"
            )
        return RetryDecision(RetryAction.RETRY, unit, f"the feeder of {path} did not fit and gets more memory: {error}")
    unit = replace(unit, n_failures=unit.n_failures + 1)
    if unit.n_failures > MAX_FEED_FAILURES:
        return RetryDecision(RetryAction.UNREADABLE, unit, f"{path} cannot be decoded: {error}")
    if unit.n_failures > 1:  # libraries crash when an allocation fails: see whether more memory helps
        unit = replace(unit, need_bytes=EVERYTHING)
    return RetryDecision(RetryAction.RETRY, unit, f"the feeder of {path} failed and starts again: {error}")


def judge_death(
    kill_reason: KillReason | None,
    how: str,
    signal: int,
    used_bytes: int,
    cap_bytes: int,
    was_alone: bool = False,
    stage: str = "",
    retained_bytes: int = 0,
) -> Failure:
    """Return what the end of a worker says about its unit.

    `was_alone`: no other worker was busy when it was killed. `retained_bytes`: of `used_bytes`, what the worker held
    before the unit.
    """

    def failure(kind: FailureKind, error: str) -> Failure:
        return Failure(kind, error, stage)

    if kill_reason is KillReason.TIMEOUT:
        return failure(FailureKind.TIMEOUT, "took longer than the timeout")
    if kill_reason is KillReason.OVER_CAP:
        return failure(FailureKind.MEMORY, "went over its memory cap")
    if kill_reason is KillReason.PRESSURE and was_alone and used_bytes > cap_bytes * 8 // 10:
        return failure(FailureKind.MEMORY, "took more memory than the budget leaves")
    if kill_reason is KillReason.REPLACED:
        return failure(FailureKind.REPLACED, "made room for other work")
    if kill_reason is not None or signal == _SIGKILL:
        return failure(FailureKind.KILLED, str(kill_reason or "killed from outside"))
    # A failed allocation ends a process by a signal, if at all: one that exits by itself has another reason.
    if signal and cap_bytes and cap_bytes - used_bytes < (cap_bytes - retained_bytes) * 2 // 10:
        return failure(FailureKind.MEMORY, f"the worker died ({how}) close to its memory cap")
    return failure(FailureKind.CRASH, f"the worker process died: {how}")
