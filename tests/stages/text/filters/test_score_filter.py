"""Score, Filter and ScoreFilter: chains, inversion, kept scores, early exit, reasons, real runs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.engine.job import make_job
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import DocumentFilter, Filter, Score, ScoreFilter
from tamis.stages.text.filters import statistics as statistics_module
from tamis.stages.text.filters.heuristic import (
    EllipsisFilter,
    NumbersFilter,
    PunctuationFilter,
    RepeatedLinesFilter,
    RepeatingTopNGramsFilter,
    SubstringFilter,
    UrlsFilter,
    WordCountFilter,
)
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import SCORES, DocumentBatch
from tests.support.run_dirs import run_dir_path

TEXTS = ["one", "one two", "1 2 3", None, "four words in here", ""]


class Length(DocumentFilter):
    """A filter of a user's, in plain Python, that remembers what it saw."""

    def __init__(self, limit: int = 5) -> None:
        self._limit = limit
        self._name = "length"
        self.seen: list[Any] = []

    def score_document(self, text: str) -> int:
        self.seen.append(text)
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score <= self._limit


class Known(Length):
    accepts_null: ClassVar[bool] = True

    def score_document(self, text: str | None) -> int:
        return -1 if text is None else len(text)


def batch(texts: Sequence[Any] = TEXTS, **more: Sequence[Any]) -> DocumentBatch:
    return DocumentBatch("", pa.table({"text": pa.array(texts), **{k: pa.array(v) for k, v in more.items()}}))


def column(result: Any, name: str = "text") -> list[Any]:
    return list(result.column(name).to_pylist())


def test_one_filter_keeps_and_drops() -> None:
    stage = ScoreFilter(WordCountFilter(2, 3))
    assert stage.name == "word_count"
    assert column(stage.process(batch())) == ["one two", "1 2 3"]


def test_the_scores_are_kept_as_a_column() -> None:
    result = ScoreFilter(NumbersFilter(0.7), score_field="digits").process(batch())
    assert column(result) == ["one", "one two", "1 2 3", "four words in here"]
    assert column(result, "digits") == [0.0, 0.0, 0.6, 0.0]


def test_an_inverted_filter_keeps_what_it_would_drop() -> None:
    result = ScoreFilter(WordCountFilter(2, 3), invert=True).process(batch())
    assert column(result) == ["one", None, "four words in here", ""]


def test_a_chain_is_applied_in_order_with_settings_for_each() -> None:
    stage = ScoreFilter(
        [WordCountFilter(1, 10), NumbersFilter(), SubstringFilter("one", "prefix")],
        score_field=["n", None, "at_start"],
        invert=[False, False, True],
    )
    assert stage.name == "score_filter_chain_of_word_count_numbers_ratio_SubstringFilter"
    result = stage.process(batch())
    assert column(result) == ["four words in here"]
    assert (column(result, "n"), column(result, "at_start")) == ([4], [0])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1)])
@pytest.mark.parametrize("fields", [(None, None, None, "s"), (None, None, "s", None), (None, "s", None, "t")])
def test_a_kept_score_in_a_chain_is_that_of_every_document(order: Sequence[int], fields: Sequence[str | None]) -> None:
    """Also of those that went before, when a filter between measured only what was left."""
    texts = ["a", "One line.\nanother", "b", "x y z\nx y z\nx y z", None, "Some words.\nMore here!", "same\nsame", "c"]
    rules = [WordCountFilter(2), RepeatedLinesFilter(0.5), PunctuationFilter(0.6), EllipsisFilter()]
    chosen = [rules[i] for i in order]
    task = batch(texts)
    result = ScoreFilter(list(chosen), score_field=list(fields)).process(task)
    for one, field in zip(chosen, fields, strict=True):
        if field is not None:
            alone = column(Score(one, "s").process(batch(texts)), "s")
            assert task.measured[SCORES, field].tolist() == alone
            assert column(result, field) == [alone[texts.index(text)] for text in column(result)]


def test_filters_of_a_chain_may_read_different_fields() -> None:
    stage = ScoreFilter([WordCountFilter(1), WordCountFilter(2)], text_field=["text", "title"])
    result = stage.process(batch(["a", "b", ""], title=["x y", "x", "x y"]))
    assert column(result) == ["a"]


