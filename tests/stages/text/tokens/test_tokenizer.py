"""Tokenizers: kernels give the ids that the library gives, and that their slow twin gives, for every text."""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.stages.text.tokens import char_classes, patterns
from tamis.stages.text.tokens.tokenizer import BpeTokenizer, LibraryTokenizer, load, of_json
from tamis.stages.text.tokens.vocabulary import NotUnderstood, Prefix, byte_chars, read_json
from tests.reference import bpe_twin
from tests.stages.text.tokens import small_tokenizers
from tests.stages.text.tokens.small_tokenizers import (
    ALL_KINDS,
    KINDS,
    TEXTS,
    every_character,
    odd_texts,
    train,
)
from tests.support.limits import examples

tokenizers = pytest.importorskip("tokenizers")
CHARS = st.sampled_from("".join(TEXTS)) | st.characters(exclude_categories=("Cs",))
_made: dict[str, tuple[Any, Any]] = {}


def both(kind: str) -> tuple[Any, BpeTokenizer]:
    """Return the library's tokenizer of a kind, and ours."""
    if kind not in _made:
        token = tokenizers.AddedToken
        added = [token("<br>", normalized=False), token("  ", normalized=True), token("é", normalized=True), "<|im"]
        library = train(kind, TEXTS * 3, 700, added)
        own, why_not = of_json(library.to_str())
        assert (type(own), why_not) == (BpeTokenizer, "")
        _made[kind] = library, own
    return _made[kind]


