"""Figures of a whole curation: `make bench-curate`, or `python benchmarks/curate.py [--quick] [--only PART]`.

The preset web-english over real text in one command, beside the same steps as commands of their own, each reading what
the one before wrote; and each of its steps alone over all of the input. Every line is measured now, from outside
(measuring.py). Input: 1 GB, the base files ten times over, each time with another word between every four, so that
copies are no duplicates of each other; `--quick`: 100 MB. The part `peers` does a like job with nemo-curator and
datatrove over 20 MB (curate_peers.py). benchmarks-curate.md is written by a full run; `--only peers` puts its own
rows into it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import curate_peers
import data
import figures
from figures import ROWS, note, table
from measuring import TAMIS, measure
from tamis.stores.run_locations import run_dir_of

OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out")) / "curate"
MEMORY = "512MB"
BUDGET_MB = 512
TIMES = 4
MARKS = ("", "very", "quite", "rather", "often", "perhaps", "indeed", "always", "mostly", "hardly")
FUZZY = ["--word-ngrams", "5", "--bands", "14", "--rows", "8"]
STEP = """
name: {name}
stages:
  - _target_: tamis.stages.text.io.reader.DocumentReader
    file_paths: {source}
  - {stage}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {target}
"""
FILTERS = {
    "text": "{_target_: tamis.stages.text.filters.has_text.HasText}",
    "fineweb_quality": "{_target_: tamis.stages.text.filters.fineweb.FineWebQuality}",
    "c4_quality": "{_target_: tamis.stages.text.filters.c4.C4Quality}",
    "gopher_quality": "{_target_: tamis.stages.text.filters.gopher.GopherQuality}",
    "gopher_repetition": "{_target_: tamis.stages.text.filters.gopher.GopherRepetition}",
    "language": "{_target_: tamis.stages.text.filters.fasttext.LanguageFilter, lang: en, min_score: 0.65}",
}
PII = (
    "{_target_: tamis.stages.text.modifiers.Modify, input_fields: text, "
    "modifier_fn: {_target_: tamis.stages.text.modifiers.PiiRedactor, kinds: [email, ipv4]}}"
)


def marked(n_times: int) -> Path:
    """Return the base files n times over, about 100 MB each.

    In each copy but the first another word stands between every four.
    """
    folder = data.DATA / f"marked-{n_times}"
    if folder.exists():
        return folder
    temporary = data.DATA / f"marked-{n_times}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for k in range(n_times):
        for part in data.base():
            with open(part, "rb") as source, open(temporary / f"{k:03d}-{part.name}", "wb") as target:
                for line in source:
                    row = json.loads(line)
                    if k:
                        words = row["text"].split(" ")
                        fours = [" ".join(words[i : i + 4]) for i in range(0, len(words), 4)]
                        tens, ones = divmod(k, len(MARKS))
                        mark = f"{MARKS[tens]} {MARKS[ones] or 'never'}" if tens else MARKS[ones]
                        row["text"], row["id"] = f" {mark} ".join(fours), f"{row['id']}-{k}"
                    target.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    temporary.rename(folder)
    return folder


def tamis(*arguments: object) -> dict[str, Any]:
    """Measured, by the clock of the whole process tree."""
    result = measure([TAMIS, *map(str, arguments), "--memory", MEMORY, "--json", "--quiet"], 3600)
    if result["rc"]:
        raise SystemExit(f"{arguments}: {result['said']}")
    return result


def step(name: str, stage: str, source: Path, target: Path) -> dict[str, Any]:
    recipe = OUT / f"{name}.yaml"
    recipe.write_text(STEP.format(name=name, source=source, target=target, stage=stage))
    return tamis("run", recipe, "--fresh")


def flow(result: dict[str, Any]) -> tuple[float, float]:
    """MB read (decoded) and written, over all passes."""
    said = result["said"]
    passes = said.get("passes") or [said]
    return sum(p.get("read_bytes", 0) for p in passes) / 1e6, sum(p.get("written_bytes", 0) for p in passes) / 1e6


def size_of(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.glob("*.jsonl")) / 1e6


def apart(source: Path) -> tuple[dict[str, float], str]:
    """Run the steps as separate commands; return the sums and the content hash of the output."""
    total = {"wall_s": 0.0, "cpu_s": 0.0, "peak_pss_mb": 0.0, "read_mb": 0.0, "written_mb": 0.0}
    here = source
    for i, name in enumerate([*FILTERS, "exact", "fuzzy", "pii"]):
        target = OUT / f"apart-{i}"
        shutil.rmtree(target, ignore_errors=True)
        if name in ("exact", "fuzzy"):
            result = tamis("dedup", name, here, target, *(FUZZY if name == "fuzzy" else []))
            reads = 2  # keys, removal
        else:
            result = step(name, FILTERS.get(name, PII), here, target)
            reads = 1
        for key in ("wall_s", "cpu_s"):
            total[key] += result[key]
        total["peak_pss_mb"] = max(total["peak_pss_mb"], result["peak_pss_mb"])
        total["read_mb"] += reads * size_of(here)
        total["written_mb"] += size_of(target)
        if here != source:
            shutil.rmtree(here)
        here = target
    return total, str(json.loads(Path(run_dir_of(here), "manifest.json").read_text())["content_hash"])


def _cpu_of(measured: Any) -> float:
    """Of one command, or of those that `apart` measured."""
    return float((measured[0] if isinstance(measured, tuple) else measured)["cpu_s"])


def whole(quick: bool) -> None:
    source = marked(1 if quick else 10)
    target = OUT / "whole"
    both = []
    for _ in range(1 if quick else TIMES):  # in turn, so that a busy moment of the machine hits either
        shutil.rmtree(target, ignore_errors=True)
        one = tamis("curate", source, target, "--preset", "web-english", "--no-card", "--fresh")
        both.append((one, apart(source)))
    once, (sums, content) = (min((b[side] for b in both), key=_cpu_of) for side in (0, 1))
    said, (read, written) = once["said"], flow(once)
    n, kept = said["n_records"], said["n_written"]
    part = f"web-english, {size_of(source) / 1000:.1f} GB"
    note(part, "documents in, written", f"{n:,}, {kept:,}")
    note(
        part,
        "one command",
        f"{once['wall_s']:.1f} s wall, {once['cpu_s']:.1f} s CPU, {read:,.0f} MB read, {written:,.0f} MB written",
    )
    note(part, "peak, all processes (outside)", f"{once['peak_pss_mb']:.0f} MB", once["peak_pss_mb"] <= BUDGET_MB)
    note(part, "scratch at most", f"{said['scratch_bytes'] / 1e6:.1f} MB")
    figure = (
        f"{sums['wall_s']:.1f} s wall, {sums['cpu_s']:.1f} s CPU, {sums['read_mb']:,.0f} MB read, "
        f"{sums['written_mb']:,.0f} MB written"
    )
    note(part, "the same steps as 9 commands", figure)
    note(part, "the same content hash", said["content_hash"][:12], content == said["content_hash"])
    note(part, "faster, by CPU time", f"{sums['cpu_s'] / once['cpu_s']:.2f} x", sums["cpu_s"] / once["cpu_s"] >= 1.8)
    note(part, "faster, by the clock", f"{sums['wall_s'] / once['wall_s']:.2f} x")
    turns = ", ".join(f"{_cpu_of(many) / _cpu_of(one):.2f}" for one, many in both)
    note(part, "faster, by CPU time, in each turn of which the above are the best", f"{turns} x")
    single(source, part, once["cpu_s"])


def large(quick: bool) -> None:
    """Check that peak and speed stay the same with ten times as much input.

    With LARGE=1 only: it takes 11 GB of disk and the better part of an hour.
    """
    if not os.environ.get("LARGE"):
        return
    small, much = (marked(n) for n in ((1, 2) if quick else (10, 100)))
    figures_of = {}
    for source in (small, much):
        target = OUT / "large"
        shutil.rmtree(target, ignore_errors=True)
        once = tamis("curate", source, target, "--preset", "web-english", "--no-card", "--fresh")
        size = size_of(source)
        part = f"web-english, {size / 1000:.1f} GB"
        note(
            part,
            "one command",
            f"{once['wall_s']:.1f} s wall, {once['cpu_s']:.1f} s CPU, {size / once['cpu_s']:.1f} MB per CPU second",
        )
        note(part, "peak, all processes (outside)", f"{once['peak_pss_mb']:.0f} MB", once["peak_pss_mb"] <= BUDGET_MB)
        note(part, "scratch at most", f"{once['said']['scratch_bytes'] / 1e6:.1f} MB")
        figures_of[source] = once
    ratio = figures_of[much]["peak_pss_mb"] / figures_of[small]["peak_pss_mb"]
    note("flat", "peak of the larger beside the smaller", f"{ratio:.2f} x", ratio <= 1.15)


def single(source: Path, part: str, whole_cpu_s: float) -> None:
    """Each kind of step alone over all of the input, and one copy."""
    took: dict[str, float] = {}
    together = "{_target_: tamis.stages.text.filters.nemo_curator.HeuristicEnglish}"
    for name, stage in (("language id", FILTERS["language"]), ("28 heuristic filters", together)):
        took[name] = step("alone", stage, source, OUT / "alone")["cpu_s"]
    took["copy"] = tamis("run", "copy", "--set", f"input={source}", "--set", f"output={OUT / 'alone-copy'}", "--fresh")[
        "cpu_s"
    ]
    took["exact deduplication"] = tamis("dedup", "exact", source, OUT / "alone-exact", "--fresh")["cpu_s"]
    took["fuzzy deduplication"] = tamis("dedup", "fuzzy", source, OUT / "alone-fuzzy", *FUZZY, "--fresh")["cpu_s"]
    note(part, "each alone over all of the input, CPU", ", ".join(f"{k} {v:.1f} s" for k, v in took.items()))
    copy = took.pop("copy")
    slowest = max(took.values())
    ratio = whole_cpu_s / (slowest + copy)
    note(part, "one command beside its slowest step and a copy, CPU", f"{ratio:.2f} x", ratio <= 1.3)


def write() -> None:
    about = (__doc__ or "").partition("\n\n")[2].strip()
    machine = f"on {len(os.sched_getaffinity(0))} cores with a load of {os.getloadavg()[2]:.0f}, {MEMORY}"
    head = ["# Figures of a whole curation", "", f"Written by `make bench-curate`, {machine}.", "", about, ""]
    figures.write_page("benchmarks-curate.md", [*head, *table(ROWS)])


def peers(quick: bool) -> None:
    curate_peers.peers(quick)
    figures.put_rows("benchmarks-curate.md", curate_peers.about(ROWS))


if __name__ == "__main__":
    raise SystemExit(figures.run_parts(__doc__, {"whole": whole, "large": large, "peers": peers}, OUT, write))
