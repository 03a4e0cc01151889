"""Reading `tokenizer.json` and `.tiktoken`: BPE whose every part is understood, or the part that is not.

Byte-level BPE, and that of SentencePiece, whose words begin as characters and whose other characters become bytes.

`read_json` and `read_tiktoken` return a `Vocabulary`; `NotUnderstood` names the part that kernels do not reproduce: the
library encodes texts of such a tokenizer. The files are data from elsewhere: every value is checked before it is used.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import os
from dataclasses import field
from enum import Enum, auto
from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.text.tokens.patterns import DIGITS_AND_GPT2, GPT2, PATTERNS, PIECES, Pattern, tiktoken_file

MAX_ID, MAX_RANK = 1 << 28, 1 << 26  # as of kernels/tokens/byte_bpe.py, which planning must not load


_MAX_BLANKS = 6  # of an added token
BLANK = "\u2581"  # by which SentencePiece spells a space


class Prefix(Enum):
    """Where a space is put in front of a text, or of a part of it between added tokens."""

    NONE = auto()
    MISSING = auto()  # where it does not begin with one
    FIRST = auto()  # likewise, at the beginning of a document alone
    ALWAYS = auto()  # before added tokens are searched that are searched after normalization


class NotUnderstood(Exception):
    """A part of a tokenizer that kernels do not reproduce, as part of a sentence."""


@dataclass
class Vocabulary:
    """A BPE tokenizer, as its file describes it.

    merges: (left, right, rank, merged) ids of the pairs. tokens: the bytes of every token, as texts have them;
    ignore_merges: a word that is a token is taken as it is. raw, normalized: added tokens that are searched before and
    after normalization. char_ids: of the characters that words begin as, by code point; None if these are bytes. edges:
    up to two bytes on both sides of each merge, where words begin as characters.
    """

    pattern: Pattern
    byte_ids: list[int]
    merges: Any
    tokens: dict[bytes, int]
    ignore_merges: bool = False
    raw: dict[str, int] = field(default_factory=dict)
    normalized: dict[str, int] = field(default_factory=dict)
    nfc: bool = False
    prefix: Prefix = Prefix.NONE
    char_ids: dict[int, int] | None = None
    edges: set[tuple[bytes, bytes]] = field(default_factory=set)
    size: int = 0
    """Ids are below it."""


# -- tokenizer.json ----------------------------------------------------------------------------------------------------
def read_json(text: str | bytes) -> Vocabulary:
    """Read the contents of a tokenizer.json; raise NotUnderstood."""
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotUnderstood(f"it is not valid JSON ({exc})") from None
    parts = _mapping(parts, "the file")
    model = _mapping(parts.get("model"), "its model")
    _check_model(model)
    return _read_pieces(parts, model) if model.get("byte_fallback") else _read_byte_level(parts, model)


def _read_byte_level(parts: dict[str, Any], model: dict[str, Any]) -> Vocabulary:
    nfc = _normalizer(parts.get("normalizer"))
    pattern, add_prefix_space = _pre_tokenizer(parts.get("pre_tokenizer"))
    vocab = _vocab(model.get("vocab"))
    raw, normalized, top = _added(parts.get("added_tokens") or [], vocab)
    byte_of = {char: byte for byte, char in enumerate(byte_chars())}
    missing = next((byte for char, byte in byte_of.items() if char not in vocab), None)
    if missing is not None:
        raise NotUnderstood(f"byte {missing:#04x} is no token")
    tokens = {bytes(map(byte_of.__getitem__, t)): i for t, i in vocab.items() if t and byte_of.keys() >= set(t)}
    return Vocabulary(
        pattern=pattern,
        byte_ids=[vocab[char] for char in byte_of],
        merges=_ids_of_merges(_merges(model.get("merges"), vocab), vocab),
        tokens=tokens,
        ignore_merges=bool(model.get("ignore_merges")),
        raw=raw,
        normalized=normalized,
        nfc=nfc,
        prefix=Prefix.MISSING if add_prefix_space else Prefix.NONE,
        size=1 + max(max(vocab.values()), top),
    )


def _read_pieces(parts: dict[str, Any], model: dict[str, Any]) -> Vocabulary:
    """Read a BPE of SentencePiece: no words, but blanks instead of spaces, and bytes for unknown characters."""
    steps = _normalizer_steps(parts.get("normalizer"))
    prefix, is_split = _blanks(steps, parts.get("pre_tokenizer"))
    if model.get("ignore_merges"):
        raise NotUnderstood("its model has ignore_merges, and its texts are not cut into words")
    vocab = _vocab(model.get("vocab"))
    raw, normalized, top = _added(parts.get("added_tokens") or [], vocab)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    missing = next((token for token in (*byte_tokens, BLANK) if token not in vocab), None)
    if missing is not None:
        raise NotUnderstood(f"{missing!r} is no token")
    merges = _merges(model.get("merges"), vocab)
    if is_split:  # no word has a blank but at its beginning
        merges = [merge for merge in merges if BLANK not in (merge[0] + merge[1])[1:]]
    of_byte = next((merge for merge in merges if not {*merge[:2]}.isdisjoint(byte_tokens)), None)
    if of_byte is not None:
        raise NotUnderstood(f"merge {of_byte[2]} is of the token of a byte: {of_byte[:2]}")
    char_ids = {ord(token): i for token, i in vocab.items() if len(token) == 1}
    if prefix is Prefix.ALWAYS:
        normalized = {BLANK + content: token for content, token in normalized.items()}
    if steps:
        normalized = _spelled_with_blanks(normalized)
    return Vocabulary(
        pattern=PIECES,
        byte_ids=[vocab[token] for token in byte_tokens],
        merges=_ids_of_merges(merges, vocab),
        tokens={token.replace(BLANK, " ").encode("utf-8", "replace"): i for token, i in vocab.items()},
        raw=raw,
        normalized=normalized,
        prefix=prefix,
        char_ids=char_ids | {ord(" "): vocab[BLANK]},
        edges=_edges(merges),
        size=1 + max(max(vocab.values()), top),
    )


def byte_chars() -> str:
    """Return the character by which byte-level vocabularies spell each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in plain else next(others)) for byte in range(256))


