"""`tamis demo`: real text of this machine with planted faults, a run under a small budget, and what it found."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tamis import _satellites
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import CommandExit, Option, echo
from tamis.engine.run.settings import SettingValue
from tamis.errors import RunConflict
from tamis.hints import command

if TYPE_CHECKING:
    from tamis.cli.jobs.results import CurationSummary
    from tamis.demo.corpus import Planted

_PRESET = "web-english"


def demo(
    size: Annotated[str, Option(help="How much text to gather, measured uncompressed, e.g. 300MB.")] = "20MB",
    memory: Annotated[str, Option(help="Memory budget of the run.")] = "512MB",
    output: Annotated[Path, Option(help="Folder for the corpus and the result.")] = Path("demo-output"),
    as_json: options.AsJson = False,
) -> None:
    """Curate text of this machine with planted faults and duplicates, and compare what was found with what was planted.

    The steps are those of the preset web-english. No network is used. The folder may be deleted afterwards. Exit code 1
    if anything differs.

    Example: tamis demo --size 300MB --memory 400MB
    """
    from tamis.cli.jobs.curate import execute
    from tamis.cli.jobs.jobs import RecipeJob
    from tamis.cli.jobs.request import Request
    from tamis.cli.terminal.show import print_json

    began = time.monotonic()
    planted = _corpus(output, size, as_json)
    made_s = time.monotonic() - began
    ends = {"input": str(output / "corpus"), "output": str(output / "result")}
    settings: dict[str, SettingValue] = {
        "memory": memory,
        "fresh": True,
        "quarantine_limit": "20%",
    }  # a small demo is full of faults
    about = execute(Request(RecipeJob(_PRESET, values=ends), settings, options.LaunchOptions(as_json=as_json)))
    copies = _verdicts(output / "result", planted.duplicates)
    rows = compare(planted, about, copies)
    about["checks"] = [{"what": what, "planted": a, "found": b} for what, a, b in rows]
    same = all(a == b for _, a, b in rows) and about["exit_code"] == 0 and about["peak_bytes"] <= about["budget_bytes"]
    if as_json:
        print_json({**about, "demo": "passed" if same else "failed"})
    else:
        _print(planted, about, rows, same, made_s, copies)
    raise CommandExit(0 if same else 1)


def _verdicts(output: Path, documents: Sequence[str]) -> Counter[str]:
    """Count how many of these documents each step dropped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from tamis.observe.verdicts import run_folder, verdict_tables

    column, labels = pa.array(documents, pa.large_string()), Counter[str]()
    for table in verdict_tables(run_folder(str(output)), ["id", "stage"]):
        labels.update(table.filter(pc.is_in(table["id"], value_set=column))["stage"].to_pylist())
    return labels


def compare(planted: Planted, about: CurationSummary, duplicates: Counter[str]) -> list[tuple[str, int, int]]:
    """Return (what, number planted, number found) for everything whose number is known.

    `duplicates`: of the planted ones, those that each step dropped; a copy of a text that the rules drop goes by the
    same rule.
    """
    dropped = {rule: n for stage in about["stages"] for rule, n in stage["dropped"].items() if stage["name"] == "text"}
    n_accounted = about["n_written"] + about["n_dropped"] + about["n_quarantined"]
    return [
        ("records in all", planted.n_documents + planted.n_bad_lines, about["n_records"]),
        ("broken, not UTF-8 or not an object: quarantined", planted.n_bad_lines, about["n_quarantined"]),
        ("damaged gzip file: the rest quarantined", planted.n_damaged_files, about["n_bad_ranges"]),
        ("blank lines: skipped", planted.totals["blank_line"], about["n_blank_lines"]),
        ("text missing: dropped", planted.totals["missing_text"], dropped.get("text_missing", 0)),
        ("text null: dropped", planted.totals["null_text"], dropped.get("text_null", 0)),
        ("text not a string: dropped", planted.totals["non_string_text"], dropped.get("text_not_a_string", 0)),
        ("junk: dropped", planted.totals["junk"], dropped.get("text_without_letters", 0)),
        ("duplicates: removed", planted.totals["duplicate"], duplicates.total()),
        ("written, dropped, duplicate or quarantined", planted.n_documents + planted.n_bad_lines, n_accounted),
    ]


