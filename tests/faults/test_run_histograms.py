"""Histograms of whole runs: against the slow twin, whatever the cuts, executors, sampling steps and kills."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.engine.histograms import Histogram
from tamis.stages.text.filters import Filter, Score, ScoreFilter
from tamis.stages.text.filters.heuristic.string import WhiteSpaceFilter, WordCountFilter
from tests.faults.fault_harness import env, execute, lines_of, manifest, write_lines
from tests.reference.histogram_twin import histogram
from tests.support.run_dirs import run_dir_path

N = 3000
Table = dict[tuple[str, str, str], dict[int, int]]

# One run in a process of its own, to be killed.
TARGET = """
import sys
from tests.faults.fault_stages import Slow
from tests.faults.test_run_histograms import stages
from tamis import LocalExecutor, Pipeline
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter

source, output, blocksize, workers = sys.argv[1:]
reader, writer = DocumentReader(source, blocksize=blocksize), JsonlWriter(output)
pipeline = Pipeline("killed", stages=[reader, *stages(), Slow(0.05), writer])
pipeline.run(LocalExecutor(), memory="512MB", workers=int(workers), quarantine_limit="50%")
"""


def letters(text: str) -> int:
    return len(text)


def stages() -> list[Any]:
    return [
        ScoreFilter([WordCountFilter(min_words=5), WhiteSpaceFilter(0.2)], score_field=["words", None]),
        Score(letters, "letters"),
        Filter(lambda n: n < 400, "letters"),
    ]


def texts() -> list[str]:
    rng = random.Random(7)
    return [" ".join("w" * rng.randint(1, 12) for _ in range(int(rng.expovariate(0.03)))) for _ in range(N)]


def documents() -> list[bytes]:
    return [json.dumps({"id": i, "text": text}).encode() for i, text in enumerate(texts())]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = documents()
    folder = tmp_path_factory.mktemp("in")
    write_lines(folder / "a.jsonl", [*lines[:1000], b"{broken", *lines[1000:2000]])
    write_lines(folder / "b.jsonl", lines[2000:])
    return folder


def found(output: Path) -> Table:
    """Return the histograms of a run by bin, after checking that manifest and run database agree."""
    shown = manifest(output)["histograms"]
    with sqlite3.connect(run_dir_path(output) / "run.sqlite") as db:
        rows = db.execute("SELECT stage, name, kind, bins FROM histograms").fetchall()
    db.close()
    stored = {(s, n, k): json.loads(bins) for s, n, k, bins in rows}
    assert stored == {(h["stage"], h["name"], h["kind"]): h["bins"] for h in shown}
    books = manifest(output)["ledger"]
    by_bin: Table = {("", "bytes", f"length_{side}"): parsed(t) for side, t in books["lengths"].items()}
    for book in books["stages"]:
        by_bin |= {(book["name"], name, "score"): parsed(t) for name, t in book.get("scores", {}).items()}
    assert {key: [list(b) for b in Histogram(counts).bins()] for key, counts in by_bin.items()} == stored
    return by_bin


def parsed(text: str) -> dict[int, int]:
    return Histogram.from_text(text).counts


def expected(output: Path) -> Table:
    """By the twin, from the texts and from what was written."""
    lines = documents()
    words = [len(t.split()) for t in texts()]
    left = [t for t, n in zip(texts(), words, strict=True) if n >= 5]
    blank = [sum(map(str.isspace, t)) / len(t) for t in left]
    after = [t for t, share in zip(left, blank, strict=True) if share <= 0.2]
    chain = "score_filter_chain_of_word_count_white_space"
    return {
        ("", "bytes", "length_in"): histogram([len(line) for line in lines]),
        ("", "bytes", "length_out"): histogram([len(line) for line in lines_of(output)]),
        (chain, "word_count", "score"): histogram(words),
        (chain, "white_space", "score"): histogram(blank),
        ("letters", "letters", "score"): histogram([len(t) for t in after]),
        ("<lambda>", "<lambda>", "score"): histogram([len(t) for t in after]),
    }


@pytest.mark.parametrize("blocksize", ["2KB", "64KiB", None])
def test_histograms_are_those_of_the_twin_however_the_input_is_cut(
    source: Path, tmp_path: Path, blocksize: str | None
) -> None:
    execute(source, tmp_path / "out", stages(), local=False, blocksize=blocksize, settings={"quarantine_limit": "50%"})
    assert found(tmp_path / "out") == expected(tmp_path / "out")
    limits = {t["name"]: t["limits"] for t in manifest(tmp_path / "out")["histograms"] if "limits" in t}
    assert limits == {"word_count": [5, 100_000], "white_space": [0.2]}
    books = manifest(tmp_path / "out")["ledger"]
    assert sum(found(tmp_path / "out")["", "bytes", "length_in"].values()) == N == books["records"][0] - 1
    assert sum(found(tmp_path / "out")["", "bytes", "length_out"].values()) == books["written"][0]


def test_steps_of_a_sample_count_each_document_once(source: Path, tmp_path: Path) -> None:
    for sample in ("10%", "100%"):
        settings = {"quarantine_limit": "50%", "sample": sample}
        execute(source, tmp_path / "out", stages(), local=False, settings=settings)
    assert found(tmp_path / "out") == expected(tmp_path / "out")


def test_a_run_that_was_killed_has_the_histograms_of_one_that_was_not(source: Path, tmp_path: Path) -> None:
    output, log = tmp_path / "out", run_dir_path(tmp_path / "out") / "commit.log"
    n_killed = 0
    for blocksize, workers in [("9KB", "1"), ("5KB", "2"), ("30KB", "2"), ("64KiB", "2")]:
        command = [sys.executable, "-c", TARGET, str(source), str(output), blocksize, workers]
        run = subprocess.Popen(command, env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        before, deadline = size(log), time.monotonic() + 60
        while blocksize != "64KiB" and run.poll() is None and size(log) <= before and time.monotonic() < deadline:
            time.sleep(0.005)
        if blocksize != "64KiB" and run.poll() is None:
            run.send_signal(signal.SIGKILL)
            n_killed += 1
        said, _ = run.communicate(timeout=60)
        assert run.returncode in (0, -signal.SIGKILL), said
    assert n_killed == 3
    assert found(output) == expected(output)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_rows_of_parquet_are_as_long_as_their_values(tmp_path: Path) -> None:
    table = pa.table({"text": ["a" * n for n in range(500)], "n": list(range(500))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=70)
    for name, blocksize in (("a", "1KB"), ("b", None)):
        execute(tmp_path / "in.parquet", tmp_path / name, [], local=False, blocksize=blocksize, parquet=True)
        counts = histogram([n + 8 for n in range(500)])
        assert found(tmp_path / name) == {("", "bytes", "length_in"): counts, ("", "bytes", "length_out"): counts}
