"""Types of JSON fields in `task.data`: the same for every batch, found by one scan or declared; bytes stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.backends import column_scan
from tamis.errors import RunConflict, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.reader.jsonl import JsonlReaderStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modifiers import LineRemover, Modify
from tamis.stages.text.modifiers.unicode import UnicodeReformatter
from tamis.stages.text.modules.splitter import DocumentSplitter
from tamis.tasks import DocumentBatch, FileGroupTask
from tamis.tasks.columns.frame_types import FLOAT, HUGE_INTEGER, INEXACT_INTEGER, INTEGER, KindCount, joined_types

A = '{"text": "a  b", "n": 1, "f":1, "gap": 5 , "mix": 1, "yes": true, "day": "2024-01-02", "code": "007"}\n'
B = '{"text":"c","n":20,"f":2.5,"mix":"q","yes":false,"day":"2024-01-03T04:05:06Z","code":"8"}\n'
SEEN: list[dict[str, str]] = []


class Largest(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "largest"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.data
        SEEN.append({str(name): str(kind) for name, kind in frame.dtypes.items()})
        assert "n" in frame.select_dtypes("number")
        return DocumentBatch(task.dataset_name, frame.nlargest(1, "n").reset_index(drop=True))


class Double(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes numbers, as integers and as floats."""

    name = "double"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data["n"] = task.data["n"].astype(float) * 2
        task.data["f"] = task.data["f"] * 2
        return task


