"""What a worker does with one unit, without any process: reports, staged files, ledgers."""

from __future__ import annotations

import errno
import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.job import Job, make_job
from tamis.engine.ledger import Ledger
from tamis.engine.messages import WORKER_MESSAGES, Done, Failure, Read, SetUp
from tamis.engine.schema import FileKind
from tamis.engine.units import Mode, Piece, PieceKind, Rewrite, Unit
from tamis.engine.wire import decode, encode
from tamis.engine.worker.config import OutputSpec, WorkerConfig
from tamis.engine.worker.process import UnitRunner
from tamis.errors import FormatError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReaderStage
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class Fail(ProcessingStage[Any, Any]):
    error: type[BaseException] = ValueError
    words: str = "as asked"
    name: str = "fail"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        raise self.error(self.words)


@dataclass(repr=False)
class FailSetup(ProcessingStage[Any, Any]):
    error: type[BaseException] = FormatError
    name: str = "fail_setup"

    def setup(self, worker_metadata: Any = None) -> None:
        raise self.error("no model")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


@dataclass(repr=False)
class Holding(ProcessingStage[Any, Any]):
    name: str = "holding"

    def setup(self, worker_metadata: Any = None) -> None:
        self._model = mmap.mmap(-1, 64_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # no memory that was used before
        for _ in range(64):
            self._model.write(b"x" * 1_000_000)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


@dataclass(repr=False)
class Upper(ProcessingStage[Any, Any]):
    name: str = "upper"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.with_column("t", [None if t is None else t.upper() for t in task.column("t").to_pylist()])


def runner(folder: Path, *stages: ProcessingStage[Any, Any], mode: str = "streaming", **place: Any) -> UnitRunner:
    job: Job = make_job("job", [JsonlReaderStage(None, None), *stages], mode)
    (folder / "staged").mkdir(exist_ok=True)
    made = {
        "staged": str(folder / "staged"),
        "scratch": str(folder),
        "max_record_bytes": 1000,
        "output": OutputSpec("jsonl"),
        **place,
    }
    return UnitRunner(job, WorkerConfig(**made))


def unit(folder: Path, data: bytes, **more: Any) -> Unit:
    path = folder / "in.jsonl"
    path.write_bytes(data)
    return Unit(1, [Piece(0, PieceKind.BYTES, str(path), 0, len(data))], **more)


def run(made: UnitRunner, work: Unit, fence: int = 0) -> tuple[Any, list[Any]]:
    said: list[Any] = []
    return made.run(work, fence, said.append, lambda: 0), said


DATA = b'{"t":"a"}\nbad\n\n{"t":null}\n'


def test_two_workers_never_write_to_one_staged_file(tmp_path: Path) -> None:
    """One on a machine that was cut off may still be at a unit that another one has under the same numbers."""
    first, second = (run(runner(tmp_path), unit(tmp_path, DATA), fence=3)[0] for _ in range(2))
    names = [{f.path for f in report.files} for report in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    assert all(Path(path).exists() for path in names[0] | names[1])


def test_read_process_write_report(tmp_path: Path) -> None:
    report, said = run(runner(tmp_path, Upper()), unit(tmp_path, DATA))
    assert (type(report), report.n_records, report.covered) == (Done, 3, [(0, 0, len(DATA), False)])
    assert isinstance(said[0], Read)
    kinds = {f.kind: f for f in report.files}
    assert Path(kinds["output"].path).read_bytes() == b'{"t":"A"}\n{"t":null}\n'
    entry = json.loads(Path(kinds["quarantine"].path).read_text())
    assert (entry["offset"], entry["raw"], entry["reason"]) == (10, "bad", "not valid JSON")
    ledger = report.ledger
    assert (ledger.records.n, ledger.quarantined.n, ledger.written.n, ledger.n_blank_lines) == (3, 1, 2, 1)
    assert ledger.problems() == []
    assert int(kinds["output"].content, 16) == ledger.content.identity


def test_attempts_write_to_files_of_their_own(tmp_path: Path) -> None:
    made = runner(tmp_path, Upper())
    first, second = (run(made, unit(tmp_path, DATA), fence)[0].files[0].path for fence in (1, 2))
    assert first != second


class Panic(BaseException):
    """Stands for what libraries in Rust raise; no subclass of Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("args")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Panic, "Panic: as asked"),
        (Mute, "RuntimeError: Mute, whose text cannot be made (AttributeError in its __str__)"),
    ],
)
def test_whatever_a_stage_raises_is_reported(tmp_path: Path, error: type[BaseException], said: str) -> None:
    report, _ = run(runner(tmp_path, Fail(error)), unit(tmp_path, DATA))
    assert (report.kind, report.stage, report.error) == ("error", "fail", said)
    assert "raise self.error" in report.trace


def test_a_panic_in_setup_is_reported(tmp_path: Path) -> None:
    report, _ = run(runner(tmp_path, FailSetup(Panic)), unit(tmp_path, DATA))
    assert (report.kind, report.in_setup, report.error) == ("setup", True, "Panic: no model")


def test_a_stage_that_raises_is_named(tmp_path: Path) -> None:
    report, _ = run(runner(tmp_path, Fail()), unit(tmp_path, DATA))
    assert (type(report), report.kind, report.stage, report.error) == (
        Failure,
        "error",
        "fail",
        "ValueError: as asked",
    )


def test_running_out_of_memory_is_distinguished(tmp_path: Path) -> None:
    report, _ = run(runner(tmp_path, Fail(MemoryError)), unit(tmp_path, DATA))
    assert (type(report), report.kind, report.stage) == (Failure, "memory", "fail")
    assert not report.in_setup


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, "disk"), (errno.EDQUOT, "disk"), (errno.EIO, "error")])
def test_no_document_is_to_blame_for_a_full_disk(tmp_path: Path, number: int, kind: str) -> None:
    """A stage that writes (clips, copies of videos): all that was left would be set aside, one after the other."""
    report, _ = run(runner(tmp_path, Fail(lambda words: OSError(number, words))), unit(tmp_path, DATA))
    assert (type(report), report.kind, report.stage) == (Failure, kind, "fail")


def test_an_error_that_only_speaks_of_memory_is_an_error(tmp_path: Path) -> None:
    report, _ = run(runner(tmp_path, Fail(words="the text says: out of memory")), unit(tmp_path, DATA))
    assert (report.kind, report.stage) == ("error", "fail")


def test_what_setting_up_takes_is_reported_once(tmp_path: Path) -> None:
    made = runner(tmp_path, Holding())
    _, said = run(made, unit(tmp_path, DATA))
    assert [type(news) for news in said] == [SetUp, Read]
    assert 60_000_000 <= said[0].retained_bytes <= said[0].peak_bytes + 1_000_000
    assert [type(news) for news in run(made, unit(tmp_path, DATA))[1]] == [Read]


@pytest.mark.parametrize(("error", "kind"), [(FormatError, "setup"), (ValueError, "setup"), (MemoryError, "memory")])
def test_no_document_is_to_blame_for_a_setup_that_fails(tmp_path: Path, error: type[Exception], kind: str) -> None:
    report, _ = run(runner(tmp_path, FailSetup(error)), unit(tmp_path, DATA))
    assert (report.kind, report.stage, report.in_setup) == (kind, "fail_setup (its setup)", True)


def test_quarantine_sets_records_aside_unprocessed(tmp_path: Path) -> None:
    work = unit(tmp_path, DATA, mode=Mode.QUARANTINE, reason="it fails", stage="fail")
    report, _ = run(runner(tmp_path, Fail()), work)
    ledger = report.ledger
    assert (ledger.records.n, ledger.quarantined.n, ledger.written.n) == (3, 3, 0)
    assert ledger.problems() == []
    entries = [json.loads(line) for line in Path(report.files[0].path).read_text().splitlines()]
    assert sorted((e["offset"], e["raw"], e["reason"]) for e in entries) == [
        (0, '{"t":"a"}', "it fails"),
        (10, "bad", "not valid JSON"),
        (15, '{"t":null}', "it fails"),
    ]


def aside(made: UnitRunner, work: Unit) -> Ledger:
    ledger = decode(encode(run(made, work)[0]), WORKER_MESSAGES).ledger
    assert ledger.problems() == []
    return ledger


@pytest.mark.parametrize(
    ("stage", "came_in", "unread", "unwritten"),
    [
        ("upper", [2, 0], 1, 0),
        ("fail", [2, 2], 1, 0),
        ("(writing)", [2, 2], 1, 2),
        ("(reading)", [0, 0], 3, 0),
        ("", [0, 0], 3, 0),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_failures_are_booked_where_they_happened(
    tmp_path: Path, declared: bool, stage: str, came_in: list[int], unread: int, unwritten: int
) -> None:
    spec = OutputSpec("parquet", "parquet", schema={"t": "string"}) if declared else OutputSpec("jsonl")
    made = runner(tmp_path, Upper(), Fail(), output=spec)
    ledger = aside(made, unit(tmp_path, DATA, mode=Mode.QUARANTINE, reason="it fails", stage=stage))
    assert [b.into.n for b in ledger.stages][:2] == came_in
    assert {b.name: b.quarantined.n for b in ledger.stages if b.quarantined.n} == (
        {stage: 2} if stage in ("upper", "fail") else {}
    )
    assert (ledger.quarantined.n, ledger.unread.n, ledger.unwritten.n) == (3, unread, unwritten)
    # beside a partition where all went well
    well, _ = run(runner(tmp_path, Upper(), Upper(name="fail"), output=spec), unit(tmp_path, DATA))
    ledger.merge(well.ledger)
    assert ledger.problems() == []


@pytest.mark.parametrize(
    ("stage", "booked"), [("upper#2", "upper#2"), ("fail", "fail"), ("(reading)", "upper#2"), ("(writing)", "")]
)
def test_failures_of_a_later_segment_are_booked_there(tmp_path: Path, stage: str, booked: str) -> None:
    made = runner(tmp_path, Upper(), Upper(), Fail(), mode="batch")
    made.job.segments[1:] = [made.job.segments[1]._replace(last=3)]
    first, _ = run(made, unit(tmp_path, DATA))
    later = Unit(
        2,
        unit(tmp_path, DATA).pieces,
        segment=1,
        mode=Mode.QUARANTINE,
        reason="it fails",
        stage=stage,
        handover=first.handover.path,
        handover_rows=(0, 2),
        handover_check=first.handover.check,
    )
    report, _ = run(made, later)
    both = first.ledger
    both.merge(report.ledger)
    assert both.problems() == []
    assert {b.name: b.quarantined.n for b in both.stages if b.quarantined.n} == ({booked: 2} if booked else {})
    assert (both.quarantined.n, both.unread.n, both.unwritten.n, both.n_dropped) == (3, 1, 0 if booked else 2, 0)


def test_what_cannot_be_written_for_want_of_memory_names_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("tamis.engine.worker.write.write_documents", refuse)
    report, _ = run(runner(tmp_path, Upper()), unit(tmp_path, DATA))
    assert (report.kind, report.stage) == ("memory", "(writing)")
    monkeypatch.setattr("tamis.engine.worker.process.read_pieces", refuse)
    report, _ = run(runner(tmp_path, Upper()), unit(tmp_path, DATA))
    assert (report.kind, report.stage) == ("memory", "(reading)")


@pytest.mark.parametrize("fmt", ["jsonl", "parquet"])
def test_two_segments_write_what_one_writes(tmp_path: Path, fmt: str) -> None:
    spec = OutputSpec(fmt)
    one, _ = run(runner(tmp_path, Upper(), Upper(), output=spec), unit(tmp_path, DATA))
    made = runner(tmp_path, Upper(), Upper(), mode="batch", output=spec)
    first, _ = run(made, unit(tmp_path, DATA))
    assert [f.kind for f in first.files] == ["quarantine"]
    later = Unit(
        2,
        unit(tmp_path, DATA).pieces,
        segment=1,
        handover=first.handover.path,
        handover_rows=(0, first.handover.rows),
    )
    second, _ = run(made, later)
    both = first.ledger
    both.merge(second.ledger)
    assert both.problems() == []
    assert both.content == one.ledger.content
    kept = [next(f for f in r.files if f.kind is FileKind.OUTPUT) for r in (one, second)]
    assert kept[0].content == kept[1].content
    if fmt == "jsonl":
        assert Path(kept[0].path).read_bytes() == Path(kept[1].path).read_bytes()
    else:
        assert (kept[0].schema, kept[0].observed) == (kept[1].schema, kept[1].observed)


def test_recast_joins_and_rewrites(tmp_path: Path) -> None:
    made = runner(tmp_path, output=OutputSpec("parquet"))
    files = []
    for i, data in enumerate((b'{"x":1}\n', b'{"x":0.5,"y":{}}\n')):
        report, _ = run(made, unit(tmp_path, data), i)
        files.append(report.files[0])
    work = unit(tmp_path, b"", mode=Mode.REWRITE, rewrite=Rewrite([json.dumps([f.schema, f.observed]) for f in files]))
    union = run(made, work)[0].schema
    assert [(c["name"], c["type"]) for c in json.loads(json.loads(union)[0])] == [("x", "float64"), ("y", "string")]
    work = unit(tmp_path, b"", mode=Mode.REWRITE, rewrite=Rewrite([], union, [files[0].path], ["a"]))
    made_file = run(made, work, 7)[0].files[0]
    assert (made_file.rows, made_file.schema, made_file.observed) == (1, *json.loads(union))
    again = output_of(tmp_path, made, [made_file, files[1]])
    assert again == union


def output_of(folder: Path, made: UnitRunner, files: list[dict[str, Any]]) -> str:
    """Join schemas again, of files of which some are rewritten already: nothing changes."""
    work = unit(folder, b"", mode=Mode.REWRITE, rewrite=Rewrite([json.dumps([f.schema, f.observed]) for f in files]))
    return str(run(made, work)[0].schema)
