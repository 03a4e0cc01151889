"""Figures of deduplication: `make bench-dedup`, or `python benchmarks/dedup.py [--quick] [--full] [--only PART]`.

Every line is measured now, on this machine, from outside (measuring.py); nothing is remembered. Input: real text, each
copy in an alphabet of its own (peers/dedup_data.py). `--quick`: 100 MB and 1 GB, 5 million tiny documents. `--full`:
the peers of fuzzy deduplication at 1 GB, too. Without --quick benchmarks-dedup.md is written, from the last
figures of every part.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import dedup_data
import dedup_environments

import data
import figures
from figures import ROWS, note, table
from measuring import TAMIS, measure

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out")) / "dedup"  # emptied after every run
KEPT = data.DATA / "dedup-figures"
N_CORES = len(os.sched_getaffinity(0))
TABLES: list[str] = []


class Watched:
    """The largest size of a folder while something runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.peak_bytes = folder, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            total = 0
            for where, _, names in os.walk(self.folder):
                for name in names:
                    try:
                        total += os.stat(os.path.join(where, name)).st_blocks * 512
                    except OSError:
                        pass  # removed meanwhile
            self.peak_bytes = max(self.peak_bytes, total)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


COARSE_S = 1.0  # between looks at the memory of all processes, where wall times are compared: each look takes some ms


def tamis(kind: str, source: Path, memory: str = "512MB", *more: str, pss_interval_s: float = 0.1) -> dict[str, Any]:
    """`tamis dedup` from the input to the folder of what stays.

    What it said, what it took, and the disk beside the output.
    """
    target, scratch, said = OUT / "kept", OUT / "scratch", OUT / "said.json"
    scratch.mkdir(parents=True, exist_ok=True)
    command = [TAMIS, "dedup", kind, str(source), str(target), "--memory", memory, "--max-source-loss", "100%"]
    command += ["--scratch", str(scratch), "--json", *more]
    shell = ["sh", "-c", f"exec {shlex.join(command)} > {shlex.quote(str(said))}"]
    with Watched(scratch) as disk:
        result = measure(shell, timeout_s=7200, pss_interval_s=pss_interval_s)
    result["scratch_bytes"] = disk.peak_bytes
    result["mb"] = dedup_data.size_of(source) / 1e6
    try:
        result["said"] = json.loads(said.read_text())
    except ValueError:
        result["said"] = {"error": result["said"].get("error", "")[-300:]}
    shutil.rmtree(OUT, ignore_errors=True)
    if result["rc"]:
        raise SystemExit(f"tamis dedup {kind} {source}: exit status {result['rc']}, {result['said']}")
    return result


def peer(environment: str, script: str, *arguments: str, pss_interval_s: float = 0.1) -> dict[str, Any] | None:
    """Run a peer's script; return None if its environment cannot be made or it fails."""
    python = dedup_environments.python(environment)
    if python is None:
        return None
    OUT.mkdir(parents=True, exist_ok=True)
    result = measure([python, str(HERE / "peers" / script), *arguments], timeout_s=7200, pss_interval_s=pss_interval_s)
    shutil.rmtree(OUT, ignore_errors=True)
    if result["rc"]:
        print(f"{script} {arguments[0]}: exit status {result['rc']}, {str(result['said'])[-300:]}", flush=True)
        return None
    return result


def told(r: dict[str, Any]) -> str:
    return f"{r['wall_s']:.1f} s, {r['cpu_s']:.1f} s of CPU, peak {r['peak_pss_mb']:.0f} MB"


def sizes(quick: bool) -> list[int]:
    return [1, 10] if quick else [1, 10, 100]


def size_name(n_times: int) -> str:
    return {1: "100 MB", 10: "1 GB", 100: "10 GB"}[n_times]


