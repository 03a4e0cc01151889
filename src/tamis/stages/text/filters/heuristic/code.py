"""Filters for source code: comments, lines, letters, markup. Scores of empty texts are in docs/reference/filters.md."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError, optional
from tamis.stages.fingerprints import of_file
from tamis.stages.text.filters.doc_filter import BoundedFilter, DocumentFilter, KernelFilter
from tamis.stages.text.filters.heuristic.alphabetic import n_alphabetic
from tamis.stages.text.filters.heuristic.comments import SCANNERS, comment_chars, python_comments
from tamis.stages.text.filters.heuristic.visible_text import visible_text

if TYPE_CHECKING:
    from tamis.stages.text.filters.doc_filter import Stats

_ALNUM = re.compile("[a-zA-Z0-9\n?!,.]")
_BUNDLED = "code_meta.csv"


@dataclass
class PythonCommentToCodeFilter(BoundedFilter):
    """Characters in comments and docstrings, as a share of all; 0 for an empty text.

    Code that Python cannot parse has a score too. Every string that is a statement counts as a docstring.
    """

    min_comment_to_code_ratio: float = 0.01
    max_comment_to_code_ratio: float = 0.85
    _name = "python_comment_ratio"
    at_least = "min_comment_to_code_ratio"
    at_most = "max_comment_to_code_ratio"

    def score_document(self, text: str) -> float:
        return sum(python_comments(text)) / len(text) if text else 0.0


@dataclass
class GeneralCommentToCodeFilter(BoundedFilter):
    """Characters in comments (without their marks), as a share of all; 0 for an empty text.

    `language` is a mime type.
    """

    language: str
    min_comment_to_code_ratio: float = 0.01
    max_comment_to_code_ratio: float = 0.85
    _name = "comment_ratio"
    at_least = "min_comment_to_code_ratio"
    at_most = "max_comment_to_code_ratio"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language not in SCANNERS:
            raise UsageError(
                f"GeneralCommentToCodeFilter: language must be one of {', '.join(sorted(SCANNERS))}; "
                f"got {self.language!r}"
            )

    def score_document(self, text: str) -> float:
        return comment_chars(text, self.language) / len(text) if text else 0.0


@dataclass
class NumberOfLinesOfCodeFilter(KernelFilter):
    """Line feeds and one more."""

    min_lines: int = 10
    max_lines: int = 20000
    _name = "num_lines"
    compares = ("newlines",)
    at_least = "min_lines"
    at_most = "max_lines"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        return stats["newlines"] + 1


@dataclass
class TokenizerFertilityFilter(BoundedFilter):
    """Characters per token of a SentencePiece model; -1 for a text without tokens. Needs the extra `sentencepiece`."""

    path_to_tokenizer: str | None = None
    min_char_to_token_ratio: float = 2.5
    _name = "tokenizer_fertility"
    at_least = "min_char_to_token_ratio"
    _tokenizer: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path_to_tokenizer:
            raise UsageError("TokenizerFertilityFilter: path_to_tokenizer must be the path of a SentencePiece model")

    def model_fingerprint(self) -> str | None:
        return of_file(str(self.path_to_tokenizer))

    def model_check_or_download(self) -> None:
        if not os.path.isfile(str(self.path_to_tokenizer)):
            raise UsageError(f"TokenizerFertilityFilter: {self.path_to_tokenizer} is not a file")

    def load_tokenizer(self) -> None:
        sentencepiece = optional("sentencepiece", "TokenizerFertilityFilter", "sentencepiece")
        self._tokenizer = sentencepiece.SentencePieceProcessor(model_file=self.path_to_tokenizer)

    def score_document(self, text: str) -> float:
        if self._tokenizer is None:
            self.load_tokenizer()
        n_tokens = len(self._tokenizer.encode(text))
        return len(text) / n_tokens if n_tokens else -1


@dataclass
class XMLHeaderFilter(DocumentFilter):
    """1 if "<?xml version=" occurs near the beginning: such documents are dropped."""

    char_prefix_search_length: int = 100
    _name = "xml_header"

    def score_document(self, text: str) -> int:
        return int("<?xml version=" in text[: self.char_prefix_search_length])

    def score_batch(self, texts: pa.Array) -> np.ndarray[Any, Any]:
        begins = pc.utf8_slice_codeunits(pc.coalesce(texts, ""), 0, self.char_prefix_search_length)
        return np.asarray(pc.match_substring(begins, "<?xml version=")).astype(np.int64)

    def keep_document(self, score: Any) -> bool:
        return bool(score != 1)

    def thresholds(self) -> Mapping[str, Any]:
        return {"char_prefix_search_length": self.char_prefix_search_length}


@dataclass
class AlphaFilter(BoundedFilter):
    """Alphabetic characters (of any script, vowel signs too) as a share of all; 0 for an empty text.

    Low in tables and tensors.
    """

    min_alpha_ratio: float = 0.25
    _name = "alpha_filter"
    at_least = "min_alpha_ratio"

    def score_document(self, text: str) -> float:
        return n_alphabetic(text) / len(text) if text else 0.0


@dataclass
class HTMLBoilerplateFilter(BoundedFilter):
    """Text outside of tags, scripts and styles, as a share of all characters; 0 if that text is shorter than a limit.

    White space between two tags counts as one character, as in the text that Beautiful Soup returns.
    """

    min_lang_content_ratio: float = 0.2
    min_lang_content_num_chars: int = 100
    _name = "html_boilerplate"
    at_least = "min_lang_content_ratio"

    def score_document(self, text: str) -> float:
        n_chars = len(visible_text(text))
        return n_chars / len(text) if text and n_chars >= self.min_lang_content_num_chars else 0.0


class ExtensionLimits(NamedTuple):
    """The limits of one file extension of one language; None: no limit."""

    include: bool
    max_line: int | None
    max_mean_line: float | None
    min_alphanum: float | None
    min_alpha: float | None


@dataclass
class PerExtensionFilter(DocumentFilter):
    """1 if line lengths and shares of letters are within the limits of a language and file extension, else 0: dropped.

    `metadata_file`: a CSV file with the columns language, extension, Include, Long_line_threshold, Alphanum_threshold
    and "Alpha filter"; by default a built-in table. Documents of a pair that is not in the table are dropped.
    """

    lang: str
    extension: str | None
    metadata_file: str = _BUNDLED
    _name = "per_extension_filter"

    def __post_init__(self) -> None:
        bundled = self.metadata_file == _BUNDLED
        path = Path(__file__).parent / _BUNDLED if bundled else Path(self.metadata_file)
        table = _read_limits(path)
        language = {"C#": "c-sharp", "F#": "f-sharp"}.get(self.lang, self.lang.lower().replace(" ", "-"))
        languages = {name for name, _ in table}
        if language not in languages:
            raise UsageError(
                f"PerExtensionFilter: {path.name} has no language {language!r}; it has: {', '.join(sorted(languages))}"
            )
        self.limits = table.get((language, self.extension or ""))

    def score_document(self, text: str) -> int:
        limits = self.limits
        if limits is None or not limits.include:
            return 0
        lines = text.split("\n")
        mean = (len(text) + 1) / len(lines) - 1
        longest = max(map(len, lines))
        too_long = (limits.max_line and longest > limits.max_line) or (
            limits.max_mean_line and mean > limits.max_mean_line
        )
        few_alnum = limits.min_alphanum and len(_ALNUM.findall(text)) < max(limits.min_alphanum * len(text), 1)
        few_letters = limits.min_alpha and sum(map(str.isalpha, text)) < max(limits.min_alpha * len(text), 1)
        return int(not (too_long or few_alnum or few_letters))

    def keep_document(self, score: Any) -> bool:
        return bool(score)

    def thresholds(self) -> Mapping[str, Any]:
        return {} if self.limits is None else self.limits._asdict()


def _read_limits(path: Path) -> dict[tuple[str, str], ExtensionLimits]:
    columns = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(f"PerExtensionFilter: metadata_file {path} cannot be read: {exc}") from None
    missing = [c for c in columns if rows and c not in rows[0]]
    if missing or not rows:
        raise UsageError(
            f"PerExtensionFilter: metadata_file {path} must have rows and the columns {', '.join(columns)}"
        )
    table = {}
    for row in rows:
        longest = _number(row["Long_line_threshold"])
        table[row["language"] or "", row["extension"] or ""] = ExtensionLimits(
            row["Include"] == "1",
            int(longest) if longest else None,
            100 if longest else None,
            _number(row["Alphanum_threshold"]),
            _number(row["Alpha filter"]),
        )
    return table


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
