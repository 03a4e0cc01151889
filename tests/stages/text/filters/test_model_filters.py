"""Filters that ask a tokenizer or a table of characters."""

from __future__ import annotations

import json
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import MissingExtra, UsageError
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.histogram import BLOCKS, LATIN, HistogramFilter
from tamis.stages.text.filters.token import TokenCountFilter
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

    one = TokenCountFilter(hf_model_name="some/model", hf_token="hf_12345", transformers_init_kwargs={"revision": "x"})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"tamis\[models\]"):
        one.load_tokenizer()
    fake = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    stage = ScoreFilter(one)
    stage.setup_on_node()
    stage.setup()
    assert calls == [
        ("some/model", {"trust_remote_code": False, "local_files_only": False, "token": "hf_12345", "revision": "x"}),
        ("some/model", {"trust_remote_code": False, "local_files_only": True, "token": "hf_12345", "revision": "x"}),
    ]
    assert one.score_document("a b") == 2
    assert "hf_12345" not in repr(one) + repr(stage.filter_settings) + repr(
        {k: v for k, v in vars(one).items() if k[0] != "_"}
    )


def test_code_of_a_tokenizer_is_refused_without_a_prompt(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the extra models")
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(own))
    (tmp_path / "own.py").write_text("raise SystemExit('this must not run')")
    one = TokenCountFilter(hf_model_name=str(tmp_path))
    with pytest.raises(UsageError, match=r"wants to run code of its own \(auto_map\), which is refused"):
        one.model_check_or_download()
    with pytest.raises(UsageError, match=r"TokenCountFilter.* cannot be loaded"):
        TokenCountFilter(hf_model_name=str(tmp_path / "nowhere")).load_tokenizer()


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
    with pytest.raises(UsageError, match=r"lang='yy'.* af, am"):
        HistogramFilter("yy")
    for threshold in (math.nan, True, "0.8"):
        with pytest.raises(UsageError, match=f"threshold must be a number, got {threshold!r}"):
            HistogramFilter(threshold=threshold)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="threshold_char must be one character, got ']]'"):
        HistogramFilter(threshold_char="]]")


def test_the_table_of_languages_has_each_once() -> None:
    assert not LATIN.keys() & BLOCKS.keys()
    assert len(LATIN) + len(BLOCKS) == 85
    assert not any(math.isnan(HistogramFilter(lang).usual_share("x")) for lang in (*LATIN, *BLOCKS))
    assert pickle.loads(pickle.dumps(HistogramFilter("el"))).score_document("Ελλάδα") == 1
