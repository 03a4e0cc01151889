"""The summary of a finished run: a table for the terminal, one object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tamis.cli.terminal.show import clip, count, print_lines, print_table
from tamis.engine.ledger import UNTRACED
from tamis.forecast.prediction import Prediction
from tamis.formats.input_files.skipped import SkippedEntry, skipped_lines
from tamis.hints import command, quoted
from tamis.sizes import format_size, format_speed

if TYPE_CHECKING:
    from tamis.cli.jobs.results import RunSummary, StageSummary
    from tamis.engine.ledger import Ledger
    from tamis.engine.run.run_result import RunResult
    from tamis.engine.run_record import RunCost
    from tamis.observe.drops import DropSummary

_EXAMPLE_CHARS = 40


def as_dict(result: RunResult) -> RunSummary:
    """Return the counts of a run as plain JSON values."""
    ledger, record = result.ledger, result.record
    rate = round(ledger.read_bytes / 1e6 / result.seconds, 1) if result.seconds else 0.0
    cost: RunCost = {
        "seconds": round(result.seconds, 3),
        "peak_bytes": result.peak_bytes,
        "read_bytes": ledger.read_bytes,
        "mb_per_s": rate,
        "n_sessions": 1,
    }
    cost = cost if record is None else record.cost()
    return {
        "status": result.status,
        "exit_code": result.exit_code,
        "message": result.message,
        "output": result.output,
        "run_dir": result.run_dir,
        "report": result.report,
        "share": result.share,
        "n_files": result.n_files,
        "n_records": ledger.n_read,
        "n_written": ledger.written.n,
        "n_dropped": ledger.n_dropped,
        "n_quarantined": ledger.quarantined.n,
        "n_unread": ledger.unread.n,
        "n_unwritten": ledger.unwritten.n,
        "n_bad_ranges": ledger.n_bad_ranges,
        "lost_bytes": ledger.lost_bytes,
        "n_not_sampled": ledger.not_sampled.n,
        "n_blank_lines": ledger.n_blank_lines,
        "skipped_records": dict(sorted(ledger.skipped.items())),
        "read_bytes": cost["read_bytes"],
        "written_bytes": ledger.written_bytes,
        "content_hash": f"{ledger.content.identity:032x}",
        "stages": [
            {
                "name": b.name,
                "n_in": b.n_in,
                "n_out": b.n_out,
                "dropped": b.losses,
                "n_quarantined": b.quarantined.n,
                "n_consumed": b.consumed.n,
                "n_derived": b.derived.n,
                "seconds": round(b.seconds, 3),
                "metrics": dict(b.metrics),
            }
            for b in ledger.stages
        ],
        "budget_bytes": result.budget_bytes,
        "seconds": cost["seconds"],
        "peak_bytes": cost["peak_bytes"],
        "mb_per_s": cost["mb_per_s"],
        "n_sessions": cost["n_sessions"],
        "caller_bytes": result.caller_bytes,
        "seconds_now": round(result.seconds, 3),
        "read_bytes_now": result.read_bytes,
        "counters": result.counters,
        "prediction": result.prediction,
        "skipped_files": [entry.report() for entry in result.skipped_files],
    }


def print_summary(about: RunSummary, more: Sequence[str] = ()) -> None:
    """Print the documents by stage, what was dropped by rule, `more`, and at the end where the results are."""
    lost = [
        (n, what)
        for n, what in ((about["n_unread"], "quarantined"), (about["n_not_sampled"], "not in this sample"))
        if n
    ]
    n_read = about["n_records"] - sum(n for n, _ in lost)
    rows = _rows("read", about["n_records"], n_read, lost)
    for stage in about["stages"]:
        n_dropped = sum(stage["dropped"].values())
        losses = [(n_dropped, "")] if n_dropped else []
        losses += [(stage["n_quarantined"], "quarantined: it failed on them")] if stage["n_quarantined"] else []
        losses += [(stage["n_consumed"], "replaced by new documents")] if stage["n_consumed"] else []
        rows += _rows(stage["name"], stage["n_in"], stage["n_out"], losses)
    if about["n_unwritten"]:
        rows.append(("writing", "", "", f"{about['n_unwritten']:,}", "quarantined: it failed on them"))
    rows.append(("written", f"{about['n_written']:,}", "", "", ""))
    if about["status"] == "sampled":
        print_lines([f"A SAMPLE of {about['share']:.0%}, not all documents: see the end for why"])
    columns = ["stage", "in", "out", "dropped"]
    if any(row[-1] for row in rows):
        columns.append("why")
    print_table("Documents", columns, [row[: len(columns)] for row in rows], right=(1, 2, 3))
    print_drops(about["drops"], about["output"])
    print_lines([*more, *_lines(about)])


def cost_line(about: RunCost, budget_bytes: int = 0) -> str:
    """Return the time, speed and memory of a whole run, all of its passes and sessions."""
    n = about["n_sessions"]
    sessions = f", {n} sessions" if n > 1 else ""
    share = f" of {format_size(budget_bytes)} ({about['peak_bytes'] / budget_bytes:.0%})" if budget_bytes else ""
    return (
        f"{format_size(about['read_bytes'])} in {about['seconds']:.1f} s ({format_speed(about['mb_per_s'])}), "
        f"peak memory {format_size(about['peak_bytes'])}{share}{sessions}"
    )


def _rows(name: str, n_in: int, n_out: int, dropped: list[tuple[int, str]]) -> list[tuple[str, ...]]:
    """Return one row for a stage, and another for each further reason."""
    n_dropped, why = dropped[0] if dropped else (0, "")
    rows: list[tuple[str, ...]] = [(name, f"{n_in:,}", f"{n_out:,}", f"{n_dropped:,}", why)]
    return rows + [("", "", "", f"{n:,}", why) for n, why in dropped[1:]]


def predicted_lines(prediction: Prediction) -> list[str]:
    """Return the predicted figures next to the measured ones, if earlier runs allowed a prediction.

    >>> span = {"low": 1e8, "expected": 2e8, "high": 3e8, "measured": 4e8, "inside": False}
    >>> predicted_lines({"n_runs": 2, "peak_bytes": span})
    ['predicted from 2 earlier runs: peak 100 MB to 300 MB (measured 400 MB, outside)']
    """
    n, parts = prediction.get("n_runs", 0), []
    for name, label in (("peak_bytes", "peak"), ("scratch_bytes", "scratch"), ("seconds", "time")):
        span = prediction.get(name)
        if not isinstance(span, dict) or "measured" not in span or not (span["high"] or span["measured"]):
            continue
        low, high, got = (
            f"{span[k]:.1f} s" if name == "seconds" else format_size(span[k]) for k in ("low", "high", "measured")
        )
        parts.append(f"{label} {low} to {high} (measured {got}{'' if span['inside'] else ', outside'})")
    runs = f"{n} earlier run{'s' if n != 1 else ''}"
    return [f"predicted from {runs}: {', '.join(parts)}"] if n and parts else []


def _note_lines(stages: Sequence[StageSummary]) -> list[str]:
    """Return the notes that stages counted: what they did otherwise than one would expect."""
    from tamis.tasks.lineage import NOTE_METRIC

    return [
        f"{stage['name']}: {key.removeprefix(NOTE_METRIC)}: {int(n):,}"
        for stage in stages
        for key, n in sorted(stage["metrics"].items())
        if key.startswith(NOTE_METRIC)
    ]


def _untraced_lines(stages: Sequence[StageSummary]) -> list[str]:
    """Return a line for each stage that returned documents without a record of the input."""
    lines = []
    for stage in stages:
        if n := int(stage["metrics"].get(UNTRACED, 0)):
            have, them = ("has", "it") if n == 1 else ("have", "them")
            lines.append(
                f"stage {stage['name']}: {count(n, 'document')} that it returned {have} no record of the input behind "
                f"{them} (new, or not to be traced): written as the stage returned {them}"
            )
    return lines


def _tokens(stages: Sequence[StageSummary]) -> int:
    """Return the tokens that were written, as the last pass of a curation counts them, or those that stages made."""
    written = next((stage["metrics"]["tokens written"] for stage in stages if "tokens written" in stage["metrics"]), 0)
    return int(written or sum(stage["metrics"].get("tokens", 0) for stage in stages))


def _lines(about: RunSummary) -> list[str]:
    lines = skipped_lines(SkippedEntry(**entry) for entry in about.get("skipped_files") or ())
    if about["n_blank_lines"]:
        lines.append(f"{count(about['n_blank_lines'], 'blank line')} skipped")
    if skipped := about.get("skipped_records"):
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(skipped.items(), key=lambda s: (-s[1], s[0])))
        lines.append(f"{count(sum(skipped.values()), 'record')} of the input that are no documents skipped: {reasons}")
    lines += _untraced_lines(about["stages"])
    lines += _note_lines(about["stages"])
    if n_tokens := _tokens(about["stages"]):
        lines.append(f"{count(n_tokens, 'token')} in {count(about['n_written'], 'document')}")
    if about["n_bad_ranges"]:
        stretches = count(about["n_bad_ranges"], "stretch").replace("stretchs", "stretches")
        lost = f", {format_size(about['lost_bytes'])} as stored" if about.get("lost_bytes") else ""
        lines.append(f"{stretches} of input could not be read at all (damaged, cut off, changed or unreadable){lost}")
    if about["n_quarantined"] or about["n_bad_ranges"]:
        lines.append(f"quarantine: {command('quarantine', about['output'])}")
    if about["budget_bytes"]:
        lines.append(cost_line(about, about["budget_bytes"]))
    lines += predicted_lines(about["prediction"])
    lines.append(
        f"output: {about['output']} ({count(about['n_files'], 'file')}, {format_size(about['written_bytes'])})"
    )
    if about["report"]:
        lines.append(f"report: {about['report']}")
    return lines


# -- what was dropped --------------------------------------------------------------------------------------------------
def print_drops(drops: Sequence[DropSummary], output: str) -> None:
    """Print one row per rule, with names of documents to pass to `tamis why`.

    Print nothing if nothing was dropped.
    """
    if not drops:
        return
    stages = {d["stage"] for d in drops}
    rows = []
    for d in drops:
        # With one stage its name, often that of a whole chain, would only repeat what the table above says.
        rule = d["reason"] if len(stages) == 1 or d["reason"] == d["stage"] else f"{d['stage']}: {d['reason']}"
        examples = ", ".join(quoted(clip(name, _EXAMPLE_CHARS)) for name in d["examples"])
        size = format_size(d["bytes"]) if d["bytes"] else "-"  # documents that a stage made have no record
        rows.append((clip(rule, 60), f"{d['documents']:,}", size, examples))
    print_table("Dropped", ["rule", "documents", "bytes", "for example"], rows, right=(1, 2))
    example = next((name for d in drops for name in d["examples"]), None)
    if example is not None:
        print_lines([f"why one of them went: {command('why', output, example)}"])


def drops_of_run(ledger: Ledger, run_dir: str) -> list[DropSummary]:
    """Return documents, bytes and examples by stage and rule, as plain values."""
    from pathlib import Path

    from tamis.errors import UsageError
    from tamis.observe.drops import drops_of
    from tamis.observe.verdicts import input_paths

    def paths() -> list[str]:
        try:
            return input_paths(Path(run_dir))
        except UsageError:  # the run itself is fine: examples go without their files
            return []

    return [d.to_dict() for d in drops_of(ledger, paths)]