def _check_model(model: dict[str, Any]) -> None:
    kind = model.get("type")
    if kind is None and "merges" in model:
        kind = "BPE"  # older files do not say
    if kind != "BPE":
        raise NotUnderstood(f"its model is {kind!r}, not 'BPE'")
    if model.get("dropout"):
        raise NotUnderstood("its merges are dropped at random (dropout)")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise NotUnderstood(f"its model has a {name}")


def _normalizer(part: Any) -> bool:
    """Return True for NFC, False for none."""
    if part is None:
        return False
    kind = _mapping(part, "its normalizer").get("type")
    if kind == "NFC":
        return True
    if kind == "Sequence":
        return any(_normalizer(one) for one in _list(part.get("normalizers"), "its normalizers"))
    raise NotUnderstood(f"its normalizer is {kind!r}, neither 'NFC' nor nothing")


def _pre_tokenizer(part: Any) -> tuple[Pattern, bool]:
    """Return how texts are cut into words, and whether a space is put in front."""
    part = _mapping(part, "its pre-tokenizer")
    steps = [part]
    if part.get("type") == "Sequence":
        steps = [_mapping(one, "a pre-tokenizer") for one in _list(part.get("pretokenizers"), "its pre-tokenizers")]
    last = steps[-1] if steps else {}
    if last.get("type") != "ByteLevel":
        raise NotUnderstood(f"its pre-tokenizer ends with {last.get('type')!r}, not 'ByteLevel'")
    kinds = [step.get("type") for step in steps]
    space, own_pattern = bool(last.get("add_prefix_space", True)), bool(last.get("use_regex", True))
    if len(steps) == 1 and own_pattern:
        return PATTERNS[GPT2], space
    if len(steps) != 2 or space:
        raise NotUnderstood(f"its pre-tokenizer has the steps {kinds}")
    first = steps[0]
    if first.get("type") == "Digits" and first.get("individual_digits") and own_pattern:
        return DIGITS_AND_GPT2, False
    if first.get("type") != "Split" or own_pattern:
        raise NotUnderstood(f"its pre-tokenizer has the steps {kinds}")
    return _split_pattern(first), False


