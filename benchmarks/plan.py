"""How well plans hold: `make bench-plan`, or `python benchmarks/plan.py [--jobs N] [--seed S] [--rows FILE]`.

Small jobs are drawn at random: recipes and deduplications, sizes, formats, budgets, numbers of workers. Before each,
`tamis plan` says what it will take; then it runs, its whole process tree measured from outside (sum of PSS, wall time).
Every job is held out: its plan knows only the jobs before it, in a profile folder of this benchmark's own that is empty
at first. Reported is how often peak and time lie inside the ranges. Writes benchmarks-plan.md when as many jobs
ran as usual.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import data
from figures import ROWS, exit_code, note, table, write_page
from measuring import TAMIS, measure

OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out")) / "plan"
N_JOBS, SEED, GOAL = 100, 1, 0.85
RECIPES = ("copy", "to_parquet", "gopher", "c4", "heuristic_english", "dedup exact", "dedup fuzzy")
SIZES_MB = (1, 3, 8, 20, 50, 100)
FORMATS = ("jsonl", "jsonl", "jsonl.gz", "jsonl.zst", "parquet")
BUDGETS = ("300MB", "400MB", "600MB", "1GB", "2GB")
WORKERS = (None, 1, 2)


@dataclass(frozen=True)
class Job:
    recipe: str
    size_mb: int
    format: str
    budget: str
    workers: int | None

    @property
    def settings(self) -> list[str]:
        return ["--memory", self.budget, *(["--workers", str(self.workers)] if self.workers else [])]

    def plan(self, source: Path) -> list[str]:
        words = self.recipe.split()
        if words[0] == "dedup":
            return [TAMIS, "plan", "dedup", words[1], str(source), *self.settings, "--json"]
        places = ["--set", f"input={source}", "--set", f"output={OUT / 'result'}"]
        return [TAMIS, "plan", self.recipe, *places, *self.settings, "--json"]

    def run(self, source: Path) -> list[str]:
        words, quiet = self.recipe.split(), ["--json", "--quiet", *self.settings]
        if words[0] == "dedup":
            return [TAMIS, "dedup", words[1], str(source), str(OUT / "result"), *quiet]
        return [TAMIS, "run", self.recipe, "--set", f"input={source}", "--set", f"output={OUT / 'result'}", *quiet]


def draw(n: int, seed: int) -> list[Job]:
    rng = random.Random(seed)
    return [Job(*(rng.choice(c) for c in (RECIPES, SIZES_MB, FORMATS, BUDGETS, WORKERS))) for _ in range(n)]


def source_of(job: Job) -> Path:
    """So many MB of real text in a few files of the format."""
    folder = data.DATA / f"plan-{job.size_mb}-{job.format}"
    if folder.exists():
        return folder
    temporary = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    lines, size = [], 0
    for part in data.base():
        for line in part.read_bytes().splitlines(keepends=True):
            if size < job.size_mb * 1_000_000:
                lines.append(line)
                size += len(line)
    n_files = min(4, max(1, job.size_mb // 8))
    for i in range(n_files):
        _write(temporary / f"{i}.{job.format}", lines[i::n_files])
    temporary.rename(folder)
    return folder


def _write(path: Path, lines: list[bytes]) -> None:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([json.loads(x) for x in lines]), path, row_group_size=2000)
        return
    from tamis.formats.compression.codecs import codec_of
    from tamis.formats.compression.streams import StreamWriter

    with StreamWriter(path, codec_of(path)) as out:
        out.write(b"".join(lines))


def perform(job: Job) -> dict[str, Any]:
    """Print the plan, run, then print both side by side."""
    source = source_of(job)
    env = {**os.environ, "TAMIS_PROFILE_DIR": str(OUT / "profiles")}
    env.pop("TAMIS_PROFILES", None)
    told = subprocess.run(job.plan(source), capture_output=True, text=True, env=env, check=False)
    shutil.rmtree(OUT / "result", ignore_errors=True)
    if told.returncode:
        return {**asdict(job), "skipped": (told.stderr or told.stdout).strip()[-300:]}
    plan = json.loads(told.stdout)
    took = measure(job.run(source), timeout_s=600, env=env, pss_interval_s=0.03)
    forecast = plan["forecast"]
    row: dict[str, Any] = {
        **asdict(job),
        "rc": took["rc"],
        "basis": plan["basis"].partition(":")[0],
        "n_runs": forecast["n_runs"],
        "peak": took["peak_pss_mb"] * 1e6,
        "seconds": took["wall_s"],
        "peak_plan": forecast["peak_bytes"],
        "seconds_plan": forecast["seconds"],
        "kind": forecast["kind"],
        "centres": forecast["centres"],
        "command_s": forecast.get("command_s", 0.0),
    }
    for name in ("peak", "seconds"):
        span = row[f"{name}_plan"]
        row[f"{name}_inside"] = span["low"] <= row[name] <= span["high"]
        row[f"{name}_ratio"] = round(row[name] / max(span["expected"], 1e-9), 3)
        row[f"{name}_width"] = round(span["high"] / max(span["low"], 1e-9), 2)
    return row


def report(rows: list[dict[str, Any]], goal: bool) -> None:
    done = [r for r in rows if r.get("rc") == 0]
    groups = {"all": done, "the first run of a pipeline (a probe)": [r for r in done if r["basis"] == "a probe"]}
    groups["a pipeline that ran before"] = [r for r in done if r["basis"] == "machine profile"]
    groups["without probe (a deduplication's first)"] = [r for r in done if r["basis"] == "starting table"]
    for what, some in groups.items():
        for name, label in (("peak", "peak memory"), ("seconds", "time")):
            if some:
                n = sum(r[f"{name}_inside"] for r in some)
                width = statistics.median(r[f"{name}_width"] for r in some)
                shown = f"{n} of {len(some)} ({n / len(some):.0%}), high / low {width:.2g}"
                note(label, what, shown, n / len(some) >= GOAL if goal and what == "all" else None)
    over = [r for r in done if r["peak"] > _bytes(r["budget"])]
    note("budget", "runs whose peak lay above it", f"{len(over)} of {len(done)}", not over)


def _bytes(size: str) -> int:
    from tamis.sizes import parse_size

    return parse_size(size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=N_JOBS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rows", type=Path, help="where to keep every row as JSON")
    args = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    rows = []
    for i, job in enumerate(draw(args.jobs, args.seed)):
        rows.append(row := perform(job))
        what = f"{job.recipe} {job.size_mb} MB {job.format} {job.budget} workers={job.workers}"
        shown = (
            row.get("skipped")
            or f"peak x{row['peak_ratio']} {row['peak_inside']}, time x{row['seconds_ratio']} {row['seconds_inside']}"
        )
        print(f"{i + 1:3d} {what:55s} {row.get('basis', ''):16s} {shown}", flush=True)
        if args.rows:
            args.rows.write_text("\n".join(map(json.dumps, rows)) + "\n")
    report(rows, args.jobs >= N_JOBS)
    if args.rows:
        args.rows.with_suffix(".profiles").mkdir(exist_ok=True)
        shutil.copytree(OUT / "profiles", args.rows.with_suffix(".profiles"), dirs_exist_ok=True)
    shutil.rmtree(OUT, ignore_errors=True)
    if args.jobs >= N_JOBS:
        write_page("benchmarks-plan.md", _page(len(rows)))
    return exit_code()


def _page(n: int) -> list[str]:
    return [
        "# How well plans hold",
        "",
        f"Written by `make bench-plan`: {n} small jobs drawn at random ({len(RECIPES)} recipes and deduplications, "
        f"{SIZES_MB[0]} to "
        f"{SIZES_MB[-1]} MB, plain, compressed and Parquet, budgets from {BUDGETS[0]} to {BUDGETS[-1]}), planned "
        "before and measured from outside "
        "after. Every plan knew only the jobs before it, on a machine that had run nothing.",
        "",
        *table(ROWS),
    ]


if __name__ == "__main__":
    sys.exit(main())
