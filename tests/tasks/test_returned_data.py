"""What users do to frames and tables: rows are traced, and fields that nobody touched keep their bytes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.jobs.summary import _lines, as_dict
from tamis.engine.ledger import UNTRACED, StageBook
from tamis.engine.worker.apply import StageFailure, identify, run_stage
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.formats.table_block import TableBlock
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import ROW_ID, DocumentBatch
from tamis.tasks.frames import text_dtype
from tests.support.run_dirs import run_dir_path

RECORDS = [
    b'{ "id":0, "text": "first \\u00e9 text", "n":1, "f":1.0, "e":1.50e1, "o":{"b" : 1, "a":[1, 2.0]}}',
    b'{"text":"second text","id":1,"n":null,"f":2.50,"big":123456789012345678901234567890,"flag":true}',
    b'{"id":2,"text":"third \\/ text","n":3,"f":1e5,"o":{"a": null},"lang":"en"}  ',
    b'{"id":300000,"text":"a fourth one","n":2,"f":-0.0,"big":7,"flag":false,"lang":"en"}',
    b'{"id":"five","text":"the fifth text","n":5,"f":3,"o":[{"a" :1}],"lang":"de"}',
]


class Do(ProcessingStage[Any, Any]):
    name = "do"

    def __init__(self, change: Callable[[Any], Any], needs: tuple[str, ...] = ()) -> None:
        self.change, self.needs = change, needs

    def inputs(self) -> Any:
        return ["data"], list(self.needs)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(task.dataset_name, self.change(task))


def batch_of(records: list[bytes] = RECORDS) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(records) + b"\n", np.uint8))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


def run(change: Callable[[Any], Any], records: list[bytes] = RECORDS) -> tuple[list[bytes], StageBook]:
    """Documents written behind a stage that returns what `change` makes of its batch, and the stage's book."""
    book = StageBook("do")
    (result,) = run_stage(Do(change), "do", [batch_of(records)], book)
    assert book.imbalance() is None
    return encode_jsonl(result).data.tobytes().splitlines() if result.num_items else [], book


def on_frame(change: Callable[[Any], Any]) -> tuple[list[bytes], StageBook]:
    return run(lambda batch: change(batch.to_pandas()))


def untraced(book: StageBook) -> int:
    return int(book.metrics.get(UNTRACED, 0))


OTHER = pd.DataFrame({"lang": ["en", "de", "fr"], "name": ["English", "German", "French"]})
ORDERS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "filtered": (lambda f: f[f["f"] > 1].reset_index(drop=True), [1, 2, 4]),
    "sorted": (lambda f: f.sort_values("f", ignore_index=True), [3, 0, 1, 4, 2]),
    "turned round": (lambda f: f.iloc[::-1].reset_index(drop=True), [4, 3, 2, 1, 0]),
    "shuffled": (lambda f: f.sample(frac=1, random_state=3, ignore_index=True), [3, 4, 1, 0, 2]),
    "two halves": (lambda f: pd.concat([f.iloc[3:], f.iloc[:3]], ignore_index=True), [3, 4, 0, 1, 2]),
    "without duplicates": (lambda f: f.drop_duplicates("lang", ignore_index=True), [0, 2, 4]),
    "first of each": (lambda f: f.groupby("lang", dropna=False).head(1).reset_index(drop=True), [0, 2, 4]),
    "queried": (lambda f: f.query("lang == 'en'").reset_index(drop=True), [2, 3]),
    "without nulls": (lambda f: f.dropna(subset=["lang"]).reset_index(drop=True), [2, 3, 4]),
    "copied": (lambda f: f.copy(deep=True).reset_index(drop=True), [0, 1, 2, 3, 4]),
    "row by row": (lambda f: f.apply(lambda row: row, axis=1).reset_index(drop=True), [0, 1, 2, 3, 4]),
    "another index": (lambda f: f.set_index("id", drop=False), [0, 1, 2, 3, 4]),
    "no name": (lambda f: f.rename_axis(None).iloc[1:], [1, 2, 3, 4]),
    "grouped": (lambda f: pd.concat(dict(iter(f.groupby("n")))), [0, 3, 2, 4]),
    "index as column": (
        lambda f: f.reset_index().sort_values("index", ascending=False).drop(columns="index"),
        [4, 3, 2, 1, 0],
    ),
    "turned over twice": (lambda f: f.T.T.reset_index(drop=True), [0, 1, 2, 3, 4]),
    "records and back": (lambda f: pd.DataFrame(f.to_dict("records")).iloc[::-1], [4, 3, 2, 1, 0]),
    "another process": (lambda f: pickle.loads(pickle.dumps(f)).iloc[::-1], [4, 3, 2, 1, 0]),
    "another process, reset": (lambda f: pickle.loads(pickle.dumps(f[::-1].reset_index(drop=True))), [4, 3, 2, 1, 0]),
    "nullable types": (lambda f: f.convert_dtypes(), [0, 1, 2, 3, 4]),
    "nullable types, reset": (lambda f: f.convert_dtypes().reset_index(drop=True), [0, 1, 2, 3, 4]),
    "nothing": (lambda f: f, [0, 1, 2, 3, 4]),
    "none left": (lambda f: f[f["f"] > 1e9].reset_index(drop=True), []),
}


