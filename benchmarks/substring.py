"""Figures of substring deduplication: `make bench-substring`, or `python benchmarks/substring.py --help`.

Every line is measured now, on this machine, from outside (measuring.py). Input: real text, each copy in an alphabet of
its own (peers/dedup_data.py). `--quick`: up to 1 GB; `--full`: 10 GB and 100,000 edited copies, too. Without --quick
benchmarks-substring.md is written, from the last figures of every part. The suffix array is pydivsufsort's
(`pip install pydivsufsort`), over the same text held in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dedup_data

import data
import figures
from dedup import told
from figures import ROWS, note, table
from measuring import TAMIS, measure
from tamis.dedup.substrings.table import passages_in
from tamis.kernels.substrings.selections import select
from tests.reference.substring_twin import spans_of_suffix_array

OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out")) / "substring"  # emptied after every run
KEPT = data.DATA / "substring-figures"
LENGTHS = (50, 100, 500, 2000)
MOST_PEAK_MB, MOST_SCRATCH, LEAST_MB_S = 512, 0.3, 300
N_CORES = len(os.sched_getaffinity(0))
TABLES: list[str] = []


def tamis(source: Path, target: Path, *more: str, memory: str = "512MB") -> dict[str, Any]:
    """`tamis dedup substrings`: what it said, and what it took."""
    shutil.rmtree(target, ignore_errors=True)
    command = [TAMIS, "dedup", "substrings", str(source), str(target), "--memory", memory, "--json", *more]
    result = measure([*command, "--max-source-loss", "100%"], timeout_s=7200)
    if result["rc"]:
        raise SystemExit(f"{' '.join(command)}: exit status {result['rc']}, {result['said']}")
    result["mb"] = dedup_data.size_of(source) / 1e6
    return result


def shares(result: dict[str, Any]) -> str:
    scratch = result["said"]["scratch_bytes"] / 1e6 / result["mb"]
    return f"{told(result)}, scratch {scratch:.2f} of the input, {result['mb'] / result['cpu_s']:.0f} MB per CPU second"


# -- parts ------------------------------------------------------------------------------------------------------------
def equality(options: argparse.Namespace) -> None:
    """Compare every span of every document of 94 MB of real text with those of a suffix array."""
    import pydivsufsort

    folder = data.base()[0].parent
    texts, places = [], []
    for k, path in enumerate(sorted(folder.glob("*.jsonl"))):
        offset = 0
        for line in path.read_bytes().splitlines(keepends=True):
            texts.append(json.loads(line)["text"].encode("utf-8", "surrogatepass"))
            places.append((k, offset))
            offset += len(line)
    text, began_s = b"".join(texts), time.process_time()
    order = pydivsufsort.divsufsort(text)
    sorted_s = time.process_time()
    common = np.concatenate([[0], pydivsufsort.kasai(text, order)[:-1]])
    cpu_s = time.process_time() - began_s
    note(
        "equality",
        f"suffix array of {len(text) / 1e6:.0f} MB, pydivsufsort",
        f"{cpu_s:.1f} s of CPU ({sorted_s - began_s:.1f} without common prefixes), "
        f"{len(text) / 1e6 / cpu_s:.1f} MB per CPU second",
    )
    sizes = np.array([len(one) for one in texts], np.int64)
    for length in LENGTHS:
        keep = "none" if length == LENGTHS[-1] else "first"
        more = ("--min-bytes", str(length), "--keep", keep)
        result = tamis(folder, OUT, *more)
        found = passages_in(str(OUT))
        expected = spans_of_suffix_array(order.astype(np.int64), common >= length, sizes, length, keep)
        n_wrong = sum(found.get(place, []) != spans for place, spans in zip(places, expected, strict=True))
        n = sum(map(len, expected))
        what = f"documents with other spans, {length} bytes, keep {keep}"
        note("equality", what, f"{n_wrong} of {len(texts):,} ({n:,} spans)", n_wrong == 0)
        note("equality", f"... of the whole command, {length} bytes", shares(result))
        note("equality", f"... times the CPU of the suffix array, {length} bytes", f"{result['cpu_s'] / cpu_s:.2f}")
    shutil.rmtree(OUT, ignore_errors=True)


def growth(options: argparse.Namespace) -> None:
    """Measure whether peak and scratch grow with the input."""
    for n_times in [1, 10, *([] if options.quick else [50]), *([100] if options.full else [])]:
        result = tamis(dedup_data.varied(n_times), OUT)
        name = f"{n_times / 10:g} GB"
        scratch = result["said"]["scratch_bytes"] / 1e6 / result["mb"]
        fits = result["peak_pss_mb"] <= MOST_PEAK_MB and scratch <= MOST_SCRATCH
        note("growth", f"{name}, 500 bytes, budget 512 MB", shares(result), fits)
    shutil.rmtree(OUT, ignore_errors=True)


def budgets(options: argparse.Namespace) -> None:
    """Check that the spans are the same with any budget and number of workers."""
    source, found = data.base()[0].parent, []
    for memory, workers in (("300MB", "1"), ("2GB", "1"), ("300MB", "2"), ("2GB", "2")):
        result = tamis(source, OUT, "--workers", workers, memory=memory)
        found.append(passages_in(str(OUT)))
        note("budgets", f"{memory}, workers: {workers}", told(result))
    note("budgets", "the same spans", str(len(found)), all(one == found[0] for one in found))
    shutil.rmtree(OUT, ignore_errors=True)


def index(options: argparse.Namespace) -> None:
    """Compare one half of 1 GB with an index of the other half: what it takes, and the spans of a joint run."""
    parts = sorted(dedup_data.varied(10).iterdir())
    base = sorted(data.base())
    for name, old, new in (("94 MB", base[:2], base[2:]), ("1 GB", parts[::2], parts[1::2])):
        earlier, later = (_linked(folder, files) for folder, files in (("earlier", old), ("later", new)))
        kept, out = OUT.with_name("index"), OUT.with_name("earlier-out")
        shutil.rmtree(kept, ignore_errors=True)
        added = tamis(earlier, out, "--index", str(kept))
        note("index", f"half of {name}, added to an index", shares(added))
        size = dedup_data.size_of(kept) / 1e6 / added["mb"]
        note("index", "... size of the index, in sizes of this half", f"{size:.2f}")
        result = tamis(later, OUT, "--against", str(kept))
        fits = result["peak_pss_mb"] <= MOST_PEAK_MB
        note("index", "... the other half, compared with it", shares(result), fits)
        found = passages_in(str(OUT))
        joint = _linked("joint", [*(path for path in out.iterdir() if path.suffix == ".jsonl"), *new])
        n_old = len(list(joint.iterdir())) - len(new)
        tamis(joint, OUT)
        expected = {(k - n_old, at): spans for (k, at), spans in passages_in(str(OUT)).items() if k >= n_old}
        n_wrong = sum(found.get(place, []) != expected.get(place, []) for place in {*found, *expected})
        what = f"... documents with other spans than in a run over both (of {len(expected):,} with any)"
        note("index", what, str(n_wrong), n_wrong == 0)
        for folder in (kept, out, earlier, later, joint, OUT):
            shutil.rmtree(folder, ignore_errors=True)


def _linked(name: str, files: list[Path]) -> Path:
    """Return a folder with links to files, in this order."""
    folder = OUT.with_name(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for k, path in enumerate(files):
        (folder / f"{k:05d}.jsonl").symlink_to(path.resolve())
    return folder


def adversarial(options: argparse.Namespace) -> None:
    """Measure scratch and speed on texts that select much."""
    rng = random.Random(1)
    base = "".join(rng.choice("abcdefgh ") for _ in range(2000))
    fibonacci = ["a", "ab"]
    while len(fibonacci[-1]) < 5_000_000:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    n_copies = 2_000 if options.quick else 100_000 if options.full else 20_000

    def edited(k: int) -> str:
        copy = list(base)
        for _ in range(3):
            copy[rng.randrange(len(copy))] = "XYZ"[k % 3]
        return "".join(copy)

    kinds = {
        "one character": ["a" * 5_000_000],
        "period 7": ["abcdefg" * 700_000],
        "Fibonacci string": [fibonacci[-1][:5_000_000]],
        f"{n_copies:,} copies of 2 kB, three characters changed": [edited(k) for k in range(n_copies)],
        "runs between random texts": ["a" * 500 + "".join(rng.choices(base, k=100)) for _ in range(n_copies)],
    }
    for name, texts in kinds.items():
        source = OUT.parent / "adversarial"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        (source / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        note("adversarial", f"{name}, {dedup_data.size_of(source) / 1e6:.0f} MB", shares(tamis(source, OUT)))
        shutil.rmtree(source)
    shutil.rmtree(OUT, ignore_errors=True)


def kernel(options: argparse.Namespace) -> None:
    """Measure the speed of the selection, and what it selects, by the length of its k-grams."""
    texts = [json.loads(line)["text"].encode("utf-8", "surrogatepass") for line in data.base()[0].open()]
    ends = np.cumsum([len(text) for text in texts])
    starts, buffer = ends - np.array([len(text) for text in texts]), np.frombuffer(b"".join(texts), np.uint8)
    lines = ["", "Selections for windows of 500 bytes, by the length k of the k-grams (one core, 25 MB):", ""]
    lines += [
        "| k | MB/s | selected of all positions | of these with another of the same k-gram |",
        "|---|---|---|---|",
    ]
    for k in (50, 100, 150, 200, 250, 300):
        seconds = []
        for _ in range(3):
            began_s = time.process_time()
            found = select(buffer, starts, ends, 500, k)
            seconds.append(time.process_time() - began_s)
        speed, share = len(buffer) / 1e6 / min(seconds), len(found) / len(buffer)
        _, number, count = np.unique(found.key, return_inverse=True, return_counts=True)
        lines.append(f"| {k} | {speed:.0f} | {share:.2%} | {np.mean(count[number] > 1):.1%} |")
        if k == 250:
            note("kernel", "selection for 500 bytes, MB/s of one core (goal 300)", f"{speed:.0f}", speed >= LEAST_MB_S)
    TABLES.extend(lines)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "kernel": kernel,
    "equality": equality,
    "budgets": budgets,
    "adversarial": adversarial,
    "growth": growth,
    "index": index,
}


def measure_part(name: str, options: argparse.Namespace) -> None:
    """Measure one part, and keep its figures for the page."""
    del ROWS[:], TABLES[:]
    PARTS[name](options)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps({"rows": ROWS, "tables": TABLES}))


def write() -> None:
    kept = [json.loads((KEPT / f"{name}.json").read_text()) for name in PARTS if (KEPT / f"{name}.json").exists()]
    lines = [
        "# Figures of substring deduplication",
        "",
        f"Written by `make bench-substring`, on {N_CORES} cores. Input: real documentation; every 100 MB of it in an",
        "alphabet of its own, so that a larger input is not a smaller one with copies. Times are those of the",
        "whole command, memory is the peak of all its processes (PSS).",
        "",
        *table(row for part in kept for row in part["rows"]),
        *(line for part in kept for line in part["tables"]),
    ]
    figures.write_page("benchmarks-substring.md", lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 1 GB, and write no page")
    parser.add_argument("--full", action="store_true", help="10 GB and 100,000 edited copies, too")
    parser.add_argument("--only", choices=list(PARTS), action="append")
    options = parser.parse_args()
    missed = 0
    try:
        for name in options.only or PARTS:
            measure_part(name, options)
            missed |= figures.exit_code()
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    if not options.quick:
        write()
    return missed


if __name__ == "__main__":
    sys.exit(main())