def lists(own: Any, texts: list[str | None]) -> list[list[int]]:
    found = own.encode(pa.array(texts, pa.large_string()))
    offsets = found.offsets.tolist()
    return [found.ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def of_library(library: Any, texts: list[str]) -> list[list[int]]:
    return [one.ids for one in library.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_ids_are_the_librarys(kind: str) -> None:
    library, own = both(kind)
    texts = odd_texts()
    texts += [
        text + mark + other for text in TEXTS for mark in ("<|im_start|>", "<br><br>", "<|im") for other in TEXTS[:3]
    ]
    assert lists(own, texts) == of_library(library, texts)
    assert lists(own, texts) == of_library(library, texts)  # from the cache


def _one_in(n: int, char: str) -> bool:
    return ord(char) * 2654435761 % 2**32 < 2**32 // n


def _check_characters(kind: str, chars: list[str]) -> None:
    library, own = both(kind)
    texts = ["".join(chars[k : k + 64]) for k in range(0, len(chars), 64)]
    texts += [f"a{c}B {c}c{c}1 {c}\n'{c}" for c in chars if c < "\u0600" or _one_in(100, c)]
    assert lists(own, list(texts)) == of_library(library, texts)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_many_characters_alone_and_among_others(kind: str) -> None:
    _check_characters(kind, [c for c in every_character() if c < "\u3400" or _one_in(50, c)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_character_alone_and_among_others(kind: str) -> None:
    _check_characters(kind, every_character())


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=examples(60), deadline=None)
@given(
    texts=st.lists(
        st.text(st.sampled_from("".join(TEXTS)) | st.characters(exclude_categories=("Cs",)), max_size=40), max_size=4
    )
)
def test_any_text(kind: str, texts: list[str]) -> None:
    library, own = both(kind)
    assert lists(own, texts) == of_library(library, texts)


@pytest.mark.parametrize("kind", ["qwen2", "qwen35"])
def test_marks_in_and_out_of_their_order_are_normalized_as_the_library_does(kind: str) -> None:
    library, own = both(kind)
    marks = "\u0323\u0307\u0301\u0327\u05b7\u05bc\u064e\u0651\u093c\u094d\u0e38\u0e48\u302a\u3099"
    texts = [f"x q{a}{b} y{a} {b}\u0915{a}z{b}\u304b{a}{b}" for a in marks for b in marks]
    assert lists(own, texts) == of_library(library, texts)
    assert any(unicodedata.normalize("NFC", text) != text for text in texts)


# What decides where words of ASCII end, many times next to each other.
MIXTURES = (
    "'sStTdDmMrRvVeElL a",
    "ab AB1'\n/",
    "a.b \n\t/",
    "aA'sS.",
    "  \n\r\tx1(",
    "0123456789 a.",
    "abcdefgh ABC é",
)
MIXTURES += ("a'é漢 .\n1", "/*\n\r. a", "'\u017fs a", "".join(map(chr, range(1, 128))))


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_ascii_end_where_the_library_ends_them(kind: str) -> None:
    library, own = both(kind)
    chance = random.Random(4)
    texts = ["".join(chance.choices(chance.choice(MIXTURES), k=chance.randrange(1, 150))) for _ in range(1500)]
    texts += [
        "x" * n + f"{lead}'{behind}ld'{behind}" for n in range(66) for lead in " x." for behind in ("s", "ve", "LL")
    ]
    assert lists(own, list(texts)) == of_library(library, texts)


def test_other_classes_of_ascii_are_cut_word_by_word() -> None:
    library, own = both("cl100k")
    tables = own._tables
    flags = tables.classes.flags.copy()
    flags[ord("#")] = flags[ord("a")]  # as a library might see it
    other = BpeTokenizer.__new__(BpeTokenizer)
    other.__setstate__(own.__getstate__())
    classes = tables.classes._replace(flags=flags)
    merges = read_json(library.to_str()).merges
    other._tables = type(tables).make(tables.numbers, classes, tables.byte_ids, merges, {}, ignore_merges=False)
    assert (tables.by_windows, other._tables.by_windows) == (True, False)
    words = lists(other, ["b", "b#b b# #"])[1]
    assert words == lists(other, ["b#b"])[0] + lists(other, [" b#"])[0] + lists(other, [" #"])[0]
    assert lists(own, ["b#b"])[0] == lists(own, ["b"])[0] + lists(own, ["#b"])[0]


def test_only_tokens_that_merges_make_are_taken_as_they_are() -> None:
    parts = json.loads(both("gpt2")[0].to_str())
    parts["model"]["merges"] = [merge for k, merge in enumerate(parts["model"]["merges"]) if k % 5 != 3]
    text = json.dumps(parts)
    library = tokenizers.Tokenizer.from_str(text)
    own, why_not = of_json(text)
    assert why_not == ""
    texts = [library.decode([i]) for i in range(library.get_vocab_size())]
    assert lists(own, [*texts, *odd_texts()]) == of_library(library, [*texts, *odd_texts()])


@pytest.mark.parametrize("kind", ["gpt2", "cl100k", "o200k", "mistral", "gemma"])
def test_very_long_words_and_many_ids(kind: str) -> None:
    library, own = both(kind)
    chance = random.Random(1)
    texts = [
        "".join(chance.choices(letters, k=n))
        for letters in ("ab", "the ", "漢字東京", "AbC")
        for n in (95, 97, 1023, 1025, 30_000)
    ]
    texts.append("x" * 700_000)  # more ids than there is room for at first
    texts.append(" ".join(TEXTS) * 300)
    assert lists(own, texts) == of_library(library, texts)


@pytest.mark.parametrize("kind", ["gpt2", "cl100k", "llama2", "gemma"])
def test_words_longer_than_a_window_have_the_same_ids(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.kernels.tokens.byte_bpe import BpeEncoder

    library, own = both(kind)
    windows = BpeTokenizer.__new__(BpeTokenizer)
    windows.__setstate__(own.__getstate__())
    windows._encoder = BpeEncoder(own._tables, window=64)
    monkeypatch.setattr(windows._encoder, "_set_scratch", lambda n: pytest.fail(f"a word of {n} bytes at once"))
    chance = random.Random(2)
    letters = ["ab", "the ", "漢字東京\U0001f600", "AbC", "a", "\u2581t", "Größé", "0123456789abcdef", "=", "\n"]
    texts = [
        "".join(chance.choices(some, k=n)) for some in letters for n in (63, 64, 65, 129, 1_000, 700_000 // len(some))
    ]
    assert lists(windows, [*texts, *odd_texts(seed=3)]) == of_library(library, [*texts, *odd_texts(seed=3)])


def test_a_token_as_long_as_a_window_is_merged_without_windows() -> None:
    from tamis.kernels.tokens.byte_bpe import BpeEncoder

    parts = json.loads(both("gpt2")[0].to_str())
    vocab = {char: i for i, char in enumerate(byte_chars())}
    sizes = [2**k for k in range(8)]
    vocab |= {"a" * 2 * n: 256 + k for k, n in enumerate(sizes)}
    parts["added_tokens"] = []
    parts["model"] |= {"vocab": vocab, "merges": [["a" * n, "a" * n] for n in sizes]}
    library = tokenizers.Tokenizer.from_str(json.dumps(parts))
    own, why_not = of_json(json.dumps(parts))
    assert why_not == ""
    own._encoder = BpeEncoder(own._tables, window=64)
    texts = ["x", "a" * 1000, "b" * 300 + "a" * 700 + "b" * 300, "b" * 600_000 + "a" * 700, "c d"]
    assert lists(own, list(texts)) == of_library(library, texts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_twin_cuts_as_the_kernel_and_the_library(kind: str) -> None:
    vocabulary = read_json(train(kind, TEXTS * 3).to_str())
    ranks = {(a, b): (rank, new) for a, b, rank, new in vocabulary.merges.tolist()}
    whole = (vocabulary.tokens if vocabulary.ignore_merges else {}).get
    texts = [text for text in odd_texts() if "<|" not in text and unicodedata.is_normalized("NFC", text)]
    texts = [text for text in texts if not any(map(char_class_differs, text))]
    vocabulary.prefix, name = Prefix.NONE, vocabulary.pattern.name
    twin = [bpe_twin.encode(text, name, vocabulary.byte_ids, ranks, whole) for text in texts]
    assert len(texts) > 100
    assert lists(BpeTokenizer(vocabulary), list(texts)) == twin


def char_class_differs(char: str) -> bool:
    """Return True for characters that the library and the running Python put into different classes."""
    from tamis.kernels.tokens import _pretokens as flags

    classes, _ = char_classes.library_classes()
    code = ord(char)
    value = int(classes.flags[256 * int(classes.pages[code >> 8]) + (code & 255)])
    names = {"U": flags.UPPER, "l": flags.LOWER, "B": flags.BOTH, "M": flags.BOTH, "N": flags.NUMBER}
    expected = names.get(bpe_twin.class_of(char), flags.SPACE if bpe_twin.class_of(char) in " wr" else flags.OTHER)
    return value & expected == 0


def test_slices_nulls_and_chunks() -> None:
    library, own = both("cl100k")
    texts: list[str | None] = [None, "", *TEXTS, None, *TEXTS, ""]
    expected = of_library(library, [text or "" for text in texts])
    for kind in (pa.string(), pa.large_string()):
        column = pa.array(["x", *texts, "y"], kind).slice(1, len(texts))
        found = own.encode(column)
        assert [found.ids[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)] == expected
    assert lists(own, []) == []


def test_a_pickled_tokenizer_encodes_the_same() -> None:
    _, own = both("qwen2")
    again = pickle.loads(pickle.dumps(own))
    assert lists(again, list(TEXTS)) == lists(own, list(TEXTS))


# -- what is not understood --------------------------------------------------------------------------------------------
def changed(kind: str, **parts: Any) -> str:
    """Return a tokenizer.json with some parts replaced; model__x is a part of the model."""
    plain = json.loads(both(kind)[0].to_str())
    for name, value in parts.items():
        if name.startswith("model__"):
            plain["model"][name.removeprefix("model__")] = value
        else:
            plain[name] = value
    return json.dumps(plain)


SPLIT = {"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"normalizer": {"type": "NFKC"}}, "its normalizer is 'NFKC'"),
        ({"model__dropout": 0.1}, "dropped at random"),
        ({"model__byte_fallback": True}, "byte_fallback"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, BYTES]}},
            r"none of the published ones: '\[a-z\]\+'",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, SPLIT, BYTES]}}, "has the steps"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "ends with 'Whitespace'"),
    ],
)
def test_the_library_encodes_what_is_not_understood(parts: dict[str, Any], reason: str) -> None:
    text = changed("gpt2", **parts)
    own, why_not = of_json(text)
    assert isinstance(own, LibraryTokenizer)
    assert re.search(reason, why_not), why_not
    if "model__dropout" not in parts:
        assert lists(own, list(TEXTS)) == of_library(tokenizers.Tokenizer.from_str(text), TEXTS)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"model": []}, "its model is list, not an object"),
        ({"model__continuing_subword_prefix": "##"}, "continuing_subword_prefix"),
        ({"model__type": "Unigram"}, "its model is 'Unigram'"),
        ({"model__vocab": {"a": 1, "b": 1}}, "different numbers"),
        ({"model__vocab": {"a": -1}}, "different numbers"),
        ({"model__vocab": {"a": 0}}, "added token|is no token"),
        ({"model__merges": ["a"]}, "merge 0 is not of two tokens"),
        ({"model__merges": [["a", "zzzz"]]}, "merge 0 is not of two tokens"),
        ({"model__merges": {"a": 1}}, "its merges are dict"),
        ({"added_tokens": [{"id": 5000, "content": "<x>"}]}, "has the id 5000, where the library gives"),
        ({"added_tokens": [{"id": 0, "content": ""}]}, "is empty"),
        (
            {"added_tokens": [{"id": 0, "content": "<|endoftext|>", "lstrip": True}]},
            r"depends on its neighbours \(lstrip\)",
        ),
    ],
)
def test_hostile_files_are_not_understood(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotUnderstood, match=reason):
        read_json(changed("gpt2", **parts))
    for text in ("", "[]", "{", "[" * 100_000):
        with pytest.raises(NotUnderstood):
            read_json(text)


