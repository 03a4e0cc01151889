"""Frames of other libraries, through a pretended cuDF: documents stay what they are.

And pipelines that are called on documents.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline, ProcessingStage, Resources, Sequential, ToBackend
from tamis.errors import TamisError
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch


class GpuFrame:
    """What is used of a cuDF frame: it comes of an Arrow table, and becomes one."""

    __module__ = "cudf.core.dataframe"

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def from_arrow(cls, table: pa.Table) -> GpuFrame:
        return cls(table)

    def to_arrow(self, preserve_index: bool = True) -> pa.Table:
        assert preserve_index is False
        return self.table

    def __len__(self) -> int:
        return len(self.table)

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)


@pytest.fixture
def cudf(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("cudf")
    module.DataFrame = GpuFrame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudf", module)


class Upper(ProcessingStage[Any, Any]):
    """Works on whatever frame it is given, and notes which."""

    name = "upper"

    def __init__(self, cpus: float = 1.0) -> None:
        self.resources = Resources(cpus=cpus)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.data
        kind = type(frame).__name__
        if isinstance(frame, GpuFrame):
            table = frame.table.slice(1)
            at = table.schema.get_field_index("text")
            upper = pa.array([t.upper() for t in table["text"].to_pylist()], pa.large_string())
            task.data = GpuFrame(table.set_column(at, "text", upper).append_column("on", pa.array([kind] * len(table))))
        elif isinstance(frame, pa.Table):
            task.data = frame.append_column("on2", pa.array([kind] * len(frame)))
        else:
            frame["on3"] = kind
        return task


LINES = ['{"id": 1, "text": "a", "n": 1.0}', '{"id": 2, "text": "b",  "n": [1,  2]}', '{"id": 3, "text": "c"}']


@pytest.mark.usefixtures("cudf")
def test_frames_are_of_the_requested_library_and_untouched_bytes_stay(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(line + "\n" for line in LINES))
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ToBackend("cudf"),
        Upper(),
        ToBackend("pyarrow"),
        Upper(0.5),
        ToBackend("pandas"),
        Upper(),
        JsonlWriter(str(tmp_path / "out")),
    ]
    pipeline = Pipeline("p", stages=stages)
    pipeline.execute(InProcessExecutor(), memory="1GB")
    assert pipeline.last_result is not None
    assert pipeline.last_result.ledger.n_dropped == 1  # the row that a frame lost is known
    (made,) = (tmp_path / "out").glob("*.jsonl")
    first, second = made.read_text().splitlines()
    on = {"on": "GpuFrame", "on2": "Table", "on3": "DataFrame"}
    assert json.loads(first) == {"id": 2, "text": "B", "n": [1, 2]} | on
    assert '"n": [1,  2]' in first  # as it stands in the input
    assert json.loads(second) == {"id": 3, "text": "C"} | on


def test_without_cudf_it_is_said_before_any_document_is_touched(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINES[0] + "\n")
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), ToBackend("cudf"), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(TamisError, match="needs cuDF, which is not installed: pip install cudf-cu12"):
        Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="1GB")
    with pytest.raises(TamisError, match="'pandas', 'cudf', 'pyarrow', got 'polars'"):
        ToBackend("polars")


class Shout(ProcessingStage[Any, Any]):
    name = "shout"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data["text"] = [t + "!" for t in task.data["text"]]
        return task


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "batch", "batches", "path"])
def test_a_sequence_of_stages_is_called_on_documents_and_gives_what_it_was_given(library: str, tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"]})
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    given: Any = {
        "pandas": table.to_pandas(),
        "pyarrow": table,
        "batch": DocumentBatch("d", table),
        "batches": [DocumentBatch("d", table)],
        "path": str(tmp_path / "in.jsonl"),
    }[library]
    made = Sequential([Shout(), Shout()])(given, InProcessExecutor(), memory="1GB")
    if library in ("batches", "path"):
        (made,) = made
    assert type(made).__name__ == {"pandas": "DataFrame", "pyarrow": "Table", "batch": "DocumentBatch"}.get(
        library, "StoredBatch"
    )
    texts = made.to_pyarrow()["text"] if isinstance(made, DocumentBatch) else made["text"]
    assert list(texts if isinstance(made, pd.DataFrame) else texts.to_pylist()) == ["a!!", "b!!"]


def test_one_that_reads_by_itself_is_run_not_called(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINES[0] + "\n")
    with pytest.raises(TamisError, match="has a reader of its own"):
        Sequential([JsonlReader(str(tmp_path / "in.jsonl")), Shout()])(pa.table({"text": ["a"]}))