def _split_pattern(step: dict[str, Any]) -> Pattern:
    """Return the published pattern by which a Split step cuts texts into words."""
    how = step.get("behavior"), bool(step.get("invert"))
    if how not in (("Isolated", False), ("Removed", True)):
        raise NotUnderstood(f"its pre-tokenizer splits by {how[0]!r}, invert={how[1]}")
    expression = _mapping(step.get("pattern"), "the pattern of its pre-tokenizer").get("Regex")
    if not isinstance(expression, str) or expression not in PATTERNS:
        raise NotUnderstood(f"its regular expression is none of the published ones: {str(expression)[:80]!r}")
    return PATTERNS[expression]


def _normalizer_steps(part: Any) -> list[dict[str, Any]]:
    if part is None:
        return []
    part = _mapping(part, "its normalizer")
    if part.get("type") != "Sequence":
        return [part]
    return [_mapping(one, "a normalizer") for one in _list(part.get("normalizers"), "its normalizers")]


def _blanks(steps: list[dict[str, Any]], pre_tokenizer: Any) -> tuple[Prefix, bool]:
    """Return where blanks are put in front of texts, and whether a blank begins a word."""
    before = _mapping(pre_tokenizer or {}, "its pre-tokenizer")
    kind, pattern = before.get("type"), before.get("pattern")
    if not steps:
        return _metaspace(before)
    replaces = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
    prepends = {"type": "Prepend", "prepend": BLANK}
    if replaces not in steps or any(step not in (replaces, prepends) for step in steps) or steps.count(prepends) > 1:
        raise NotUnderstood(f"its normalizer has the steps {[step.get('type') for step in steps]}")
    if kind is not None and not (kind == "Split" and pattern == {"String": " "}):  # there is no space any more
        raise NotUnderstood(f"its model has byte_fallback, and its pre-tokenizer is {kind!r}")
    return (Prefix.ALWAYS if prepends in steps else Prefix.NONE), False


def _metaspace(pre_tokenizer: dict[str, Any]) -> tuple[Prefix, bool]:
    """Return what `_blanks` does, for texts whose blanks come from the pre-tokenizer alone."""
    kind = pre_tokenizer.get("type")
    if kind != "Metaspace":
        raise NotUnderstood(f"its model has byte_fallback, and its pre-tokenizer is {kind!r}, not 'Metaspace'")
    schemes = {"always": Prefix.MISSING, "first": Prefix.FIRST, "never": Prefix.NONE}
    scheme = pre_tokenizer.get("prepend_scheme", "always" if pre_tokenizer.get("add_prefix_space", True) else "never")
    replacement = pre_tokenizer.get("replacement")
    if replacement != BLANK or scheme not in schemes:
        raise NotUnderstood(f"its pre-tokenizer replaces spaces by {replacement!r}, {scheme!r}")
    return schemes[scheme], bool(pre_tokenizer.get("split", True))


def _spelled_with_blanks(contents: dict[str, int]) -> dict[str, int]:
    """Return added tokens in every spelling that becomes theirs: each blank may be a space."""
    found: dict[str, int] = {}
    for content, token in contents.items():
        parts = content.replace(" ", BLANK).split(BLANK)
        if len(parts) > _MAX_BLANKS:
            raise NotUnderstood(f"its added token {content[:80]!r} has {len(parts) - 1} blanks")
        spellings = parts[:1]
        for part in parts[1:]:
            spellings = [spelling + blank + part for spelling in spellings for blank in (" ", BLANK)]
        found |= dict.fromkeys(spellings, token)
    return found


def _edges(merges: list[tuple[str, str, int]]) -> set[tuple[bytes, bytes]]:
    """Return the last two and the first two bytes of both sides of each merge, of a side with one byte that one.

    Of texts in which spaces are blanks already, or not yet.
    """
    pairs = {(left[-2:], right[:2]) for left, right, _ in merges}
    return {(a[-2:], b[:2]) for left, right in pairs for a in _spellings(left) for b in _spellings(right)}


def _spellings(part: str) -> set[bytes]:
    """Return what one or two characters are in a text, where each blank may be a space."""
    choices = [(char, " ") if char == BLANK else (char,) for char in part]
    return {"".join(chosen).encode("utf-8", "replace") for chosen in itertools.product(*choices)}


