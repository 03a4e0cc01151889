"""HasText tells apart why a document has no text; Sample chooses by what documents say."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tamis import DocumentBatch
from tamis.errors import UsageError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.stages.text.filters.fasttext import LanguageFilter
from tamis.stages.text.filters.has_text import HasText
from tamis.stages.text.modules.sample import Sample


def batch(raw: bytes) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(raw, np.uint8), ["text"])
    return DocumentBatch.over(block, np.arange(block.n_rows))


def test_missing_null_other_values_and_texts_without_letters_are_distinguished() -> None:
    documents = batch(
        b'{"text": "a"}\n{"n": 1}\n{"text": null}\n{"text": 5}\n{"text": ["b"]}\n{"text": "--"}\n{"text": '
        b'"\\u00e9"}\n{"text": ""}\n'
    )
    assert documents.kinds("text").tolist() == [2, 0, 1, 3, 3, 2, 2, 2]
    stage = HasText()
    assert stage.process(documents).serial.tolist() == [0, 6]
    assert {note.reason: np.asarray(note.serials).tolist() for note in stage._take_notes().drops} == {
        "text_missing": [1],
        "text_null": [2],
        "text_not_a_string": [3, 4],
        "text_without_letters": [5, 7],
    }
    assert stage.rules()[0].name == "text_missing"


def test_where_no_document_has_text() -> None:
    assert HasText().process(batch(b'{"text": null}\n{"n": 1}\n')).num_items == 0


def test_kinds_of_tables_and_new_columns() -> None:
    table = DocumentBatch(data=pa.table({"text": ["a", None], "n": [1, 2]}))
    assert table.kinds("text").tolist() == [2, 1]
    assert table.kinds("n").tolist() == [3, 3]
    assert table.kinds("gone").tolist() == [0, 0]
    documents = batch(b'{"text": 5}\n{"text": "x"}\n').with_column("text", ["5", None])
    assert documents.kinds("text").tolist() == [2, 1]


def test_a_sample_is_chosen_by_content_and_a_larger_one_has_the_smaller_in_it() -> None:
    documents = batch("".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(4000)).encode())
    kept = {share: set(Sample(share).process(documents).serial.tolist()) for share in (0.1, "50%")}
    assert abs(len(kept[0.1]) - 400) < 80
    assert abs(len(kept["50%"]) - 2000) < 150
    assert kept[0.1] < kept["50%"]
    assert set(Sample(0.1, seed=1).process(documents).serial.tolist()) != kept[0.1]
    apart = documents.take(np.arange(1000, 4000))
    assert set(Sample(0.1).process(apart).serial.tolist()) == {i for i in kept[0.1] if i >= 1000}
    with pytest.raises(UsageError, match="fraction"):
        Sample("200%")


def test_the_language_filter_is_a_rule_with_a_name_and_keeps_the_language_on_request() -> None:
    (stage,) = LanguageFilter("en", 0.5).decompose()
    assert (stage.name, stage.output_columns(), stage.rules()[0].name) == ("language", [], "lang_id")
    (stage,) = LanguageFilter(language_field="language").decompose()
    assert stage.output_columns() == ["language"]
