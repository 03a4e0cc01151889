"""The stage: fields in and out, chains, functions, nulls, values that are no text, and bytes that stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.engine.worker.apply import identify
from tamis.errors import UsageError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.stages.text.modifiers import C4LineCleaner, DocumentModifier, Modify, NewlineNormalizer, Slicer, UrlRemover
from tamis.tasks import DocumentBatch


class Shout(DocumentModifier):
    def modify_document(self, text: str) -> str:
        return text.upper()


class Forget(DocumentModifier):
    def modify_document(self, text: str) -> str | None:
        return None if "secret" in text else text


class Count(DocumentModifier):
    def modify_document(self, text: str) -> int:
        return len(text)


class Careless(DocumentModifier):
    """A batch method that gives nulls a value."""

    def modify_document(self, text: str) -> str:
        return text + "!"

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        return pa.array([f"{t}!" for t in texts.to_pylist()])


def table(**columns: Any) -> DocumentBatch:
    return DocumentBatch("x", pa.table(columns))


def records(*lines: bytes) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines) + b"\n", np.uint8))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


def written(batch: DocumentBatch) -> list[bytes]:
    return encode_jsonl(batch).data.tobytes().splitlines()


def join_title(title: str | None, text: str | None) -> str:
    return f"{title}: {text}"


def test_in_place_and_elsewhere() -> None:
    batch = table(text=["a", None, ""], n=[1, 2, 3])
    assert Modify(Shout()).process(batch).column("text").to_pylist() == ["A", None, ""]
    out = Modify(Shout(), output_fields="loud").process(batch)
    assert out.get_columns() == ["text", "n", "loud"]
    assert out.column("text").to_pylist() == ["a", None, ""]
    assert out.column("loud").to_pylist() == ["A", None, ""]


def test_a_chain_and_one_field_per_modifier() -> None:
    batch = table(text=["  a www.x.y "], title=["t\n\n\n\nt"])
    assert Modify([UrlRemover(), Slicer()]).process(batch).column("text").to_pylist() == ["a"]
    out = Modify([UrlRemover(), NewlineNormalizer()], input_fields=["text", "title"]).process(batch)
    assert out.to_pyarrow().to_pylist() == [{"text": "  a  ", "title": "t\n\nt"}]
    out = Modify([Shout(), len], output_fields=["loud", "length"]).process(batch)
    assert (out.column("loud").to_pylist(), out.column("length").to_pylist()) == (["  A WWW.X.Y "], [12])


def test_several_inputs_are_given_by_name() -> None:
    batch = table(title=["t", None, None], text=["x", "y", None])
    stage = Modify(join_title, input_fields=[["title", "text"]], output_fields="text")
    assert stage.process(batch).column("text").to_pylist() == ["t: x", "None: y", None]
    assert stage.inputs() == (["data"], ["title", "text"])


def test_functions_get_values_of_any_type() -> None:
    batch = table(n=[1, None, 3])
    assert Modify(lambda n: n * 2, input_fields="n").process(batch).column("n").to_pylist() == [2, None, 6]
    assert Modify(str, input_fields="n").process(batch).column("n").to_pylist() == ["1", None, "3"]


def test_results_of_other_types_and_none() -> None:
    batch = table(text=["a secret", "bb", None])
    assert Modify(Forget()).process(batch).column("text").to_pylist() == [None, "bb", None]
    assert Modify(Count(), output_fields="n").process(batch).column("n").to_pylist() == [8, 2, None]
    assert Modify(Careless()).process(batch).column("text").to_pylist() == ["a secret!", "bb!", None]


def test_names_and_columns() -> None:
    assert Modify(Shout()).name == "Shout"
    assert Modify([Shout(), len]).name == "modifier_chain_of_Shout_len"
    assert Modify(Shout(), name="mine").name == "mine"
    stage = Modify([Shout(), len], input_fields=["text", "loud"], output_fields=["loud", "n"])
    assert stage.inputs() == (["data"], ["text"])
    assert stage.outputs() == (["data"], ["loud", "n"])


def test_only_documents_that_change_are_encoded_anew() -> None:
    lines = [
        b'{ "text" : "caf\\u00e9 \\/ plain" , "n":1.0 }',
        b'{"n":2e0,  "text":"see www.x.y caf\\u00e9"}',
        b'{"text":null}',
        b'{"other":"www.x.y"}',
        b'{"text":"\\ud800"}',
    ]
    out = written(Modify(UrlRemover()).process(records(*lines)))
    assert out[0] == lines[0]
    assert out[1] == '{"n":2e0,  "text":"see  café"}'.encode()
    assert out[2:] == lines[2:]


@pytest.mark.parametrize(
    "modifier", [Shout(), lambda t: t.upper() if isinstance(t, str) else t], ids=["modifier", "function"]
)
def test_numbers_lists_and_objects_among_texts_are_left_alone(modifier: Any) -> None:
    lines = [b'{"text":"up"}', b'{"text":1e2}', b'{"text":true}', b'{"text":["a"]}', b'{"text":{"b" : "c"}}']
    once = Modify(modifier).process(records(*lines))
    assert written(once) == [b'{"text":"UP"}', *lines[1:]]
    assert written(Modify(modifier).process(once)) == [b'{"text":"UP"}', *lines[1:]]
    assert written(Modify(Shout()).process(records(*lines[1:3]))) == lines[1:3]
    elsewhere = Modify(Shout(), output_fields="loud").process(records(*lines))
    assert elsewhere.column("loud").to_pylist() == ["UP", None, None, None, None]


def test_texts_stored_as_dictionaries_or_views_are_texts() -> None:
    for kind in (pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        batch = table(text=pa.array(["a", None, "a"]).cast(kind))
        assert Modify(Shout()).process(batch).column("text").to_pylist() == ["A", None, "A"]


def test_an_empty_batch_and_an_absent_field() -> None:
    assert Modify(Shout()).process(table(text=pa.array([], pa.string()))).num_items == 0
    assert written(Modify(Shout()).process(records(b'{"a": 1}'))) == [b'{"a": 1}']


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "the list is empty"),
        ((Shout,), "expected DocumentModifier objects or functions"),
        (("upper",), "expected DocumentModifier objects or functions"),
        ((Shout(), 5), "input_fields"),
        ((Shout(), ["a", "b"]), "2 entries for 1 modifiers"),
        ((join_title, [["title", "text"]]), "needs an output field"),
        (([len, len], "text", ["a", "b", "c"]), "output_fields"),
    ],
)
def test_mistakes_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Modify(*arguments)


def test_wrong_results_are_named() -> None:
    class Short(Shout):
        def modify_batch(self, texts: pa.Array) -> pa.Array:
            return texts[:1]

    with pytest.raises(UsageError, match=r"Short\.modify_batch returned 1 texts for 2"):
        Modify(Short()).process(table(text=["a", "b"]))


def test_results_of_several_types_stay_what_they_are() -> None:
    out = Modify(lambda t: t if t == "a" else [1], output_fields="x").process(table(text=["a", "b"]))
    assert out.values("x") == ["a", [1]]


@pytest.mark.parametrize("executor", [InProcessExecutor(), LocalExecutor()], ids=["in process", "workers"])
def test_through_a_pipeline(tmp_path: Path, executor: Any) -> None:
    lines = [b'{ "id":%d, "text": "caf\\u00e9 %s" }' % (i, b"www.x.y" if i % 3 == 0 else b"plain") for i in range(200)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    stages = [DocumentReader(str(tmp_path / "in"), blocksize="2KiB"), Modify([UrlRemover(), NewlineNormalizer()])]
    result = Pipeline("m", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).execute(executor, memory="512MB")
    assert result.ledger.problems() == []
    assert result.ledger.stages[0].out.n == 200
    out = [x for p in sorted((tmp_path / "out").glob("*.jsonl")) for x in p.read_bytes().splitlines()]
    expected = [b'{ "id":%d, "text": "%s" }' % (i, "café ".encode()) if i % 3 == 0 else x for i, x in enumerate(lines)]
    assert out == expected


def test_through_a_pipeline_of_parquet(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["a www.x.y", None, "b"], "n": [1, 2, 3]}), tmp_path / "in/a.parquet")
    stages = [DocumentReader(str(tmp_path / "in")), Modify(UrlRemover()), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("m", stages=stages).execute(InProcessExecutor())
    found = pq.read_table(next((tmp_path / "out").glob("*.parquet"))).to_pylist()
    assert found == [{"text": "a ", "n": 1}, {"text": None, "n": 2}, {"text": "b", "n": 3}]


def test_the_kernels_of_its_modifiers_are_loaded_before_any_memory_cap() -> None:
    assert Modify([str.strip, UrlRemover()]).kernel_groups == ()
    assert Modify([UrlRemover(), C4LineCleaner(), C4LineCleaner()]).kernel_groups == ("text",)
