"""`tamis plan`: what a run would take, from a probe of a few MB. Nothing is written to the output.

The probe copies the beginning of some input files to a temporary folder and runs the recipe's stages on them with real workers
under the real budget; what it took is scaled to the whole input.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tamis.cli import options
from tamis.cli.request import Request, output_of, redirect
from tamis.errors import BudgetError, TamisError, UsageError

if TYPE_CHECKING:
    from tamis.formats.listing import FileList
    from tamis.pipeline import Pipeline

_PROBED_FILES = 6
_PROBE_MEMORY = "1GB"  # where the budget itself is too small to try anything
_START_S = 1.0


@dataclass
class Plan:
    """Sizes in bytes. Everything but the files is an estimate."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    output: str
    budget_bytes: int
    smallest_budget_bytes: int
    fits: bool
    n_workers: int
    block_bytes: int
    n_partitions: int
    peak_bytes: int
    output_bytes: int
    free_bytes: int
    seconds: float
    kept_share: float
    probe_bytes: int
    probe_documents: int


@dataclass
class Probe:
    smallest_bytes: int
    n_workers: int
    peak_bytes: int
    units: list[tuple[int, int, int, float]]  # decoded bytes, largest record, peak, seconds
    read_bytes: int
    written_bytes: int
    n_records: int
    n_written: int
    fits: bool


