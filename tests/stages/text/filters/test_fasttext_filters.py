"""Filters that ask a fastText model: language and quality."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.errors import FormatError, UsageError
from tamis.stages.text.filters import Filter, ScoreFilter
from tamis.stages.text.filters.fasttext import FastTextLangId, FastTextQualityFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch
from tests.stages.text.fasttext.fasttext_twin import SOFTMAX, Twin, random_twin


def two_words(path: Path, words: dict[str, tuple[str, float]]) -> str:
    """Return a model of two words, each of which has its label with its probability."""
    names = [(word, 9 - i) for i, word in enumerate(words)]
    labels = [(f"__label__{label}", 9 - i) for i, (label, _) in enumerate(words.values())]
    logits = np.diag([math.log(p / (1 - p)) for _, p in words.values()]).astype(np.float32)
    model = Twin(names, labels, np.eye(2, dtype=np.float32), logits, SOFTMAX, bucket=0, minn=0, maxn=0)
    return str(model.save(path))


def batch(texts: list[str | None]) -> DocumentBatch:
    return DocumentBatch("", pa.table({"text": pa.array(texts, pa.string())}))


# -- language ---------------------------------------------------------------------------------------------------------
def test_language_and_its_probability(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"hello": ("en", 0.9), "bonjour": ("fr", 0.6)})
    stage = ScoreFilter(FastTextLangId(path, min_langid_score=0.7), score_field="lang")
    stage.setup_on_node()
    stage.setup()
    result = stage.process(batch(["hello\nhello", "bonjour", "hello", "", " ", None, "unknown"]))
    assert stage.name == "lang_id"
    found = [FastTextLangId.parsed(score) for score in result.column("lang").to_pylist()]
    assert found == [(pytest.approx(0.9, abs=1e-4), "en")] * 2
    one = FastTextLangId(path)
    assert one.score_document("") == one.score_document("unknown") == "[0.0, 'unknown']"
    assert one.score_batch(pa.array([None, " "])) == ["[0.0, 'unknown']"] * 2


def test_only_the_beginning_of_a_text_is_read(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"hello": ("en", 0.9), "bonjour": ("fr", 0.9)})
    text = "hello hello" + " bonjour" * 10
    assert FastTextLangId.parsed(FastTextLangId(path, max_bytes=11).score_document(text))[1] == "en"
    assert FastTextLangId.parsed(FastTextLangId(path).score_document(text))[1] == "fr"


def test_a_score_above_one_is_one(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"hello": ("en", 1 - 1e-9), "bonjour": ("fr", 0.6)})
    assert FastTextLangId(path).score_document("hello") == "[1.0, 'en']"


def test_without_a_path_the_model_of_the_extra_is_used() -> None:
    texts: list[str | None] = [
        "The quick brown fox jumps over the lazy dog.",
        "Der schnelle braune Fuchs springt über den faulen Hund.",
        "素早い茶色の狐がのろまな犬を飛び越える。",
        None,
    ]
    stage = ScoreFilter(FastTextLangId(lang="de"), score_field="lang")
    stage.setup_on_node()
    stage.setup()
    assert stage.process(batch(texts)).column("text").to_pylist() == [texts[1]]
    scores = FastTextLangId().score_batch(pa.array(texts, pa.large_string()))
    assert [FastTextLangId.parsed(score)[1] for score in scores] == ["en", "de", "ja", "unknown"]


@pytest.mark.parametrize(
    ("lang", "label", "kept"),
    [
        ("EN", "en", True),
        ("en", "EN_Latn", True),
        ("en", "eng_Latn", False),
        ("eng_latn", "eng_Latn", True),
        ("eng_Latn", "eng", False),
        (None, "xx", True),
    ],
)
def test_one_language_only(lang: str | None, label: str, kept: bool) -> None:
    one = FastTextLangId("m.bin", lang=lang)
    assert one.keep_document(f"[0.3, '{label}']") is kept
    assert one.keep_document(f"[0.29, '{label}']") is False


@pytest.mark.parametrize("score", [None, 0.5, "", "en", "[1]", "__import__('os').getpid()", "[" * 150, "(" * 5000])
def test_a_score_that_is_none_is_refused_and_never_run(score: Any) -> None:
    with pytest.raises(UsageError, match="expected a score such as"):
        FastTextLangId("m.bin").keep_document(score)


def test_a_used_filter_pickles_as_its_settings() -> None:
    one = FastTextLangId(lang="en", max_bytes=500)
    one.score_document("some text")
    data = pickle.dumps(one)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again == one
    assert again.score_document("some text") == one.score_document("some text")


def test_a_model_file_is_used_in_a_run(tmp_path: Path) -> None:
    twin = random_twin(loss=SOFTMAX)
    file = str(twin.save(tmp_path / "model.bin"))
    texts = ["the naïve cat", "日本 être", "the\nthe", "unknown words here"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    stages: list[Any] = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ScoreFilter(
            [FastTextLangId(file, min_langid_score=0.0), FastTextLangId(min_langid_score=0.0)],
            score_field=["lang", "x"],
        ),
        JsonlWriter(str(tmp_path / "out")),
    ]
    assert Pipeline("t", stages=stages).execute(LocalExecutor(), memory="700MB").exit_code == 0
    lines = [json.loads(x) for p in (tmp_path / "out").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert [d["text"] for d in lines] == texts
    for document in lines:
        value, label = FastTextLangId.parsed(document["lang"])
        ((expected, score),) = twin.predict(document["text"].replace("\n", " "))
        assert (label, value) == (expected.removeprefix("__label__"), pytest.approx(score, abs=1e-5))
    assert [d["x"] for d in lines] == FastTextLangId().score_batch(pa.array(texts, pa.large_string()))


# -- quality ----------------------------------------------------------------------------------------------------------
def test_quality_is_drawn_by_the_content(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"good": ("hq", 0.7), "bad": ("lq", 0.9)})
    texts: list[str | None] = [f"good {i}" for i in range(2000)] + [f"bad {i}" for i in range(2000)]
    one = FastTextQualityFilter(path)
    array = pa.array(texts, pa.large_string())
    scores = one.score_batch(array)
    assert (scores[0], scores[2000]) == (pytest.approx(0.7, abs=1e-4), pytest.approx(0.1, abs=1e-4))
    assert [one.score_document("good\ngood"), one.score_document(""), one.score_document(" ")] == [scores[0], 0.0, 0.0]
    kept = one.keep_texts(array, scores)
    assert kept[:2000].mean() == pytest.approx((1 + 0.3) ** -3, abs=0.03)
    assert kept[2000:].mean() == pytest.approx((1 + 0.9) ** -3, abs=0.03)
    assert np.array_equal(kept, FastTextQualityFilter(path).keep_texts(array, scores))
    assert np.array_equal(kept[5:], one.keep_texts(array[5:], scores[5:]))
    assert not np.array_equal(kept, FastTextQualityFilter(path, seed=1).keep_texts(array, scores))
    stage = ScoreFilter(one)
    assert stage.process(batch(texts)).column("text").to_pylist() == [t for t, k in zip(texts, kept, strict=True) if k]
    draws = one.draws(array)
    assert draws.min() >= 0
    assert np.median(draws) == pytest.approx(2 ** (1 / 3) - 1, abs=0.02)


def test_quality_from_a_score_alone_is_a_function_of_the_score() -> None:
    one = FastTextQualityFilter("m.bin")
    scores = [i / 999 for i in range(1000)]
    kept = [one.keep_document(s) for s in scores]
    assert kept == [one.keep_document(s) for s in scores]
    assert one.keep_document(1.0) is True
    assert 200 < sum(kept) < 600
    column = DocumentBatch("", pa.table({"text": scores}))
    assert Filter(one, "text").process(column).num_items == sum(kept)


def test_settings_that_a_resumed_run_compares_do_not_depend_on_use(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"good": ("hq", 0.7), "bad": ("lq", 0.9)})
    for used, fresh in [
        (FastTextQualityFilter(path), FastTextQualityFilter(path)),
        (FastTextLangId(), FastTextLangId()),
    ]:
        used.score_document("good")
        assert ScoreFilter(used).filter_settings == ScoreFilter(fresh).filter_settings


# -- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", [None, "", 7])
def test_a_path_that_is_none(path: Any) -> None:
    with pytest.raises(UsageError, match="FastTextQualityFilter: model_path must be the path of a fastText model"):
        FastTextQualityFilter(path)
    if path is not None:
        with pytest.raises(UsageError, match="FastTextLangId: model_path must be the path of a fastText model"):
            FastTextLangId(path)


def test_mistakes_in_a_fasttext_filter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="alpha must be above 0"):
        FastTextQualityFilter("x", alpha=0)
    for wrong in ("3", True, math.nan):
        with pytest.raises(UsageError, match=f"alpha must be above 0, got {wrong!r}"):
            FastTextQualityFilter("x", alpha=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"min_langid_score must be a number, got {wrong!r}"):
            FastTextLangId("x", min_langid_score=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected max_bytes of 1 or more, got 0"):
        FastTextLangId(max_bytes=0)
    for one in (FastTextQualityFilter(str(tmp_path / "absent.bin")), FastTextLangId(str(tmp_path / "absent.bin"))):
        with pytest.raises(UsageError, match=r"absent.bin is not a file; nothing is downloaded"):
            ScoreFilter(one).setup_on_node()
    (tmp_path / "damaged.bin").write_bytes(b"not a model")
    with pytest.raises(FormatError, match=r"damaged.bin"):
        ScoreFilter(FastTextLangId(str(tmp_path / "damaged.bin"))).setup_on_node()


def test_a_label_that_the_model_does_not_have(tmp_path: Path) -> None:
    path = two_words(tmp_path / "m.bin", {"good": ("hq", 0.7), "bad": ("lq", 0.9)})
    with pytest.raises(UsageError, match=r"'hq'.*: __label__hq, __label__lq$"):
        ScoreFilter(FastTextQualityFilter(path, label="hq")).setup_on_node()
    with pytest.raises(UsageError, match=r"'en'.*: hq, lq$"):
        ScoreFilter(FastTextLangId(path, lang="en")).setup_on_node()
    with pytest.raises(UsageError, match=r"'eng'.*: en, ru, .* and 156 more$"):
        ScoreFilter(FastTextLangId(lang="eng")).setup_on_node()