class Plain(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "plain"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.with_column("k", [1] * task.num_items)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.jsonl").write_text(A)
    (tmp_path / "in/2.jsonl").write_text(B + A)
    SEEN.clear()
    return tmp_path / "in"


def run(stages: list[Any], **settings: Any) -> list[str]:
    tasks = Pipeline("types", stages=stages).run(InProcessExecutor(), progress=False, **settings)
    return [line for task in tasks for path in task.data for line in Path(path).read_text().splitlines()]


FOUND = {
    "text": "str", "n": "int64", "f": "float64", "gap": "float64", "mix": "object", "yes": "bool", "day": "str",
    "code": "str",
}  # fmt: skip


def test_types_are_those_of_all_records_and_untouched_records_keep_their_bytes(source: Path, tmp_path: Path) -> None:
    reader = JsonlReader(str(source), files_per_partition=1)
    lines = run([reader, Largest(), JsonlWriter(str(tmp_path / "out"))])
    assert [{k: seen[k] for k in FOUND if k in seen} for seen in SEEN] == [FOUND, FOUND]
    assert lines == [A.strip(), B.strip()]


def test_every_partition_sample_and_shard_has_the_same_types(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[str] = []
    scan = column_scan._scan
    monkeypatch.setattr(column_scan, "_scan", lambda *args: scans.append(args[4]) or scan(*args))
    for shard in ("0/2", "1/2"):
        run([JsonlReader(str(source)), Largest(), JsonlWriter(str(tmp_path / "out"))], shard=shard)
    assert len(scans) == 1  # the second shard reads what the first one stored
    for seen in SEEN:
        assert seen == {name: kind for name, kind in FOUND.items() if name in seen}
    run([JsonlReader(str(source)), Largest(), JsonlWriter(str(tmp_path / "out"))], merge=True)
    assert len(scans) == 1
    run([JsonlReader(str(source)), Largest(), JsonlWriter(str(tmp_path / "part"))], sample="60%")
    assert all(seen["n"] == "int64" and seen["f"] == "float64" for seen in SEEN)


def test_a_run_without_frames_scans_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_scan, "_scan", lambda *args: pytest.fail("scanned"))
    run([JsonlReader(str(source)), Plain(), JsonlWriter(str(tmp_path / "a"))])
    run([JsonlReader(str(source), fields={"n": "int64", "text": str}), Largest(), JsonlWriter(str(tmp_path / "b"))])
    assert {"n": "int64", "text": "str"} in SEEN
    run([JsonlReader(str(source), read_kwargs={"dtype": False}), Double(), JsonlWriter(str(tmp_path / "c"))])


def test_changed_integers_are_written_as_integers_and_floats_as_floats(source: Path, tmp_path: Path) -> None:
    lines = run([JsonlReader(str(source)), Double(), JsonlWriter(str(tmp_path / "out"))])
    assert [(json.loads(line)["n"], json.loads(line)["f"]) for line in lines] == [(2, 2.0), (40, 5.0), (2, 2.0)]
    assert '"n": 2, "f":2.0, "gap": 5 , "mix": 1' in lines[0]


def test_changed_input_is_another_run(source: Path, tmp_path: Path) -> None:
    stages = [JsonlReader(str(source)), Largest(), JsonlWriter(str(tmp_path / "out"))]
    run(stages)
    (source / "2.jsonl").write_text(B + A.replace('"n": 1', '"n": null'))
    with pytest.raises(RunConflict, match=r"column_types\.n 'int64' -> 'float64'"):
        run(stages)


class Years(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "years"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.data
        assert str(frame["day"].dtype) == "datetime64[ns]"
        frame["year"] = frame["day"].dt.year
        frame.loc[frame["day"].dt.day == 2, "day"] += pd.Timedelta(days=1)
        return task


def test_declared_times_keep_their_bytes_unless_they_change(source: Path, tmp_path: Path) -> None:
    reader = JsonlReader(str(source), read_kwargs={"dtype": {"day": "datetime64[ns]"}})
    lines = run([reader, Years(), JsonlWriter(str(tmp_path / "out"))])
    assert [json.loads(line)["year"] for line in lines] == [2024, 2024, 2024]
    assert lines[1] == B.strip().removesuffix("}") + ',"year":2024}'
    assert json.loads(lines[0])["day"].startswith("2024-01-03")


def test_a_record_that_does_not_fit_its_declared_type_is_quarantined(source: Path, tmp_path: Path) -> None:
    (source / "3.jsonl").write_text('{"text": "x", "n": "seven"}\n')
    reader = JsonlReader(str(source), fields={"text": "string", "n": "int64"}, files_per_partition=1)
    pipeline = Pipeline("types", stages=[reader, Largest(), JsonlWriter(str(tmp_path / "out"))])
    with pytest.warns(UserWarning, match="field 'n' is read as int64"):
        pipeline.run(progress=False, memory="400MB", workers=1, quarantine_limit="50%")
    assert pipeline.last_result is not None
    assert pipeline.last_result.ledger.quarantined.n == 1


def test_unknown_types_are_refused() -> None:
    with pytest.raises(UsageError, match="must be one of bool, boolean, int64"):
        JsonlReader("in", fields={"n": "decimal"})
    with pytest.raises(UsageError, match="not in both"):
        JsonlReader("in", fields={"n": "int64"}, read_kwargs={"dtype": {"n": "int64"}})


def test_integers_that_a_float_would_change_stay_objects() -> None:
    assert joined_types([(2, {"n": KindCount(INTEGER | INEXACT_INTEGER, 2)})]) == {"n": "int64"}
    assert joined_types([(3, {"n": KindCount(INTEGER | INEXACT_INTEGER, 2)})]) == {"n": "object"}
    assert joined_types([(1, {"n": KindCount(INTEGER | INEXACT_INTEGER, 1)}), (1, {"n": KindCount(FLOAT, 1)})]) == {
        "n": "object"
    }
    assert joined_types([(1, {"n": KindCount(INTEGER | INEXACT_INTEGER | HUGE_INTEGER, 1)})]) == {"n": "object"}


def test_the_readers_stage_returns_one_batch_with_types(source: Path) -> None:
    files = sorted(map(str, source.iterdir()))
    batch = JsonlReaderStage().process(FileGroupTask("set", files))
    assert {name: str(batch.data[name].dtype) for name in FOUND} == FOUND
    assert batch.num_items == 3
    assert batch._metadata["source_files"] == files
    assert JsonlReaderStage(fields=["n"]).process(FileGroupTask("set", files)).get_columns() == ["n"]


def test_built_in_stages_called_directly_give_frames() -> None:
    frame = pd.DataFrame({"text": ["one two three", "x", "four five six"], "kind": pd.Categorical(list("aba"))})
    batch = DocumentBatch("set", frame)
    kept = ScoreFilter(WordCountFilter(min_words=2), score_field="words").process(batch)
    assert isinstance(kept.data, pd.DataFrame)
    assert kept.data["words"].tolist() == [3, 3]
    assert kept.data["words"].dtype == np.int64
    assert kept.data.index.tolist() == [0, 2]
    assert isinstance(kept.data["kind"].dtype, pd.CategoricalDtype)
    changed = Modify(UnicodeReformatter()).process(kept)
    assert isinstance(changed.data, pd.DataFrame)
    assert changed.data["text"].tolist() == ["one two three", "four five six"]
    assert batch.data is frame


def test_frames_outside_of_runs_equal_those_that_a_user_makes(source: Path) -> None:
    frame = pd.DataFrame({"text": ["a|b", "c"], "n": [1, 2]}, index=[7, 9])
    split = DocumentSplitter("|").process(DocumentBatch("d", frame)).data
    expected = pd.DataFrame({"text": ["a", "b", "c"], "n": [1, 1, 2], "segment_id": [0, 1, 0]})
    assert split.equals(expected)  # rows that are repeated are numbered anew
    kept = ScoreFilter(WordCountFilter(min_words=2)).process(DocumentBatch("d", pd.DataFrame({"text": ["a b", "c"]})))
    assert kept.to_pandas().equals(pd.DataFrame({"text": ["a b"]}))
    lines = Modify(LineRemover(["drop"])).process(DocumentBatch("d", pd.DataFrame({"text": ["x\ndrop\ny"]})))
    pd.testing.assert_frame_equal(lines.to_pandas(), pd.DataFrame({"text": ["x\ny"]}))
    (result,) = Pipeline("read", stages=[JsonlReader(str(source), files_per_partition=9)]).run(
        InProcessExecutor(), progress=False
    )
    texts = [name for name, dtype in result.data.dtypes.items() if dtype == "str"]
    assert texts
    assert all(result.data[name].dtype == pd.Series(["x"]).dtype for name in texts)
