"""Readers and writers of one's own, by hand and in a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor
from tamis.errors import UsageError
from tamis.pipeline import Pipeline
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.io.reader.base import BaseFileReader
from tamis.stages.text.io.writer.base import BaseWriter
from tamis.tasks import DocumentBatch, FileGroupTask


class TextFiles(BaseFileReader):
    """A document per line, as a frame."""

    def read_data(self, paths: list[str], read_kwargs: Any, fields: Any) -> Any:
        lines = [line for path in paths for line in Path(path).read_text(**read_kwargs).splitlines()]
        return pd.DataFrame({"text": lines, "n": range(len(lines))}) if lines else None


class Csv(BaseWriter):
    """Fails after it began to write, if told to."""

    fails = False

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        with open(file_path, "w") as file:
            file.write(",".join(task.get_columns()) + "\n")
            if self.fails:
                raise KeyError("half")
            for row in task.to_pyarrow().select(task.get_columns()).to_pylist():
                file.write(",".join(map(str, row.values())) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("one\ntwo\n")
    (tmp_path / "in/b.txt").write_text("three\n")
    (tmp_path / "in/c.txt").write_text("")
    return tmp_path


def test_in_a_pipeline(folder: Path) -> None:
    source = FilePartitioningStage(str(folder / "in"), file_extensions=[".txt"])
    writer = Csv(str(folder / "out"), "csv", fields=["text"], name="csv_writer")
    written = Pipeline("own", stages=[source, TextFiles(name="txt"), writer]).run(executor=InProcessExecutor())
    texts = sorted(line for t in written for p in t.data for line in Path(p).read_text().splitlines()[1:])
    assert texts == ["one", "three", "two"]
    assert sorted(p for t in written for p in t.data) == sorted(str(p) for p in (folder / "out").iterdir())


def test_a_sink_of_ones_own_has_written_what_it_received(folder: Path) -> None:
    source = FilePartitioningStage(str(folder / "in"), file_extensions=[".txt"])
    pipeline = Pipeline("own", stages=[source, TextFiles(name="txt"), Csv(str(folder / "out"), "csv", fields=["text"])])
    written = pipeline.run(executor=InProcessExecutor())
    ledger = pipeline.last_result.ledger
    assert (ledger.written.n, ledger.n_dropped, ledger.problems()) == (3, 0, [])
    assert ledger.written_bytes == sum(Path(p).stat().st_size for t in written for p in t.data)
    assert pipeline.last_result.n_files == len(written) == 2  # one per input file


def test_by_hand(folder: Path) -> None:
    reader = TextFiles(fields=["text"], read_kwargs={"encoding": "utf-8"})
    batch = reader.process(FileGroupTask("set", [str(folder / "in/a.txt")]))
    assert (batch.get_columns(), batch.column("text").to_pylist(), reader.name) == (
        ["text"],
        ["one", "two"],
        "textfiles",
    )
    empty = reader.process(FileGroupTask("set", [str(folder / "in/c.txt")]))
    assert (empty.num_items, empty.get_columns()) == (0, ["text"])
    with pytest.raises(UsageError, match=r"a\.txt.* has no field x; it has \['text', 'n'\]"):
        TextFiles(fields=["x"]).process(FileGroupTask("set", [str(folder / "in/a.txt")]))
    with pytest.raises(UsageError, match="AddId"):
        TextFiles(_generate_ids=True)
    writer = Csv(str(folder / "out"), ".csv")
    first, again = (writer.process(batch).data for _ in range(2))
    assert first == again
    assert Path(first[0]).read_text() == "text\none\ntwo\n"


def test_half_a_file_is_never_seen(folder: Path) -> None:
    writer = Csv(str(folder / "out"), "csv")
    writer.fails = True
    with pytest.raises(KeyError):
        writer.process(DocumentBatch("set", pd.DataFrame({"text": ["x"]})))
    assert list((folder / "out").iterdir()) == []


def test_what_is_refused(folder: Path) -> None:
    for options, message in (
        ({"mode": "overwrite"}, "create_or_overwrite_dir"),
        ({"mode": "x"}, "mode must be"),
        ({"mode": "error"}, "is not empty"),
    ):
        with pytest.raises(UsageError, match=message):
            Csv(str(folder / "in"), "csv", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="remote paths"):
        Csv("s3://b", "csv")