@pytest.mark.parametrize("name", ORDERS)
def test_rows_that_move_keep_every_byte(name: str) -> None:
    change, expected = ORDERS[name]
    written, book = on_frame(change)
    assert written == [RECORDS[i] for i in expected]
    assert (untraced(book), book.derived.n, book.out.n) == (0, 0, len(expected))


def upper(frame: Any) -> Any:
    frame["text"] = frame["text"].str.upper()
    return frame


def merged(frame: Any) -> Any:
    return frame.merge(OTHER, on="lang", how="left")


def per_word(frame: Any) -> Any:
    return frame.assign(word=frame["text"].str.split()).explode("word", ignore_index=True)


def after_close(line: bytes, added: bytes) -> bytes:
    close = line.rindex(b"}")
    return line[:close] + added + line[close:]


def test_a_changed_column_leaves_the_others_alone() -> None:
    for change in (
        upper,
        lambda f: upper(f).reset_index(drop=True),
        lambda f: upper(f[::-1].reset_index(drop=True))[::-1],
    ):
        written, book = on_frame(change)
        texts = [json.loads(line)["text"] for line in RECORDS]
        for line, out, text in zip(RECORDS, written, texts, strict=True):
            begin, end = line.index(b'"', line.index(b'"text"') + 6), line.index(b'",', line.index(b'"text"') + 8) + 1
            assert out == line[:begin] + json.dumps(text.upper(), ensure_ascii=False).encode() + line[end:]
        assert untraced(book) == 0


def test_new_columns_are_spliced_in() -> None:
    written, book = on_frame(merged)
    names = [b"", b"", b',"name":"English"', b',"name":"English"', b',"name":"German"']
    assert written == [after_close(line, name) for line, name in zip(RECORDS, names, strict=True)]
    assert untraced(book) == 0
    written, book = on_frame(per_word)
    words = [(i, w) for i, line in enumerate(RECORDS) for w in json.loads(line)["text"].split()]
    assert written == [
        after_close(RECORDS[i], b',"word":' + json.dumps(w, ensure_ascii=False).encode()) for i, w in words
    ]
    assert (untraced(book), book.derived.n, book.consumed.n) == (0, 14, 5)


def test_whole_numbers_are_integers_whatever_pandas_made_of_them() -> None:
    """With a null nearby pandas counts in floats: 4.0 where it says 4 without."""
    frame = lambda f: f.assign(m=f["n"].map(lambda v: None if v is None else v + 1), half=f["f"] / 2)  # noqa: E731
    written, _ = on_frame(frame)
    assert [json.loads(line, parse_int=str, parse_float=repr).get("m") for line in written] == [
        "2",
        None,
        "4",
        "3",
        "6",
    ]
    assert [line.rpartition(b'"half":')[2].strip() for line in written] == [
        b"0.5}",
        b"1.25}",
        b"50000}",
        b"-0.0}",
        b"1.5}",
    ]
    alone, _ = run(lambda batch: frame(batch.to_pandas()), RECORDS[2:3])
    assert alone == written[2:3]


