"""Choosing and mixing: exact quantiles in a budget, mixes, folders by fields, decontamination beside datatrove's.

    python benchmarks/choose.py [--quick] [--only quantiles|mixing|partitions|decontamination|kills]

Writes docs/explanation/benchmarks-choose.md when all of it ran in full; with --only its rows of the page.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import data
from figures import ROWS, note, put_rows, run_parts, table, write_page
from measuring import TAMIS, measure
from tamis.dedup.quantiles.weighted import keys_of, numbers_of, smallest_reaching, totals_of

OUT = data.DATA / "choose"
BUDGET_BYTES = 512_000_000
N_BUCKETS = 20
CHUNK = 1 << 20
MEMORY = "512MB"


# -- quantiles ---------------------------------------------------------------------------------------------------------
def quantiles(quick: bool) -> None:
    """Scores and weights in files, read as the records of a run are; in a process of its own, for its peak."""
    n = 5_000_000 if quick else 100_000_000
    done = subprocess.run([sys.executable, __file__, "--quantiles", str(n)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.strip().splitlines()[-1])
    note("quantiles", f"{n:,} scores with weights, {N_BUCKETS} buckets: CPU time", f"{said['cpu_s']:.1f} s")
    peak = said["peak_mb"]
    note("quantiles", "peak memory of the process, budget 512 MB", f"{peak:.0f} MB", peak < BUDGET_BYTES / 1e6)
    note("quantiles", "a sample of 2,000,000: equal to numpy's", str(said["equal"]), said["equal"])


def measured_quantiles(n: int) -> dict[str, Any]:
    OUT.mkdir(parents=True, exist_ok=True)
    scores, weights = OUT / "scores.f4", OUT / "weights.i4"
    rng = np.random.default_rng(1)
    with open(scores, "wb") as a, open(weights, "wb") as b:
        for first in range(0, n, CHUNK):
            size = min(CHUNK, n - first)
            rng.normal(size=size).astype("<f4").tofile(a)
            rng.integers(1, 3000, size).astype("<i4").tofile(b)

    def chunks(most: int = n) -> Iterator[tuple[Any, Any, Any]]:
        with open(scores, "rb") as a, open(weights, "rb") as b:
            for first in range(0, most, CHUNK):
                size = min(CHUNK, most - first)
                weight = np.fromfile(b, "<i4", size).astype(np.int64)
                yield np.zeros(size, np.int64), keys_of(np.fromfile(a, "<f4", size)), weight

    def edges(most: int) -> Any:
        total = int(totals_of(lambda: chunks(most), 1)[1][0])
        targets = np.array([[-(-k * total // N_BUCKETS) for k in range(1, N_BUCKETS)]])
        return numbers_of(smallest_reaching(lambda: chunks(most), targets, BUDGET_BYTES // 4)[0])

    began = time.process_time()
    edges(n)
    about = {"cpu_s": time.process_time() - began, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}
    some = min(n, 2_000_000)
    shares = np.arange(1, N_BUCKETS) / N_BUCKETS
    whole = np.fromfile(scores, "<f4", some), np.fromfile(weights, "<i4", some)
    expected = np.quantile(whole[0], shares, weights=whole[1], method="inverted_cdf")
    return {**about, "equal": bool((edges(some) == expected).all())}


# -- mixing and folders ------------------------------------------------------------------------------------------------
def scored(n_times: int, n_topics: int, name: str) -> tuple[Path, float]:
    """Return documents with a score and a topic in as many copies, and their megabytes."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = random.Random(4)
    lines = [json.loads(line) for part in data.base() for line in part.read_bytes().splitlines()]
    for k in range(n_times):
        with open(folder / f"{k:03d}.jsonl", "w") as out:
            for document in lines:
                topic = f"t{int(n_topics * rng.random() ** 2)}"
                document = {"id": document.get("id"), "text": document.get("text"), "topic": topic}
                out.write(json.dumps({**document, "edu": rng.random()}) + "\n")
    return folder, sum(p.stat().st_size for p in folder.glob("*.jsonl")) / 1e6


def run_recipe(name: str, steps: str, source: Path, target: Path, *more: str, write: str = "card: false") -> Any:
    recipe = OUT / f"{name}.yaml"
    recipe.write_text(f"input: {source}\noutput: {target}\nsteps:\n{steps}write: {{{write}}}\n")
    shutil.rmtree(target, ignore_errors=True)
    result = measure([TAMIS, "run", str(recipe), "--fresh", "-q", "--json", *more])
    assert result["rc"] == 0, result
    return result


