"""Filters that compare lengths, and shares of characters, words and lines, with a limit.

Characters are code points, words are what str.split() gives (a segmenter's words for lang="zh" and "ja"), sentences are
lines that are not blank, paragraphs are separated by an empty line. With nothing to measure (an empty or null text, no
words, no lines), a share is the score that drops the document; docs/reference/filters.md has the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import BoundedFilter, KernelFilter, quotient
from tamis.stages.text.filters.words import WordsFilter

if TYPE_CHECKING:
    from tamis.stages.text.filters.doc_filter import Stats

_ELLIPSES = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")


@dataclass
class LengthFilter(KernelFilter):
    """Number of characters, within bounds."""

    min_length: float = 0
    max_length: float = math.inf
    _name = "length"
    compares = ("chars",)
    at_least = "min_length"
    at_most = "max_length"


@dataclass
class NonAlphaNumericFilter(KernelFilter):
    """Share of characters other than ASCII letters, digits, line feeds and ? ! , . For English text."""

    max_non_alpha_numeric_to_text_ratio: float = 0.25
    _name = "alpha_numeric"
    compares = ("alnum_punct_chars", "chars")
    at_most = "max_non_alpha_numeric_to_text_ratio"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        chars = stats["chars"]
        return quotient({"other": chars - stats["alnum_punct_chars"], "all": chars}, ("other", "all"), 1.0)


@dataclass
class SymbolsToWordsFilter(WordsFilter):
    """Share of words that are an ellipsis or consist of # by more than half."""

    max_symbol_to_word_ratio: float = 0.1
    lang: str = "en"
    _name = "symbol_to_word"
    compares = ("symbol_words", "words")
    at_most = "max_symbol_to_word_ratio"

    def score_words(self, text: str, words: list[str]) -> float:
        n = sum(w in _ELLIPSES or len(re.findall("#+", w)) / len(w) > 0.5 for w in words)
        return n / len(words) if words else self.when_nothing


@dataclass
class NumbersFilter(KernelFilter):
    """Share of the digits 0 to 9 among the characters."""

    max_number_to_text_ratio: float = 0.15
    _name = "numbers_ratio"
    compares = ("digits", "chars")
    at_most = "max_number_to_text_ratio"


class _UrlPattern(KernelFilter):
    """Finds URLs by the built-in scanner, or by a regular expression of the user."""

    url_regex: re.Pattern[str] | str | None

    @property
    def statistics(self) -> tuple[str, ...]:
        return self.compares if self.url_regex is None else ()

    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.url_regex or "")

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.compiled().search("")  # fails for a pattern of bytes
        except (re.error, TypeError) as exc:
            raise UsageError(
                f"{type(self).__name__}: url_regex is not a regular expression of strings: {exc}"
            ) from None


@dataclass
class UrlsFilter(_UrlPattern):
    """Share of characters in URLs. With `url_regex`, Python's `re` finds them, at the speed of that expression."""

    max_url_to_text_ratio: float = 0.2
    url_regex: re.Pattern[str] | str | None = None
    _name = "urls_ratio"
    compares = ("url_chars", "chars")
    at_most = "max_url_to_text_ratio"

    def score_batch(self, texts: pa.Array) -> list[float]:
        find = self.compiled().finditer
        return [sum(len(m[0]) for m in find(text)) / len(text) if text else 1.0 for text in texts.to_pylist()]


@dataclass
class BulletsFilter(KernelFilter):
    """Share of lines that begin with a bullet."""

    max_bullet_lines_ratio: float = 0.9
    _name = "bullet_ratio"
    compares = ("bullet_sentences", "sentences")
    at_most = "max_bullet_lines_ratio"


@dataclass
class WhiteSpaceFilter(KernelFilter):
    """Share of spaces, tabs, line feeds, carriage returns and backspaces."""

    max_white_space_ratio: float = 0.25
    _name = "white_space"
    compares = ("basic_whitespace_chars", "chars")
    at_most = "max_white_space_ratio"


@dataclass
class ParenthesesFilter(KernelFilter):
    """Share of round, square, curly and angle brackets among the characters."""

    max_parentheses_ratio: float = 0.1
    _name = "parentheses_ratio"
    compares = ("bracket_chars", "chars")
    at_most = "max_parentheses_ratio"


@dataclass
class LongWordFilter(WordsFilter):
    """Length of the longest word; 0 without words."""

    max_word_length: int = 1000
    lang: str = "en"
    _name = "max_word_length"
    compares = ("longest_word",)
    at_most = "max_word_length"

    def score_words(self, text: str, words: list[str]) -> float:
        return max(map(len, words), default=0)


@dataclass
class WordCountFilter(WordsFilter):
    """Number of words."""

    min_words: int = 50
    max_words: int = 100000
    lang: str = "en"
    _name = "word_count"
    compares = ("words",)
    at_least = "min_words"
    at_most = "max_words"

    def score_words(self, text: str, words: list[str]) -> float:
        return len(words)