def test_objects_that_are_changed_in_place_are_changed() -> None:
    def change(frame: Any) -> Any:
        for value in frame["o"]:
            if isinstance(value, dict):
                value["new"] = 1
        return frame

    for further in (lambda f: f, lambda f: f.reset_index(drop=True)):
        written, book = on_frame(lambda f, g=further: g(change(f)))
        assert written[0] == RECORDS[0].replace(b'{"b" : 1, "a":[1, 2.0]}', b'{"b":1,"a":[1,2.0],"new":1}')
        assert written[2] == RECORDS[2].replace(b'{"a": null}', b'{"a":null,"new":1}')
        assert written[1::2] == RECORDS[1::2]
        assert untraced(book) == 0


def test_rows_that_cannot_be_traced_are_counted_and_written_as_the_frame_has_them() -> None:
    def change(frame: Any) -> Any:
        new = pd.DataFrame([{"id": 9, "text": "new", "n": 1, "f": 0.5, "o": {"b": [1, "x"]}, "big": 2**70}])
        return pd.concat([frame[1:3], new], ignore_index=True)

    written, book = on_frame(change)
    assert written[:2] == RECORDS[1:3]
    assert written[2] == b'{"id":9,"text":"new","n":1,"f":0.5,"o":{"b":[1,"x"]},"big":1180591620717411303424}'
    assert (untraced(book), book.derived.n, book.out.n) == (1, 1, 2)


def test_two_documents_in_one_row_have_no_source() -> None:
    """Half of the values of one document, half of another: a new one, not a guess."""

    def change(frame: Any) -> Any:
        return pd.DataFrame({"text": frame["text"], "o": frame["o"].shift(4)}).iloc[4:].reset_index(drop=True)

    written, book = on_frame(change)
    assert written == [b'{"text":"the fifth text","o":{"b":1,"a":[1,2.0]}}']
    assert untraced(book) == 1


def test_most_values_decide_where_one_was_moved() -> None:
    def change(frame: Any) -> Any:
        frame["text"] = frame["text"].shift(-1)
        return frame[2:4].reset_index(drop=True)

    written, book = on_frame(change)
    assert [json.loads(line)["text"] for line in written] == ["a fourth one", "the fifth text"]
    assert [
        line.replace(b"a fourth one", b"third \\/ text").replace(b"the fifth text", b"a fourth one") for line in written
    ] == RECORDS[2:4]
    assert untraced(book) == 0


def test_categories_do_not_lead_astray() -> None:
    """All rows of a category share the object of the first one."""

    def change(frame: Any) -> Any:
        frame["lang"] = frame["lang"].astype("category").astype(object)
        return frame.reset_index(drop=True)

    written, book = on_frame(change)
    assert (written, untraced(book)) == (RECORDS, 0)


def test_frames_given_one_after_the_other_are_each_as_the_records_are() -> None:
    batch = batch_of()
    batch.number(0)  # as in a run
    batch.to_pandas()["o"][0]["new"] = 1
    assert batch.to_pandas()["o"].tolist() == batch.values("o")
    assert batch.to_pandas()["text"][0] is batch.to_pandas()["text"][0]


def test_data_that_is_put_into_the_batch_itself() -> None:
    class Put(Do):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            task.data = self.change(task)
            return task.filter(np.arange(task.num_items) > 0)

    def change(batch: DocumentBatch) -> Any:
        new = pd.DataFrame([{"text": "new"}])
        return pd.concat([batch.to_pandas().iloc[::-1], new], ignore_index=True)

    book = StageBook("do")
    (result,) = run_stage(Put(change), "do", [batch_of()], book)
    assert encode_jsonl(result).data.tobytes().splitlines() == [*RECORDS[3::-1], b'{"text":"new"}']
    assert (untraced(book), book.derived.n, book.out.n) == (1, 1, 4)


