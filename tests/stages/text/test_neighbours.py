"""The result of a document does not depend on its neighbours: every kind of value, chains of stages, any partition."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.engine.ledger import StageBook
from tamis.engine.worker import handover
from tamis.engine.worker.apply import identify, run_stage
from tamis.engine.worker.write import _stored_table
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import Filter, Score, ScoreFilter
from tamis.stages.text.filters.heuristic.string import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.modifiers.string import NewlineNormalizer, UrlRemover
from tamis.stages.text.modules import DocumentSplitter
from tamis.tasks import DocumentBatch

KINDS = (
    '"plain text"', '"see www.x.y \\u00e9\\/"', '""', '"5"', '"null"', "5", "-0", "12345678901234567890123",
    "9007199254740993", "1.0", "2.50", "1e5", "true", "false", "null", '{"a": 1,  "b": null}', '{"b":"www.x.y"}', "{}",
    "[1, 2.0]", '["www.x.y"]', "[]",
)  # fmt: skip
LINES = [f'{{"id":{i}, "text": {kind}, "n":{i % 3}}}'.encode() for i, kind in enumerate(KINDS)]
LINES.append(b'{"id":99,  "other":1}')


def through(stages: list[ProcessingStage[Any, Any]], lines: list[bytes], n_rows: int, tmp: Any = None) -> list[bytes]:
    """Return the documents of the output, for an input of `n_rows` at a time."""
    out = []
    for at in range(0, len(lines), n_rows):
        block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines[at : at + n_rows]) + b"\n", np.uint8))
        batch = DocumentBatch.over(block, np.arange(block.n_rows))
        identify(batch)
        tasks: list[Any] = [batch]
        for stage in stages:
            tasks = run_stage(stage, stage.name, tasks, StageBook(stage.name))
            if tmp is not None and any(t.num_items for t in tasks):  # as between two segments
                about = handover.save(tasks, str(tmp / "between"))
                tasks = handover.load(about.path, (0, about.rows))[0]
        out += [line for task in tasks if task.num_items for line in encode_jsonl(task).data.tobytes().splitlines()]
    return out


@dataclass(repr=False)
class OnFrames(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Stages as users of pandas write them."""

    change: Any = None
    name: str = "on_frames"
    reset: bool = False
    needs: list[str] = field(default_factory=lambda: ["text", "n"])

    def inputs(self) -> Any:
        return ["data"], self.needs

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = self.change(task.to_pandas())
        return DocumentBatch(task.dataset_name, frame.reset_index(drop=True) if self.reset else frame)


@dataclass(repr=False)
class OnTables(OnFrames):
    name: str = "on_tables"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(task.dataset_name, self.change(task.to_pyarrow()))


def twice(value: Any) -> Any:
    """Something else for every kind of value."""
    if (
        isinstance(value, bool) or value is None or value == 9007199254740993
    ):  # pandas makes a float of that, among floats
        return value
    return {**value, "more": 0.5} if isinstance(value, dict) else value * 2


def lengths(frame: Any) -> Any:
    # NaN, and so floats, wherever one is no text (`.str` would refuse a batch without any)
    frame["length"] = frame["text"].map(lambda v: len(v) if isinstance(v, str) else None)
    return frame


def kept_numbers(table: pa.Table) -> pa.Table:
    mask = pa.array([isinstance(v, (int, float)) and v > 1 for v in table["text"].to_pylist()])
    return table.filter(mask)


def links() -> Modify:
    return Modify(UrlRemover())


