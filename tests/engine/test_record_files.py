"""Files of records (WARC) through the engine: fed in blocks, cut anywhere, resumed, and the same result in any way."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import RunConflict
from tamis.stages.text.io import DocumentReader, JsonlWriter, WarcReader
from tests.support.command import SRC
from tests.support.loopback import serve
from tests.support.run_dirs import run_dir_path
from tests.support.warc_files import members, page, record, response

N = 400


def crawl(folder: Path, n: int = N, name: str = "a.warc.gz", single: bool = False) -> Path:
    """Pages of many sizes, each with a request; one record is damaged and one too large."""
    rng = random.Random(7)
    records = []
    for i in range(n):
        records += [record(i, b"GET /", "request"), record(i, response(page(i) * rng.randint(1, 60)))]
    records.insert(n, record(n, response(b"z" * 300_000)))
    folder.mkdir(exist_ok=True)
    if single:
        (folder / name).write_bytes(gzip.compress(b"".join(records)))
    else:
        parts = members(*records)
        bad = n // 2 + 1
        parts[bad] = parts[bad][:20] + b"\x00\xff" + parts[bad][22:]
        (folder / name).write_bytes(b"".join(parts))
    return folder


def run(source: Path, output: Path, executor: Any = None, **options: Any) -> Any:
    reader = WarcReader(str(source), blocksize=options.pop("blocksize", None))
    pipeline = Pipeline("crawl", stages=[reader, JsonlWriter(str(output))])
    pipeline.run(executor, max_record="200KB", quarantine_limit="10%", progress=False, **options)
    return pipeline.last_result


def lines(output: Path) -> list[str]:
    return sorted(line for path in output.glob("*.jsonl") for line in path.read_text().splitlines())


@pytest.mark.parametrize("single", [False, True])
def test_every_cut_gives_the_same_documents_and_the_same_ledger(tmp_path: Path, single: bool) -> None:
    source = crawl(tmp_path / "in", single=single)
    whole = run(source, tmp_path / "whole", InProcessExecutor(), blocksize="100MB")
    cut = run(source, tmp_path / "cut", InProcessExecutor(), blocksize="64KiB")
    workers = run(source, tmp_path / "workers", memory="700MB", workers=2, blocksize="100KB")
    assert len(list((tmp_path / "cut").glob("*.jsonl"))) > 5
    for result in (whole, cut, workers):
        ledger = result.ledger
        assert not ledger.problems()
        assert ledger.written.n == (N if single else N - 1)
        assert ledger.skipped["request records"] + ledger.written.n + ledger.n_bad_ranges == 2 * N
        assert (ledger.quarantined.n, ledger.n_bad_ranges) == (1, 0 if single else 1)
    assert lines(tmp_path / "whole") == lines(tmp_path / "cut") == lines(tmp_path / "workers")
    assert whole.ledger.content == cut.ledger.content == workers.ledger.content
    assert whole.ledger.positions == cut.ledger.positions == workers.ledger.positions


def test_quarantine_names_file_and_offset(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in")
    run(source, tmp_path / "out", InProcessExecutor(), blocksize="64KiB")
    entries = [
        json.loads(line)
        for path in (run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    data = (source / "a.warc.gz").read_bytes()
    assert len(entries) == 2
    for entry in entries:
        assert entry["file"] == str(source / "a.warc.gz")
        assert entry["unit"] == "bytes"
        assert data[entry["offset"] : entry["offset"] + 2] == b"\x1f\x8b"
    assert sorted(entry["n"] for entry in entries) == [0, 1]


def test_a_warc_file_inside_of_a_warc_file_stays_one_record(tmp_path: Path) -> None:
    inner = b"".join(members(*[record(1000 + i) for i in range(50)]))
    stored = gzip.compress(record(1, inner, "resource", extra=b"Content-Type: application/gzip\r\n"), 0)
    text = record(2, b"".join(record(2000 + i) for i in range(50)), "resource", extra=b"Content-Type: text/plain\r\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.warc.gz").write_bytes(b"".join([*members(record(0)), stored, *members(text, record(3))]))
    (tmp_path / "in" / "b.warc").write_bytes(record(4) + text + record(5))
    result = run(tmp_path / "in", tmp_path / "out", InProcessExecutor(), blocksize="4KiB")
    numbers = [int(json.loads(line)["warc_id"]) for line in lines(tmp_path / "out")]
    assert sorted(numbers) == [0, 2, 2, 3, 4, 5]
    assert result.ledger.skipped == {"records that are not text (application)": 1}


def test_documents_of_every_format_in_one_folder(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 3)
    (source / "b.jsonl").write_text('{"text": "a line"}\n')
    (source / "c.wet").write_bytes(record(9, b"a conversion", "conversion", extra=b"Content-Type: text/plain\r\n"))
    pipeline = Pipeline("all", stages=[DocumentReader(str(source), extract=None), JsonlWriter(str(tmp_path / "out"))])
    pipeline.run(InProcessExecutor(), quarantine_limit="90%")
    documents = [json.loads(line) for line in lines(tmp_path / "out")]
    assert {"a line", "a conversion"} <= {d.get("text") or d.get("content") for d in documents}


def test_other_contents_are_refused_on_resume(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 40)
    run(source, tmp_path / "out", InProcessExecutor())
    crawl(tmp_path / "in", 41)
    with pytest.raises(RunConflict):
        run(source, tmp_path / "out", InProcessExecutor())


_SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[4])
from tamis import Pipeline, ProcessingStage
from tamis.stages.text.io import JsonlWriter, WarcReader

class Slow(ProcessingStage):
    name = "slow"
    def process(self, task):
        time.sleep(0.05)
        return task

if __name__ == "__main__":
    reader = WarcReader(sys.argv[1], blocksize=sys.argv[3])
    pipeline = Pipeline("crawl", stages=[reader, Slow(), JsonlWriter(sys.argv[2])])
    pipeline.run(memory="600MB", workers=2, max_record="200KB", quarantine_limit="10%", progress=False)
"""


