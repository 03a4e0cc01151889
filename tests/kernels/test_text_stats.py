"""Every statistic against its twin: Hypothesis text, every code point, slices of columns, and the shared corpus."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.kernels.buffers import string_buffers
from tamis.kernels.text.text_stats import STATISTICS, statistics
from tests.reference import text_twin
from tests.support.limits import examples

# Pieces from which interesting texts are made: whitespace of all kinds, marks, bullets, phrases, wide characters.
PIECES = [
    *(" ", "  ", "\n", "\n\n", "\n\n\n", "\t", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"),
    *("\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\u200b", "\u0301", "\x00", "\x08", "\x7f"),
    *(
        ".",
        "..",
        "...",
        "…",
        "[...]",
        "(...)",
        "[…]",
        "-»",
        "»",
        "!",
        "?",
        '"',
        "'",
        "”",
        "。",
        "।",
        "𑁇",
        "!?",
        ".)",
        '."',
    ),
    *("•", "‣", "⦿", "-", "*", "- ", "• ", "#", "##", "#a#", "#é#", "#a#b", "(", ")", "[", "]", "{", "}", "⟨", "⟩"),
    *(
        "a",
        "b",
        "ab",
        "A",
        "é",
        "ß",
        "漢",
        "字",
        "😀",
        "\U00020000",
        "K",
        "İ",
        "1",
        "٣",
        "²",
        "Ⅷ",
        "the",
        "The",
        "be",
        "to",
    ),
    *(
        "of",
        "and",
        "that",
        "have",
        "with",
        "the\x00",
        "read more",
        "Read MORE..",
        "read  more",
        "x" * 15,
        "x" * 16,
        "y" * 17,
    ),
    *(
        "word",
        "and so on",
        "a b a b",
        "lorem ipsum",
        "Lorem Ipsum",
        "lorem",
        "ipsum",
        "javascript",
        "JavaScript",
        "java",
    ),
    *("privacy policy", "Privacy Policy", "PRIVACY & COOKIES POLICY", "privacy and cookies policy", "privacy overview"),
    *(
        "cookie policy",
        "cooKie policy",
        "uses cookies",
        "use of cookies",
        "use cookies",
        "terms of use",
        "Terms Of Use",
    ),
    *("necessary cookies are absolutely essential", "any cookies that may not be particularly necessary", "cookies"),
    *("if you continue to browse this site without changing your cookie settings", "prİvacy policy", "policy"),
    *(
        "http://",
        "https://",
        "httpss://",
        "http://a",
        "https://porn.x/%41%4",
        "http://a%zz<b>;c[d]^e",
        "HTTP://x",
        "://",
    ),
    *(
        "http://http://x",
        "hhttps://é",
        "porn",
        "[1]",
        "[12]",
        "[]",
        "[edit]",
        "[citation needed]",
        "[٣]",
        ".[1]",
        "[1].",
    ),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join),
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), max_size=80).map(" ".join),
    st.lists(st.sampled_from(["a b", "a  b", "ab", " ", "\n", "a", "é"]), max_size=80).map("\n".join),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=150),
    st.text(alphabet="ab \n.#é\u3000", max_size=300),
)


def check(documents: list[str | None], array: pa.Array | None = None) -> None:
    found = statistics(string_buffers(pa.array(documents, pa.string()) if array is None else array), list(STATISTICS))
    assert list(found) == list(STATISTICS)
    for row, document in enumerate(documents):
        for name, value in text_twin.statistics(document).items():
            got = found[name][row]
            if isinstance(value, float):
                assert got == pytest.approx(value, rel=1e-12, abs=1e-12), (name, document)
            else:
                assert got == value, (name, document)


def test_types_and_names() -> None:
    found = statistics(string_buffers(pa.array(["a b", None])), ["words", "top_2_gram_fraction", "is_null"])
    assert {name: (column.dtype.name, column.tolist()) for name, column in found.items()} == {
        "words": ("int64", [2, 0]),
        "top_2_gram_fraction": ("float64", [1.0, 1.0]),
        "is_null": ("int64", [0, 1]),
    }
    assert set(text_twin.statistics("")) == set(STATISTICS)
    assert all(sentence.endswith(".") for sentence in STATISTICS.values())


def test_unknown_names_are_refused_with_near_ones() -> None:
    with pytest.raises(UsageError, match="got 'word_count'; did you mean"):
        statistics(string_buffers(pa.array(["a"])), ["words", "word_count"])


def test_offsets_outside_the_data_are_refused() -> None:
    parts = string_buffers(pa.array(["abc"]))
    with pytest.raises(ValueError, match="outside the 2 bytes"):
        statistics(parts._replace(data=parts.data[:2]), ["chars"])


def test_one_document_by_hand() -> None:
    text = "• The cat, the dog and the cat...\n\n- See https://a.b/c (or not)!\nThe end\n\n- See"
    found = statistics(string_buffers(pa.array([text])), list(STATISTICS))
    expected = {
        "chars": 79, "words": 17, "common_words": 3, "distinct_common_words": 2, "sentences": 4, "paragraphs": 3,
        "bullet_sentences": 1, "ellipsis_sentences": 1, "sentences_without_end_mark": 2, "urls": 1, "url_chars": 13,
        "bracket_chars": 2, "gopher_bullet_lines": 3, "c4_lines": 1,
        "longest_word": 13, "newlines": 5, "symbol_words": 0,
    }  # fmt: skip
    assert {name: int(found[name][0]) for name in expected} == expected


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(st.one_of(st.none(), texts), min_size=1, max_size=4))
def test_text_made_of_pieces(documents: list[str | None]) -> None:
    check(documents)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), texts), min_size=2, max_size=6), st.data())
def test_slices_of_columns_and_rows(documents: list[str | None], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(documents) - 1))
    kind = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
    array = pa.array(documents, kind)[begin:]
    check(documents[begin:], array)
    rows = np.array(data.draw(st.lists(st.integers(0, len(array) - 1), max_size=4)), np.int64)
    whole, some = (statistics(string_buffers(array), list(STATISTICS), chosen) for chosen in (None, rows))
    assert all(np.array_equal(whole[name][rows], some[name]) for name in STATISTICS)


def test_one_name_at_a_time_gives_the_same() -> None:
    parts = string_buffers(pa.array(["The cat. The cat.\n\nThe cat", None, "", "a b a b http://x\n" * 3]))
    together = statistics(parts, list(STATISTICS))
    for name in STATISTICS:
        alone = statistics(parts, [name])
        assert list(alone) == [name]
        assert np.array_equal(alone[name], together[name]), name


def test_every_position_in_a_block() -> None:
    check([" " * before + piece + " x" * 3 for piece in ("é…", "\u3000", "a.", "http://x") for before in range(50, 70)])


CONTEXTS = ("{}", "a{}b {}", "\n{}. \n x{}\n\n{}", "x" * 62 + "{} #{}#")
CHEAP = sorted(STATISTICS.keys() - {name for name in STATISTICS if "gram" in name})


def python_counts(document: str) -> tuple[int, ...]:
    words = document.split()
    return (
        len(document),
        sum(c.isspace() for c in document),
        sum(c.isalpha() for c in document),
        len(words),
        sum(any(c.isalpha() for c in word) for word in words),
        len(document.splitlines()),
    )


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_point(context: str) -> None:
    """Documents of one code point each; n-grams do not depend on what a character is."""
    step = 1 if context == CONTEXTS[0] else 5
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    points = [c for c in points if c < 0x3100 or c % step == 0]
    documents = [context.replace("{}", chr(c)) for c in points]
    found = statistics(string_buffers(pa.array(documents)), CHEAP)
    columns = {name: found[name].tolist() for name in CHEAP}
    names = ("chars", "whitespace_chars", "alpha_chars", "words", "words_with_alpha", "split_lines")
    # Python's counts depend on nothing but these properties (\r joins a \n after it): it counts one of each kind.
    expected: dict[tuple[bool, ...], tuple[int, ...]] = {}
    for point, document, *counted in zip(points, documents, *(columns[name] for name in names), strict=True):
        char = chr(point)
        kind = char.isspace(), char.isalpha(), len(f"a{char}b".splitlines()) > 1, char == "\r"
        if kind not in expected:
            expected[kind] = python_counts(document)
        assert tuple(counted) == expected[kind], (names, point)
    for row in [row for row, point in enumerate(points) if (point < 0x3100 and point % 5 == 0) or point < 0x300]:
        for name, value in text_twin.statistics(documents[row]).items():
            assert name not in columns or columns[name][row] == value, (name, documents[row])


def corpus() -> Iterator[str]:
    import zstandard

    folder = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "corpus"
    files = sorted(folder.glob("*.jsonl.zst"))
    if not files:
        pytest.skip("the shared corpus is absent; set TAMIS_SHARED to the folder that holds it")
    for file in files:
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
                yield json.loads(line)["text"]


@pytest.mark.corpus
def test_sample_of_the_corpus() -> None:
    documents = [text for text in corpus() if len(text) < 10_000]
    check(random.Random(1).sample(documents, 500))


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_whole_corpus() -> None:
    batch: list[str | None] = []
    for text in corpus():
        batch.append(text)
        if len(batch) == 500:
            check(batch)
            batch = []
    check(batch)


def test_what_is_known_is_not_counted_again() -> None:
    parts = string_buffers(pa.array(["one two\nthree", "a b\n\na b\n", None], pa.large_string()))
    rows = np.array([0, 1])
    known = statistics(parts, ["chars", "words", "newlines"], rows)
    wanted = ["sentences", "paragraphs", "top_2_gram_fraction", "words"]
    plain, short = statistics(parts, wanted, rows), statistics(parts, wanted, rows, known)
    assert {n: v.tolist() for n, v in short.items()} == {n: v.tolist() for n, v in plain.items()}
    false = dict(known, words=np.array([7, 7]))
    assert statistics(parts, ["words"], rows, false)["words"].tolist() == [7, 7]
