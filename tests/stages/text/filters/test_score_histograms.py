"""Scores that filters compute are counted: of the documents that each filter saw, whatever becomes of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.engine.ledger import StageBook
from tamis.engine.worker.apply import StageFailure, identify, run_stage
from tamis.formats.table_block import TableBlock
from tamis.stages.text.filters import DocumentFilter, Filter, Score, ScoreFilter
from tamis.stages.text.filters.fasttext import FastTextLangId
from tamis.stages.text.filters.heuristic.string import WordCountFilter
from tamis.tasks import DocumentBatch


def counted(stage: Any, **columns: list[Any]) -> dict[str, list[list[Any]]]:
    block = TableBlock(pa.table(columns))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    book = StageBook(stage.name)
    run_stage(stage, stage.name, [batch], book)
    return {name: [list(b) for b in histogram.bins()] for name, histogram in book.scores.items()}


class Length(DocumentFilter):
    _name = "length"

    def score_document(self, text: str) -> Any:
        return len(text)

    def keep_document(self, score: Any) -> bool:
        return score < 3


class Broken(Length):
    def keep_document(self, score: Any) -> bool:
        raise ValueError("as asked")


TEXTS = ["a", "b c", "d e f", None]


def test_a_later_filter_sees_what_the_earlier_one_kept() -> None:
    found = counted(ScoreFilter([WordCountFilter(min_words=1), Length()]), text=TEXTS)
    assert found == {
        "word_count": [[0.0, 2.0**-24, 1], [1.0, 1.25, 1], [2.0, 2.25, 1], [3.0, 3.25, 1]],
        "length": [[1.0, 1.25, 1], [3.0, 3.25, 1], [5.0, 5.25, 1]],
    }


def test_a_score_that_is_kept_for_all_counts_those_that_were_seen() -> None:
    stage = ScoreFilter([WordCountFilter(min_words=2), Length()], score_field=["words", "letters"])
    assert counted(stage, text=TEXTS)["length"] == [[3.0, 3.25, 1], [5.0, 5.25, 1]]


def test_a_filter_that_stands_twice_has_two_histograms() -> None:
    assert list(counted(ScoreFilter([Length(), Length()]), text=TEXTS)) == ["length", "length#2"]


def test_scores_of_functions_have_the_name_of_their_column() -> None:
    assert counted(Score(len, "letters"), text=TEXTS) == {
        "letters": [[0.0, 2.0**-24, 1], [1.0, 1.25, 1], [3.0, 3.25, 1], [5.0, 5.25, 1]]
    }


def test_values_that_a_filter_finds_in_a_column() -> None:
    found = counted(Filter(lambda n: n is not None and n > 1, "n"), n=[0, 2, None])
    assert found == {"<lambda>": [[0.0, 2.0**-24, 1], [2.0, 2.25, 1], [None, None, 1]]}


def test_texts_are_no_numbers() -> None:
    assert counted(Score(str.upper, "loud"), text=["a", "b"]) == {"loud": [[None, None, 2]]}


def test_of_a_language_its_probability_counts() -> None:
    scores = ["[0.97, 'en']", "[1.0, 'de']", "[0.0, 'unknown']", "", None, "[x, 'en']", "[9" * 100]
    assert FastTextLangId().score_numbers(scores) == [0.97, 1.0, 0.0, None, None, None, None]


def test_nothing_of_the_counting_stays_with_the_stage() -> None:
    stage = ScoreFilter(Length())
    counted(stage, text=TEXTS)
    with pytest.raises(StageFailure):
        counted(broken := ScoreFilter(Broken()), text=TEXTS)
    for one in (stage, broken):
        assert one._notes_of_call is None
        pickle.dumps(copy.deepcopy(one))


def test_a_stage_without_a_histogram_works_as_well() -> None:
    assert ScoreFilter(Length()).process(DocumentBatch("x", pa.table({"text": ["a", "bbbb"]}))).num_items == 1
