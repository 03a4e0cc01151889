"""Unigram and WordPiece: kernels look words up, and give the ids that the library gives for whole texts."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from tamis.stages.text.tokens.tokenizer import LibraryTokenizer, WordwiseTokenizer, of_json
from tests.stages.text.tokens.small_tokenizers import TEXTS, every_character, odd_texts

tokenizers = pytest.importorskip("tokenizers")
STRIP, SPACES = tokenizers.normalizers.Strip(), tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
LINES = [tokenizers.normalizers.Replace(char, " ") for char in "\n\r\t"]
METASPACE = tokenizers.pre_tokenizers.Metaspace()
WORDS = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.WhitespaceSplit(), METASPACE])
# Normalizers and pre-tokenizer of Unigram tokenizers.
UNIGRAM = {
    "T5": ([STRIP, *LINES, tokenizers.normalizers.NFKC(), SPACES], METASPACE),
    "XLM-R": ([tokenizers.normalizers.NFKC(), SPACES], WORDS),
    "ALBERT": ([STRIP, tokenizers.normalizers.NFKD(), tokenizers.normalizers.Lowercase(), SPACES], METASPACE),
}
KINDS = ("BERT", "BERT, cased", *UNIGRAM)


def train(kind: str) -> Any:
    special = ["<unk>", "[CLS]", "</s>"]
    if kind.startswith("BERT"):
        own = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="<unk>"))
        own.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=kind == "BERT")
        own.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    else:
        own = tokenizers.Tokenizer(tokenizers.models.Unigram())
        normalizers, own.pre_tokenizer = UNIGRAM[kind]
        own.normalizer = tokenizers.normalizers.Sequence(normalizers)
        trainer = tokenizers.trainers.UnigramTrainer(
            vocab_size=500, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    own.train_from_iterator(TEXTS * 5, trainer)
    return tokenizers.Tokenizer.from_str(own.to_str())  # ids of one that was just trained may differ


@cache
def both(kind: str) -> tuple[Any, WordwiseTokenizer]:
    library = train(kind)
    own, why_not = of_json(library.to_str())
    assert (type(own), why_not) == (WordwiseTokenizer, "")
    return library, own


def check(kind: str, texts: list[str]) -> None:
    library, own = both(kind)
    expected = [one.ids for one in library.encode_batch_fast(texts, add_special_tokens=False)]
    for _ in range(2):  # then from the cache
        found = own.encode(pa.array(texts, pa.large_string()))
        lists = [found.ids[a:b].tolist() for a, b in itertools.pairwise(found.offsets.tolist())]
        assert lists == expected


def around(chars: list[str]) -> list[str]:
    ways = ("{0}", "a{0}", "{0} b", "a {0}b c{0} {0}{0} {0} d", "x\n{0}")
    return [way.format(char) for char in chars for way in ways]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_librarys(kind: str) -> None:
    check(kind, [*odd_texts(), *(" ".join(TEXTS) * n for n in (3, 30)), "[CLS] a </s>b", "a [CLS]", "x" * 3000])
    check(kind, around([c for c in every_character() if c < "\u0100" or ord(c) % 199 == 0]))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_every_character_alone_and_among_others(kind: str) -> None:
    chars = every_character()
    for k in range(0, len(chars), 20_000):
        check(kind, around(chars[k : k + 20_000]))
    chance = sorted({char for text in TEXTS for char in text})[::2]
    check(kind, [f"x {a}{b} y" for a in chance for b in chance])


def test_nulls_and_slices() -> None:
    library, own = both("T5")
    texts: list[str | None] = ["x", None, "", *TEXTS, None, "y"]
    expected = [one.ids for one in library.encode_batch_fast([t or "" for t in texts], add_special_tokens=False)][1:-1]
    found = own.encode(pa.array(texts, pa.string()).slice(1, len(texts) - 2))
    assert [found.ids[a:b].tolist() for a, b in itertools.pairwise(found.offsets.tolist())] == expected
    assert own.encode(pa.array([], pa.string())).offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "reason"),
    [
        (tokenizers.normalizers.Replace("ab c", "x"), METASPACE, "its normalizer is 'Replace'"),
        (None, tokenizers.pre_tokenizers.Metaspace(split=False), "split by Metaspace that does not split"),
        (None, tokenizers.pre_tokenizers.Whitespace(), "split by Whitespace"),
        (None, None, "split by nothing"),
        (None, METASPACE, "depend on their neighbours"),  # each of several spaces is a token
        (None, tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never"), "depend on their neighbours"),
    ],
)
def test_the_library_encodes_what_is_not_words(normalizer: Any, pre_tokenizer: Any, reason: str) -> None:
    library = train("T5")
    library.normalizer, library.pre_tokenizer = normalizer, pre_tokenizer
    own, why_not = of_json(library.to_str())
    assert isinstance(own, LibraryTokenizer)
    assert re.search(reason, why_not), why_not
