"""What to do with a unit that failed. Pure: every answer changes something, so nothing is retried for ever.

memory failure   split in two (the next attempt may have a larger cap: grants.py); one record: alone with the whole budget; still too
                 much: infeasible, the run ends incomplete
in setup()       alone with the whole budget, then the run ends; any other error there ends the run: no document is to blame
changed input    the run ends: records are not those that an earlier pass of the same workflow read
on a full GPU    in setup(): with the workers that fitted, and no more of them (after_failure.py); without any the run ends
descriptors,     the worker had used them up before: again, unchanged, on a fresh one (five times); else descriptors as a stage error,
threads          threads as a memory failure: their stacks count against the cap
user's source    once more, then the run ends: what it reads or makes is not ours to set aside
stage error,     once more on a fresh worker; then split until one record is left; that record goes to quarantine
crash, timeout
killed for       again, unchanged: it was not its fault (five times, then as a crash)
others' sake
a feeder         for want of memory again with more, up to everything there is (a Parquet reader also in smaller batches), then the file
                 is refused; after other failures with everything, a few times; the rest of the run goes on
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tamis.engine.activity import in_words
from tamis.engine.messages import Failure
from tamis.engine.supervisor.cutting import can_split
from tamis.engine.supervisor.units import TO_END, Kind, Mode, Unit

MAX_INNOCENT_KILLS = 5
_USED_UP = {"descriptors": "file descriptors (EMFILE)", "threads": "threads"}
MAX_FEED_FAILURES = 4  # in a row, with nothing handed out in between
MAX_BATCH_ROWS = 1 << 17  # that a reader of Parquet files asks for at once, while it fits
EVERYTHING = 1 << 62  # what a feeder gets then is the whole pool
_MOST_FAILURES = {Mode.RECAST: 3, Mode.QUARANTINE: 5}  # of units that run no stage: then the run ends


@dataclass(frozen=True)
class Verdict:
    """What to do. `unit` is the failed one with what has been tried noted on it: this is what is tried next, or cut, or given up."""

    what: str  # retry, split, alone, quarantine, feed, describe, infeasible (this record or file), unfit (this stage), unreadable, fail
    unit: Unit
    note: str = ""
    n_failures: int = 0


def decide(unit: Unit, report: Failure, had_all: bool = False, was_fresh: bool = True) -> Verdict:
    """Decide what to do with a unit after this failure.

    `had_all`: its cap was the whole pool, so that no larger one can be tried. `was_fresh`: it was the first
    unit of its worker, which had not used up anything before.

    The arguments are not modified: what is to be remembered of the failure is on the verdict's unit.
    """
    kind, error = report.kind, report.error
    if kind == "replaced":  # a feeder that had to wait: what it handed out stands, so this cannot go on for ever
        return Verdict("retry", replace(unit, is_patient=True))
    if kind == "killed":
        unit = replace(unit, n_kills=unit.n_kills + 1)
        if unit.n_kills <= MAX_INNOCENT_KILLS:
            return Verdict("retry", unit)
        kind = "crash"
    if kind in _USED_UP:
        if not was_fresh and unit.n_kills < MAX_INNOCENT_KILLS:
            where = f"{in_words(report.stage)}: " if report.stage else ""
            note = f"{where}the worker ran out of {_USED_UP[kind]}, trying again on a fresh one: {error}"
            return Verdict("retry", replace(unit, n_kills=unit.n_kills + 1), note)
        kind = "memory" if kind == "threads" else kind
    unit = replace(unit, last_error=error)
    if kind == "input":
        return Verdict("fail", unit)
    if unit.mode is Mode.FEED:
        return _decide_feed(unit, kind, error, had_all)
    if kind == "setup" and unit.mode is not Mode.RECAST:
        return Verdict("fail", unit)
    if kind == "memory" and unit.mode is not Mode.RECAST:
        return _decide_memory(unit, report, had_all or unit.alone)
    return _decide_failure(unit, replace(report, kind=kind))


def _decide_failure(unit: Unit, report: Failure) -> Verdict:
    """After anything but a want of memory: once more, then in halves, then the one record that is left goes to quarantine."""
    unit = replace(unit, n_failures=unit.n_failures + 1, n_own_failures=unit.n_own_failures + 1)
    if unit.mode in _MOST_FAILURES:
        return Verdict("retry" if unit.n_failures < _MOST_FAILURES[unit.mode] else "fail", unit)
    where = f"{in_words(report.stage)} " if report.stage else ""
    if unit.n_failures == 1:
        return Verdict("retry", unit, f"{where}failed, trying once more on a fresh worker: {report.error}")
    if can_split(unit):
        return Verdict("split", unit, n_failures=1)
    if (other := _cut_otherwise(unit)) is not None:
        return other
    if report.kind == "crash" and not unit.alone:  # libraries crash when an allocation fails: see whether more helps
        note = f"a worker crashed on one record, trying it alone with the whole budget: {report.error}"
        return Verdict("alone", replace(unit, alone=True), note)
    if unit.n_own_failures < 2:
        return Verdict("retry", unit)
    if unit.segment == 0 and unit.pieces[0].kind in (Kind.START, Kind.FILES):
        return Verdict("fail", unit)  # no record of ours is to blame, so that nothing could be set aside
    aside = replace(
        unit, mode=Mode.QUARANTINE, alone=False, reason=f"{report.kind}: {report.error}", stage=report.stage
    )
    return Verdict("quarantine", aside, f"{where}failed twice on one record, which goes to quarantine: {report.error}")


def _decide_memory(unit: Unit, report: Failure, had_all: bool) -> Verdict:
    where = f", in {in_words(report.stage)}" if report.stage else ""
    if report.in_setup:  # smaller partitions would not help
        if had_all:
            note = f"stage {report.stage!r} cannot be set up in the memory that the budget leaves"
            return Verdict("unfit", unit, note)
        note = "a stage could not be set up inside its cap, trying again with the whole budget"
        return Verdict("alone", replace(unit, alone=True), note)
    if _is_unread_group(unit):
        return Verdict("feed", unit)
    if can_split(unit):
        return Verdict("split", replace(unit, alone=False), n_failures=unit.n_failures)
    if (other := _cut_otherwise(unit)) is not None:
        return other
    if not had_all:
        return Verdict("alone", replace(unit, alone=True))
    return Verdict("infeasible", unit, f"{_describe(unit)} does not fit the memory budget even alone{where}")


def told(report: Failure, unit: Unit | None = None) -> str:
    """Describe a failure in one line.

    Names the stage, the exception, the document (of `unit`), and the line of code that raised it.
    """
    stage, at = in_words(report.stage), report.at
    error = report.error or "a worker failed"
    where = f" on {_describe(unit)}" if unit is not None else ""
    return f"{stage}: {error}{where}" + (f" [{at}]" if at else "") if stage else error


def _describe(unit: Unit) -> str:
    """Describe the one record of a unit: its location, and its size where that is known."""
    piece = unit.pieces[0]
    if unit.segment > 0:  # which of the piece's records it was is not known any more
        return f"one document of {piece.input_path}"
    size = f", {unit.largest_record} bytes" if unit.largest_record and unit.n_records == 1 else ""
    return f"one record of {piece.input_path} (at {piece.start}{size})"


def _cut_otherwise(unit: Unit) -> Verdict | None:
    """Return how to cut a file that is not known to be one record and cannot be cut by position, or None."""
    piece = unit.pieces[0]
    if unit.segment > 0 or unit.n_records == 1:
        return None
    if piece.kind is Kind.STREAM:
        return Verdict("feed", unit)
    if piece.kind is Kind.ROWS and piece.end == TO_END and not unit.describe:  # how many rows is not known
        return Verdict("describe", replace(unit, describe=True, block_bytes=unit.block_bytes // 4))
    return None


def _is_unread_group(unit: Unit) -> bool:
    """Rows of a Parquet file that failed before they were read. A part of them would have to decode as much, a feeder holds less."""
    piece = unit.pieces[0]
    return (
        len(unit.pieces) == 1
        and piece.kind is Kind.ROWS
        and piece.end != TO_END
        and unit.segment == 0
        and unit.n_records < 0
        and unit.mode is Mode.RUN
    )


def _decide_feed(unit: Unit, kind: str, error: str, had_all: bool) -> Verdict:
    path = unit.pieces[0].path if unit.pieces else "a file"
    if kind == "memory":
        rows = unit.max_rows or MAX_BATCH_ROWS
        if unit.pieces and unit.pieces[0].kind is Kind.ROWS and rows > 1:
            unit = replace(unit, max_rows=max(1, rows // 16))
        elif had_all:
            return Verdict("infeasible", unit, f"{path} cannot be decoded in the memory that the budget leaves")
        return Verdict("retry", unit, f"the feeder of {path} did not fit and gets more memory: {error}")
    unit = replace(unit, n_failures=unit.n_failures + 1)
    if unit.n_failures > MAX_FEED_FAILURES:
        return Verdict("unreadable", unit, f"{path} cannot be decoded: {error}")
    if unit.n_failures > 1:  # libraries crash when an allocation fails: see whether more memory helps
        unit = replace(unit, need_bytes=EVERYTHING)
    return Verdict("retry", unit, f"the feeder of {path} failed and starts again: {error}")