STRIP = {"type": "Strip", "strip_left": True, "strip_right": False}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"normalizer": STRIP}, r"its normalizer has the steps \['Strip'\]"),
        ({"normalizer": None, "pre_tokenizer": None}, "its pre-tokenizer is None, not 'Metaspace'"),
        ({"pre_tokenizer": BYTES}, "byte_fallback, and its pre-tokenizer is 'ByteLevel'"),
        ({"model__ignore_merges": True}, "has ignore_merges, and its texts are not cut"),
        ({"model__byte_fallback": False}, "its normalizer is 'Prepend'"),
        ({"model__merges": [["<0x41>", "a"]]}, "merge 0 is not of two tokens"),
        ({"model__vocab": {"a": 9, "<0x00>": 8}}, "has the id 0, where|'<0x01>' is no token"),
    ],
)
def test_parts_of_sentencepiece_that_are_not_understood(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotUnderstood, match=reason):
        read_json(changed("llama2", **parts))


def test_a_merge_of_a_byte_is_not_understood() -> None:
    parts = json.loads(both("llama2")[0].to_str())
    vocab = parts["model"]["vocab"]
    vocab["<0x41>a"] = vocab.pop(next(token for token, i in vocab.items() if i == len(vocab) - 1))
    text = changed("llama2", model__vocab=vocab, model__merges=[["<0x41>", "a"]])
    with pytest.raises(NotUnderstood, match="merge 0 is of the token of a byte"):
        read_json(text)


