"""The figures of the text filters: `make bench-text`, or `python benchmarks/text.py [--quick] [--only PART]`.

Tamis through its command, from JSONL to JSONL under 512 MB, and two peers in environments of their own (peers/). A peer
runs once, on a tenth of the documents, and Tamis directly before it, so that both meet the same machine. `--quick` uses
a tenth of everything, where start-up counts too much to judge speeds by it. Writes benchmarks-text.md when all
parts ran.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import data
from figures import ROWS, note, run_parts, table, write_page
from measuring import TAMIS, measure
from peers import environments

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out-text"))
BUDGET_MB = 512
VERSIONS: list[str] = []


def documents(quick: bool, tenth: bool = False) -> Path:
    """Return the base files ten times over (1 GB) and once; a tenth of either if quick."""
    if quick and tenth:
        return head_of_base("base-head", 0.1)
    return data.many(1) if quick or tenth else data.many(10)


def head_of_base(name: str, share: float) -> Path:
    """Make a folder with the first lines of every base file."""
    folder = data.DATA / name
    folder.mkdir(parents=True, exist_ok=True)
    for part in data.base():
        lines = part.read_bytes().splitlines(keepends=True)
        (folder / part.name).write_bytes(b"".join(lines[: max(5, int(len(lines) * share))]))
    return folder


def size_of(folder: Path) -> tuple[float, int]:
    """(MB, documents) of a folder of JSONL."""
    n_bytes = n_lines = 0
    for path in folder.iterdir():
        n_bytes += path.stat().st_size
        with open(path, "rb") as file:
            n_lines += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    return n_bytes / 1e6, n_lines


def ids_in(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*.jsonl"):
        with open(path, "rb") as file:
            # one of the peers writes a blank line for no documents
            found += [str(json.loads(line)["id"]) for line in file if line.strip()]
    return found


def run(command: list[str], target: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """One measured run into a fresh folder; the documents it kept under "kept"."""
    shutil.rmtree(target, ignore_errors=True)
    result = measure(command, timeout_s=3600, env=env)
    if result["rc"] != 0:
        raise SystemExit(f"{command[:4]} ended with {result['rc']}: {result['said']}")
    result["kept"] = ids_in(target)
    shutil.rmtree(target, ignore_errors=True)
    return result


def best_of_tamis(rules: str, source: Path, n_runs: int = 3) -> dict[str, Any]:
    """Return the shortest wall and CPU time of the runs, and the largest peak."""
    command = [TAMIS, "filter", rules, str(source), str(OUT / rules), "--memory", f"{BUDGET_MB}MB", "--quiet"]
    runs = [run(command, OUT / rules) for _ in range(n_runs)]
    best = {key: min(r[key] for r in runs) for key in ("wall_s", "cpu_s")}
    return {**best, "peak_pss_mb": max(r["peak_pss_mb"] for r in runs), "kept": runs[0]["kept"]}


def tamis(quick: bool) -> None:
    """End to end: MB of input per CPU second of the whole process tree, wall time, documents per second, peak."""
    source = documents(quick)
    n_mb, n_documents = size_of(source)
    for rules, goal in (("heuristic-english", 60), ("gopher", None)):
        r = best_of_tamis(rules, source)
        rate = n_mb / r["cpu_s"]
        what = f"{rules}, {n_mb / 1000:.2g} GB, JSONL to JSONL"
        note(
            "tamis",
            f"{what}: input MB per CPU second",
            f"{rate:.0f} MB/s",
            rate >= goal if goal and not quick else None,
        )
        figure = f"{r['wall_s']:.1f} s, {n_mb / r['wall_s']:.0f} MB/s, {n_documents / r['wall_s']:,.0f} documents/s"
        note("tamis", f"{what}: wall time", f"{figure}, {len(r['kept']) / n_documents:.0%} kept", None)
        peak = r["peak_pss_mb"]
        note("tamis", f"{what}: peak PSS, budget {BUDGET_MB} MB", f"{peak:.0f} MB", peak <= BUDGET_MB)


def long_document(quick: bool) -> None:
    """One document of 50 MB, and one of half that, to see that time grows with length only."""
    walls = []
    for n_mb in (5, 10) if quick else (25, 50):
        source, target = data.DATA / f"long-text-{n_mb}", OUT / "long"
        if not source.exists():
            source.mkdir(parents=True)
            (source / "one.jsonl").write_text(json.dumps({"id": "long", "text": long_text(n_mb * 1_000_000)}) + "\n")
        command = [sys.executable, str(HERE / "peers" / "tamis_score.py"), str(source), str(target)]
        r = run(command, target)
        walls.append(r["wall_s"])
        ok = r["peak_pss_mb"] <= BUDGET_MB and r["kept"] == ["long"]
        figure = f"{r['peak_pss_mb']:.0f} MB, {r['wall_s']:.1f} s"
        note("long", f"one document of {n_mb} MB, all 28 scores, budget {BUDGET_MB} MB", figure, ok)
    # Start-up is part of both, so twice the length takes less than twice the time; more would be more than linear.
    note("long", "twice the length", f"{walls[1] / walls[0]:.1f} times the time", walls[1] / walls[0] <= 2.5)


def long_text(n_bytes: int) -> str:
    """Real text: documents one after the other, cut at the size."""
    texts, n = [], 0
    for part in data.base():
        with open(part, "rb") as file:
            for line in file:
                texts.append(json.loads(line)["text"])
                n += len(texts[-1].encode())
                if n >= n_bytes:
                    return "\n\n".join(texts)[:n_bytes]
    return "\n\n".join(texts)


def peers(quick: bool) -> None:
    """Documents per second of each peer, with and without its start-up, and how many times that Tamis makes."""
    for name, rules in (("nemo-curator", "heuristic-english"), ("datatrove", "gopher")):
        peer = environments.installed(name)
        if peer is None:
            note("peers", f"{name} could not be installed", "left out", None)
            continue
        VERSIONS.append(peer.version())
        against(peer, rules, quick)


def against(peer: environments.Peer, rules: str, quick: bool) -> None:
    source, target = documents(quick, tenth=True), OUT / peer.name
    (_, n_ours), (n_mb, n_theirs) = size_of(documents(quick)), size_of(source)
    tiny = head_of_base("base-start", 0.001)
    ours = best_of_tamis(rules, documents(quick))
    theirs = run(peer.command(source, target), target, peer.env)
    start = run(peer.command(tiny, target), target, peer.env)["wall_s"]
    walls = {"": theirs["wall_s"], ", its start-up left out": theirs["wall_s"] - start}
    what = f"{peer.name}, {rules}, {n_mb:.0f} MB"
    figure = (
        f"{theirs['wall_s']:.0f} s ({start:.0f} s start-up), {theirs['cpu_s']:.0f} CPU s, {theirs['peak_pss_mb']:.0f} "
        "MB"
    )
    note("peers", f"{what}: wall time, CPU time, peak PSS", figure, None)
    our_rate = n_ours / ours["wall_s"]
    for left_out, wall in walls.items():
        rate = n_theirs / wall
        figure = f"{our_rate:,.0f} and {rate:,.0f} documents/s: {our_rate / rate:.0f} times"
        note("peers", f"Tamis against {peer.name}{left_out}", figure, None if quick else our_rate / rate >= 40)
    per_cpu = n_ours / ours["cpu_s"], n_theirs / theirs["cpu_s"]  # says the same on a busy machine
    figure = f"{per_cpu[0]:,.0f} and {per_cpu[1]:,.0f} documents: {per_cpu[0] / per_cpu[1]:.0f} times"
    note("peers", f"Tamis against {peer.name}, per CPU second, start-up included", figure, None)
    if not quick:  # otherwise they did not see the same documents
        compare_kept(peer.name, rules, set(ours["kept"]), set(theirs["kept"]), n_theirs)


def compare_kept(peer: str, rules: str, ours: set[str], theirs: set[str], n_documents: int) -> None:
    """nemo-curator's set is Tamis' but for ties: of n-grams equally frequent it takes any, by Python's hash seed."""
    figure = f"Tamis {len(ours):,}, {peer} {len(theirs):,}, both {len(ours & theirs):,}"
    same = len(ours ^ theirs) <= 0.001 * n_documents if rules == "heuristic-english" else None
    note("peers", f"{rules}: documents kept, of {n_documents:,}", figure, same)


