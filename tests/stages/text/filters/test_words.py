"""Words of Chinese and Japanese text, and the filters that count them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import LocalExecutor, Pipeline
from tamis.errors import MissingExtra, UsageError
from tamis.stages.text.filters import ScoreFilter, words
from tamis.stages.text.filters.heuristic import (
    LongWordFilter,
    MeanWordLengthFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
from tamis.stages.text.filters.words import PIECE_CHARS, is_segmented, word_splitter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter

japanese = pytest.mark.skipif(find_spec("MeCab") is None, reason="MeCab (of the extra `lang`) is not installed")
CHINESE = "我来到北京清华大学。他毕业于中国科学院计算所，\n后在日本京都大学深造 using Python 3.11"
CHINESE_WORDS = [
    "我",
    "来到",
    "北京",
    "清华大学",
    "。",
    "他",
    "毕业",
    "于",
    "中国科学院",
    "计算所",
    "，",
    "后",
    "在",
    "日本京都大学",
    "深造",
    "using",
    "Python",
    "3.11",
]
JAPANESE = "吾輩は猫である。名前はまだ無い。\n\u3000すもももももももものうち。東京に住んでいます。"
JAPANESE_WORDS = [
    "吾輩",
    "は",
    "猫",
    "で",
    "ある",
    "。",
    "名前",
    "は",
    "まだ",
    "無い",
    "。",
    "すもも",
    "も",
    "もも",
    "も",
    "もも",
    "の",
    "うち",
    "。",
    "東京",
    "に",
    "住ん",
    "で",
    "い",
    "ます",
    "。",
]


def test_chinese_words() -> None:
    assert word_splitter("zh")(CHINESE) == CHINESE_WORDS
    assert word_splitter("ZH-tw")("小明硕士毕业") == ["小明", "硕士", "毕业"]


@japanese
def test_japanese_words() -> None:
    assert word_splitter("ja")(JAPANESE) == JAPANESE_WORDS
    assert word_splitter("ja_JP")("猫が好き") == ["猫", "が", "好き"]


def test_other_languages_are_split_at_whitespace() -> None:
    assert word_splitter("en")(" one\ttwo\u3000three\n") == ["one", "two", "three"]
    assert [is_segmented(lang) for lang in ("zh", "ja", "zh_Hant", "en", "jv", "zha", "")] == [True] * 3 + [False] * 4


@pytest.mark.parametrize("lang", ["zh", pytest.param("ja", marks=japanese)])
def test_nothing_has_no_words(lang: str) -> None:
    assert [word_splitter(lang)(text) for text in ("", " \n\t", "\u3000\xa0", "\0")] == [[], [], [], []]


@pytest.mark.parametrize(
    ("lang", "expected"), [("zh", ["我们", "你们"]), pytest.param("ja", ["我", "ら", "猫"], marks=japanese)]
)
def test_a_zero_byte_ends_a_word_and_not_the_text(lang: str, expected: list[str]) -> None:
    assert word_splitter(lang)({"zh": "我们\0你们", "ja": "我ら\0猫"}[lang]) == expected


def plain_jieba(text: str) -> list[str]:
    import jieba

    if not hasattr(plain_jieba, "cut"):
        tokenizer = jieba.Tokenizer()
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
        tokenizer.initialized = True
        plain_jieba.cut = tokenizer.cut  # type: ignore[attr-defined]
    return [word for word in plain_jieba.cut(text) if not word.isspace()]  # type: ignore[attr-defined]


@settings(max_examples=100, deadline=None)
@given(st.text("我们来到北京清华大学的一是了龘鿕。，！ \n\t\r\u3000aB19.%+-#é日本カ𠮷👍", max_size=200))
def test_chinese_words_are_jiebas(text: str) -> None:
    word_splitter("zh")("")  # imports jieba
    assert word_splitter("zh")(text) == plain_jieba(text)


@japanese
@settings(max_examples=100, deadline=None)
@given(st.text("我一龘。，！？ \n\t\u3000aB19.%+-#é日カ𠮷👍", max_size=200), st.sampled_from(["zh", "ja"]))
def test_no_character_is_lost(text: str, lang: str) -> None:
    assert "".join(word_splitter(lang)(text)) == "".join(text.split())


@japanese
def test_long_lines_are_cut_after_sentences_where_there_are_any() -> None:
    line = "我来到北京清华大学。" * 300
    assert word_splitter("zh")(line) == ["我", "来到", "北京", "清华大学", "。"] * 300
    assert word_splitter("ja")("名前はまだ無い。" * 300) == ["名前", "は", "まだ", "無い", "。"] * 300
    assert "".join(word_splitter("zh")("龘" * 2500)) == "龘" * 2500


@japanese
def test_runs_of_letters_and_digits_are_never_cut() -> None:
    assert word_splitter("zh")("我" * (PIECE_CHARS - 10) + "x" * 800 + "我们")[-2:] == ["x" * 800, "我们"]
    for lang in ("zh", "ja"):
        run = "x1" * PIECE_CHARS
        assert word_splitter(lang)(f"猫 {run}。{run}") == ["猫", run, "。", run]


def test_filters_of_a_chain_share_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def segment(piece: str) -> list[str]:
        seen.append(piece)
        return list(piece)

    monkeypatch.setattr(words, "_CACHE_CHARS", 100)
    split = words._Segmenter(segment)
    first = split("abc")
    first.append("changed by its owner")
    assert split("abc") == ["a", "b", "c"]
    assert seen == ["abc"]
    split("d" * 60)  # the first goes: 35 and 92 of 100
    assert split("d" * 60) == ["d"] * 60
    assert split("abc") == ["a", "b", "c"]
    assert seen == ["abc", "d" * 60, "abc"]
    split("e" * 200)
    split("e" * 200)
    assert seen[3:] == ["e" * 200, "e" * 200]


@pytest.mark.parametrize(("lang", "module"), [("zh", "jieba"), ("ja", "MeCab"), ("ja", "unidic_lite")])
def test_without_the_extra_its_name_is_said(lang: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words._splitter.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'tamis\[lang\]'"):
        WordCountFilter(lang=lang)


@japanese
def test_warnings_of_the_segmenters_stay_inside(tmp_path: Path) -> None:
    """Where warnings are errors, and where no compiled files hide what the compiler says."""
    program = "from tamis.stages.text.filters.words import word_splitter as w; print(w('zh')('北京'), w('ja')('東京'))"
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, env=env, timeout=100)
    assert (done.stdout.decode(), done.stderr.decode()) == ("['北京'] ['東京']\n", "")


def test_a_language_must_be_text() -> None:
    with pytest.raises(UsageError, match="WordCountFilter: lang must be a language code such as 'en', got None"):
        WordCountFilter(lang=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "lang", "text", "score"),
    [
        (WordCountFilter, "zh", CHINESE, 18),
        pytest.param(WordCountFilter, "ja", JAPANESE, 26, marks=japanese),
        (LongWordFilter, "zh", CHINESE, 6),
        pytest.param(LongWordFilter, "ja", JAPANESE, 3, marks=japanese),
        (MeanWordLengthFilter, "zh", CHINESE, 48 / 18),
        pytest.param(MeanWordLengthFilter, "ja", JAPANESE, 39 / 26, marks=japanese),
        (WordsWithoutAlphabetsFilter, "zh", CHINESE, 15 / 18),
        pytest.param(WordsWithoutAlphabetsFilter, "ja", JAPANESE, 22 / 26, marks=japanese),
        (SymbolsToWordsFilter, "zh", "清华大学…", 1 / 2),
        pytest.param(SymbolsToWordsFilter, "ja", "名前は…", 1 / 3, marks=japanese),
        (RepeatingTopNGramsFilter, "zh", "北京清华大学北京清华大学来", 12 / 13),
        pytest.param(RepeatingTopNGramsFilter, "ja", "名前は名前は猫", 6 / 7, marks=japanese),
        (RepeatingDuplicateNGramsFilter, "zh", "北京清华大学北京清华大学来", 6 / 13),
        pytest.param(RepeatingDuplicateNGramsFilter, "ja", "名前は名前は猫", 3 / 7, marks=japanese),
    ],
)
def test_filters_count_segmented_words(kind: Any, lang: str, text: str, score: float) -> None:
    one = kind(lang=lang)
    assert one.statistics == ()
    assert one.score_document(text) == pytest.approx(score)


@japanese
def test_segmenters_work_in_a_run(tmp_path: Path) -> None:
    texts = [CHINESE, JAPANESE, "短い", ""]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    chain: list[Any] = [
        WordCountFilter(3, lang="zh"),
        MeanWordLengthFilter(0, lang="zh"),
        WordCountFilter(3, lang="ja"),
    ]
    stages: list[Any] = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        ScoreFilter(chain, score_field=["zh", None, "ja"]),
        JsonlWriter(str(tmp_path / "out")),
    ]
    assert Pipeline("t", stages=stages).execute(LocalExecutor(), memory="700MB").exit_code == 0
    rows = [json.loads(x) for p in (tmp_path / "out").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert [(r["text"], r["zh"]) for r in rows if r["text"] == CHINESE] == [(CHINESE, 18)]
    assert [(r["text"], r["ja"]) for r in rows if r["text"] == JAPANESE] == [(JAPANESE, 26)]
    assert len(rows) == 2