def test_documents_that_are_dropped_are_not_scored_by_later_filters() -> None:
    later = Length(100)
    result = ScoreFilter([WordCountFilter(2), later, NumbersFilter(0.1)]).process(batch())
    assert later.seen == ["one two", "1 2 3", "four words in here"]
    assert column(result) == ["one two", "four words in here"]


def test_dear_statistics_are_measured_only_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = statistics_module.measure

    def spy(texts: Any, wanted: Any, rows: Any = None, known: Any = None) -> Any:
        calls.append((sorted(s for s in wanted if "gram" in s or "url" in s), None if rows is None else rows.tolist()))
        return real(texts, wanted, rows, known)

    monkeypatch.setattr(statistics_module, "measure", spy)
    chain = [WordCountFilter(2, 100), RepeatingTopNGramsFilter(2, 1.0), RepeatingTopNGramsFilter(3, 1.0), UrlsFilter()]
    result = ScoreFilter(chain).process(batch())
    assert calls == [
        ([], None),
        (["top_2_gram_fraction", "top_3_gram_fraction"], [1, 2, 4]),
        (["url_chars"], [1, 2, 4]),
    ]
    calls.clear()
    again = ScoreFilter([RepeatingTopNGramsFilter(2, 0.9), UrlsFilter()], score_field=["top", None]).process(result)
    assert calls == []
    assert column(again, "top") == [0.6, pytest.approx(10 / 18)]


def test_neighbouring_stages_measure_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    real = statistics_module.measure

    def spy(texts: Any, wanted: Any, rows: Any = None, known: Any = None) -> Any:
        calls.append(sorted(s for s in wanted if "gram" in s))
        return real(texts, wanted, rows, known)

    monkeypatch.setattr(statistics_module, "measure", spy)
    other = Do()
    grams = [ScoreFilter(RepeatingTopNGramsFilter(n, 1.0)) for n in (2, 3, 4, 5)]
    stages = [grams[0], Filter(lambda v: True, "text"), Score(grams[1].filter_obj, ["s"]), grams[2], other, grams[3]]
    make_job("t", stages)
    batch_ = batch(["a b c d e f g", "x"])
    for stage in stages:
        batch_ = stage.process(batch_)
    assert calls == [[f"top_{n}_gram_fraction" for n in (2, 3, 4)], ["top_5_gram_fraction"]]


class Do(ProcessingStage[Any, Any]):
    name = "do"

    def process(self, task: Any) -> Any:
        return task


def test_a_changed_text_is_measured_again() -> None:
    first = ScoreFilter(WordCountFilter(0)).process(batch(["a b", "a b"]))
    changed = first.with_column("text", ["a", "a b c"])
    assert column(ScoreFilter(WordCountFilter(0), score_field="n").process(changed), "n") == [1, 3]
    other = first.with_column("title", ["a", "b"])
    assert other.measured.keys() == first.measured.keys()


def test_a_user_filter_gets_empty_text_for_null_unless_it_accepts_null() -> None:
    plain = Length(0)
    assert column(ScoreFilter(plain).process(batch([None, "", "a"]))) == [None, ""]
    assert plain.seen == ["", "", "a"]
    result = ScoreFilter(Known(0), score_field="s").process(batch([None, "", "a"]))
    assert column(result, "s") == [-1, 0]


def test_values_that_are_no_text_count_as_null_whatever_else_is_in_the_batch() -> None:
    block = batch([1, 2])
    assert block.texts("text").to_pylist() == [None, None]
    assert block.texts("absent").to_pylist() == [None, None]
    dictionary = DocumentBatch("", pa.table({"text": pa.array(["a", None]).dictionary_encode()}))
    assert dictionary.texts("text").to_pylist() == ["a", None]


