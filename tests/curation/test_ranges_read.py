"""The last pass of a curation reads what is left, by the places that the first one told.

The output is as if it read everything.
"""

from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, ExactDuplicates, FuzzyDuplicates
from tamis.dedup.workflow import Workflow
from tamis.engine.samples import FILE as SAMPLES
from tamis.engine.samples import DocumentSample, SampleOutcome, read_samples
from tamis.engine.worker import read as reading
from tamis.errors import Incomplete
from tamis.formats.jsonl import file_spans
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.has_text import HasText
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.modifiers import Modify
from tests.curation.small_corpus import MEMORY, write
from tests.support.run_dirs import run_dir_path


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


def cut_last(value: Any) -> Any:
    return value[:-1] if isinstance(value, str) and value.endswith(".") else value


def run(source: Path, output: Path, **more: Any) -> Any:
    steps = [HasText(), ScoreFilter(WordCountFilter(min_words=300)), ExactDuplicates(), FuzzyDuplicates()]
    made = Curation([*steps, Modify(cut_last, "text")], str(source), str(output))
    settings = {"memory": MEMORY, "quarantine_limit": "5%", "blocksize": "20kB", "no_samples": True, **more}
    return made.run(InProcessExecutor(), **settings)


def output_of(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.glob("*.jsonl")))


