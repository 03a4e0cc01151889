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

from tamis import _deep_paths
from tamis._lazy import np, pa, pc
from tamis.errors import UsageError, optional
from tamis.stages.fingerprints import of_file
from tamis.stages.text.filters.doc_filter import BoundedFilter, DocumentFilter, KernelFilter
from tamis.stages.text.filters.heuristic.comments import SCANNERS, comment_chars, python_comments
from tamis.stages.text.filters.heuristic.visible_text import visible_text

if TYPE_CHECKING:
    from tamis.stages.text.filters.doc_filter import Stats
import string

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


_RANGES = (
    "345 363-36f 5b0-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-657 659-65f 670 6d6-6dc 6e1-6e4 6e7-6e8 6ed 711 "
    "730-73f 7a6-7b0 816-817 81b-823 825-827 829-82c 8d4-8df 8e3-8e9 8f0-903 93a-93b 93e-94c 94e-94f 955-957 "
    "962-963 981-983 9be-9c4 9c7-9c8 9cb-9cc 9d7 9e2-9e3 a01-a03 a3e-a42 a47-a48 a4b-a4c a51 a70-a71 a75 a81-a83 "
    "abe-ac5 ac7-ac9 acb-acc ae2-ae3 afa-afc b01-b03 b3e-b44 b47-b48 b4b-b4c b56-b57 b62-b63 b82 bbe-bc2 bc6-bc8 "
    "bca-bcc bd7 c00-c04 c3e-c44 c46-c48 c4a-c4c c55-c56 c62-c63 c81-c83 cbe-cc4 cc6-cc8 cca-ccc cd5-cd6 ce2-ce3 "
    "d00-d03 d3e-d44 d46-d48 d4a-d4c d57 d62-d63 d81-d83 dcf-dd4 dd6 dd8-ddf df2-df3 e31 e34-e3a e4d eb1 eb4-eb9 "
    "ebb-ebc ecd f71-f83 f8d-f97 f99-fbc 102b-1036 1038 103b-103e 1056-1059 105e-1060 1062-1064 1067-106d "
    "1071-1074 1082-108d 108f 109a-109d 16ee-16f0 1712-1713 1732-1733 1752-1753 1772-1773 17b6-17c8 1885-1886 "
    "18a9 1920-192b 1930-1938 1a17-1a1b 1a55-1a5e 1a61-1a74 1abf-1ac0 1acc-1ace 1b00-1b04 1b35-1b43 1b80-1b82 "
    "1ba1-1ba9 1bac-1bad 1be7-1bf1 1c24-1c36 1dd3-1df4 2160-2182 2185-2188 24b6-24e9 2de0-2dff 3007 3021-3029 "
    "3038-303a a674-a67b a69e-a69f a6e6-a6ef a802 a80b a823-a827 a880-a881 a8b4-a8c3 a8c5 a8ff a926-a92a "
    "a947-a952 a980-a983 a9b4-a9bf a9e5 aa29-aa36 aa43 aa4c-aa4d aa7b-aa7d aab0 aab2-aab4 aab7-aab8 aabe aaeb- "
    "aaef aaf5 abe3-abea fb1e 10140-10174 10341 1034a 10376-1037a 103d1-103d5 10a01-10a03 10a05-10a06 10a0c-10a0f "
    "10d24-10d27 10eab-10eac 11000-11002 11038-11045 11073-11074 11080-11082 110b0-110b8 110c2 11100-11102 "
    "11127-11132 11145-11146 11180-11182 111b3-111bf 111ce-111cf 1122c-11234 11237 1123e 112df-112e8 11300-11303 "
    "1133e-11344 11347-11348 1134b-1134c 11357 11362-11363 11435-11441 11443-11445 114b0-114c1 115af-115b5 "
    "115b8-115be 115dc-115dd 11630-1163e 11640 116ab-116b5 1171d-1172a 1182c-11838 11930-11935 11937-11938 "
    "1193b-1193c 11940 11942 119d1-119d7 119da-119df 119e4 11a01-11a0a 11a35-11a39 11a3b-11a3e 11a51-11a5b "
    "11a8a-11a97 11c2f-11c36 11c38-11c3e 11c92-11ca7 11ca9-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d41 11d43 "
    "11d47 11d8a-11d8e 11d90-11d91 11d93-11d96 11ef3-11ef6 12400-1246e 16f4f 16f51-16f87 16f8f-16f92 16ff0-16ff1 "
    "1bc9e 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e947 1f130-1f149 1f150-1f169 1f170-1f189 "
)


def _class_of(ranges: str) -> str:
    ends = [part.partition("-") for part in ranges.split()]
    return "".join(f"{chr(int(a, 16))}-{chr(int(b or a, 16))}" for a, _, b in ends)


_OTHER = re.compile(f"[{_class_of(_RANGES)}]")
_ASCII = string.ascii_letters.encode()
_RUNS = re.compile(r"[^\W\d_]+")


def n_alphabetic(text: str) -> int:
    """Count the alphabetic characters of a text: letters, and what Unicode calls alphabetic without being a letter.

    That is vowel signs of Devanagari and Thai, points of Hebrew and Arabic, Roman numerals and letters in circles: the
    property Other_Alphabetic and the letter numbers, which `str.isalpha` leaves out.

    >>> [n_alphabetic(text) for text in ("a1 b2", "हिन्दी", "²Ⅳ")]
    [2, 5, 1]
    """
    if text.isascii():  # sixty times as fast
        return len(text) - len(text.encode().translate(None, _ASCII))
    letters = "".join(_RUNS.findall(text))
    n_letters = len(letters) if letters.isalpha() else sum(map(str.isalpha, letters))
    return n_letters + len(_OTHER.findall(text))


_deep_paths.register(__name__, "code")
