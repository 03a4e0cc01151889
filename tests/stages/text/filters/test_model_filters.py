"""Filters that ask a tokenizer, a fastText model or a table of characters."""

from __future__ import annotations

import importlib.util
import json
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.errors import MissingExtra, UsageError
from tamis.stages.text.filters import Filter, ScoreFilter
from tamis.stages.text.filters.fasttext import FastTextLangId, FastTextQualityFilter
from tamis.stages.text.filters.histogram import BLOCKS, LATIN, HistogramFilter
from tamis.stages.text.filters.token import TokenCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.models.fasttext_model import FastTextModel
from tamis.tasks import DocumentBatch


class Words:
    def encode(self, text: str) -> list[str]:
        return text.split()


def batch(texts: list[str | None]) -> DocumentBatch:
    return DocumentBatch("", pa.table({"text": pa.array(texts, pa.string())}))


# -- tokens -----------------------------------------------------------------------------------------------------------
def test_tokens_are_counted_by_the_tokenizer_given() -> None:
    stage = ScoreFilter(TokenCountFilter(Words(), min_tokens=1, max_tokens=2), score_field="n")
    stage.setup()
    result = stage.process(batch(["a", "a b", "a b c", "", None]))
    assert (stage.name, result.column("n").to_pylist()) == ("token_count", [1, 2])
    assert TokenCountFilter(Words()).keep_document(10**9)