CHAINS: dict[str, list[Any]] = {
    "modifier": [links()],
    "modifier, words": [links(), ScoreFilter(WordCountFilter(min_words=1))],
    "modifier, modifier, words": [
        links(),
        Modify(NewlineNormalizer()),
        ScoreFilter(WordCountFilter(1), score_field="w"),
    ],
    "modifier to another field": [
        Modify(UrlRemover(), output_fields="clean"),
        ScoreFilter(WordCountFilter(1), "clean"),
    ],
    "function, words": [Modify(twice), ScoreFilter(WordCountFilter(1), invert=True)],
    "function that changes in place": [Modify(lambda v: v.update(x=1) or v if isinstance(v, dict) else v)],
    "filter by type": [Filter(lambda v: isinstance(v, int) and v >= 5, "text")],
    "filter by type, behind a modifier": [links(), Filter(lambda v: isinstance(v, str), "text")],
    "filter by members": [Filter(lambda v: not isinstance(v, dict) or "b" in v, "text")],
    "score by type": [Score(lambda v: type(v).__name__, "kind"), Filter(lambda k: k != "str", "kind")],
    "scores of all kinds": [Score(lambda v: v, "same"), Score(lambda v: 1 if v == "" else 2.5, "number")],
    "splitter": [DocumentSplitter(" "), ScoreFilter(WordCountFilter(1), invert=True)],
    "modifier, splitter, function": [links(), DocumentSplitter(" "), Modify(twice, "segment_id")],
    "frame": [OnFrames(lambda f: f[f["text"].map(lambda v: isinstance(v, int))])],
    "frame, compared": [OnFrames(lambda f: f[~(f["n"] > 0)])],
    "modifier, frame": [links(), OnFrames(lengths), ScoreFilter(WordCountFilter(1), invert=True)],
    "frame with its index gone": [OnFrames(lambda f: f.sort_values("id", ascending=False), reset=True)],
    "frame, changed, index gone": [OnFrames(lambda f: f.assign(n=f["n"] + 1), reset=True), links()],
    "frame, modifier": [OnFrames(lambda f: f.assign(text=f["text"].map(twice))), links()],
    "table": [OnTables(kept_numbers), Modify(twice)],
    "table, changed": [OnTables(lambda t: t.append_column("m", pc.add(t["n"], 1))), links()],
}
SIZES = (2, 5, len(LINES))


@pytest.mark.parametrize("chain", CHAINS)
def test_neighbours_do_not_matter(chain: str, tmp_path: Any) -> None:
    stages = CHAINS[chain]
    alone = sorted(line for one in LINES for line in through(stages, [one], 1))
    for size in SIZES:
        assert sorted(through(stages, LINES, size)) == alone
        assert sorted(through(stages, LINES[::-1], size)) == alone
    assert sorted(through(stages, LINES, len(LINES), tmp_path)) == alone


def test_chains_do_what_they_say() -> None:
    """Some of the results above, written out."""
    words = through(CHAINS["modifier, words"], LINES, 7)
    assert [json.loads(line)["id"] for line in words] == [0, 1, 3, 4]
    assert words[1] == '{"id":1, "text": "see  é/", "n":1}'.encode()
    numbers = through(CHAINS["filter by type"], LINES, 7)
    assert numbers == [LINES[i] for i in (5, 7, 8, 12) if i != 12]
    scores = through(CHAINS["scores of all kinds"], LINES, 7)
    assert [line.rpartition(b'"number":')[2] for line in scores[:3]] == [b"2.5}", b"2.5}", b"1}"]
    assert scores[9] == b'{"id":9, "text": 1.0, "n":0,"same":1.0,"number":2.5}'
    assert scores[7] == b'{"id":7, "text": 12345678901234567890123, "n":1,"same":12345678901234567890123,"number":2.5}'
    assert through(CHAINS["table"], LINES, 7)[-1] == b'{"id":11, "text": 200000.0, "n":2}'


def test_values_are_what_json_loads_says_whatever_stands_next_to_them() -> None:
    wanted = [json.loads(line).get("text") for line in LINES]
    for pair in itertools.product(range(len(LINES)), repeat=2):
        block = JsonlBlock.parse(np.frombuffer(b"\n".join(LINES[i] for i in pair), np.uint8))
        batch = DocumentBatch.over(block, np.arange(2))
        batch.column_types = {}  # as in a run that nobody declared types for
        exact = [wanted[i] for i in pair]
        for values in (batch.values("text"), batch.to_pandas(["text"])["text"].tolist()):
            assert json.dumps(values) == json.dumps(exact)  # tells 1 from 1.0, true from 1, and the order of members
        texts = [v if isinstance(v, str) else None for v in exact]
        assert batch.texts("text").to_pylist() == texts
        assert links().process(batch).texts("text").is_valid().to_pylist() == [t is not None for t in texts]