@dataclass
class BoilerPlateStringFilter(KernelFilter):
    """Share of paragraphs with a phrase such as "terms of use" or "privacy policy"; 1 where "lorem ipsum" occurs.

    `remove_if_at_top_or_bottom` is a parameter of NeMo Curator that does not change the score there either.
    """

    remove_if_at_top_or_bottom: bool = True
    max_boilerplate_string_ratio: float = 0.4
    _name = "boilerplate_string_ratio"
    compares = ("boilerplate_paragraphs", "paragraphs", "lorem_ipsum")
    at_most = "max_boilerplate_string_ratio"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        return np.where(stats["lorem_ipsum"] > 0, 1.0, quotient(stats, self.compares[:2], 0.0))


@dataclass
class MeanWordLengthFilter(WordsFilter):
    """Mean length of the words; 0 without words."""

    min_mean_word_length: float = 3
    max_mean_word_length: float = 10
    lang: str = "en"
    _name = "mean_word_length"
    compares = ("word_chars", "words")
    when_nothing = 0.0
    at_least = "min_mean_word_length"
    at_most = "max_mean_word_length"

    def score_words(self, text: str, words: list[str]) -> float:
        return sum(map(len, words)) / len(words) if words else 0.0


@dataclass
class PunctuationFilter(KernelFilter):
    """Share of lines that do not end with one of the marks . ? ! " or '."""

    max_num_sentences_without_endmark_ratio: float = 0.85
    _name = "punctuation"
    compares = ("sentences_without_end_mark", "sentences")
    at_most = "max_num_sentences_without_endmark_ratio"


@dataclass
class EllipsisFilter(KernelFilter):
    """Share of lines that end with an ellipsis, or with "read more"."""

    max_num_lines_ending_with_ellipsis_ratio: float = 0.3
    _name = "ellipsis"
    compares = ("ellipsis_sentences", "sentences")
    at_most = "max_num_lines_ending_with_ellipsis_ratio"


@dataclass
class CommonEnglishWordsFilter(KernelFilter):
    """Number of words among: the be to of and that have with (lower case only).

    `stop_at_false`: counting stops at the limit, so the score is never above it.
    """

    min_num_common_words: int = 2
    stop_at_false: bool = True
    _name = "common_english_words"
    compares = ("common_words",)
    at_least = "min_num_common_words"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        count = stats["common_words"]
        return np.minimum(count, max(self.min_num_common_words, 0)) if self.stop_at_false else count


@dataclass
class WordsWithoutAlphabetsFilter(WordsFilter):
    """Share of words with at least one letter (of any script); 0 without words."""

    min_words_with_alphabets: float = 0.8
    lang: str = "en"
    _name = "words_without_alphabets"
    compares = ("words_with_alpha", "words")
    when_nothing = 0.0
    at_least = "min_words_with_alphabets"

    def score_words(self, text: str, words: list[str]) -> float:
        return sum(any(map(str.isalpha, w)) for w in words) / len(words) if words else 0.0


@dataclass
class PornographicUrlsFilter(_UrlPattern):
    """1 if a URL contains "porn": such documents are dropped. `url_regex` as in UrlsFilter."""

    url_regex: re.Pattern[str] | str | None = None
    compares = ("porn_urls",)

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        return np.minimum(stats["porn_urls"], 1)

    def score_batch(self, texts: pa.Array) -> list[int]:
        find = self.compiled().finditer
        return [int(any("porn" in m[0] for m in find(text or ""))) for text in texts.to_pylist()]

    def keep_document(self, score: Any) -> bool:
        return bool(score != 1)

    def keep_scores(self, scores: Any) -> np.ndarray[Any, Any]:
        return np.asarray(np.not_equal(scores, 1))

    def thresholds(self) -> Mapping[str, Any]:
        return {"score below": 1}


@dataclass
class SubstringFilter(BoundedFilter):
    """1 if the text has `substring` at `position`: "prefix", "suffix" or "any". Such documents are kept."""

    substring: str
    position: Literal["prefix", "suffix", "any"]

    def __post_init__(self) -> None:
        if self.position not in ("prefix", "suffix", "any"):
            raise UsageError(f"SubstringFilter: position must be prefix, suffix or any, got {self.position!r}")
        if not isinstance(self.substring, str):
            raise UsageError(f"SubstringFilter: substring must be a string, got {self.substring!r}")

    def score_document(self, text: str) -> int:
        if self.position == "prefix":
            return int(text.startswith(self.substring))
        return int(text.endswith(self.substring) if self.position == "suffix" else self.substring in text)

    def score_batch(self, texts: pa.Array) -> np.ndarray[Any, Any]:
        find = {"prefix": pc.starts_with, "suffix": pc.ends_with, "any": pc.match_substring}[self.position]
        return np.asarray(find(pc.coalesce(texts, ""), pattern=self.substring)).astype(np.int64)

    def keep_document(self, score: Any) -> bool:
        return bool(score == 1)

    def keep_scores(self, scores: Any) -> np.ndarray[Any, Any]:
        return np.asarray(np.equal(scores, 1))

    def thresholds(self) -> Mapping[str, Any]:
        return {"substring": self.substring, "position": self.position}