def test_a_filter_may_score_a_whole_batch() -> None:
    class Batched(Length):
        def score_batch(self, texts: pa.Array) -> Any:
            return pa.compute.utf8_length(texts).fill_null(0)

    assert column(ScoreFilter(Batched(3), score_field="n").process(batch()), "n") == [3, 0, 0]

    class Short(Length):
        def score_batch(self, texts: pa.Array) -> Any:
            return [1]

    with pytest.raises(PipelineError, match=r"length: score_batch.* 1 scores for 6 texts"):
        ScoreFilter(Short()).process(batch())


def test_a_batch_that_is_empty_or_becomes_empty_keeps_its_columns() -> None:
    stage = ScoreFilter(WordCountFilter(1000), score_field="n")
    for texts in ([], TEXTS):
        result = stage.process(batch(pa.array(texts, pa.string())))
        assert (result.num_items, column(result, "n")) == (0, [])


def test_score_adds_columns_from_filters_and_functions() -> None:
    def shout(text: str) -> str:
        return text.upper()

    stage = Score([WordCountFilter(), shout], ["n", "loud"])
    assert stage.name == "score_chain_of_word_count_shout"
    result = stage.process(batch(["a b", None]))
    assert (column(result, "n"), column(result, "loud")) == ([2, 0], ["A B", ""])
    assert Score(shout, "loud").name == "shout"


