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
from tamis.engine.worker.bookmarks import NAME, Bookmarks
from tamis.errors import RunConflict
from tamis.formats.warc.format import WarcScan
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io import DocumentReader, JsonlWriter, WarcReader
from tamis.tasks import DocumentBatch
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


class StopsLate(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Ends the run at the page before the last one, as long as the file `flag` is there."""

    name = "stops late"

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        last = [url for url in batch.texts("url").to_pylist() if url and url.endswith(f"/{N - 2}")]
        if last and Path(self.flag).exists():
            raise OSError(28, "No space left on device")
        return batch


@pytest.mark.parametrize("name", ["a.warc.gz", "a.warc"])
def test_a_resumed_run_does_not_read_what_it_has(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record(i, response(page(i) * 20)) for i in range(N)]
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / name
    source.write_bytes(b"".join(members(*records) if name.endswith("gz") else records))
    flag = tmp_path / "flag"

    def go(output: Path) -> Any:
        reader = WarcReader(str(source), blocksize="100KB")
        pipeline = Pipeline("late", stages=[reader, StopsLate(str(flag)), JsonlWriter(str(output))])
        pipeline.run(InProcessExecutor(), progress=False)
        return pipeline.last_result

    whole = go(tmp_path / "whole")
    assert not (run_dir_path(tmp_path / "whole") / NAME).exists()
    flag.touch()
    with pytest.raises(Exception, match="No space left"):
        go(tmp_path / "out")
    (marks,) = (run_dir_path(tmp_path / "out") / NAME).iterdir()
    assert len(marks.read_text().splitlines()) > 5
    flag.unlink()
    offsets: list[int] = []

    def scan(raw: Any, path: str, max_record_bytes: int, offset: int = 0) -> WarcScan:
        offsets.append(offset)
        return WarcScan(raw, path, max_record_bytes, offset)

    monkeypatch.setattr("tamis.formats.warc.format.scan", scan)
    resumed = go(tmp_path / "out")
    assert offsets
    assert min(offsets) > source.stat().st_size // 2
    assert lines(tmp_path / "out") == lines(tmp_path / "whole")
    assert resumed.ledger.written.n == whole.ledger.written.n == N
    assert not (run_dir_path(tmp_path / "out") / NAME).exists()


def test_bookmarks_are_of_one_state_of_a_file_and_survive_a_broken_line(tmp_path: Path) -> None:
    marks = Bookmarks(str(tmp_path), "a.warc.gz", (10, 20), 1000)
    for position, offset in ((500, 7), (100, 3), (900, 9)):
        marks.add(position, offset)
    again = Bookmarks(str(tmp_path), "a.warc.gz", (10, 20), 1000)
    again.add(900, 9)
    (path,) = (tmp_path / NAME).iterdir()
    path.write_bytes(path.read_bytes() + b"1200 1")
    assert [again.before(position) for position in (0, 499, 500, 899, 5000)] == [
        (0, 0),
        (0, 0),
        (500, 7),
        (500, 7),
        (900, 9),
    ]
    for other in (
        Bookmarks(str(tmp_path), "a.warc.gz", (10, 21), 1000),
        Bookmarks(str(tmp_path), "a.warc.gz", (10, 20), 999),
        Bookmarks(str(tmp_path), "a.warc.gz", None, 1000),
    ):
        assert other.before(5000) == (0, 0)
