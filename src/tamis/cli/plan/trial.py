"""A recipe tried on copies of the beginnings of its input files: once by `tamis plan`, under every configuration by `tamis profile`.

Copies are made by a process of its own (beginnings.py), because that needs pyarrow and the process that asks is counted in the budget. Every
configuration of `tamis profile` has one, too, so that it gets its whole budget: this module, JSON on stdin and stdout. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tamis
from tamis.cli.jobs.request import Request, find_recipe, reader_formats, redirect
from tamis.errors import BudgetError, TamisError
from tamis.forecast.prediction import Conditions, Measured
from tamis.memory.ending import end_within
from tamis.memory.predictor import Predictor

if TYPE_CHECKING:
    from tamis.engine.run.run_result import RunResult
    from tamis.formats.input_files.listing import FileList
    from tamis.pipeline import Pipeline

_STOP_S = 15.0
_PROBED_FILES = 6
_PROBE_MEMORY = "1GB"  # where the budget itself is too small to try anything
_HOW = (
    "memory", "workers", "blocksize", "max_record", "timeout", "mode", "quarantine_limit", "fresh", "gpu_memory", "gpu_overflow",
)  # fmt: skip


def ask(module: str, asked: dict[str, Any], **env: str) -> Any:
    """What the module answers, on the last line that it prints; TamisError with the last line of its complaints where it fails.

    Interrupted, it is ended before anything is removed under its feet.
    """
    source = os.path.dirname(os.path.dirname(os.path.abspath(tamis.__file__)))
    path = os.pathsep.join(dict.fromkeys([source, *(p for p in sys.path if p)]))
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **env, "PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(json.dumps(asked))
    except BaseException:
        process.terminate()
        end_within(process, _STOP_S)
        raise
    if process.returncode:
        raise TamisError((err.strip().splitlines() or [f"status {process.returncode}"])[-1][:500])
    return json.loads(out.splitlines()[-1])  # a stage of the user's may print


def copied(
    pipeline: Pipeline, paths: Sequence[str], folder: str, n_bytes: int, packed: bool = False
) -> list[dict[str, Any]]:
    """Of each file that can be read and holds a whole record, what beginnings.py tells of its copy; TamisError where there is none."""
    asked = {"paths": list(paths), "folder": folder, "n_bytes": n_bytes, "packed": packed, "formats": reader_formats(pipeline)}  # fmt: skip
    try:
        taken: list[dict[str, Any]] = ask("tamis.cli.plan.beginnings", asked)
    except TamisError as exc:
        raise TamisError(f"the input files cannot be looked into: {exc}") from None
    found = [one for one in taken if one.get("copy")]
    if not found:
        wrong = [f"{one['path']}: {one['error']}" for one in taken if "error" in one]
        raise TamisError(f"nothing to try the recipe on: {[*wrong, 'the files hold no whole record'][0]}")
    return found


def spread(paths: Sequence[str], n: int) -> list[str]:
    """So many of them, evenly from the whole list.

    >>> spread(["a", "b", "c", "d", "e"], 2)
    ['a', 'c']
    """
    return list(paths) if len(paths) <= n else [paths[i * len(paths) // n] for i in range(n)]


def small_run(
    pipeline: Pipeline,
    settings: dict[str, Any],
    paths: list[str],
    output: str,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> RunResult:
    """Run the stages of a recipe on other files into another folder, with those of its settings that say how, not on what.

    A `blocksize` of None: the measured peak decides, whatever the reader says.
    """
    from tamis.backends.local import LocalExecutor
    from tamis.stages.file_partitioning import FilePartitioningStage

    small = redirect(pipeline, paths, output)
    chosen = {k: v for k, v in settings.items() if k in _HOW and v is not None}
    if settings.get("blocksize", "") is None and isinstance(source := small.stages[0], FilePartitioningStage):
        source.blocksize = None
    if not small.build()[-1].is_sink_stage:
        chosen["run_dir"] = output
    return small.execute(LocalExecutor(progress=progress, report=False), count_caller=True, **chosen)


# -- tamis plan ----------------------------------------------------------------------------------------------------------
@dataclass
class Probe:
    """What a run over the copies took, and what it found out about the machine."""

    measured: Measured
    model: Predictor  # of what partitions take
    smallest_bytes: int
    fits: bool
    n_written: int
    ratios: dict[str, float]  # decoded bytes per stored byte, by kind of file


def probe(
    pipeline: Pipeline, settings: dict[str, Any], files: FileList, n_bytes: int, folder: str, budget: int, block_bytes: int
) -> Probe:  # fmt: skip
    """Run the stages on the copies, under the budget if that is possible at all. `block_bytes`: the largest that partitions may be."""
    heads = copied(pipeline, _chosen(files), folder, n_bytes)
    ratios: dict[str, list[float]] = {}
    for head in heads:
        ratios.setdefault(kind_of(head["path"]), []).append(head["ratio"])
    copies, output = [head["copy"] for head in heads], os.path.join(folder, "out")
    settings = {**settings, "quarantine_limit": "100%"}
    fits = True
    with _without_profiles():
        try:
            result = small_run(pipeline, {**settings, "memory": budget}, copies, output)
        except BudgetError:
            fits = False
            result = small_run(pipeline, {**settings, "memory": _PROBE_MEMORY, "fresh": True}, copies, output)
    with open(os.path.join(result.run_dir, "settings.json"), "rb") as file:
        smallest = next(int(e["value"]) for e in json.load(file)["settings"] if e["name"] == "smallest budget")
    means = {kind: sum(found) / len(found) for kind, found in ratios.items()}
    return Probe(*_took(result, block_bytes), smallest, fits and budget >= smallest, result.ledger.written.n, means)


def _took(result: RunResult, block_bytes: int) -> tuple[Measured, Predictor]:
    from tamis.observe.series import open_series

    model = Predictor(block_bytes)
    with open_series(Path(result.run_dir)) as series:
        units = [u for u in series.units(100_000) if u.decoded_bytes > 0]
    for u in units:
        model.observe(u.decoded_bytes, u.largest_record, u.peak_bytes)
    # The first partitions pay for set-up and cold caches; the faster half is what a long run sees.
    timed = sorted(units, key=lambda u: u.seconds / u.decoded_bytes)[: (len(units) + 1) // 2]
    rate = sum(u.seconds for u in timed) / max(sum(u.decoded_bytes for u in timed), 1)
    largest = max(((u.decoded_bytes, u.largest_record, u.peak_bytes) for u in units), default=(0, 0, 0))
    told, read = result.prediction, result.ledger.read_bytes
    asked = replace(Conditions(**told["conditions"]), input_bytes=read, decoded_bytes=read)
    return Measured(
        asked, result.peak_bytes, told["seconds"]["measured"], rate * read, told["cpu_s"]["measured"], told["scratch_bytes"]["measured"],
        result.ledger.written_bytes, result.ledger.records.n, len(units), time.time(), False, largest[0], largest[2],
    ), model  # fmt: skip


def _chosen(files: FileList) -> list[str]:
    """A few files of every kind, spread evenly over the list."""
    by_kind: dict[str, list[str]] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind.setdefault(kind_of(path), []).append(path)
    per_kind = max(1, _PROBED_FILES // max(len(by_kind), 1))
    return [path for paths in by_kind.values() for path in spread(paths, per_kind)]


def kind_of(path: str) -> str:
    """
    >>> kind_of("a/b.jsonl.gz"), kind_of("c.parquet")
    ('jsonl.gz', 'parquet')
    """
    name = os.path.basename(path).lower()
    return ".".join(name.split(".")[-2:]) if name.endswith((".gz", ".zst", ".bz2", ".xz")) else name.rpartition(".")[2]


@contextmanager
def _without_profiles() -> Iterator[None]:
    """A few MB are no run to remember: what is measured here must not pass for experience later."""
    before = os.environ.get("TAMIS_PROFILES")
    os.environ["TAMIS_PROFILES"] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TAMIS_PROFILES"]
        else:
            os.environ["TAMIS_PROFILES"] = before


# -- tamis profile -------------------------------------------------------------------------------------------------------
def tried(request: Request, paths: list[str], output: str, **how: Any) -> dict[str, Any]:
    """What a run in a process of its own took, or why it could not: `status` is ok, infeasible (the budget is too small) or failed.

    It begins with small partitions and no experience: what one configuration learns must not help the next.
    """
    asked = {
        "request": [os.path.abspath(find_recipe(request.recipe)), request.overrides, list(request.allow), request.settings],
        "paths": paths, "output": output, "how": how, "parent": os.getpid(),
    }  # fmt: skip
    try:
        found: dict[str, Any] = ask("tamis.cli.plan.trial", asked, TAMIS_PROFILES="off")
    except TamisError as exc:
        return {"status": "failed", "message": str(exc)}
    return found


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    from tamis.cli.terminal.interrupts import sigterm_interrupts

    began_s: list[float] = []  # when the first partition was given out

    def watch(state: dict[str, Any]) -> None:
        if os.getppid() != asked["parent"]:  # nobody waits for the result any more
            raise KeyboardInterrupt
        if state["phase"] == "working" and not began_s:
            began_s.append(time.monotonic())

    pipeline, settings = Request(*asked["request"]).build()
    try:
        with sigterm_interrupts():
            result = small_run(pipeline, settings | asked["how"], asked["paths"], asked["output"], watch)
    except TamisError as exc:
        return {"status": "infeasible" if isinstance(exc, BudgetError) else "failed", "message": str(exc)}
    work_s = time.monotonic() - began_s[0] if began_s else result.seconds
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "status": "failed" if result.exit_code else "ok", "message": result.message, "peak_bytes": result.peak_bytes, "seconds": result.seconds,
        "work_s": max(min(work_s, result.seconds), 0.05), "read_bytes": result.ledger.read_bytes, "cpu_s": sum(u.ru_utime + u.ru_stime for u in used),
        "n_workers": result.prediction.get("conditions", {}).get("n_workers", 0), "counters": dict(result.counters),
    }  # fmt: skip


if __name__ == "__main__":
    try:
        told = _answer(json.load(sys.stdin))
    except KeyboardInterrupt:
        sys.exit(130)
    print("\n" + json.dumps(told))  # on a line of its own, whatever a stage has printed before