def test_documents_without_fields_and_batches_without_documents() -> None:
    written, book = run(lambda b: b.to_pandas(), [b"{}", b"{ }"])
    assert (written, untraced(book)) == ([b"{}", b"{ }"], 0)
    empty = batch_of().take(np.array([], np.int64)).to_pandas()
    assert (len(empty), empty["text"].tolist()) == (0, [])


def test_frames_of_an_earlier_call_are_not_believed() -> None:
    """A stage that keeps what it was given: its row ids are those of other documents."""
    kept: list[Any] = []

    def change(batch: DocumentBatch) -> Any:
        kept.append(batch.to_pandas())
        return kept[0]

    run(change)
    written, book = run(change, [b'{"id":%d,"text":"other"}' % i for i in range(5)])
    assert untraced(book) == 5
    assert [json.loads(line)["text"] for line in written][1:3] == ["second text", "third / text"]


def test_equal_records_are_traced_one_each() -> None:
    records = [b'{"n": 1}', b'{"n": 1}', b'{"n":  1}', b'{"n": 2}']
    written, book = run(lambda batch: batch.to_pandas().reset_index(drop=True), [records[0], records[1], records[3]])
    assert (written, untraced(book), book.out.n) == ([records[0], records[1], records[3]], 0, 3)
    _, book = run(lambda batch: batch.to_pandas().reset_index(drop=True), records)
    assert (untraced(book), book.out.n) == (3, 1)  # three with the same values, one of them written otherwise


def test_a_batch_that_was_filtered_before_it_became_a_frame() -> None:
    written, book = run(lambda b: upper(b.filter(np.array([0, 1, 0, 1, 0], bool)).to_pandas().reset_index(drop=True)))
    assert [line[-50:] for line in written] == [RECORDS[1][-50:], RECORDS[3][-50:]]
    assert untraced(book) == 0


def test_columns_that_a_stage_needs_are_always_there() -> None:
    seen = []

    def change(batch: DocumentBatch) -> Any:
        seen.append((sorted(batch.to_pandas().columns), batch.to_pyarrow().column_names))
        return batch.to_pandas()

    (result,) = run_stage(Do(change, ("year",)), "do", [batch_of(RECORDS[:1])], StageBook("do"))
    assert seen[0][0] == ["e", "f", "id", "n", "o", "text", "year"]
    assert "year" in seen[0][1]
    assert (result.get_columns(), encode_jsonl(result).data.tobytes()) == (
        batch_of(RECORDS[:1]).get_columns(),
        RECORDS[0] + b"\n",
    )


def test_tables() -> None:
    written, book = run(lambda b: b.to_pyarrow().take([4, 2, 0]))
    assert (written, untraced(book)) == ([RECORDS[4], RECORDS[2], RECORDS[0]], 0)
    written, book = run(lambda b: b.to_pyarrow().append_column("m", pc.add(b.column("n"), 1)))
    assert [json.loads(line).get("m") for line in written] == [2, None, 4, 3, 6]
    assert [json.loads(line)["f"] for line in written] == [1.0, 2.5, 1e5, -0.0, 3]
    written, book = run(lambda b: b.to_pyarrow().drop_columns([ROW_ID]).take([4, 2, 0]))
    assert (written, untraced(book)) == ([RECORDS[4], RECORDS[2], RECORDS[0]], 0)  # traced by whole rows
    written, book = run(lambda b: b.to_pyarrow().select(["id", "o", "f"]).slice(2))
    assert written == [
        b'{"id":2,"o":{"a": null},"f":100000}',
        b'{"id":300000,"f":-0.0}',
        b'{"id":"five","o":[{"a" :1}],"f":3}',
    ]
    assert untraced(book) == 3


