r"""The regular expressions of published byte-level tokenizers, recognised by their text.

Kernels cut texts as these say (kernels/tokens/_pretokens.py); an expression that is not here is not interpreted.
"""

from __future__ import annotations

from tamis._dataclasses import dataclass
from tamis.errors import UsageError

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD, _MARKS = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+"
_CASED = f"{_LEAD}{_CAPITALS}*{_SMALL}+%s|{_LEAD}{_CAPITALS}+{_SMALL}*%s"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_MARKS}[\r\n]*|{_WHITE}"
QWEN2 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}|{_MARKS}[\r\n]*|{_WHITE}"
QWEN35 = rf"{_CONTRACTIONS}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_WHITE}"
O200K = _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?") + rf"|\p{{N}}{{1,3}}|{_MARKS}[\r\n/]*|{_WHITE}"
TEKKEN = _CASED % ("", "") + rf"|\p{{N}}|{_MARKS}[\r\n/]*|{_WHITE}"
# As tiktoken writes two of them. The second differs: white space at the end of a text is one word.
TIKTOKEN_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
TIKTOKEN_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)


@dataclass(frozen=True)
class Pattern:
    """Rules by which an expression cuts texts; `numbers` encodes them for kernels."""

    name: str
    family: int  # _pretokens.GPT2, CL100K, O200K or PIECES, which planning need not load
    n_digits: int = 0
    contraction: int = 0  # 0: none, 1: as written, 2: in either case
    slash: bool = False
    end_first: bool = False
    digits_apart: bool = False
    marks: bool = False  # marks are letters

    def numbers(self, long_s: bool) -> list[int]:
        """Return the numbers of `_pretokens`; `long_s`: the library counts it as a kind of s."""
        contraction = 3 if self.contraction == 2 and long_s else self.contraction
        parts = (self.family, self.n_digits, contraction, self.slash, self.end_first, self.digits_apart)
        return [int(part) for part in parts]


PATTERNS = {
    GPT2: Pattern("GPT-2", 0, 0, 1),
    TIKTOKEN_GPT2: Pattern("GPT-2", 0, 0, 1),
    CL100K: Pattern("cl100k", 1, 3, 2),
    TIKTOKEN_CL100K: Pattern("cl100k of tiktoken", 1, 3, 2, end_first=True),
    QWEN2: Pattern("Qwen 2", 1, 1, 2),
    QWEN35: Pattern("Qwen 3.5", 1, 1, 2, marks=True),
    O200K: Pattern("o200k", 2, 3, 2, slash=True),
    TEKKEN: Pattern("Tekken", 2, 1, 0, slash=True),
}
PIECES = Pattern("SentencePiece", 3)  # no expression
DIGITS_AND_GPT2 = Pattern("digits apart, GPT-2", 0, 0, 1, digits_apart=True)

# Files of tiktoken have no expression: both follow from their names, as do their special tokens.
_END = "<|endoftext|>"
TIKTOKEN_FILES: dict[str, tuple[str, dict[str, int]]] = {
    "r50k_base": (TIKTOKEN_GPT2, {_END: 50256}),
    "p50k_base": (TIKTOKEN_GPT2, {_END: 50256}),
    "cl100k_base": (
        TIKTOKEN_CL100K,
        {_END: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
        | {"<|endofprompt|>": 100276},
    ),
    "o200k_base": (O200K, {_END: 199999, "<|endofprompt|>": 200018}),
    "qwen": (QWEN2, {_END: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}),
}


def tiktoken_file(path: str, stem: str) -> tuple[str, dict[str, int]]:
    """Return the expression and the special tokens of a .tiktoken file; raise UsageError for an unknown name."""
    try:
        return TIKTOKEN_FILES[stem]
    except KeyError:
        raise UsageError(
            f"{path}: a .tiktoken file does not say how texts are cut, and the name {stem!r} is none of "
            f"{', '.join(TIKTOKEN_FILES)}; rename it if it is one of these, or give a folder with a tokenizer.json"
        ) from None
