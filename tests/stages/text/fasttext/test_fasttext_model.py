"""FastTextModel against the slow twin and, where it is installed, against the fastText library."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tamis.errors import FormatError, UsageError
from tamis.kernels.text import fasttext_file
from tamis.kernels.text.fasttext_file import read_fasttext
from tamis.stages.text.fasttext.model import FastTextModel
from tamis.stages.text.langid import LanguageId
from tests.stages.text.fasttext.fasttext_twin import LABELS, LOSSES, SOFTMAX, Twin, random_twin
from tests.support.limits import examples

TEXTS = [
    "the cat is naïve",
    "être ou ne pas être",
    "日本 の 首都 は 東京",
    "",
    " \n\t ",
    "a",
    "line one\nline two\r\nthree\x00four\x0bfive\x0csix",
    "stop here </s> être être être",
    "</s>",
    "__label__fr __label__unknown the",
    "__label_ __label__",
    "x" * 31 + " " + "y" * 32 + " " + "z" * 33 + " " + "é" * 40,
    "𝄞 emoji 👩‍👩‍👧 non\u00a0breaking",
]
SHAPES: dict[str, dict[str, Any]] = {
    "dense": {},
    "words only": {"maxn": 0, "minn": 0},
    "single characters": {"minn": 1, "maxn": 2},
    "word pairs": {"maxn": 0, "minn": 0, "word_ngrams": 2},
    "word and character n-grams": {"word_ngrams": 4},
    "quantised": {"quantised": True},
    "quantised without norms": {"quantised": True, "normed": False},
    "quantised outputs": {"quantised": True, "quantised_outputs": True},
    "pruned": {"quantised": True, "pruned": 20, "word_ngrams": 2},
    "all pruned": {"quantised": True, "pruned": 0},
}


def assert_same(twin: Twin, model: FastTextModel, texts: list[str], k: int, threshold: float = 0.0) -> None:
    labels, scores = model.predict(texts, k, threshold)
    for text, got, got_scores in zip(texts, labels, scores, strict=True):
        expected = twin.predict(text, k, threshold)
        assert got == [name for name, _ in expected], text
        assert got_scores == pytest.approx([score for _, score in expected], abs=2e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_twin(tmp_path: Path, loss: str, shape: str) -> None:
    twin = random_twin(3, LOSSES[loss], **SHAPES[shape])
    model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
    assert_same(twin, model, TEXTS, 1)
    assert_same(twin, model, TEXTS, 1, 0.3)
    if loss in ("hs", "softmax"):  # the others' scores come in steps, so several labels tie
        assert_same(twin, model, TEXTS, 5)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Twin, FastTextModel]:
    twin = random_twin(5, SOFTMAX, word_ngrams=3)
    return twin, FastTextModel.load(twin.save(tmp_path_factory.mktemp("model") / "model.bin"))


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_equals_the_twin_on_any_text(loaded: tuple[Twin, FastTextModel], texts: list[str]) -> None:
    assert_same(loaded[0], loaded[1], texts, 2)


@pytest.mark.parametrize(
    "shape",
    [
        {"dim": 8, "bucket": 7},
        {"dim": 17, "bucket": 2_000_003},
        {"dim": 3, "minn": 0, "maxn": 9, "bucket": 997},
        {"dim": 16, "minn": 1, "maxn": 8, "bucket": 64},
        {"dim": 16, "quantised": True, "pruned": 700, "bucket": 3001},
    ],
    ids=str,
)
def test_words_of_any_length_and_n_grams_of_any(tmp_path: Path, shape: dict[str, Any]) -> None:
    if shape["bucket"] > 100_000:  # of so many buckets only some have rows
        shape = {**shape, "quantised": True, "pruned": 500}
    twin = random_twin(11, SOFTMAX, **shape)
    model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
    letters = np.random.default_rng(2).integers(33, 127, 600).astype(np.uint8).tobytes().decode()
    lengths = [*range(1, 20), 31, 32, 33, 62, 63, 64, 65, 124, 125, 126, 127, 128, 129, 130, 254, 255, 256, 257, 300]
    texts = [letters[:n] for n in lengths] + [letters[:70] + "é" + letters[:70], "é" * 130]
    texts += [" " * gap + " ".join(letters[n : n + n % 7 + 1] for n in range(120)) for gap in (0, 1, 62, 63, 64)]
    assert_same(twin, model, texts, 2)


def test_a_quantised_matrix_too_large_to_unpack_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = random_twin(8, quantised=True, pruned=30).save(tmp_path / "model.ftz")
    unpacked = FastTextModel.load(path).predict_ids(TEXTS, 3)
    monkeypatch.setattr(fasttext_file, "_MAX_UNPACKED_BYTES", 0)
    assert read_fasttext(path).inputs[0] == 1
    packed = FastTextModel.load(path).predict_ids(TEXTS, 3)
    np.testing.assert_array_equal(unpacked[0], packed[0])
    np.testing.assert_allclose(unpacked[1], packed[1], atol=1e-6)


def test_results_do_not_depend_on_what_the_table_holds(tmp_path: Path) -> None:
    path = random_twin(9).save(tmp_path / "model.bin")
    model, tiny = FastTextModel.load(path), FastTextModel(str(path), read_fasttext(path), cache_bytes=1)
    first = model.predict_ids(TEXTS)
    for other in (model.predict_ids(TEXTS), tiny.predict_ids(TEXTS), tiny.predict_ids(TEXTS)):
        np.testing.assert_array_equal(first[0], other[0])
        np.testing.assert_array_equal(first[1].view(np.int32), other[1].view(np.int32))


def test_columns_slices_chunks_and_nulls(tmp_path: Path) -> None:
    model = FastTextModel.load(random_twin(1).save(tmp_path / "model.bin"))
    labels, scores = model.predict(["the", "être", None, "日本"])
    assert labels[2] == scores[2] == []
    small = pa.array(["junk", "the", "être", None, "日本"], pa.string())
    assert model.predict(small.slice(1)) == (labels, scores)
    chunked = pa.chunked_array([small.slice(1, 1).cast(pa.large_string()), small.slice(2).cast(pa.large_string())])
    assert model.predict(chunked) == (labels, scores)
    assert model.predict([]) == ([], [])


def test_a_null_above_bytes_is_still_a_null(tmp_path: Path) -> None:
    model = FastTextModel.load(random_twin(1).save(tmp_path / "model.bin"))
    offsets, data = pa.py_buffer(np.array([0, 3, 6], np.int64)), pa.py_buffer(b"thethe")
    column = pa.LargeStringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x01"))
    assert [len(row) for row in model.predict(column)[0]] == [1, 0]


def test_k_and_threshold(tmp_path: Path) -> None:
    model = FastTextModel.load(random_twin(2, SOFTMAX).save(tmp_path / "model.bin"))
    labels, scores = model.predict(["the cat"], k=-1)
    assert sorted(labels[0]) == sorted(name for name, _ in LABELS)
    assert scores[0] == sorted(scores[0], reverse=True)
    assert model.predict(["the cat"], k=99) == (labels, scores)
    assert model.predict(["the cat"], threshold=1.1) == ([[]], [[]])
    with pytest.raises(UsageError, match="expected k of 1 or more, or -1 for all labels, got 0"):
        model.predict(["the"], k=0)


def test_matrices_with_nan_are_refused_when_they_are_used(tmp_path: Path) -> None:
    for loss in LOSSES.values():
        twin = random_twin(2, loss)
        twin.inputs[1] = np.nan  # type: ignore[index]
        model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
        with pytest.raises(FormatError, match="not finite"):
            model.predict(["the"])


def test_one_long_word_is_read_in_one_pass(tmp_path: Path) -> None:
    twin = random_twin(4)
    model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
    text = "日本é" * 20_000
    assert model.predict([text])[0][0] == [twin.predict(text)[0][0]]


def test_pickles_as_its_path(tmp_path: Path) -> None:
    model = FastTextModel.load(random_twin(1).save(tmp_path / "model.bin"))
    data = pickle.dumps(model)
    assert len(data) < 500
    assert pickle.loads(data).predict(TEXTS) == copy.deepcopy(model).predict(TEXTS) == model.predict(TEXTS)


# --- the library ---


def library_predict(fasttext: Any, path: Path, texts: list[str], k: int) -> list[list[tuple[float, str]]]:
    model = fasttext.FastText._FastText(str(path))  # its own `predict` fails on NumPy 2
    return [model.f.predict(text.replace("\n", " ") + "\n", k, 0.0, "strict") for text in texts]


def assert_same_as_library(fasttext: Any, path: Path, texts: list[str], k: int, tolerance: float = 1e-5) -> None:
    labels, scores = FastTextModel.load(path).predict(texts, k)
    for text, got, got_scores, expected in zip(
        texts, labels, scores, library_predict(fasttext, path, texts, k), strict=True
    ):
        assert got == [name for _, name in expected], text[:80]
        assert got_scores == pytest.approx([score for score, _ in expected], abs=tolerance)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_library_on_written_models(fasttext: Any, tmp_path: Path, loss: str, shape: str) -> None:
    path = random_twin(3, LOSSES[loss], **SHAPES[shape]).save(tmp_path / "model.bin")
    assert_same_as_library(fasttext, path, TEXTS, 5 if loss in ("hs", "softmax") else 1)


# Trained by fastText 0.9.2 on twelve sentences in four languages, each of them 30 times:
# train_supervised("train.txt", loss=loss, dim=4, minn=2, maxn=3, wordNgrams=2, bucket=500, epoch=25, lr=0.5), and for
# the .ftz quantize(qnorm=True, cutoff=260, dsub=3).
TRAINED = Path(__file__).parent / "trained"
SENTENCES = [
    ("en", ["the cat sat on the mat", "where is the station", "a house with a garden"]),
    ("fr", ["le chat est sur la table", "où est la gare", "une maison avec un jardin"]),
    ("de", ["die katze sitzt auf dem tisch", "wo ist der bahnhof", "ein haus mit garten"]),
    ("ja", ["猫はテーブルの上にいます", "駅はどこですか", "庭のある家"]),
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["bin", "ftz"])
def test_knows_what_a_trained_model_was_taught(loss: str, kind: str) -> None:
    model = FastTextModel.load(TRAINED / f"{loss}.{kind}")
    for code, texts in SENTENCES:
        assert model.predict(texts)[0] == [[f"__label__{code}"]] * 3
    assert model.predict(["où est le jardin", "駅はどこ"])[0] == [["__label__fr"], ["__label__ja"]]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["bin", "ftz"])
def test_equals_the_library_on_trained_models(fasttext: Any, loss: str, kind: str) -> None:
    texts = [text for _, group in SENTENCES for text in group] + TEXTS
    assert_same_as_library(fasttext, TRAINED / f"{loss}.{kind}", texts, 1)


@pytest.mark.corpus
def test_equals_the_library_on_the_corpus(fasttext: Any) -> None:
    shared = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[5] / "shared"))
    part = shared / "corpus" / "part-000.jsonl.zst"
    if not part.is_file():
        pytest.skip("the shared corpus is absent; set TAMIS_SHARED to the folder that holds it")
    with open(part, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8")
        texts = [json.loads(next(lines))["text"] for _ in range(600)]
    model = LanguageId().path()
    # The library sums in single precision, which shows in long texts.
    assert_same_as_library(fasttext, model, [text for text in texts if len(text) < 5000], 1)
    assert_same_as_library(fasttext, model, texts, 1, 1e-3)