def plan(
    recipe: options.RecipePath,
    memory: options.Memory = None,
    workers: options.Workers = None,
    blocksize: options.Blocksize = None,
    max_record: options.MaxRecord = None,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    probe_mb: Annotated[float, typer.Option(min=0.1, max=1000, help="Decoded MB to try the recipe on.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Tell what a run would take: partitions, smallest budget, peak memory, disk, time. Writes nothing to the output.

    Exit code 4 if the budget is too small.

    Example: tamis plan recipe.yaml --memory 2GB
    """
    from tamis.cli.show import print_json

    settings = options.given(memory=memory, workers=workers, blocksize=blocksize, max_record=max_record)
    request = Request(recipe, options.parse_sets(set_), tuple(allow_module or ()), settings)
    if (workflow := request.workflow()) is not None:
        from tamis.cli import dedup

        dedup.show_plan(workflow[0], workflow[1].get("memory"), as_json)
        return
    found = make_plan(request, int(probe_mb * 1e6))
    if as_json:
        print_json(asdict(found))
    else:
        _print(found)
    if not found.fits:
        raise typer.Exit(BudgetError.exit_code)


def make_plan(request: Request, probe_bytes: int) -> Plan:
    from tamis.formats.listing import list_files
    from tamis.memory.budget import find_budget
    from tamis.stages.file_partitioning import FilePartitioningStage

    pipeline, settings = request.build()
    source = pipeline.build()[0]
    if not isinstance(source, FilePartitioningStage):
        raise UsageError(
            f"plan works for recipes that begin with a reader of files, and this one begins with {source.name}"
        )
    output = output_of(pipeline, settings)
    files = list_files(source.file_paths, source.suffixes(), source.limit)
    budget = find_budget(settings.get("memory"), os.environ)
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder:
        heads = _copy_heads(files, folder, probe_bytes)
        usable = [h["head"] for h in heads if h.get("head")]
        if not usable:
            why = next((h["error"] for h in heads if "error" in h), "no record ends in the first MB of the files")
            raise TamisError(f"nothing to try the recipe on: {why}")
        probe = _probe(pipeline, settings, usable, folder, budget.bytes)
    asked = settings.get("blocksize") or source.blocksize
    return _scale(files, heads, probe, budget.bytes, output, asked)


def _copy_heads(files: FileList, folder: str, n_bytes: int) -> list[dict[str, Any]]:
    """Heads of a few files of every kind, spread evenly over the list."""
    by_kind: dict[str, list[str]] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind.setdefault(_kind(path), []).append(path)
    per_kind = max(1, _PROBED_FILES // max(len(by_kind), 1))
    chosen = [path for paths in by_kind.values() for path in _spread(paths, per_kind)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    asked = json.dumps({"paths": chosen, "folder": folder, "n_bytes": n_bytes})
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli.heads"], input=asked, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TamisError(f"the input files cannot be looked into: {done.stderr.strip().splitlines()[-1:]}")
    heads: list[dict[str, Any]] = json.loads(done.stdout)
    return heads


def _spread(paths: Sequence[str], n: int) -> list[str]:
    """
    >>> _spread(["a", "b", "c", "d", "e"], 2)
    ['a', 'c']
    """
    if len(paths) <= n:
        return list(paths)
    return [paths[i * len(paths) // n] for i in range(n)]


def _kind(path: str) -> str:
    name = os.path.basename(path)
    return ".".join(name.split(".")[-2:]) if name.endswith((".gz", ".zst", ".bz2", ".xz")) else name.rpartition(".")[2]


def _probe(pipeline: Pipeline, settings: dict[str, Any], heads: list[str], folder: str, budget_bytes: int) -> Probe:
    """Run the stages on the heads, under the budget if that is possible at all."""
    from tamis.backends.local import LocalExecutor
    from tamis.engine.budgeting import NAMED_MARGIN

    chosen = {
        k: v for k, v in settings.items() if k in ("memory", "workers", "blocksize", "max_record", "timeout", "mode")
    }
    chosen |= {"quarantine_limit": "100%", "count_caller": True}
    output = os.path.join(folder, "out")
    if not pipeline.build()[-1].is_sink_stage:
        chosen["run_dir"] = output
    fits = True
    small = redirect(pipeline, heads, output)
    try:
        result = small.execute(LocalExecutor(), **chosen)
    except BudgetError:
        fits = False
        result = small.execute(LocalExecutor(), **{**chosen, "memory": _PROBE_MEMORY, "fresh": True})
    with open(os.path.join(result.run_dir, "settings.json"), "rb") as file:
        notes = {e["name"]: e["value"] for e in json.load(file)["settings"]}
    with closing(sqlite3.connect(os.path.join(result.run_dir, "run.sqlite"))) as db:
        units = db.execute(
            "SELECT decoded_bytes, largest_record, peak_bytes, seconds FROM units WHERE decoded_bytes > 0 ORDER BY at"
        ).fetchall()
    ledger = result.ledger
    smallest = int(notes["smallest budget"])
    return Probe(
        smallest, int(notes["workers"]), result.peak_bytes, [(int(a), int(b), int(c or 0), float(d)) for a, b, c, d in units],
        ledger.read_bytes, ledger.written_bytes, ledger.records.n, ledger.written.n, fits and budget_bytes >= smallest / NAMED_MARGIN,
    )  # fmt: skip


def _scale(
    files: FileList, heads: list[dict[str, Any]], probe: Probe, budget_bytes: int, output: str, asked: Any
) -> Plan:
    from tamis.engine.budgeting import NAMED_MARGIN, USABLE
    from tamis.engine.run import DEFAULT_BLOCK_BYTES
    from tamis.engine.state import MIN_CAP_BYTES
    from tamis.memory.predictor import Predictor
    from tamis.sizes import parse_size

    ratios: dict[str, list[float]] = {}
    for head in heads:
        if "ratio" in head:
            ratios.setdefault(_kind(head["path"]), []).append(head["ratio"])
    decoded = 0.0
    kinds: dict[str, int] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        kind = _kind(path)
        kinds[kind] = kinds.get(kind, 0) + 1
        known = ratios.get(kind, [1.0])
        decoded += max(size, 0) * sum(known) / len(known)
    most = parse_size(asked) if asked else DEFAULT_BLOCK_BYTES
    predictor = Predictor(most)
    for decoded_bytes, largest, peak, _ in probe.units:
        predictor.observe(decoded_bytes, largest, peak)
    fixed = probe.smallest_bytes / NAMED_MARGIN * USABLE - MIN_CAP_BYTES  # supervisor, forking server, one idle worker
    cap = max((budget_bytes * USABLE - fixed) / probe.n_workers, MIN_CAP_BYTES)
    largest = max((u[1] for u in probe.units), default=0)
    block = max(predictor.best_size(int(cap), largest), 1 << 16)
    peak_bytes = max(
        probe.peak_bytes, min(fixed + probe.n_workers * predictor.reserve(block, largest), budget_bytes * USABLE)
    )
    # The first partitions pay for set-up and cold caches; the faster half is what a long run sees.
    timed = sorted(probe.units, key=lambda u: u[3] / u[0])[: (len(probe.units) + 1) // 2]
    rate = sum(u[0] for u in timed) / max(sum(u[3] for u in timed), 1e-6)
    parent = output
    while not os.path.exists(parent):
        parent = os.path.dirname(parent)
    return Plan(
        n_files=len(files), kinds=kinds, input_bytes=sum(max(s, 0) for s in files.sizes), decoded_bytes=int(decoded), output=output,
        budget_bytes=budget_bytes, smallest_budget_bytes=probe.smallest_bytes, fits=probe.fits, n_workers=probe.n_workers, block_bytes=block,
        n_partitions=max(1, math.ceil(decoded / block)), peak_bytes=int(peak_bytes),
        output_bytes=int(probe.written_bytes / max(probe.read_bytes, 1) * decoded), free_bytes=shutil.disk_usage(parent).free,
        seconds=round(_START_S + decoded / rate / probe.n_workers, 1), kept_share=round(probe.n_written / max(probe.n_records, 1), 4),
        probe_bytes=probe.read_bytes, probe_documents=probe.n_records,
    )  # fmt: skip


def _print(p: Plan) -> None:
    from tamis.cli.progress import clock
    from tamis.cli.show import count, print_lines
    from tamis.sizes import format_size

    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(p.kinds.items()))
    rows = [
        (
            "input",
            f"{count(p.n_files, 'file')} ({kinds}), {format_size(p.input_bytes)}, about {format_size(p.decoded_bytes)} decoded",
        ),
        ("budget", f"{format_size(p.budget_bytes)}; the smallest that works is {format_size(p.smallest_budget_bytes)}"),
        ("partitions", f"about {p.n_partitions:,} of {format_size(p.block_bytes)}, on {count(p.n_workers, 'worker')}"),
        ("peak memory", f"about {format_size(p.peak_bytes)}"),
        (
            "output",
            f"about {format_size(p.output_bytes)} ({p.kept_share:.1%} of the documents) in {p.output}; {format_size(p.free_bytes)} free",
        ),
        ("time", f"about {clock(p.seconds)}"),
    ]
    if not p.fits:
        rows = rows[:2]
    print_lines(f"{name:<12} {value}" for name, value in rows)
    notes = ["", f"from a probe of {format_size(p.probe_bytes)}, {count(p.probe_documents, 'document')}"]
    if not p.fits:
        notes.append(f"the budget is too small: give --memory {math.ceil(p.smallest_budget_bytes / 1e6)}MB or more")
    if p.output_bytes > p.free_bytes:
        notes.append("the disk is too small for the output: make room, or use --sample")
    print_lines(notes)