def _vocab(part: Any) -> dict[str, int]:
    vocab = _mapping(part, "its vocabulary")
    ids = vocab.values()
    if not vocab or not all(type(i) is int and 0 <= i < MAX_ID for i in ids) or len(set(ids)) != len(vocab):
        raise NotUnderstood(f"its vocabulary has other ids than different numbers from 0 to {MAX_ID - 1:,}")
    return vocab


def _merges(part: Any, vocab: dict[str, int]) -> list[tuple[str, str, int]]:
    """Return the two halves and the rank of each merge."""
    found: list[tuple[str, str, int]] = []
    for rank, pair in enumerate(_list(part, "its merges")):
        halves = pair.split(" ") if isinstance(pair, str) else pair
        try:
            left, right = halves
            if not (left and right and {left, right, left + right} <= vocab.keys()):
                raise KeyError
        except (TypeError, ValueError, KeyError):
            raise NotUnderstood(f"merge {rank} is not of two tokens that make a third: {str(pair)[:80]!r}") from None
        found.append((left, right, rank))
    return found


def _ids_of_merges(merges: list[tuple[str, str, int]], vocab: dict[str, int]) -> Any:
    rows = [(vocab[left], vocab[right], rank, vocab[left + right]) for left, right, rank in merges]
    return np.array(rows, np.int64).reshape(-1, 4)


def _added(part: Any, vocab: dict[str, int]) -> tuple[dict[str, int], dict[str, int], int]:
    """Return added tokens that are searched before and after normalization, and the largest id of one (or -1).

    The library gives ids itself: that of the vocabulary, or the next one.
    """
    raw: dict[str, int] = {}
    normalized: dict[str, int] = {}
    ids: dict[str, int] = {}
    for one in _list(part, "its added tokens"):
        token = _mapping(one, "an added token")
        content, number = token.get("content"), token.get("id")
        if not isinstance(content, str) or not content or type(number) is not int or content in ids:
            raise NotUnderstood(f"an added token is empty, twice there or has no id: {str(content)[:80]!r}")
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise NotUnderstood(f"its added token {content!r} depends on its neighbours ({flag})")
        own = vocab.get(content)
        expected = own if own is not None else max(len(vocab), 1 + max(ids.values(), default=-1))
        if number != expected:
            raise NotUnderstood(f"its added token {content!r} has the id {number}, where the library gives {expected}")
        ids[content] = number
        (normalized if token.get("normalized", True) else raw)[content] = number
    return raw, normalized, max(ids.values(), default=-1)


def _mapping(part: Any, what: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise NotUnderstood(f"{what} is {type(part).__name__}, not an object")
    return part


def _list(part: Any, what: str) -> list[Any]:
    if not isinstance(part, list):
        raise NotUnderstood(f"{what} are {type(part).__name__}, not a list")
    return part


# -- .tiktoken ---------------------------------------------------------------------------------------------------------
def read_tiktoken(path: str) -> tuple[Vocabulary, dict[str, int]]:
    """Return the vocabulary of a .tiktoken file, and its special tokens, which are not searched in texts.

    So does tiktoken's `encode_ordinary`. Raises UsageError for a file that is none.
    """
    stem = os.path.basename(path).removesuffix(".tiktoken")
    expression, special = tiktoken_file(path, stem)
    ranks: dict[bytes, int] = {}
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
            except (ValueError, binascii.Error):
                raise UsageError(f"{path}: line {number} is not a token in base64 and its rank") from None
    values = list(ranks.values())
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None or min(values) < 0 or max(values) >= MAX_RANK or len(set(values)) != len(values):
        raise UsageError(f"{path}: damaged: its ranks are not different numbers, or a byte is no token ({missing})")
    rows = [
        (left, right, rank, rank)
        for token, rank in ranks.items()
        for k in range(1, len(token))
        if (left := ranks.get(token[:k])) is not None and (right := ranks.get(token[k:])) is not None
    ]
    vocabulary = Vocabulary(
        pattern=PATTERNS[expression],
        byte_ids=[ranks[bytes([byte])] for byte in range(256)],
        merges=np.array(rows, np.int64).reshape(-1, 4),
        tokens=ranks,
        ignore_merges=True,
        size=1 + max(max(values), *special.values()),
    )
    return vocabulary, special