def verdicts_of(folder: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(run_dir_path(folder) / "verdicts").to_pylist()
    return sorted(rows, key=lambda row: (row["file"], row["offset"]))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Files of the units that a pass asked for by their places, and whether these were known."""
    found: list[tuple[str, bool]] = []
    take = reading._from_index

    def watched(pieces: Any, limits: Any, contents: Any) -> bool:
        done = take(pieces, limits, contents)
        if limits.record_index is not None:
            found.extend((Path(piece.path).name, done) for piece in pieces)
        return done

    monkeypatch.setattr(reading, "_from_index", watched)
    return found


def test_the_same_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[tuple[str, bool]]
) -> None:
    source = write(tmp_path / "in")
    n_read: list[int] = []
    read_at = file_spans.read_at
    monkeypatch.setattr(file_spans, "read_at", lambda f, v, o: n_read.append(len(v)) or read_at(f, v, o))
    ranges = run(source, tmp_path / "ranges")
    assert {done for _, done in taken} == {
        True,
        False,
    }  # the file with a line that is no document has units that are read whole
    assert {name for name, done in taken if done} == {"0.jsonl", "1.jsonl", "2.jsonl"}
    assert 0 < sum(n_read) < sum(p.stat().st_size for p in source.iterdir()) * 0.7
    taken.clear()
    with monkeypatch.context() as patched:
        patched.setattr(Workflow, "known_records", lambda self: None)
        whole = run(source, tmp_path / "whole")
    assert taken == []
    assert output_of(tmp_path / "ranges") == output_of(tmp_path / "whole")
    assert verdicts_of(tmp_path / "ranges") == verdicts_of(tmp_path / "whole")
    assert {"first", "d1"} & {row["id"] for row in verdicts_of(tmp_path / "ranges")}
    times = ("seconds", "peak_bytes")
    about = [{k: v for k, v in r.about.items() if k not in times} for r in (ranges, whole)]
    assert about[0] == about[1]
    for ours, twin in zip(ranges.run.ledger.stages, whole.run.ledger.stages, strict=True):
        assert (ours.name, ours.into, ours.out) == (twin.name, twin.into, twin.out)
        assert ours.dropped == twin.dropped  # numbers, hashes, bytes and examples
    assert ranges.run.ledger.lengths == whole.run.ledger.lengths


def test_killed_in_the_last_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[tuple[str, bool]]
) -> None:
    source, out = write(tmp_path / "in"), tmp_path / "out"
    run(source, tmp_path / "whole")
    units = len(taken)
    taken.clear()
    for n in (1, units - 2):
        seen = reading._from_index

        def kill(pieces: Any, limits: Any, contents: Any, seen: Any = seen, n: int = n) -> bool:
            if limits.record_index is not None and len(taken) >= n:
                raise Killed
            return bool(seen(pieces, limits, contents))

        with monkeypatch.context() as patched:
            patched.setattr(reading, "_from_index", kill)
            with pytest.raises(Killed):
                run(source, out)
    done = len(taken)
    assert run(source, out).status == "finished"
    assert len(taken) < done + units  # what was committed was not done again
    assert output_of(out) == output_of(tmp_path / "whole")
    assert verdicts_of(out) == verdicts_of(tmp_path / "whole")


def test_compressed_input_is_read_whole(tmp_path: Path, taken: list[tuple[str, bool]]) -> None:
    source = write(tmp_path / "in", 90)
    run(source, tmp_path / "plain")
    taken.clear()
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in source.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    result = run(packed, tmp_path / "out")
    assert not any(done for _, done in taken)
    plain = json.loads((run_dir_path(tmp_path / "plain") / "curation.json").read_text())["about"]
    assert result.about["content_hash"] == plain["content_hash"]


def test_a_file_that_changes_in_the_last_pass_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", 90)
    take = reading._from_index

    def changing(pieces: Any, limits: Any, contents: Any) -> bool:
        if limits.record_index is not None:
            (source / "2.jsonl").write_text('{"text": "other"}\n')
        return take(pieces, limits, contents)

    monkeypatch.setattr(reading, "_from_index", changing)
    with pytest.raises(Incomplete, match="changed during the run"):
        run(source, tmp_path / "out")
    entries = [
        json.loads(x)
        for p in (run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl")
        for x in p.read_text().splitlines()
    ]
    assert any("changed during the run" in e["reason"] for e in entries if e["file"].endswith("2.jsonl"))


def test_a_file_that_cannot_be_read_in_the_last_pass_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in", 60)
    read_at = file_spans.read_at

    def failing(file: Any, view: Any, offset: int) -> int:
        if str(file.name).endswith("2.jsonl"):
            raise OSError(errno.EIO, "Input/output error")
        return int(read_at(file, view, offset))

    monkeypatch.setattr(file_spans, "read_at", failing)
    result = run(source, tmp_path / "out", quarantine_limit="50%")
    ledger = result.run.ledger
    assert ledger.records.n == ledger.written.n + ledger.n_dropped + ledger.quarantined.n
    entries = [
        json.loads(x)
        for p in (run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl")
        for x in p.read_text().splitlines()
    ]
    unread = [e for e in entries if "cannot be read: Input/output error" in e["reason"]]
    assert {Path(e["file"]).name for e in unread} == {"2.jsonl"}
    assert ledger.written.n == output_of(tmp_path / "out").count(b"\n") > 0


def test_samples_of_documents_that_are_not_read_again(tmp_path: Path) -> None:
    """What samples show of documents that the last pass did not read with the others is what their lines have."""
    source = write(tmp_path / "in")
    documents = {}
    for path in source.iterdir():
        lines = [line for line in path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        records = [{**json.loads(line), "source": f"of {path.stem}"} for line in lines]
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        documents |= {r["id"]: r for r in records}
    run(source, tmp_path / "out", no_samples=False)
    with open(run_dir_path(tmp_path / "out") / SAMPLES, "rb") as file:
        samples = [s for s in read_samples(file) if isinstance(s, DocumentSample)]
    shown = [s for s in samples if s.outcome is SampleOutcome.DROPPED and s.excerpt is not None]
    assert len(shown) > 20
    assert all(s.groups["source"].startswith("of ") for s in samples)
    for sample in shown:
        assert sample.groups["source"] == documents[sample.id]["source"]
        text = documents[sample.id]["text"]
        assert sample.excerpt is not None
        assert sample.excerpt.text in (text if isinstance(text, str) else "")
        assert sample.excerpt.text or not isinstance(text, str) or not text
