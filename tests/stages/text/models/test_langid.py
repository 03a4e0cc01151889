"""LanguageId: codes and scores from the beginning of each text."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fasttext_twin import SOFTMAX, Twin

from tamis.errors import UsageError
from tamis.stages.text.langid import LanguageId


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Knows two words: hello is English, bonjour French."""
    eye = np.eye(2, dtype=np.float32)
    words, labels = [("hello", 9), ("bonjour", 5)], [("__label__en", 9), ("__label__fr", 5)]
    return Twin(words, labels, eye, 10 * eye, SOFTMAX, bucket=0, minn=0, maxn=0).save(tmp_path / "model.bin")


def test_codes_and_scores(model: Path) -> None:
    codes, scores = LanguageId(str(model)).detect(["hello hello", "bonjour", "hello bonjour bonjour"])
    assert codes.type == pa.large_string()
    assert codes.to_pylist() == ["en", "fr", "fr"]
    # softmax(10, 0) and softmax(10/3, 20/3), plus fastText's 1e-5
    assert scores.tolist() == pytest.approx([0.9999646, 0.9999646, 0.9655646], abs=1e-6)


def test_nothing_to_go_by_is_null_and_zero(model: Path) -> None:
    codes, scores = LanguageId(str(model)).detect(["", " \n\t ", None, "unknown", "hello"])
    assert codes.to_pylist() == [None, None, None, None, "en"]
    assert scores[:4].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_only_the_beginning_is_read(model: Path) -> None:
    detector = LanguageId(str(model), max_bytes=11)
    codes, _ = detector.detect(["hello hello bonjour bonjour bonjour", "\n" * 100 + "hello", "bonjour"])
    assert codes.to_pylist() == ["en", "en", "fr"]


def test_a_character_is_never_cut(tmp_path: Path) -> None:
    eye = np.eye(2, dtype=np.float32)
    twin = Twin([("日本", 9), ("日", 1)], [("__label__ja", 9), ("__label__zh", 1)], eye, 10 * eye, SOFTMAX, 0, 0, 0)
    path = str(twin.save(tmp_path / "model.bin"))
    for max_bytes, code in [(2, None), (3, "zh"), (4, "zh"), (5, "zh"), (6, "ja"), (7, "ja"), (8, "ja"), (9, None)]:
        assert LanguageId(path, max_bytes).detect(["日本語"])[0].to_pylist() == [code]


def test_chunks_are_joined(model: Path) -> None:
    column = pa.chunked_array([["hello"], [], ["bonjour", None]], pa.string())
    assert LanguageId(str(model)).detect(column)[0].to_pylist() == ["en", "fr", None]
    codes, scores = LanguageId(str(model)).detect([])
    assert (codes.to_pylist(), scores.tolist()) == ([], [])


def test_pickles_as_its_configuration(model: Path) -> None:
    detector = LanguageId(str(model), max_bytes=100)
    detector.detect(["hello"])
    data = pickle.dumps(detector)
    assert len(data) < 500
    again = pickle.loads(data)
    assert again == detector
    assert again.detect(["bonjour"])[0].to_pylist() == ["fr"]


def test_max_bytes_must_be_positive() -> None:
    with pytest.raises(UsageError, match="expected max_bytes of 1 or more, got 0"):
        LanguageId("model.bin", max_bytes=0)
