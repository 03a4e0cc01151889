"""The reader decides what is in a file, whatever its name: also in copies of plan and profile, and for `why`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.jobs.request import reader_formats, redirect
from tamis.cli.plan.input_heads import take
from tamis.formats.registry import reads_rows
from tamis.observe.document_status import read_record
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import DocumentReader, JsonlReader, ParquetReader, TextReader


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    pq.write_table(pa.table({"text": ["one\n" * 100_000, "two"]}), tmp_path / "rows.pq")
    (tmp_path / "page.txt").write_text("first line\nsecond line\n")
    (tmp_path / "lines.data").write_text('{"text": "a"}\n{"text": "b"}\n')
    return {path.stem: str(path) for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("name", "formats", "ends", "n_documents"),
    [("rows", ["parquet"], ".parquet", 2), ("page", ["text"], "page.txt", 1), ("lines", ["jsonl"], ".jsonl", 2)],
)
def test_copies(
    files: dict[str, str], tmp_path: Path, name: str, formats: list[str], ends: str, n_documents: int
) -> None:
    for folder in ("plan", "profile"):
        (tmp_path / folder).mkdir()
    for folder, packed in (("plan", False), ("profile", True)):
        (made,) = take([files[name]], str(tmp_path / folder), 1_000_000, formats, packed)
        copy = made["copy"]
        assert copy.endswith(ends)
        found = [read_record(copy, i, formats)[0] for i in range(3)] if ends != ".jsonl" else Path(copy).read_text()
        assert found == (
            [{}] * n_documents + [None] * (3 - n_documents) if ends != ".jsonl" else Path(files[name]).read_text()
        )


def test_what_a_reader_says(files: dict[str, str]) -> None:
    assert [reads_rows(files["rows"], of) for of in (["parquet"], ["jsonl"], ["jsonl", "parquet"], [])] == [
        True,
        False,
        True,
        True,
    ]
    assert [reads_rows(files["lines"], of) for of in (["parquet"], ["jsonl"], ["jsonl", "parquet"])] == [
        True,
        False,
        False,
    ]
    readers = (JsonlReader("a"), ParquetReader("a"), TextReader("a"), DocumentReader("a"))
    assert [reader_formats(Pipeline("p", stages=[reader]))[:1] for reader in readers] == [
        ["jsonl"],
        ["parquet"],
        ["text"],
        ["jsonl"],
    ]
    source = redirect(Pipeline("p", stages=[TextReader("a")]), [files["page"]], "out").build()[0]
    assert {".txt", ".jsonl", ".parquet"} <= set(source.file_extensions)


def test_a_record_by_its_place(files: dict[str, str]) -> None:
    assert read_record(files["lines"], 14, ["jsonl"]) == ({"text": "b"}, "")
    assert read_record(files["page"], 0, ["text"]) == ({}, "")
    assert read_record(files["page"], 1, ["text"]) == (None, "")
    assert json.loads(json.dumps(read_record(files["rows"], 1, ["parquet"]))) == [{}, ""]