def digest(folder: Path) -> str:
    """Return a hash of the names and bytes of the JSONL files of an output."""
    found = hashlib.blake2b()
    for path in sorted(folder.rglob("*.jsonl")):
        if "_tamis" not in path.parts:
            found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def n_tokens(folder: Path) -> int:
    """Count the tokens of an output, a quarter of the bytes of each text, without Tamis."""
    total = 0
    for path in folder.glob("*.jsonl"):
        with open(path, "rb") as lines:
            total += sum((len((json.loads(line)["text"] or "").encode()) + 3) // 4 for line in lines)
    return total


def mixing(quick: bool) -> None:
    """Mix by each rule, count what came out, and mix again with another budget and number of workers."""
    source, mb = scored(1 if quick else 10, 8, "scored")
    target = int(mb * 1e6 / 4 * 0.4)
    buckets = "  - buckets: {score: edu, n: 20, weight: tokens}\n"
    rules = {
        "curve": f"{buckets}  - mix: {{by: quality_bucket, curve: [0, 7], power: 4, target: {target}}}\n",
        "temperature": f"  - mix: {{by: topic, temperature: 0.5, target: {target}}}\n",
        "unimax": f"  - mix: {{by: topic, unimax: true, target: {target}}}\n",
        "table": f"  - mix: {{by: topic, epochs: {{t0: 2, '*': 1}}, target: {target}}}\n",
    }
    for name, steps in rules.items():
        result = run_recipe(name, steps, source, OUT / "mixed", "--memory", MEMORY)
        off = abs(n_tokens(OUT / "mixed") - target) / target
        speed = f"{mb / result['cpu_s']:.0f} MB per CPU second, {result['peak_pss_mb']:.0f} MB"
        note(
            "mixing", f"{mb:.0f} MB by {name}: off the target of {target:,} tokens", f"{off:.5%}; {speed}", off < 0.001
        )
        if name == "curve":
            first = digest(OUT / "mixed")
            run_recipe(name, steps, source, OUT / "mixed", "--memory", "300MB", "--workers", "1", "--blocksize", "7MB")
            same = digest(OUT / "mixed") == first
            note("mixing", "again with 300 MB and one worker", "the same bytes" if same else "differs", same)
    shutil.rmtree(source)


def partitions(quick: bool) -> None:
    """Write folders for ten thousand values."""
    n = 500 if quick else 10_000
    source, mb = scored(1 if quick else 10, n, "topics")
    steps = "  - keep_top: {score: edu, fraction: '100%'}\n"
    write = "card: false, partition_by: [topic]"
    result = run_recipe("topics", steps, source, OUT / "folders", "--memory", MEMORY, write=write)
    paths = list((OUT / "folders").glob("topic=*/part-*.jsonl"))
    what = f"{mb:.0f} MB in {len(paths):,} folders: CPU time, peak PSS"
    fits = result["peak_pss_mb"] <= 512
    note("partitions", what, f"{result['cpu_s']:.0f} s, {result['peak_pss_mb']:.0f} MB", fits)
    shutil.rmtree(source)


# -- decontamination ---------------------------------------------------------------------------------------------------
def evaluation(folder: Path, documents: list[str], n: int, seed: int = 0) -> list[list[str]]:
    """Items of random words of the corpus, of 15 to 90 words."""
    rng = random.Random(seed)
    words = sorted({w for text in documents[:3000] for w in text.split() if w.isascii() and w.isalpha()})
    items = [rng.choices(words, k=rng.randrange(15, 90)) for _ in range(n)]
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"question": " ".join(item)}) + "\n" for item in items)
    (folder / "random.jsonl").write_text(rows)
    return items