def test_a_hugging_face_tokenizer_is_fetched_once_and_then_read_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def from_pretrained(name: str, **options: Any) -> Words:
        calls.append((name, options))
        return Words()

    one = TokenCountFilter(hf_model_name="some/model", hf_token="secret", transformers_init_kwargs={"revision": "x"})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"tamis\[models\]"):
        one.load_tokenizer()
    fake = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    stage = ScoreFilter(one)
    stage.setup_on_node()
    stage.setup()
    assert calls == [
        ("some/model", {"local_files_only": False, "token": "secret", "revision": "x"}),
        ("some/model", {"local_files_only": True, "token": "secret", "revision": "x"}),
    ]
    assert one.score_document("a b") == 2
    assert "secret" not in repr(one) + repr(stage.filter_settings) + repr(
        {k: v for k, v in vars(one).items() if k[0] != "_"}
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either tokenizer or hf_model_name"),
        ({"tokenizer": Words(), "hf_model_name": "x"}, "give either tokenizer or hf_model_name"),
        ({"tokenizer": 3}, "tokenizer has no encode method: int"),
        ({"hf_model_name": "x", "transformers_init_kwargs": {"local_files_only": True}}, "local_files_only cannot"),
        ({"tokenizer": Words(), "min_tokens": "many"}, "min_tokens must be a number"),
    ],
)
def test_mistakes_in_a_token_filter(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenCountFilter(**arguments)


# -- fastText ---------------------------------------------------------------------------------------------------------
class Model:
    """Knows the language of texts that begin with its code."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def predict(self, texts: pa.Array, k: int = 1) -> tuple[list[list[str]], list[list[float]]]:
        rows = texts.to_pylist()
        self.seen += rows
        found = [(t.split("|") if t.strip() else []) for t in rows]
        return [[f"__label__{f[0]}"] if f else [] for f in found], [[float(f[1])] if f else [] for f in found]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, Model]:
    made = Model()
    monkeypatch.setattr(FastTextModel, "load", classmethod(lambda cls, path: made))
    (tmp_path / "m.bin").write_bytes(b"")
    return str(tmp_path / "m.bin"), made


def test_language_and_its_probability(model: tuple[str, Model]) -> None:
    stage = ScoreFilter(FastTextLangId(model[0]), score_field="lang")
    stage.setup_on_node()
    stage.setup()
    result = stage.process(batch(["en|0.9|a\nb", "de|0.2|", "fr|0.3|", "", " ", None]))
    assert stage.name == "lang_id"
    assert result.column("lang").to_pylist() == ["[0.9, 'en']", "[0.3, 'fr']"]
    assert model[1].seen == ["en|0.9|a b", "de|0.2|", "fr|0.3|", "", " ", ""]
    assert FastTextLangId(model[0]).score_document("") == "[0.0, 'unknown']"


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


def test_quality_is_drawn_by_the_content(model: tuple[str, Model]) -> None:
    texts: list[str | None] = [f"hq|0.7|{i}" for i in range(2000)] + [f"lq|0.9|{i}" for i in range(2000)]
    one = FastTextQualityFilter(model[0])
    array = pa.array(texts, pa.large_string())
    scores = one.score_batch(array)
    assert (scores[0], scores[2000]) == (0.7, pytest.approx(0.1))
    assert [one.score_document("hq|0.7|"), one.score_document(""), one.score_document(" ")] == [0.7, 0.0, 0.0]
    kept = one.keep_texts(array, scores)
    assert kept[:2000].mean() == pytest.approx((1 + 0.3) ** -3, abs=0.03)
    assert kept[2000:].mean() == pytest.approx((1 + 0.9) ** -3, abs=0.03)
    assert np.array_equal(kept, FastTextQualityFilter(model[0]).keep_texts(array, scores))
    assert np.array_equal(kept[5:], one.keep_texts(array[5:], scores[5:]))
    assert not np.array_equal(kept, FastTextQualityFilter(model[0], seed=1).keep_texts(array, scores))
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
    assert sum(
        Filter(one, "text").process(DocumentBatch("", pa.table({"text": scores}))).num_items for _ in (1,)
    ) == sum(kept)


def test_a_model_file_is_asked_in_a_run(tmp_path: Path) -> None:
    path = Path(__file__).parents[1] / "models" / "fasttext_twin.py"
    spec = importlib.util.spec_from_file_location("fasttext_twin_for_filters", path)
    assert spec is not None
    assert spec.loader is not None
    twin_module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = twin_module  # dataclasses look their module up
    spec.loader.exec_module(twin_module)
    twin = twin_module.random_twin(loss=twin_module.SOFTMAX)
    file = str(twin.save(tmp_path / "model.bin"))
    texts = ["the naïve cat", "日本 être", "the\nthe", "unknown words here"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    stages: list[Any] = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ScoreFilter(FastTextLangId(file, min_langid_score=0.0), score_field="lang"),
        JsonlWriter(str(tmp_path / "out")),
    ]
    assert Pipeline("t", stages=stages).execute(LocalExecutor(), memory="700MB").exit_code == 0
    lines = [json.loads(x) for p in (tmp_path / "out").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert [d["text"] for d in lines] == texts
    for document in lines:
        value, label = FastTextLangId.parsed(document["lang"])
        ((expected, score),) = twin.predict(document["text"].replace("\n", " "))
        assert (label, value) == (expected.removeprefix("__label__"), pytest.approx(score, abs=1e-5))


def test_mistakes_in_a_fasttext_filter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model_path must be the path of a fastText model"):
        FastTextLangId()
    with pytest.raises(UsageError, match="alpha must be above 0"):
        FastTextQualityFilter("x", alpha=0)
    with pytest.raises(UsageError, match="is not a file; nothing is downloaded"):
        ScoreFilter(FastTextQualityFilter(str(tmp_path / "absent.bin"))).setup_on_node()


# -- characters -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("lang", "text", "score"),
    [
        ("en", "The cafe, naïve; 100 % of it!", 1),
        ("en", "Это русский текст", 0),
        ("ru", "Это русский текст, да.", 1),
        ("de", "Straße über Öl", 1),
        ("ja", "日本語のテキスト。", 1),
        ("ko", "한국어 텍스트", 1),
        ("vi", "Tiếng Việt có dấu", 1),
        ("zh", "plain English text", 0),
        ("en", "", 0),
        ("en", "   ", 0),
        ("en", "ab        ", 0),
    ],
)
def test_usual_characters_of_a_language(lang: str, text: str, score: int) -> None:
    one = HistogramFilter(lang)
    assert one.score_document(text) == score
    assert one.keep_document(score) is bool(score)


def test_the_share_must_be_above_the_threshold_and_null_is_empty() -> None:
    one = HistogramFilter(threshold=0.8)
    assert one.usual_share("aaaaЖ") == 0.8
    assert one.score_document("aaaaЖ") == 0
    assert HistogramFilter(threshold=0.79).score_document("aaaaЖ") == 1
    assert ScoreFilter(one, score_field="s").process(batch([None, "a"])).column("s").to_pylist() == [1]


def test_long_texts_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.stages.text.filters import histogram

    monkeypatch.setattr(histogram, "_PIECE", 7)
    assert HistogramFilter().usual_share("abcЖ" * 50) == 0.75


def test_characters_from_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "xx").write_text("a 10\nb 5\n] 0\nc 1\n", encoding="utf-8")
    one = HistogramFilter("xx", 0.5, str(tmp_path))
    assert (one.score_document("abab"), one.score_document("abcccc")) == (1, 0)
    with pytest.raises(UsageError, match="no histogram of 'yy' in cache_dir"):
        HistogramFilter("yy", cache_dir=str(tmp_path))
    with pytest.raises(UsageError, match="no characters known for lang='yy'; known: af, am"):
        HistogramFilter("yy")


def test_the_table_of_languages_has_each_once() -> None:
    assert not LATIN.keys() & BLOCKS.keys()
    assert len(LATIN) + len(BLOCKS) == 85
    assert not any(math.isnan(HistogramFilter(lang).usual_share("x")) for lang in (*LATIN, *BLOCKS))
    assert pickle.loads(pickle.dumps(HistogramFilter("el"))).score_document("Ελλάδα") == 1