def test_killed_at_random_and_resumed_with_other_blocks(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in")
    (tmp_path / "job.py").write_text(_SCRIPT)

    def start(output: Path, blocksize: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(tmp_path / "job.py"), str(source), str(output), blocksize, str(SRC)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)

    whole = start(tmp_path / "whole", "1MB")
    assert whole.wait(60) == 0
    rng, log = random.Random(3), run_dir_path(tmp_path / "out")
    sizes = ["64KiB", "100KB", "200KB", "150KB"]
    for blocksize in sizes[:3]:
        job = start(tmp_path / "out", blocksize)
        n_before = len(list((tmp_path / "out").glob("*.jsonl")))
        deadline = time.monotonic() + 30
        while job.poll() is None and time.monotonic() < deadline:
            if log.exists() and len(list((tmp_path / "out").glob("*.jsonl"))) > n_before + 1:
                break
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.2))
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(30)
    last = start(tmp_path / "out", sizes[3])
    assert last.wait(60) == 0
    assert lines(tmp_path / "out") == lines(tmp_path / "whole")


def test_files_of_a_web_server_are_read_in_ranges(tmp_path: Path) -> None:
    crawl(tmp_path / "in", 60)
    data = (tmp_path / "in" / "a.warc.gz").read_bytes()
    with serve() as server:
        server.files = {f"/{name}.warc.gz": data for name in "abc"}
        urls = [f"{server.url}/{name}.warc.gz" for name in "abc"]
        stages = [WarcReader(urls), JsonlWriter(str(tmp_path / "out"))]
        pipeline = Pipeline("remote", stages=stages)
        pipeline.run(InProcessExecutor(), max_record="200KB", quarantine_limit="10%", progress=False)
    local = run(tmp_path / "in", tmp_path / "local", InProcessExecutor())
    assert pipeline.last_result is not None
    assert pipeline.last_result.ledger.written.n == 3 * local.ledger.written.n
    assert pipeline.last_result.ledger.skipped == {k: 3 * n for k, n in local.ledger.skipped.items()}
    found, expected = (
        sorted(json.loads(line)["warc_id"] for line in lines(tmp_path / name)) for name in ("out", "local")
    )
    assert found == sorted(3 * expected)
    assert {r.range for r in server.requests} - {None}  # by ranges, never as a whole on this disk