def test_frames_made_from_tables() -> None:
    """Integers beside nulls are floats there, and objects have each other's members: nobody meant to change them."""
    for records in (RECORDS, RECORDS[:3]):
        for change in (lambda f: f[::-1], lambda f: f.drop(columns=[ROW_ID])[::-1]):
            written, book = run(lambda b, c=change: c(b.to_pyarrow().to_pandas()), records)
            assert (written, untraced(book)) == (records[::-1], 0)
    assert batch_of().to_pyarrow().to_pandas()["o"].tolist() == batch_of().values("o")


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(StageFailure, match="a frame with two columns named 'text'"):
        on_frame(lambda f: pd.concat([f, f[["text"]]], axis=1))


def test_columns_of_parquet_keep_their_types() -> None:
    table = pa.table(
        {
            "id": pa.array([0, 2, None], pa.int16()),
            "text": pa.array(["aa", None, "ccc"]),
            "x": pa.array([0.1, 1.0, None], pa.float32()),
            "when": pa.array([1, 2, None], pa.timestamp("us", tz="UTC")),
            "deep": pa.array([{"a": [1]}, {"a": []}, None], pa.struct([("a", pa.list_(pa.float32()))])),
            "yes": pa.array([True, None, False]),
        }
    )
    block = TableBlock(table)
    for change in (
        lambda f: f[::-1],
        lambda f: f[::-1].reset_index(drop=True),
        lambda f: f[::-1].assign(id=f["id"] + 0, x=f["x"] * 1),
    ):
        batch = DocumentBatch.over(block, np.arange(3))
        identify(batch)
        frame = batch.to_pandas()
        assert [str(d) for d in frame.dtypes] == [
            "Int16",
            str(text_dtype()),
            "float32",
            "datetime64[us, UTC]",
            "object",
            "boolean",
        ]
        (result,) = run_stage(Do(lambda b, c=change: c(b.to_pandas())), "do", [batch], StageBook("do"))
        assert result.to_pyarrow().drop_columns([ROW_ID]).equals(table.take([2, 1, 0]))
        assert result.serial.tolist() == [2, 1, 0]