def test_the_types_of_parquet_follow_the_documents_that_are_left() -> None:
    """A dropped document does not influence the types of its neighbours, nor the members of their objects."""
    lines = [b'{"x":1,"y":1,"z":{"a":1}}', b'{"x":"n/a","y":2.5,"z":{"b":1}}', b'{"x":3,"y":3,"z":{"a":2}}']
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines), np.uint8))
    batch = DocumentBatch.over(block, np.arange(3))
    left = Filter(lambda v: v != "n/a", "x").process(batch)
    for name in ("x", "y", "z"):
        batch.column(name)  # decoded with all of its neighbours
    assert _stored_table(left).to_pydict() == {"x": [1, 3], "y": [1, 3], "z": [{"a": 1}, {"a": 2}]}
    assert [str(f.type) for f in _stored_table(left).schema] == ["int64", "int64", "struct<a: int64>"]
    assert [str(f.type) for f in _stored_table(batch).schema] == [
        "large_string",
        "double",
        "struct<a: int64, b: int64>",
    ]


def test_a_dropped_column_is_gone_even_if_it_was_looked_at_before() -> None:
    block = JsonlBlock.parse(np.frombuffer(b'{"text":"a"}\n{"text":5}', np.uint8))
    for look in (lambda b: None, lambda b: b.column("text"), lambda b: b.take(np.array([1, 0])).column("text")):
        batch = DocumentBatch.over(block, np.arange(2))
        look(batch)
        without = batch.drop_columns(["text"])
        assert (
            without.column("text").to_pylist()
            == without.values("text")
            == without.texts("text").to_pylist()
            == [None] * 2
        )


def run_files(folder: Path, lines: list[bytes], stages: list[Any], blocksize: str) -> list[bytes]:
    """Return the output of a run over a file, with blocks of this size."""
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    stages = [JsonlReader(str(folder / "in"), blocksize=blocksize), *stages, JsonlWriter(str(folder / "out"))]
    result = Pipeline("neighbours", stages=stages).execute(InProcessExecutor())
    assert result.ledger.problems() == []
    return sorted(x for p in (folder / "out").glob("*.jsonl") for x in p.read_bytes().splitlines())


def test_block_sizes_do_not_matter(tmp_path: Path) -> None:
    numbers = [b'{"year":%d}' % (1900 + i % 120) for i in range(3000)]
    numbers[1234:1234] = [b'{"year": "n/a"}']
    texts = [b'{"text": 5}', *(b'{"text":"some plain words"}' for _ in range(329)), b'{"text":"a link www.x.y"}']
    recent = [Filter(lambda y: isinstance(y, int) and y >= 1960, filter_field="year")]
    words = [links(), ScoreFilter(WordCountFilter(min_words=1))]
    for k, size in enumerate(("2KiB", "9KiB", "32MiB")):
        kept = run_files(tmp_path / f"years {k}", numbers, recent, size)
        assert len(kept) == sum(1 for i in range(3000) if i % 120 >= 60)
        assert len(run_files(tmp_path / f"words {k}", texts, words, size)) == 330


def test_documents_given_in_memory_stay_what_they_are(tmp_path: Path) -> None:
    values = [5, "5", 1.0, 2.5, None, True, {"a": 1}, [1, "x"], 2**70]
    frame = pd.DataFrame({"id": range(len(values)), "x": pd.Series(values, dtype=object)})
    stages = [Filter(lambda v: v is not None, "x"), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("given", stages=stages).execute(InProcessExecutor(), [DocumentBatch("set", frame)])
    assert result.ledger.problems() == []
    written = [json.loads(x) for p in (tmp_path / "out").glob("*.jsonl") for x in p.read_bytes().splitlines()]
    wanted = [{"id": i, "x": v} for i, v in enumerate(values) if v is not None]
    wanted[2]["x"] = 1  # a whole float of a frame
    assert json.dumps(written) == json.dumps(wanted)