def test_filter_keeps_by_a_column() -> None:
    stage = Filter(lambda v: v is not None and v > 1, "n")
    assert column(stage.process(batch(["a", "b", "c"], n=[1, 2, None]))) == ["b"]
    chain = Filter([WordCountFilter(2), lambda v: v == "x"], ["n", "kind"], invert=[False, True])
    result = chain.process(batch(["a", "b", "c"], n=[2, 3, 1], kind=["x", "y", "y"]))
    assert column(result) == ["b"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScoreFilter([]), "filter_obj is an empty list"),
        (lambda: ScoreFilter(len), "filter_obj must be a DocumentFilter, got builtin_function_or_method"),  # type: ignore[arg-type]
        (lambda: ScoreFilter(WordCountFilter), "not the class WordCountFilter"),  # type: ignore[arg-type]
        (lambda: ScoreFilter([WordCountFilter()] * 2, score_field="s"), r"a list of one per filter \(2\), got 's'"),
        (lambda: ScoreFilter(WordCountFilter(), text_field=["a", "b"]), "text_field must be one value or a list"),
        (lambda: ScoreFilter(WordCountFilter(), invert="yes"), "invert must be"),  # type: ignore[arg-type]
        (lambda: Score(WordCountFilter(), ["a", "b"]), "score_field must be a list of one per filter"),
        (lambda: Score(3, "a"), "score_fn must be a DocumentFilter or a function, got int"),  # type: ignore[arg-type]
        (lambda: Filter([len, len], "n"), "filter_field must be a list of one per filter"),
    ],
)
def test_mistakes_are_found_when_the_stage_is_made(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_scores_of_different_kinds_stay_what_they_are() -> None:
    kinds = {"a": 1, "b": "b", "c": 1.0}
    scored = Score(lambda text: kinds.get(text), "s").process(batch(["a", "b", "c", "d"]))
    assert [repr(s) for s in scored.values("s")] == ["1", "'b'", "1.0", "None"]


def test_hooks_of_a_filter_are_called() -> None:
    class Model(Length):
        def model_check_or_download(self) -> None:
            self.seen.append("node")

        def load_model(self) -> None:
            self.seen.append("model")

        def load_tokenizer(self) -> None:
            self.seen.append("tokenizer")

    one = Model()
    stage = ScoreFilter([one, WordCountFilter()])
    stage.setup_on_node()
    stage.setup()
    assert (one.seen, stage.ray_stage_spec()) == (["node", "model", "tokenizer"], {"is_actor_stage": True})


def test_verbose_logs_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tamis.filters"):
        ScoreFilter(WordCountFilter(2, 3), verbose=True).process(batch())
    assert caplog.messages == ["word_count: kept 2 of 6 documents"]


def test_why_each_document_went_is_noted() -> None:
    stage = ScoreFilter([WordCountFilter(1), NumbersFilter(0.5), WordCountFilter(2)])
    stage.process(batch())
    notes = stage._take_notes().drops
    assert [(n.reason, list(n.serials), list(n.values), n.threshold) for n in notes] == [
        ("word_count", [3, 5], [0, 0], {"min_words": 1, "max_words": 100000}),
        ("numbers_ratio", [2], [0.6], {"max_number_to_text_ratio": 0.5}),
        ("word_count#2", [0], [1], {"min_words": 2, "max_words": 100000}),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [(re.compile("a"), re.compile("b")), (re.compile("a"), re.compile("a", re.IGNORECASE)), (Path("a"), Path("b"))],
)
def test_expressions_and_paths_are_settings_too(one: Any, other: Any) -> None:
    def settings(value: Any) -> list[Any]:
        rule = Length()
        rule._hidden = value  # type: ignore[attr-defined]
        return ScoreFilter(rule).filter_settings

    assert settings(one) == settings(one) != settings(other)


def test_private_settings_of_a_user_filter_are_part_of_the_pipeline() -> None:
    settings = [ScoreFilter(Length(limit)).filter_settings for limit in (5, 6, 5)]
    assert settings[0] == settings[2] != settings[1]


def written(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    records: list[dict[str, Any]] = [{"n": i, "text": "word " * (i % 7), "raw": "\\u00e9"} for i in range(60)]
    records += [{"n": 60, "text": None}, {"n": 61}, {"n": 62, "text": 5}, {"n": 63, "text": "1 2 3"}]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return tmp_path


def run(place: Path, executor: Any, **settings: Any) -> Any:
    stages = [
        JsonlReader(str(place / "in")),
        ScoreFilter([WordCountFilter(3), NumbersFilter(0.2)], score_field=["n_words", None]),
        ScoreFilter(WordCountFilter(0, 4)),
        JsonlWriter(str(place / "out")),
    ]
    return Pipeline("t", stages=stages).execute(executor, memory="700MB", **settings)


@pytest.mark.parametrize("executor", [InProcessExecutor, LocalExecutor])
def test_a_run_filters_and_counts_by_reason(place: Path, executor: Any) -> None:
    result = run(place, executor())
    assert result.exit_code == 0
    found = written(place / "out")
    assert [d["n"] for d in found] == [i for i in range(60) if i % 7 in (3, 4)]
    assert all(d["n_words"] == d["n"] % 7 for d in found)
    chain, single = result.ledger.stages
    assert {k: t.n for k, t in chain.dropped.items()} == {"word_count": 30, "numbers_ratio": 1}
    assert {k: t.n for k, t in single.dropped.items()} == {"word_count": 16}


def test_the_result_does_not_depend_on_batches(place: Path) -> None:
    run(place, InProcessExecutor(), blocksize="300B")
    small = written(place / "out")
    run(place, InProcessExecutor(), fresh=True)
    assert sorted(d["n"] for d in small) == sorted(d["n"] for d in written(place / "out"))


def test_numpy_masks_are_accepted_from_user_filters() -> None:
    class Mask(Length):
        def keep_scores(self, scores: Any) -> Any:
            return np.asarray(scores) > 3

    assert column(ScoreFilter(Mask()).process(batch())) == ["one two", "1 2 3", "four words in here"]


def test_kept_scores_are_those_of_every_document_dropped_ones_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    texts = ["one", "one two three 4", "1 2 3 4 5"]
    lines = [json.dumps({"id": i, "text": t}) for i, t in enumerate(texts)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    chain = ScoreFilter([WordCountFilter(2, 100), NumbersFilter(0.3)], score_field=["n_words", "numbers"])
    stages = [JsonlReader(str(tmp_path / "in")), chain, JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB", keep_rejected=True)
    kept = [json.loads(x) for p in (tmp_path / "out").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert [(d["id"], d["n_words"], d["numbers"]) for d in kept] == [(1, 4, 1 / 15)]
    gone = [
        json.loads(x)
        for p in (run_dir_path(tmp_path / "out") / "rejected").iterdir()
        for x in p.read_text().splitlines()
    ]
    found = {d["id"]: (d["n_words"], d["numbers"], d["_tamis_rejected"]["rule"]) for d in gone}
    assert found == {0: (1, 0.0, "word_count"), 2: (5, 5 / 9, "numbers_ratio")}