def test_the_summary_says_how_many_could_not_be_traced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"\n".join(RECORDS))
    made = Do(lambda batch: pd.DataFrame({"text": [" ".join(batch.to_pandas()["text"])], "n": [1.0]}))
    stages = [JsonlReader(str(tmp_path / "in")), made, JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("joined", stages=stages).execute(InProcessExecutor())
    assert (result.ledger.problems(), result.ledger.written.n) == ([], 1)
    (line,) = [x for x in _lines(as_dict(result)) if "no record" in x]
    assert line.startswith("stage do: 1 document that it returned has no record of the input behind it")
    assert "with no record of the input behind them: 1" in (run_dir_path(tmp_path / "out") / "report.html").read_text()


# -- task.data, as users of other systems know it ---------------------------------------------------------------------
class OnData(ProcessingStage[Any, Any]):
    """`change` gets the task; what it returns is returned."""

    name = "on data"

    def __init__(self, change: Callable[[DocumentBatch], Any]) -> None:
        self.change = change

    def process(self, task: DocumentBatch) -> Any:
        return self.change(task)


def on_data(change: Callable[[DocumentBatch], Any]) -> tuple[list[dict[str, Any]], StageBook]:
    book = StageBook("on data")
    results = run_stage(OnData(change), "on data", [batch_of()], book)
    lines = [line for r in results for line in encode_jsonl(r).data.tobytes().splitlines()]
    return lines, book


def new(task: DocumentBatch, frame: Any) -> DocumentBatch:
    return DocumentBatch(
        task_id=task.task_id, dataset_name=task.dataset_name, data=frame, _metadata=task._metadata, _stage_perf=[]
    )


def in_place(task: DocumentBatch) -> DocumentBatch:
    task.data["lang"] = "xx"
    return task


def by_loc(task: DocumentBatch) -> DocumentBatch:
    df = task.data
    df.loc[df["text"].str.contains("second"), "text"] = "changed"
    return task


def assigned_then_changed(task: DocumentBatch) -> DocumentBatch:
    df = task.data
    task.data = df = df[df["text"].str.len() > 11]
    df["more"] = 1
    return task


DATA: dict[str, tuple[Callable[[DocumentBatch], Any], list[int], tuple[bytes, ...]]] = {
    "only looked at": (lambda t: (t.data, t)[1], [0, 1, 2, 3, 4], ()),
    "in place": (in_place, [0, 1, 2, 3, 4], (b'"lang":"xx"',)),
    "loc": (by_loc, [0, 1, 2, 3, 4], (b'"text":"changed"', b"123456789012345678901234567890", b'"f":2.50')),
    "filtered": (lambda t: new(t, t.data[t.data["lang"] == "en"]), [2, 3], (b"third \\/ text", b'"f":1e5')),
    "reset": (lambda t: new(t, t.data[t.data["lang"] == "en"].reset_index(drop=True)), [2, 3], (b"third \\/ text",)),
    "concat": (lambda t: new(t, pd.concat([t.data[3:], t.data[:1]], ignore_index=True)), [3, 4, 0], (b"1.50e1",)),
    "drop_duplicates": (lambda t: new(t, t.data.drop_duplicates(subset="lang")), [0, 2, 4], (b"1.50e1",)),
    "str": (lambda t: new(t, t.data[t.data["text"].str.startswith("a ")]), [3], (b'"f":-0.0',)),
    "assigned": (assigned_then_changed, [0, 2, 3, 4], (b'"more":1', b'"e":1.50e1')),
    "a copy": (lambda t: new(t, t.data.copy().assign(k=1)), [0, 1, 2, 3, 4], (b'"k":1', b"1.50e1")),
    "through Arrow": (lambda t: new(t, t.to_pyarrow().slice(1, 2)), [1, 2], (b"2.50",)),
}


@pytest.mark.parametrize("case", DATA)
def test_what_is_done_to_data(case: str) -> None:
    change, rows, there = DATA[case]
    lines, book = on_data(change)
    assert [json.loads(line)["id"] for line in lines] == [json.loads(RECORDS[i])["id"] for i in rows]
    assert all(any(part in line for line in lines) for part in there), lines
    assert (untraced(book), book.out.n, sum(t.n for t in book.dropped.values())) == (0, len(rows), 5 - len(rows))
    assert not any(b"tamis" in line or b'"index"' in line for line in lines)
    if case in ("only looked at", "filtered", "reset", "concat", "drop_duplicates", "str"):
        assert lines == [RECORDS[i] for i in rows]


def test_explode_makes_documents_of_one() -> None:
    def change(task: DocumentBatch) -> DocumentBatch:
        df = task.data
        df["word"] = df["text"].str.split()
        return new(task, df.explode("word"))

    lines, book = on_data(change)
    words = [json.loads(line)["word"] for line in lines]
    assert words == " ".join(json.loads(r)["text"] for r in RECORDS).split()
    assert (untraced(book), book.consumed.n, book.derived.n) == (0, 5, len(words))
    assert b'"e":1.50e1' in lines[0]


def test_tasks_of_different_files_in_one_call() -> None:
    """Every batch is traced to its own records, whatever becomes of the index."""

    class Several(OnData):
        batch_size = 3

        def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
            assert [list(t.data.index) for t in tasks] == [[0, 1, 2, 3, 4]] * 3
            tasks[0].data["n"] = 1
            return [tasks[0], *(new(t, t.data[1:].reset_index(drop=True)) for t in tasks[1:])]

    others = [[r.replace(b" text", b" words %d" % k) for r in RECORDS] for k in range(2)]
    book = StageBook("several")
    results = run_stage(Several(in_place), "several", [batch_of(), *map(batch_of, others)], book)
    assert (untraced(book), book.out.n) == (0, 13)
    assert encode_jsonl(results[2]).data.tobytes().splitlines()[1] == others[1][2]