def explain_drops(about: CurationSummary) -> str:
    """Say in one sentence how much of the demo's text is dropped, by which rules, and why."""
    n_records = max(about["n_records"], 1)
    rules = sorted(about["drops"], key=lambda drop: drop["documents"], reverse=True)[:3]
    shares = ", ".join(f"{rule['reason']} {100 * rule['documents'] / n_records:.0f} %" for rule in rules)
    return (
        f"dropped: {100 * about['n_dropped'] / n_records:.0f} % ({shares}), because {_PRESET} keeps prose of web pages "
        "and this machine's text is source code and documentation, whose lines seldom end like sentences and often "
        "repeat"
    )


def _corpus(output: Path, size: str, quiet: bool) -> Planted:
    """Return the corpus in `output`, creating it unless it already exists in this size."""
    from tamis.sizes import format_size, parse_size

    corpus, target_bytes = _satellites.load("demo.corpus"), parse_size(size, "--size")
    planted: Planted | None = corpus.load(output)
    if planted is not None and corpus.corpus_dir(output).exists():
        if planted.target_bytes != target_bytes:
            raise RunConflict(
                f"{output} holds a demo of {format_size(planted.target_bytes)}; remove the folder, or give another "
                "--output"
            )
        return planted
    if output.exists() and any(output.iterdir()):
        raise RunConflict(f"{output} is not empty and holds no demo; give another --output")
    if not quiet:
        echo(f"gathering {format_size(target_bytes)} of text from this machine ...", err=True)
    planted = _gather_apart(output, target_bytes)
    return planted if planted is not None else corpus.gather(output, target_bytes)


def _gather_apart(output: Path, target_bytes: int) -> Planted | None:
    """Gather in a separate process: this one is part of the budget, and must not keep what that imports (pyarrow)."""
    import subprocess
    import sys

    module = _satellites.module_of("demo.corpus")
    code = f"import sys; from {module} import gather; gather(sys.argv[1], int(sys.argv[2]))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(output), str(target_bytes)], env=env, stderr=subprocess.PIPE, check=False
    )
    planted: Planted | None = _satellites.load("demo.corpus").load(output) if done.returncode == 0 else None
    return planted


def _print(
    planted: Planted,
    about: CurationSummary,
    rows: list[tuple[str, int, int]],
    same: bool,
    made_s: float,
    copies: Counter[str],
) -> None:
    from tamis.cli.terminal.show import count, print_lines, print_table
    from tamis.sizes import format_size, format_speed

    head = f"{format_size(planted.n_bytes)} of text in {len(planted.files)} files (JSONL, gzip, zstd, Parquet)"
    print_lines([f"{head}, made in {made_s:.0f} s", *([planted.remark()] if planted.remark() else []), ""])
    table = [(what, f"{a:,}", f"{b:,}", "yes" if a == b else "NO") for what, a, b in rows]
    print_table("Planted and found", ["what", "planted", "found", "same"], table, right=(1, 2))
    by_text = sum(n for stage, n in copies.items() if stage.startswith("remove_"))
    result, report = (os.path.relpath(path) if path else "none" for path in (about["output"], about["report"]))
    percent = 100 * about["peak_bytes"] / about["budget_bytes"]
    print_lines(
        [
            f"curated in {about['seconds']:.1f} s ({format_speed(about['mb_per_s'])}), peak memory "
            f"{format_size(about['peak_bytes'])} "
            f"of {format_size(about['budget_bytes'])} ({percent:.0f} %)",
            f"duplicates: {by_text:,} removed as copies, {copies.total() - by_text:,} dropped by the rule that drops "
            "the original",
            explain_drops(about),
            f"output: {result} ({count(about['n_files'], 'file')})",
            f"quarantine: {command('quarantine', result)}",
            f"why a document went: {command('why', result, planted.duplicates[0])}" if planted.duplicates else "",
            "",
            *([f"the run: {about['message']}"] if about["message"] else []),
            "everything that was planted was found" if same else "SOMETHING DIFFERS: see above",
            f"report: {report}",
        ]
    )
