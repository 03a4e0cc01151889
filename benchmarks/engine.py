"""The engine's figures: `make bench-engine`, or `python benchmarks/engine.py [--quick] [--only NAME]`.

Every line is measured now, on this machine, from outside (measuring.py); nothing is remembered. `--quick` uses 1 GB
where the full run uses 10 GB. Writes benchmarks-engine.md when all parts ran.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import data
from figures import ROWS, note, run_parts, table, write_page
from measuring import TAMIS, measure

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out"))


ON_ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); os.execv(sys.argv[1], sys.argv[1:])"
)


def job(
    kind: str,
    source: Path,
    out: Path | None = None,
    one_core: bool = False,
    pss_interval_s: float = 0.1,
    **settings: Any,
) -> dict[str, Any]:
    """`one_core`: the whole tree has one core, and a worker for it."""
    target = out or OUT / "job"
    pairs = [f"{k}={v}" for k, v in settings.items()]
    confined = [sys.executable, "-c", ON_ONE_CORE] if one_core else []
    command = [*confined, sys.executable, str(HERE / "job.py"), kind, str(source), str(target), *pairs]
    result = measure(command, pss_interval_s=pss_interval_s)
    shutil.rmtree(target, ignore_errors=True)
    return result


def memory(quick: bool) -> None:
    """Peak PSS of the whole tree against the budget."""
    n = 10 if quick else 100
    cases = [
        ("many files, 1 GB", "keep", data.many(10), {}),
        (f"one .jsonl, {n / 10:g} GB", "keep", data.one_file(n), {}),
        ("one .jsonl.gz, 1 GB decoded", "keep", data.one_gz(10), {}),
        ("one Parquet row group, 0.5 GB", "keep", data.one_row_group(5), {}),
        ("one 300 MB line", "keep", data.long_line(), {}),
        ("a list of every word, 1 GB", "words", data.many(10), {}),
        ("JSONL to Parquet, 1 GB", "parquet", data.many(10), {}),
    ]
    for budget in ("512MB", "1GB", "2GB"):
        limit = {"512MB": 512, "1GB": 1000, "2GB": 2000}[budget]
        for what, kind, source, more in cases:
            r = job(kind, source, memory=budget, **more)
            said = r["said"]
            good = r["rc"] == 0 and r["peak_pss_mb"] <= limit
            if "line" in what:
                good = good and said.get("quarantined") == 1
            figure = (
                f"{r['peak_pss_mb']:.0f} MB, {r['wall_s']:.1f} s, {said.get('files', '?')} files, "
                f"{said.get('counters', {}).get('splits', '?')} splits"
            )
            note(
                "memory",
                f"{what}, budget {budget}",
                figure + (f" rc={r['rc']} {said.get('error', '')}" if r["rc"] else ""),
                good,
            )
    r = job("keep", data.long_line(), memory="2GB", max_record="400MB")
    kept = r["said"].get("quarantined") == 0
    note(
        "memory",
        "300 MB line kept with max_record=400MB, budget 2GB",
        f"{r['peak_pss_mb']:.0f} MB",
        kept and r["peak_pss_mb"] <= 2000,
    )
    # The same number of runs on both sides: more tries on one side would raise its maximum, and with it the limit.
    small, large = (
        max(job("keep", data.one_file(k), memory="512MB")["peak_pss_mb"] for _ in range(3)) for k in (10, n)
    )
    note(
        "memory",
        f"peak at 1 GB and at {n / 10:g} GB of input",
        f"{small:.0f} and {large:.0f} MB",
        large <= small * 1.05,
    )


def throughput(quick: bool) -> None:
    source = data.many(10 if quick else 30)
    size = sum(p.stat().st_size for p in source.iterdir()) / 1e6
    best = dict.fromkeys(("512MB", "1GB", "4GB"), 0.0)
    for _ in range(5):  # in turn, so that a busy moment of the machine does not fall on one budget alone
        for budget in best:
            best[budget] = max(best[budget], size / job("keep", source, memory=budget)["wall_s"])
    note(
        "throughput",
        "512 MB against 4 GB of budget",
        f"{best['512MB']:.0f} and {best['4GB']:.0f} MB/s ({best['512MB'] / best['4GB']:.0%})",
        best["512MB"] >= 0.7 * best["4GB"],
    )
    note(
        "throughput",
        "never lower with a larger budget (512 MB, 1 GB, 4 GB; best of 5, 5 % for noise)",
        ", ".join(f"{v:.0f}" for v in best.values()) + " MB/s",
        best["1GB"] >= 0.95 * best["512MB"] and best["4GB"] >= 0.95 * best["1GB"],
    )
    cpu = min(job("keep", source, memory="512MB")["cpu_s"] for _ in range(3))
    note(
        "throughput",
        "read, keep all, write: input MB per CPU second (whole tree)",
        f"{size / cpu:.0f} MB/s",
        size / cpu >= 150,
    )
    ram = Path("/dev/shm")
    if ram.is_dir():
        walls: dict[bool, float] = {}
        for _ in range(4):  # in turn; memory is looked at once a second, which would take part of a core
            for one_core in (True, False):
                target = Path(tempfile.mkdtemp(dir=ram)) / "out"
                r = job("keep", source, out=target, one_core=one_core, pss_interval_s=1.0, memory="1GB")
                walls[one_core] = min(walls.get(one_core, 1e9), r["said"]["seconds"])
                shutil.rmtree(target.parent, ignore_errors=True)
        note(
            "throughput",
            f"output on tmpfs: one core against {len(os.sched_getaffinity(0))}",
            f"{walls[True]:.2f} and {walls[False]:.2f} s ({walls[True] / walls[False]:.2f} times)",
            walls[True] / walls[False] >= 1.7,
        )
        times: dict[int, float] = {}
        for workers in (1, 2):
            target = Path(tempfile.mkdtemp(dir=ram)) / "out"
            times[workers] = min(
                job("keep", source, out=target, memory="1GB", workers=workers)["said"]["seconds"] for _ in range(3)
            )
            shutil.rmtree(target.parent, ignore_errors=True)
        note(
            "throughput",
            "output on tmpfs: one worker against two, on all cores",
            f"{times[1]:.2f} and {times[2]:.2f} s ({times[1] / times[2]:.2f} times)",
            times[1] / times[2] >= 1.7,
        )


def start(quick: bool) -> None:
    def wall(command: list[str], **env: str) -> float:
        began = time.monotonic()
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env={**os.environ, **env}
        )
        return time.monotonic() - began

    best = min(wall([TAMIS, "--help"]) for _ in range(5))
    note("start", "tamis --help", f"{best:.2f} s", best < 0.4)
    one = data.DATA / "one-document"
    one.mkdir(parents=True, exist_ok=True)
    (one / "one.jsonl").write_bytes(b'{"id": 1, "text": "one document"}\n')
    command = [sys.executable, str(HERE / "job.py"), "keep", str(one), str(OUT / "one"), "memory=512MB"]
    best = min(wall(command) for _ in range(5))
    note("start", "a run of one document", f"{best:.2f} s", best < 1.5)


def partitions(quick: bool) -> None:
    """Measure the supervisor's own memory with 100,000 partitions: as many files, one partition each."""
    n = 20_000 if quick else 100_000
    source = data.tiny_files(n)
    from tamis.memory import meter

    target = OUT / "tiny"
    command = [sys.executable, str(HERE / "job.py"), "each", str(source), str(target), "memory=1GB"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, meter.pss(process.pid) or 0)
        time.sleep(0.2)
    shutil.rmtree(target, ignore_errors=True)
    note(
        "supervisor",
        f"memory of the supervisor, {n:,} partitions",
        f"{peak / 1e6:.0f} MB",
        process.returncode == 0 and peak < 80e6,
    )