PARTS: dict[str, Callable[[bool], None]] = {"tamis": tamis, "long": long_document, "peers": peers}


def write_table() -> None:
    lines = [
        "# Figures of the text filters",
        "",
        f"Written by `make bench-text`, on {os.cpu_count()} cores. Peers: {', '.join(VERSIONS) or 'none'}.",
        "",
        "- Tamis runs as a user runs it, `tamis filter SET in out --memory 512MB`; times and peaks are of the whole "
        "process tree,",
        "  start-up included. Best of three runs; the peak is the largest of the three.",
        "- Peers run once, on a tenth of the documents (Tamis' input is those documents ten times over), with two "
        "workers:",
        "  nemo-curator with the English recipe that it ships (28 filters, Ray Data), datatrove with "
        "`GopherQualityFilter` and",
        "  `GopherRepetitionFilter` (`LocalPipelineExecutor`). Start-up is their wall time on a few documents.",
        "- nemo-curator takes any of the n-grams that are equally frequent, another one in every run, where Tamis "
        "takes the first: a",
        "  few documents in ten thousand go or stay by that.",
        "- datatrove keeps other documents because it splits words in another way: [datatrove.md](datatrove.md).",
        "",
        *table(ROWS),
    ]
    write_page("benchmarks-text.md", lines)


if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS, OUT, write_table))