def planted(source: Path, target: Path, items: list[list[str]]) -> set[str]:
    """Copy a file, with an item in every hundredth document, in another case and on other lines; return their ids."""
    rng, ids = random.Random(1), set()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source) as lines, open(target, "w") as out:
        for i, line in enumerate(lines):
            document = {**json.loads(line), "id": f"doc {i}"}
            if i % 100 == 0 and isinstance(document.get("text"), str):
                item = items[(i // 100) % len(items)]
                shown = [w.upper() if rng.random() < 0.3 else w for w in item]
                shown = ["changed" if k % 20 == 19 else w for k, w in enumerate(shown)]
                cut = len(document["text"]) // 2
                document["text"] = f"{document['text'][:cut]} {chr(10).join(shown)}. {document['text'][cut:]}"
                ids.add(document["id"])
            out.write(json.dumps(document) + "\n")
    return ids


def kept_ids(folder: Path) -> set[str]:
    return {json.loads(line)["id"] for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()}


def decontamination(quick: bool) -> None:
    parts = data.base()
    documents = [json.loads(line).get("text") or "" for line in parts[0].read_bytes().splitlines()]
    shutil.rmtree(OUT / "evals", ignore_errors=True)
    items = evaluation(OUT / "evals", documents, 2_000 if quick else 20_000)
    folder = data.many(1 if quick else 3)
    mb = sum(p.stat().st_size for p in folder.glob("*.jsonl")) / 1e6
    took: dict[str, list[float]] = {"filters": [], "decontamination": []}
    peak = 0.0
    for _ in range(1 if quick else 2):  # interleaved: others use the machine, too
        for name, command in (
            ("filters", ["filter", "heuristic-english"]),
            ("decontamination", ["decontaminate", "--against", str(OUT / "evals")]),
        ):
            shutil.rmtree(OUT / "out", ignore_errors=True)
            arguments = [TAMIS, *command, str(folder), str(OUT / "out"), "--memory", MEMORY, "-q"]
            result = measure(arguments)
            assert result["rc"] == 0, result
            took[name].append(result["cpu_s"])
            peak = max(peak, result["peak_pss_mb"])
    speeds = {name: mb / min(seconds) for name, seconds in took.items()}
    share = speeds["decontamination"] / speeds["filters"]
    note("speed", f"{mb:.0f} MB, 28 filters: MB per CPU second", f"{speeds['filters']:.0f} MB/s")
    note("speed", "decontamination, all passes", f"{speeds['decontamination']:.0f} MB/s, {share:.0%}", share >= 0.5)
    note("speed", f"peak PSS, budget {MEMORY}", f"{peak:.0f} MB", peak <= 512)
    n_documents = sum(len(path.read_bytes().splitlines()) for path in folder.glob("*.jsonl"))
    n_dropped = n_documents - len([line for p in (OUT / "out").glob("*.jsonl") for line in p.read_bytes().splitlines()])
    what = f"false alarms among {n_documents:,} documents without items"
    note("recall", what, f"{n_dropped}", n_dropped * 10_000 <= n_documents)
    ids = planted(parts[0], OUT / "planted" / "a.jsonl", items)
    kept = _clean(OUT / "planted", OUT / "found")
    every = {f"doc {i}" for i in range(len(documents))}
    n_missed, n_false = len(kept & ids), len(every - ids - kept)
    note("recall", f"{len(ids):,} planted items, one word in twenty changed", f"{n_missed} missed", n_missed == 0)
    note("recall", f"false alarms among {len(every - ids):,} documents", f"{n_false}", n_false * 10_000 <= len(every))
    _datatrove(items, ids, every)
    _large_index(documents, quick)


def _clean(source: Path, output: Path, *more: str) -> set[str]:
    shutil.rmtree(output, ignore_errors=True)
    arguments = [str(source), str(output), "--against", str(OUT / "evals"), "--common", "none", "--memory", MEMORY]
    subprocess.run([TAMIS, "decontaminate", *arguments, "-q", *more], check=True, capture_output=True)
    return kept_ids(output)


def _datatrove(items: list[list[str]], ids: set[str], every: set[str]) -> None:
    """Its n-gram filter on the same planted file, in its own environment."""
    sys.path.insert(0, str(data.HERE / "peers"))
    from environments import installed

    peer = installed("datatrove")
    if peer is None:
        return
    script = data.HERE / "peers" / "datatrove_decont.py"
    target = OUT / "datatrove"
    for folder in (target, Path(f"{target}-index"), Path(f"{target}-logs")):
        shutil.rmtree(folder, ignore_errors=True)
    arguments = [peer.python, str(script), str(OUT / "planted"), str(target), str(OUT / "evals" / "random.jsonl")]
    theirs = measure(arguments, env=peer.env)
    if theirs["rc"]:
        note("peers", "datatrove's n-gram decontamination", f"failed: {str(theirs['said'])[:200]}")
        return
    shutil.rmtree(OUT / "ours", ignore_errors=True)
    against = ["--against", str(OUT / "evals"), "--memory", MEMORY, "--common", "none", "-q"]
    ours = measure([TAMIS, "decontaminate", str(OUT / "planted"), str(OUT / "ours"), *against])
    mb = (OUT / "planted" / "a.jsonl").stat().st_size / 1e6
    for name, result, folder in (("datatrove", theirs, target), ("tamis", ours, OUT / "ours")):
        kept = kept_ids(folder)
        found = f"{len(ids - kept):,} of {len(ids):,} found, {len(every - ids - kept)} false alarms"
        figure = f"{mb / result['cpu_s']:.1f} MB per CPU second, {result['peak_pss_mb']:.0f} MB, {found}"
        note("peers", f"{name}: {mb:.0f} MB with planted items", figure)


def _large_index(documents: list[str], quick: bool) -> None:
    """Measure the memory that many n-grams take: items of random words, over one file of documents."""
    n_ngrams = 2_000_000 if quick else 50_000_000
    folder = OUT / "large"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    words = np.array(sorted({w for text in documents[:3000] for w in text.split() if w.isascii() and w.isalpha()}))
    with open(folder / "many.jsonl", "w") as out:
        for _ in range(n_ngrams // 988):
            out.write(json.dumps({"text": " ".join(words[rng.integers(0, len(words), 1000)])}) + "\n")
    source = OUT / "some"
    source.mkdir(exist_ok=True)
    shutil.copy(data.base()[0], source / "a.jsonl")
    shutil.rmtree(OUT / "out", ignore_errors=True)
    arguments = [str(source), str(OUT / "out"), "--against", str(folder), "--memory", "400MB", "-q"]
    result = measure([TAMIS, "decontaminate", *arguments])
    peak = result["peak_pss_mb"]
    note("index", f"{n_ngrams:,} n-grams: peak PSS, budget 400 MB", f"{peak:.0f} MB", result["rc"] == 0 and peak <= 400)
    note("index", "CPU time, the index included", f"{result['cpu_s']:.0f} s")
    shutil.rmtree(folder)


# -- kills -------------------------------------------------------------------------------------------------------------
def kills(quick: bool) -> None:
    """Kill the command at random moments; the same command must resume and end with the same output."""
    documents = [json.loads(line).get("text") or "" for line in data.base()[0].read_bytes().splitlines()]
    items = evaluation(OUT / "evals", documents, 2_000)
    planted(data.base()[0], OUT / "planted" / "a.jsonl", items)
    _clean(OUT / "planted", OUT / "whole")
    expected = sorted(b"".join(p.read_bytes() for p in (OUT / "whole").glob("*.jsonl")).splitlines())
    rng, n, target = random.Random(2), 3 if quick else 20, OUT / "killed"
    arguments = [str(OUT / "planted"), str(target), "--against", str(OUT / "evals"), "--common", "none", "-q"]
    same = n_killed = 0
    while n_killed < n:
        shutil.rmtree(target, ignore_errors=True)
        for attempt in range(100):
            process = subprocess.Popen(
                [TAMIS, "decontaminate", *arguments, "--memory", MEMORY, "--blocksize", "1MB"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code = process.wait(rng.uniform(0.2, 4.0) if attempt < 4 and n_killed < n else None)
                assert code == 0, code
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                n_killed += 1
        found = sorted(b"".join(p.read_bytes() for p in target.glob("*.jsonl")).splitlines())
        same += found == expected
        assert found == expected
    note("kills", f"{n_killed} SIGKILLs at random moments, {same} outputs compared", "all the same", True)


PARTS = {
    "quantiles": quantiles,
    "mixing": mixing,
    "partitions": partitions,
    "decontamination": decontamination,
    "kills": kills,
}


def write() -> None:
    machine = f"on {len(os.sched_getaffinity(0))} cores with a load of {os.getloadavg()[2]:.0f}"
    intro = [
        "# Benchmarks: choosing and mixing",
        "",
        f"Written by `make bench-choose`, {machine}.",
        "`python benchmarks/choose.py --only PART` measures a part again.",
        "CPU seconds and ratios within a run hold on a busy machine, too.",
        "",
    ]
    write_page("benchmarks-choose.md", [*intro, *table(ROWS)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--quantiles"]:
        print(json.dumps(measured_quantiles(int(sys.argv[2]))))
    else:
        code = run_parts(__doc__, PARTS, OUT, write)
        if "--only" in sys.argv and "--quick" not in sys.argv:
            for part in dict.fromkeys(row[0] for row in ROWS):
                put_rows("benchmarks-choose.md", [row for row in ROWS if row[0] == part])
        sys.exit(code)