def kills(quick: bool) -> None:
    """Kill runs with SIGKILL at random instants, resume, compare with an undisturbed run."""
    source = data.many(10)
    command = [sys.executable, str(HERE / "job.py"), "keep", str(source), str(OUT / "killed"), "memory=512MB"]
    reference = job("keep", source, memory="512MB")["said"]["content"]
    n, done, slowest = (10 if quick else 50), 0, 0.0  # slowest: seconds from start to the first unit of a resumed run
    rng = random.Random(7)
    from tamis.memory import meter

    fresh = "yes"
    while done < n:
        process = subprocess.Popen([*command, f"fresh={fresh}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        fresh = "no"
        time.sleep(rng.uniform(0.3, 3.0))
        kin = list(meter.descendants(process.pid))
        victim = rng.choice([process.pid, *kin]) if kin else process.pid
        try:
            os.kill(victim, signal.SIGKILL)
            done += 1
        except ProcessLookupError:
            pass
        if victim == process.pid:
            process.wait()
        else:
            process.communicate()
        if process.returncode == 0 or rng.random() < 0.2:
            slowest = max(slowest, _finish(command, reference))
            fresh = "yes"
    slowest = max(slowest, _finish(command, reference))
    note(
        "kills",
        f"{done} kill -9 (supervisor, forking server, workers): same content, none lost, none twice",
        reference[:16],
        True,
    )
    note("kills", "slowest start of a resumed run", f"{slowest:.2f} s", slowest < 2)
    command[3] = str(data.one_gz(10))
    whole = job("keep", data.one_gz(10), memory="512MB")
    process = subprocess.Popen([*command, "fresh=yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(whole["wall_s"] / 2)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        raise SystemExit("the run had ended before it was killed")
    seconds = _finish(command, whole["said"]["content"])
    if not seconds:
        raise SystemExit("nothing was left to do for the run that was resumed")
    note("kills", "the same in the middle of one .jsonl.gz", f"{seconds:.2f} s", seconds < 2)


def _finish(command: list[str], reference: str) -> float:
    """Resume until it is done, compare, and return how long the run took to start working."""
    out = subprocess.run([*command, "fresh=no"], capture_output=True, text=True, check=False).stdout
    said = json.loads(out.strip().splitlines()[-1])
    if said.get("content") != reference:
        note("kills", "content after kills differs", str(said)[:200], False)
        raise SystemExit(1)
    shutil.rmtree(OUT / "killed", ignore_errors=True)
    return float(said["started_s"])


PARTS: dict[str, Callable[[bool], None]] = {
    "start": start,
    "memory": memory,
    "throughput": throughput,
    "partitions": partitions,
    "kills": kills,
}


def write_table() -> None:
    write_page(
        "benchmarks-engine.md", ["# Figures of the engine", "", "Written by `make bench-engine`.", "", *table(ROWS)]
    )


if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS, OUT, write_table))
