"""Every heuristic filter against a plain-Python definition of its score, on literal and on arbitrary texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import StatisticFilter
from tamis.stages.text.filters.heuristic.string import (
    BoilerPlateStringFilter,
    BulletsFilter,
    CommonEnglishWordsFilter,
    EllipsisFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    PornographicUrlsFilter,
    PunctuationFilter,
    SubstringFilter,
    SymbolsToWordsFilter,
    UrlsFilter,
    WhiteSpaceFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
from tamis.stages.text.filters.statistics import measure
from tests.support.limits import examples

URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~]|[!*\(\),]|(?:%[0-9A-Fa-f]{2}))+")
ELLIPSES = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
POLICY = (
    "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies",
    "privacy overview", "privacy & cookies policy", "privacy and cookies policy",
    "necessary cookies are absolutely essential", "any cookies that may not be particularly necessary",
    "if you continue to browse this site without changing your cookie settings",
)  # fmt: skip
COMMON = ("the", "be", "to", "of", "and", "that", "have", "with")


def share(n: int, total: int, nothing: float) -> float:
    return n / total if total else nothing


def sentences(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def symbol_words(text: str) -> int:
    return sum(w in ELLIPSES or len(re.findall("#+", w)) / len(w) > 0.5 for w in text.split())


def boilerplate(text: str) -> float:
    paragraphs = text.lower().split("\n\n")
    if any("lorem ipsum" in p for p in paragraphs):
        return 1.0
    return sum(any(s in p for s in POLICY) for p in paragraphs) / len(paragraphs)


def without_end(text: str) -> int:
    return sum(not s.strip().endswith((".", "?", "!", '"', "'")) for s in sentences(text))


def in_urls(text: str) -> int:
    return sum(map(len, URL.findall(text)))


# name of the filter -> (filter, its score in plain Python)
DEFINITIONS: dict[str, tuple[Any, Callable[[str], float]]] = {
    "alpha_numeric": (
        NonAlphaNumericFilter(),
        lambda t: share(len(t) - len(re.findall("[a-zA-Z0-9\n?!,.]", t)), len(t), 1.0),
    ),
    "symbol_to_word": (SymbolsToWordsFilter(), lambda t: share(symbol_words(t), len(t.split()), 1.0)),
    "numbers_ratio": (NumbersFilter(), lambda t: share(len(re.findall("[0-9]", t)), len(t), 1.0)),
    "urls_ratio": (UrlsFilter(), lambda t: share(in_urls(t), len(t), 1.0)),
    "bullet_ratio": (
        BulletsFilter(),
        lambda t: share(sum(s.strip().startswith(tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")) for s in sentences(t)), len(sentences(t)), 1.0),
    ),
    "white_space": (WhiteSpaceFilter(), lambda t: share(sum(c in "\t\n\r\b " for c in t), len(t), 1.0)),
    "parentheses_ratio": (ParenthesesFilter(), lambda t: share(sum(c in "()[]{}⟨⟩" for c in t), len(t), 1.0)),
    "max_word_length": (LongWordFilter(), lambda t: max(map(len, t.split()), default=0)),
    "word_count": (WordCountFilter(), lambda t: len(t.split())),
    "boilerplate_string_ratio": (BoilerPlateStringFilter(), boilerplate),
    "mean_word_length": (
        MeanWordLengthFilter(),
        lambda t: share(sum(map(len, t.split())), len(t.split()), 0.0),
    ),
    "punctuation": (PunctuationFilter(), lambda t: share(without_end(t), len(sentences(t)), 1.0)),
    "ellipsis": (
        EllipsisFilter(),
        lambda t: share(sum(s.strip().lower().endswith(ELLIPSES) for s in sentences(t)), len(sentences(t)), 1.0),
    ),
    "common_english_words": (
        CommonEnglishWordsFilter(),
        lambda t: min(2, sum(w in COMMON for w in t.split())),
    ),
    "words_without_alphabets": (
        WordsWithoutAlphabetsFilter(),
        lambda t: share(sum(any(map(str.isalpha, w)) for w in t.split()), len(t.split()), 0.0),
    ),
    "PornographicUrlsFilter": (PornographicUrlsFilter(), lambda t: int(any("porn" in u for u in URL.findall(t)))),
    "SubstringFilter": (SubstringFilter("the", "any"), lambda t: int("the" in t)),
}
TYPICAL = [
    None,
    "",
    " \n\t ",
    "The cat sat on the mat.\n\nIt was (very) happy to be there!",
    "• one\n• two ...\nread more\n# ## ### #### a#",
    "Visit https://example.org/a%20b?x=1 and http://porn.example now 12345",
    "We use cookies.\n\nLorem Ipsum dolor\n\nprivacy policy",
    "…\u2028日本語のテキスト 😀 ⟨x⟩ {y} [z]",
]


def scores_of(one: Any, texts: list[str | None]) -> list[Any]:
    array = pa.array(texts, pa.large_string())
    scores = one.score_from(measure(array, one.statistics)) if one.statistics else one.score_batch(array)
    return scores.tolist() if isinstance(scores, np.ndarray) else list(scores)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_scores_are_what_the_definition_says(name: str) -> None:
    one, definition = DEFINITIONS[name]
    assert one.name == name
    assert scores_of(one, TYPICAL) == [definition(t or "") for t in TYPICAL]
    assert [one.score_document(t or "") for t in TYPICAL] == [definition(t or "") for t in TYPICAL]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(),
            st.text(alphabet="a1 .\n#…•()the-…?!\"'\u2028\x1c"),
            st.lists(
                st.sampled_from([*COMMON, *ELLIPSES, *POLICY, "\n", "\n\n", "http://porn.a/?b", "##", "x1", "•"])
            ).map(" ".join),
        ),
        max_size=5,
    )
)
def test_scores_of_any_texts_are_what_the_definitions_say(texts: list[str | None]) -> None:
    for one, definition in DEFINITIONS.values():
        assert scores_of(one, texts) == [definition(t or "") for t in texts], one


@pytest.mark.parametrize(
    ("one", "empty", "blank", "kept"),
    [
        (NonAlphaNumericFilter(), 1.0, 1.0, (False, False)),
        (SymbolsToWordsFilter(), 1.0, 1.0, (False, False)),
        (NumbersFilter(), 1.0, 0.0, (False, True)),
        (UrlsFilter(), 1.0, 0.0, (False, True)),
        (BulletsFilter(), 1.0, 1.0, (False, False)),
        (WhiteSpaceFilter(), 1.0, 1.0, (False, False)),
        (ParenthesesFilter(), 1.0, 0.0, (False, True)),
        (LongWordFilter(), 0, 0, (True, True)),
        (WordCountFilter(), 0, 0, (False, False)),
        (BoilerPlateStringFilter(), 0.0, 0.0, (True, True)),
        (MeanWordLengthFilter(), 0.0, 0.0, (False, False)),
        (PunctuationFilter(), 1.0, 1.0, (False, False)),
        (EllipsisFilter(), 1.0, 1.0, (False, False)),
        (CommonEnglishWordsFilter(), 0, 0, (False, False)),
        (WordsWithoutAlphabetsFilter(), 0.0, 0.0, (False, False)),
        (PornographicUrlsFilter(), 0, 0, (True, True)),
        (SubstringFilter("x", "prefix"), 0, 0, (False, False)),
    ],
)
def test_empty_blank_and_null_texts_have_a_score(one: Any, empty: float, blank: float, kept: tuple[bool, bool]) -> None:
    scores = scores_of(one, ["", "   ", None])
    assert scores == [empty, blank, empty]
    assert [one.keep_document(s) for s in scores] == [*kept, kept[0]]
    assert one.keep_scores(np.array(scores)).tolist() == [*kept, kept[0]]


@pytest.mark.parametrize(
    ("one", "keeps", "drops"),
    [
        (NonAlphaNumericFilter(0.25), [0.25, 0.0], [0.2500001, 1.0]),
        (WordCountFilter(2, 4), [2, 3, 4], [1, 5]),
        (MeanWordLengthFilter(3, 10), [3.0, 10.0], [2.999, 10.001]),
        (CommonEnglishWordsFilter(2), [2, 3], [1, 0]),
        (WordsWithoutAlphabetsFilter(0.8), [0.8, 1.0], [0.7999]),
        (LongWordFilter(10), [10], [11]),
        (PornographicUrlsFilter(), [0], [1]),
        (SubstringFilter("x", "any"), [1], [0]),
        (StatisticFilter("mine", "digits", "chars", maximum=0.5), [0.5], [0.6]),
    ],
)
def test_a_score_at_the_limit_is_kept(one: Any, keeps: list[float], drops: list[float]) -> None:
    expected = [True] * len(keeps) + [False] * len(drops)
    assert [one.keep_document(s) for s in keeps + drops] == expected
    assert one.keep_scores(np.array(keeps + drops)).tolist() == expected


def test_the_count_of_common_words_stops_at_the_limit_or_continues() -> None:
    assert CommonEnglishWordsFilter().score_document("the the the The") == 2
    assert CommonEnglishWordsFilter(stop_at_false=False).score_document("the the the The") == 3


def test_urls_by_an_expression_of_ones_own() -> None:
    one = UrlsFilter(url_regex=r"www\.(\w+)")
    assert one.statistics == ()
    assert one.score_document("www.ab cd") == 6 / 9
    assert scores_of(one, [None, ""]) == [1.0, 1.0]
    porn = PornographicUrlsFilter(url_regex=re.compile(r"www\S+"))
    assert scores_of(porn, ["www.porn.x", "porn www.x", None]) == [1, 0, 0]
    with pytest.raises(UsageError, match="url_regex"):
        UrlsFilter(url_regex="(")


def test_substrings_by_position() -> None:
    texts = ["abc", "bca", "xx", None, "a"]
    assert scores_of(SubstringFilter("a", "prefix"), texts) == [1, 0, 0, 0, 1]
    assert scores_of(SubstringFilter("a", "suffix"), texts) == [0, 1, 0, 0, 1]
    assert scores_of(SubstringFilter("a", "any"), texts) == [1, 1, 0, 0, 1]
    assert [SubstringFilter("a", "suffix").score_document(t or "") for t in texts] == [0, 1, 0, 0, 1]
    with pytest.raises(UsageError, match="position must be prefix, suffix or any, got 'middle'"):
        SubstringFilter("a", "middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["(", b"http", re.compile(b"http"), 7])
def test_an_expression_that_cannot_read_texts_is_refused(pattern: Any) -> None:
    for one in (UrlsFilter, PornographicUrlsFilter):
        with pytest.raises(UsageError, match=f"^{one.__name__}: url_regex"):
            one(url_regex=pattern)


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="max_number_to_text_ratio must be a number, got '15%'"):
        NumbersFilter("15%")  # type: ignore[arg-type]


def test_limits_between_which_nothing_is() -> None:
    with pytest.raises(
        UsageError, match=r"WordCountFilter: min_words=100 is above max_words=50: no document would stay"
    ):
        WordCountFilter(min_words=100, max_words=50)
    assert WordCountFilter(min_words=50, max_words=50).keep_document(50)


def test_a_rule_from_statistics_needs_no_code() -> None:
    one = StatisticFilter("few digits", "digits", "chars", maximum=0.25, when_nothing=-1.0)
    assert (one.name, one.score_document("a1b2"), one.score_document(""), one.thresholds()) == (
        "few digits",
        0.5,
        -1.0,
        {"maximum": 0.25},
    )
    with pytest.raises(UsageError, match="did you mean digits"):
        StatisticFilter("x", "digit").score_document("a")


def test_a_segmented_language_is_scored_by_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.stages.text.filters import words

    monkeypatch.setattr(words, "word_splitter", lambda lang: lambda text: [c for c in text if not c.isspace()])
    text = "我们#…"
    cases: list[tuple[Any, float, float]] = [
        (WordCountFilter(lang="zh"), 4, 0),
        (LongWordFilter(lang="zh"), 1, 0),
        (MeanWordLengthFilter(lang="zh"), 1.0, 0.0),
        (WordsWithoutAlphabetsFilter(lang="zh"), 0.5, 0.0),
        (SymbolsToWordsFilter(lang="zh"), 0.5, 1.0),
    ]
    for one, score, empty in cases:
        assert one.statistics == ()
        assert scores_of(one, [text, None]) == [score, empty]
        assert one.score_document(text) == score