def test_added_tokens_of_normalized_texts_may_be_spelled_with_spaces_or_blanks() -> None:
    added = [tokenizers.AddedToken(content, normalized=True) for content in ("a b", "<x>", "\u2581q")]
    library = train("llama2", TEXTS * 3, 500, added)
    own, why_not = of_json(library.to_str())
    assert why_not == ""
    texts = ["a b", " a b", "x a\u2581b", "\u2581a b a b", "<x>", " <x>", "y <x> <x><x>", "q \u2581q  q", "  q"]
    assert lists(own, list(texts)) == of_library(library, texts)
    far = tokenizers.AddedToken("a b c d e f g", normalized=True)
    _, why_not = of_json(train("llama2", TEXTS * 3, 500, [far]).to_str())
    assert re.search("has 7 blanks", why_not)


def test_a_file_on_which_the_library_panics_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        of_json(changed("gpt2", model__continuing_subword_prefix="#" * 40))


# -- folders -----------------------------------------------------------------------------------------------------------
def test_a_folder_with_its_end_token(tmp_path: Path) -> None:
    library = small_tokenizers.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert (loaded.end, loaded.token("<|im_start|>"), loaded.why_not) == (0, 1, "")
    assert loaded.size == library.get_vocab_size()
    assert lists(loaded, list(TEXTS)) == of_library(library, TEXTS)
    with pytest.raises(UsageError, match=r"'<x>' is no special token of it; it has <\|endoftext\|>, <\|im_start\|>"):
        loaded.token("<x>")
    with pytest.raises(UsageError, match="there is none"):
        load(tmp_path)
    (tmp_path / "m/tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json: its tokenizer.json cannot be read"):
        load(tmp_path / "m")