# -- parts ------------------------------------------------------------------------------------------------------------
def quality(options: argparse.Namespace) -> None:
    """Return the tables of tests/dedup/test_quality.py on 5,000 documents."""
    path = HERE.parent / "tests" / "dedup" / "test_quality.py"
    spec = importlib.util.spec_from_file_location("test_quality", path)
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    sys.modules["test_quality"] = judge
    spec.loader.exec_module(judge)
    texts = judge.families(1000 if options.quick else 5000)
    similarity = judge.truth(texts)
    found = judge.candidates(texts, similarity)
    lines = [
        f"Candidate pairs among {len(texts):,} documents, by true similarity (24 characters, 20 bands of 13; ten "
        "seeds, disjoint pairs):",
        "",
        "| similarity | pairs | found, default seed | expected | rate over seeds | curve | sigmas off |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found.bins:
        off = (one.trial_rate - one.trial_expected) / max(one.sigma, 1e-12) if one.n_trials else 0.0
        lines.append(
            f"| {one.low:.2f}-{one.high:.2f} | {one.n_pairs:,} | {one.n_hits:,} | {one.expected_hits:.1f} | "
            f"{one.trial_rate:.4f} | "
            f"{one.trial_expected:.4f} | {off:+.1f} |"
        )
    print("\n".join(lines), flush=True)
    TABLES.extend([*lines, ""])
    note("quality", "hit rate of every bin within 4 sigma of the curve", "", all(one.within for one in found.bins))
    shares = f"{found.precision:.1%}, by the curve {found.expected_precision:.1%}"
    note("quality", "candidate pairs at or above the threshold of 0.771, before verification", shares)
    with tempfile.TemporaryDirectory() as folder:
        done = judge.removal(texts, similarity, Path(folder) / "all")
        what = f"precision of removal, {done.n_removed:,} of {done.n_documents:,} documents removed"
        note("quality", what, f"{done.precision:.2%}", done.precision >= 0.99)
        leaks = (
            f"{done.n_leaks} ({done.n_leaks / (done.n_documents - done.n_removed):.2%}); pairs the curve misses: "
            f"{done.expected_missed:.0f}"
        )
        note("quality", "kept documents with a kept neighbour at or above the threshold", leaks)
        note("quality", "... of which they share a band", str(done.n_found_leaks), done.n_found_leaks == 0)
        originals = judge.documents_to_edit(200)
        for edit in judge.EDITS:
            n, lowest = judge.found_after(edit, originals, Path(folder) / edit)
            figure = f"{n} of {len(originals)} (similarity {lowest:.2f} or more)"
            note("quality", f"found after an edit: {edit}", figure, n == len(originals))


def in_turn(rounds: int, runs: dict[str, Callable[[], dict[str, Any] | None]]) -> dict[str, dict[str, Any]]:
    """Return the fastest run of each; flush the page cache so that no run pays for the previous one."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            os.sync()
            found = run()
            if found is not None and (name not in best or found["wall_s"] < best[name]["wall_s"]):
                best[name] = found
    return best


def exact(options: argparse.Namespace) -> None:
    peaks = {}
    for n in sizes(options.quick):
        source = dedup_data.varied(n)
        runs: dict[str, Callable[[], dict[str, Any] | None]] = {"tamis": lambda source=source: tamis("exact", source)}  # type: ignore[misc]
        for library in ("duckdb", "polars") if n <= 10 else ():
            runs[library] = lambda library=library, source=source: peer(  # type: ignore[misc]
                "dedup-tables", "dedup_tables.py", library, str(source), str(OUT / "kept.jsonl")
            )
        found = in_turn(3 if n == 10 else 1, runs)
        r = found["tamis"]
        rate = r["mb"] / r["cpu_s"]
        peaks[n] = r["peak_pss_mb"]
        name = f"exact, {size_name(n)}, budget 512 MB" + (", best of 3 in turn with the others" if n == 10 else "")
        note("exact", name, f"{told(r)}, scratch {r['scratch_bytes'] / 1e6:.0f} MB", r["peak_pss_mb"] <= 512)
        note(
            "exact",
            f"... input MB per CPU second (goal 100 at 1 GB and more), {size_name(n)}",
            f"{rate:.0f}",
            rate >= 100 if n > 1 else None,
        )
        for library in [name for name in found if name != "tamis"]:
            good = r["wall_s"] <= found[library]["wall_s"] if n == 10 else None
            note("exact", f"... {library}, {size_name(n)}: wall not above it", told(found[library]), good)
    if len(peaks) == 3:
        note(
            "exact",
            "peak at 1 GB and at 10 GB",
            f"{peaks[10]:.0f} and {peaks[100]:.0f} MB",
            peaks[100] <= 1.1 * peaks[10],
        )
    r = tamis("exact", data.many(10))
    note("exact", "exact, 1 GB of ten equal copies", f"{told(r)}, {r['mb'] / r['cpu_s']:.0f} MB per CPU second")


def fuzzy(options: argparse.Namespace) -> None:
    for n in sizes(options.quick):
        r = tamis("fuzzy", dedup_data.varied(n))
        rate, scratch = r["mb"] / r["cpu_s"], r["scratch_bytes"] / 1e6 / r["mb"]
        note("fuzzy", f"24 characters, 20 x 13, {size_name(n)}, budget 512 MB", told(r), r["peak_pss_mb"] <= 512)
        note(
            "fuzzy",
            f"... input MB per CPU second (goal 40 at 1 GB and more), {size_name(n)}",
            f"{rate:.0f}",
            rate >= 40 if n > 1 else None,
        )
        note("fuzzy", f"... scratch as a share of the input, {size_name(n)}", f"{scratch:.3f}", scratch <= 0.1)
    r = tamis("fuzzy", data.many(10))
    note("fuzzy", "1 GB of ten equal copies", f"{told(r)}, {r['mb'] / r['cpu_s']:.0f} MB per CPU second")
    _fuzzy_peers(options)


def _fuzzy_peers(options: argparse.Namespace) -> None:
    """Peers at 5 words, 14 x 8: 100 MB measured.

    1 GB measured (datatrove with --full, else ten times what 100 MB take beyond the start).
    """
    words = ("--word-ngrams", "5", "--bands", "14", "--rows", "8")
    ours: dict[int, dict[str, Any]] = {}

    def measured(n: int) -> None:
        """Return the best of the runs so far and three more."""

        def once() -> dict[str, Any]:
            return tamis("fuzzy", dedup_data.varied(n), "512MB", *words, pss_interval_s=COARSE_S)

        found = in_turn(3, {"tamis": once})["tamis"]
        if n not in ours or found["wall_s"] < ours[n]["wall_s"]:
            ours[n] = found

    for n in (1, 10):
        measured(n)
        fine = tamis("fuzzy", dedup_data.varied(n), "512MB", *words)
        figure = f"best of 3 {ours[n]['wall_s']:.1f} s; {told(fine)}, {fine['said']['n_duplicates']:,} removed"
        note("fuzzy", f"5 words, 14 x 8, {size_name(n)}, budget 512 MB", figure, fine["peak_pss_mb"] <= 512)
    start_input = _few_documents()
    for name, environment, script in (
        ("datatrove", "dedup-datatrove", "dedup_datatrove.py"),
        ("data-juicer", "dedup-juicer", "dedup_juicer.py"),
    ):
        places = (str(OUT / "kept"), str(OUT / "scratch"), str(N_CORES))
        theirs = peer(environment, script, str(dedup_data.varied(1)), *places)
        start = peer(environment, script, str(start_input), *places)
        if theirs is None or start is None:
            continue
        note("fuzzy", f"{name}, 5 words, 14 x 8, 100 MB", told(theirs))
        note(
            "fuzzy",
            f"... times the wall time of Tamis, 100 MB ({N_CORES} workers)",
            f"{theirs['wall_s'] / ours[1]['wall_s']:.1f}",
        )
        if options.full or name == "data-juicer":  # its time is not linear; datatrove takes 20 minutes
            large = peer(environment, script, str(dedup_data.varied(10)), *places, pss_interval_s=COARSE_S)
            if large is None:
                continue
            measured(10)  # after the peer as before it: the machine is not always equally fast
            wall, how = large["wall_s"], f"measured: {told(large)}"
        else:
            wall = start["wall_s"] + 10 * max(theirs["wall_s"] - start["wall_s"], 0)
            how = f"extrapolated from 100 MB: {wall:.0f} s"
        ratio = wall / ours[10]["wall_s"]
        note("fuzzy", f"... times the wall time of Tamis, 1 GB, {how}", f"{ratio:.1f}", ratio >= 40)


def _few_documents() -> Path:
    """One document in each of four files: what a peer takes to start and end."""
    folder = data.DATA / "few-documents"
    folder.mkdir(parents=True, exist_ok=True)
    for part in data.base():
        with open(part, "rb") as source:
            (folder / part.name).write_bytes(source.readline())
    return folder


def tiny(options: argparse.Namespace) -> None:
    """Very many documents of 60 bytes inside 1 GB."""
    n = options.tiny_documents or (5_000_000 if options.quick else 50_000_000)
    source = dedup_data.tiny(n)
    r = tamis("exact", source, "1GB")
    _note_tiny("exact", n, r, "")
    per_pass = options.bands_per_iteration
    more = ("--bands-per-iteration", str(per_pass)) if per_pass else ()
    r = tamis("fuzzy", source, "1GB", *more)
    _note_tiny("fuzzy", n, r, f", {per_pass} bands per pass" if per_pass else "")


def _note_tiny(kind: str, n: int, r: dict[str, Any], more: str) -> None:
    removed = f"{r['said']['n_duplicates']:,} removed"
    figure = f"{told(r)}, scratch {r['scratch_bytes'] / 1e9:.2f} GB, {removed}"
    note("tiny", f"{kind}, {n:,} documents, budget 1 GB{more}", figure, r["peak_pss_mb"] <= 1000)
    each = (
        f"{r['peak_pss_mb'] * 1e6 / n:.1f} of memory at the peak, {r['scratch_bytes'] / n:.0f} of scratch, "
        f"{n / r['cpu_s']:,.0f} documents per CPU second"
    )
    note("tiny", f"... bytes per document, {kind}", each)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "quality": quality,
    "exact": exact,
    "fuzzy": fuzzy,
    "tiny": tiny,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 MB and 1 GB; 5 million tiny documents")
    parser.add_argument("--full", action="store_true", help="measure the peers of fuzzy deduplication at 1 GB, too")
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument("--tiny-documents", type=int, metavar="N", help="another number of tiny documents")
    parser.add_argument(
        "--bands-per-iteration", type=int, help="of the run with tiny documents; default: what the disk allows"
    )
    options = parser.parse_args()
    os.environ["TAMIS_PROFILES"] = "off"
    began = time.monotonic()
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            part(options)
            if not options.quick:
                keep(name)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    if not options.quick:
        write_page()
    return figures.exit_code()


def keep(part: str) -> None:
    """Assemble the page from the latest figures of every part; parts may be measured alone."""
    KEPT.mkdir(parents=True, exist_ok=True)
    about = {"rows": [row for row in ROWS if row[0] == part], "tables": TABLES if part == "quality" else []}
    (KEPT / f"{part}.json").write_text(json.dumps(about))


def write_page() -> None:
    rows: list[list[str]] = []
    tables: list[str] = []
    for part in PARTS:
        path = KEPT / f"{part}.json"
        about = (
            json.loads(path.read_text())
            if path.exists()
            else {"rows": [[part, "not measured yet", "", ""]], "tables": []}
        )
        rows += about["rows"]
        tables += about["tables"]
    lines = [
        "# Figures of deduplication",
        "",
        f"Written by `make bench-dedup`, on {N_CORES} cores. Input: real documentation; every 100 MB of it in an "
        "alphabet of its own, so that",
        "a larger input is not a smaller one with copies. Times are those of the whole command, memory is the peak of "
        "all its",
        "processes (PSS). Fuzzy deduplication verifies every pair and removes duplicates in the same call.",
        "",
        *table(rows),
        "",
        *tables,
    ]
    figures.write_page("benchmarks-dedup.md", lines)


if __name__ == "__main__":
    sys.exit(main())
