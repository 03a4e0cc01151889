"""similarities against sets of shingles, also where they are thinned; edits whose similarity is known."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers, string_buffers
from tamis.kernels.sketch.similarity import lead, similarities
from tests.reference import sketch_twin as twin
from tests.support.limits import examples

TEXTS = st.one_of(
    st.none(), st.text(alphabet="ab ", max_size=60), st.text(alphabet="aé漢 \u3000", max_size=60), st.text(max_size=40)
)


def parts_of(*documents: str | None) -> StringBuffers:
    return string_buffers(pa.array(documents, pa.large_string()))


def to_first(*documents: str | None, n: int = 5, unit: str = "word", **options: int) -> list[float]:
    members = np.arange(1, len(documents))
    return similarities(parts_of(*documents), 0, members, n=n, unit=unit, seed=42, **options).tolist()


@settings(max_examples=examples(200), deadline=None)
@given(
    documents=st.lists(TEXTS, min_size=1, max_size=5),
    n=st.integers(1, 6),
    unit=st.sampled_from(["char", "word"]),
    max_shingles=st.sampled_from([2, 3, 10, 1000]),
    data=st.data(),
)
def test_similarities_equal_the_twin(
    documents: list[str | None], n: int, unit: str, max_shingles: int, data: st.DataObject
) -> None:
    numbers = st.integers(0, len(documents) - 1)
    leader, members = data.draw(numbers), data.draw(st.lists(numbers, max_size=6))
    options = {"n": n, "unit": unit, "seed": 5}
    hashes = [twin.shingles(document, **options) for document in documents]
    found = similarities(
        parts_of(*documents), leader, np.array(members, np.int64), **options, max_shingles=max_shingles
    )
    assert found.tolist() == [twin.similarity(hashes[leader], hashes[member], max_shingles) for member in members]


def test_written_out() -> None:
    words = "a b c d e f g h i j"
    found = to_first(words, words, words + " k", words[2:], words.upper(), "", None, " ".join([words] * 2), n=2)
    # the last one: 9 pairs twice, and the pair "j a" in the middle
    assert found == [1.0, 9 / 10, 8 / 9, 0.0, 0.0, 0.0, 9 / 10]


def test_texts_without_shingles_are_not_similar() -> None:
    assert to_first("", "", None, " \n", "a") == [0.0, 0.0, 0.0, 0.0]
    assert to_first(None, "a b c d e f", "", unit="char") == [0.0, 0.0]


def test_sets_not_multisets() -> None:
    assert to_first("a a a a b", "a a b b", n=1) == [1.0]
    assert to_first("a a a a b", "a b a b", n=2) == [1 / 3]


def test_texts_shorter_than_a_shingle() -> None:
    assert to_first("one two", "one two", "one two three", "one") == [1.0, 0.0, 0.0]
    assert to_first("short", "short", "shor", unit="char", n=24) == [1.0, 0.0]


def test_ascii_passages_are_found_in_other_documents() -> None:
    text = "The same passage, once alone and once beside other letters."
    n_places = len(text) - 23
    assert to_first(text, text + "é", unit="char", n=24) == [n_places / (n_places + 1)]


def test_members_may_repeat_and_include_the_leader() -> None:
    parts = parts_of("x y", "x y z", "x y")
    assert similarities(parts, 2, np.array([2, 1, 2, 0, 1]), n=1, unit="word", seed=0).tolist() == [
        1,
        2 / 3,
        1,
        1,
        2 / 3,
    ]
    assert similarities(parts, 0, np.array([], np.int64), n=1, unit="word", seed=0).tolist() == []


def test_thinned_estimates_are_near_and_unbiased() -> None:
    """60,000 shingles each, of which a table holds 1,000: the standard deviation of one estimate is about 0.015."""
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(20):
        words = [f"w{k}" for k in rng.integers(0, 10**9, 80_000)]
        first, second = " ".join(words[:60_000]), " ".join(words[20_000:])
        found = to_first(first, second, n=1, max_shingles=1000)[0]
        errors.append(found - 0.5)
    assert max(map(abs, errors)) < 0.07
    assert abs(np.mean(errors)) < 0.014


def test_long_documents_in_little_memory() -> None:
    rng = np.random.default_rng(3)
    text = "".join(map(chr, rng.integers(97, 123, 3_000_000)))
    found = to_first(text, text, text[:1_500_000], "b" * 2_000_000, n=24, unit="char")
    assert found[0] == 1.0
    assert abs(found[1] - 0.5) < 0.01
    assert found[2] == 0.0


def test_wrong_parameters_are_named() -> None:
    parts, members = parts_of("a", "b"), np.array([1])
    options = {"n": 5, "unit": "char", "seed": 1}
    with pytest.raises(UsageError, match=r"similarities: leader must be a whole number from 0 to 1, got 2"):
        similarities(parts, 2, members, **options)
    with pytest.raises(UsageError, match=r"similarities: members must be from 0 to 1, got 1 to 2"):
        similarities(parts, 0, np.array([1, 2]), **options)
    with pytest.raises(UsageError, match=r"similarities: members must be from 0 to 1, got -1 to 1"):
        similarities(parts, 0, np.array([1, -1]), **options)
    with pytest.raises(UsageError, match=r"similarities: max_shingles must be"):
        similarities(parts, 0, members, **options, max_shingles=1)
    with pytest.raises(UsageError, match=r"similarities: n must be"):
        similarities(parts, 0, members, **{**options, "n": 0})


@settings(max_examples=examples(150), deadline=None)
@given(
    groups=st.lists(st.lists(TEXTS, max_size=6), max_size=5),
    n=st.integers(1, 4),
    unit=st.sampled_from(["char", "word"]),
    threshold=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    max_leaders=st.integers(1, 4),
    max_shingles=st.sampled_from([2, 5, 1000]),
)
def test_leaders_equal_the_twin(
    groups: list[list[str | None]], n: int, unit: str, threshold: float, max_leaders: int, max_shingles: int
) -> None:
    options = {"n": n, "unit": unit, "seed": 5}
    documents = [document for group in groups for document in group]
    cuts = np.cumsum([0, *(len(group) for group in groups)])
    found = lead(parts_of(*documents), cuts, threshold, max_leaders, **options, max_shingles=max_shingles)
    hashes = [twin.shingles(document, **options) for document in documents]
    leader, similarity, n_compared, n_capped = list(range(len(documents))), [1.0] * len(documents), 0, 0
    for a, b in itertools.pairwise(cuts.tolist()):
        left, n_leaders = list(range(a, b)), 0
        while left and n_leaders < max_leaders:
            head, *rest = left
            n_leaders += 1
            n_compared += len(rest)
            alike = {row: twin.similarity(hashes[head], hashes[row], max_shingles) for row in rest}
            left = [row for row in rest if alike[row] < threshold]
            for row in rest:
                if alike[row] >= threshold:
                    leader[row], similarity[row] = head, alike[row]
        n_capped += len(left)
    assert (found[0].tolist(), found[1].tolist(), *found[2:]) == (leader, similarity, n_compared, n_capped)


def test_groups_of_some_documents_in_any_order() -> None:
    parts = parts_of("x y", "never asked", "p q", "x y", "p q r", None)
    found = lead(parts, np.array([0, 2, 5]), 0.5, 9, n=1, unit="word", seed=0, order=np.array([3, 0, 4, 5, 2]))
    assert [values.tolist() for values in found[:2]] == [[0, 0, 2, 3, 2], [1, 1, 1, 1, pytest.approx(2 / 3)]]
    for order in ([0, 0], [0, 6], [-1, 0]):
        with pytest.raises(UsageError, match="order must name each document once, by numbers below 6"):
            lead(parts, np.array([0, 2]), 0.5, 9, n=1, unit="word", seed=0, order=np.array(order))
    with pytest.raises(UsageError, match="cuts must ascend from 0 to 2"):
        lead(parts, np.array([0, 6]), 0.5, 9, n=1, unit="word", seed=0, order=np.array([0, 1]))


def test_cuts_that_do_not_fit_are_refused() -> None:
    for cuts in ([0, 1], [0, 3], [1, 2], [0, 2, 1, 2], []):
        with pytest.raises(UsageError, match="cuts must ascend from 0 to 2"):
            lead(parts_of("a", "b"), np.array(cuts, np.int64), 0.5, 1, n=1, unit="word", seed=1)