def tiktoken_lines(library: Any) -> bytes:
    byte_of = {ord(char): byte for byte, char in enumerate(byte_chars())}
    tokens = sorted(
        (i, t) for t, i in library.get_vocab(with_added_tokens=False).items() if t not in small_tokenizers.SPECIAL
    )
    return b"".join(
        base64.b64encode(bytes(byte_of[ord(c)] for c in token)) + b" %d\n" % rank
        for rank, (_, token) in enumerate(tokens)
    )


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])
def test_files_of_tiktoken(tmp_path: Path, name: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    library = train({"r": "gpt2", "c": "cl100k", "o": "o200k"}[name[0]], TEXTS * 3)
    path = tmp_path / f"{name}.tiktoken"
    path.write_bytes(tiktoken_lines(library))
    loaded = load(tmp_path)
    ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in path.read_bytes().splitlines()}
    expression, special = patterns.TIKTOKEN_FILES[name]
    other = tiktoken.Encoding(name, pat_str=expression, mergeable_ranks=ranks, special_tokens=special)
    texts = odd_texts()
    assert lists(loaded, list(texts)) == [other.encode_ordinary(text) for text in texts]
    assert loaded.end == special["<|endoftext|>"]
    path.rename(tmp_path / "mine.tiktoken")
    with pytest.raises(UsageError, match=r"the name 'mine' is none of r50k_base"):
        load(tmp_path)
    (tmp_path / f"{name}.tiktoken").write_bytes(b"??? 1\n")
    with pytest.raises(UsageError, match="line 1 is not a token"):
        load(tmp_path / f"{name}.tiktoken")


@pytest.mark.parametrize("end", [0x3400, pytest.param(0x110000, marks=pytest.mark.slow)])
def test_classes_are_the_librarys_for_every_code_point(end: int) -> None:
    from tamis.kernels.tokens import _pretokens as flags

    classes, long_s = char_classes.library_classes()
    value = np.concatenate([classes.flags[256 * int(page) : 256 * int(page) + 256] for page in classes.pages])
    chars = np.array([c for c in range(end) if not 0xD800 <= c < 0xE000])
    text = "".join(map(chr, chars.tolist()))
    for expression, flag in (
        (r"\p{L}+", flags.LETTER),
        (r"\p{N}+", flags.NUMBER),
        (r"\s+", flags.SPACE),
        (r"[^\s\p{L}\p{N}]+", flags.OTHER),
        (r"[\p{Lu}\p{Lt}]+", flags.UPPER),
        (r"\p{Ll}+", flags.LOWER),
        (r"[\p{Lm}\p{Lo}\p{M}]+", flags.BOTH),
    ):
        expected = np.ones(len(text), bool)
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "removed")
        for _, (begin, end) in split.pre_tokenize_str(text):
            expected[begin:end] = False
        assert np.array_equal((value[chars] & flag) != 0, expected), expression
    assert np.flatnonzero(value & flags.NEWLINE).tolist() == [10, 13]
    # No other character is a letter of a contraction.
    parts = [
        part
        for part, _ in tokenizers.pre_tokenizers.Split(
            tokenizers.Regex("(?i:'s|'t|'re|'ve|'m|'ll|'d)"), "isolated"
        ).pre_tokenize_str("".join(f"'{c}," for c in text))
    ]
    found = {part for part in parts if len(part) == 2 and part[0] == "'"} - {"',"}
    assert found == {f"'{c}" for c in "sStTmMdD"} | ({"'\u017f"} if long_s else set())
