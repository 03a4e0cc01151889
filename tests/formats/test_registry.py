"""Formats end to end: Arrow in and out, one document per file, names that only a reader explains."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.io import ArrowReader, ArrowWriter, DocumentReader, JsonlWriter, ParquetReader, TextReader

ROWS = [{"id": i, "text": "one two three" if i % 3 else "one", "tags": ["a", str(i)]} for i in range(300)]


def curated(reader: object, writer: object, **settings: object) -> Pipeline:
    pipeline = Pipeline("p", stages=[reader, ScoreFilter(WordCountFilter(min_words=2)), writer])  # type: ignore[list-item]
    pipeline.run(InProcessExecutor(), **settings)
    return pipeline


def test_arrow_in_and_arrow_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pyarrow.feather.write_feather(pa.Table.from_pylist(ROWS[:150]), str(tmp_path / "in/a.feather"))
    with pa.OSFile(str(tmp_path / "in/b.arrow"), "wb") as sink:  # a stream, as Hugging Face datasets write it
        table = pa.Table.from_pylist(ROWS[150:])
        with pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table, max_chunksize=40)
    pipeline = curated(ArrowReader(str(tmp_path / "in")), ArrowWriter(str(tmp_path / "out")), blocksize="4KB")
    assert pipeline.last_result is not None
    assert pipeline.last_result.ledger.records.n == 300
    made = sorted((tmp_path / "out").glob("*.arrow"))
    rows = [row for path in made for row in pyarrow.feather.read_table(str(path)).to_pylist()]
    assert sorted(rows, key=lambda r: r["id"]) == [r for r in ROWS if r["id"] % 3]
    assert len({str(pyarrow.feather.read_table(str(path)).schema) for path in made}) == 1


def test_a_damaged_arrow_file_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pyarrow.feather.write_feather(pa.Table.from_pylist(ROWS), str(tmp_path / "in/a.arrow"))
    (tmp_path / "in/b.arrow").write_bytes((tmp_path / "in/a.arrow").read_bytes()[:-30])
    pipeline = Pipeline("p", stages=[DocumentReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.execute(InProcessExecutor())
    assert (result.ledger.written.n, result.ledger.n_bad_ranges) == (300, 1)
    assert (result.exit_code, "could not be read" in result.message) == (3, True)


def test_every_file_of_plain_text_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a.txt").write_text("zwei Wörter\nund mehr")
    (tmp_path / "in/sub/b.md").write_text("# one\n\ntwo")
    (tmp_path / "in/c.txt.gz").write_bytes(gzip.compress(b"packed text"))
    (tmp_path / "in/d.txt").write_bytes(b"not \xff text")
    (tmp_path / "in/e.txt").write_text("x " * 2000)
    pipeline = Pipeline("p", stages=[TextReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.execute(InProcessExecutor(), max_record="3KB")
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted((d["file_name"], d["text"]) for d in lines) == [
        ("a.txt", "zwei Wörter\nund mehr"),
        ("b.md", "# one\n\ntwo"),
        ("c.txt.gz", "packed text"),
    ]
    assert result.ledger.quarantined.n == 2


def test_plain_text_is_read_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("about")
    with pytest.raises(UsageError, match=r"README\.txt"):
        Pipeline("p", stages=[DocumentReader(str(tmp_path)), JsonlWriter(str(tmp_path / "out"))]).run(
            InProcessExecutor()
        )


def test_the_reader_says_what_is_in_a_file_not_its_name(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.pq")
    reader = ParquetReader(str(tmp_path / "a.pq"), file_extensions=[".pq"])
    curated(reader, JsonlWriter(str(tmp_path / "out")))
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert lines == [r for r in ROWS if r["id"] % 3]
