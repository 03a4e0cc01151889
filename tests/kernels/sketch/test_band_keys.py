"""band_keys against its twin bit by bit, the S-curve that banding promises, robustness to edits, hostile documents."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers, string_buffers
from tamis.kernels.sketch._documents import shingling
from tamis.kernels.sketch._shingles import HASHES
from tamis.kernels.sketch.band_keys import SKETCH_VERSION, band_keys, sketched
from tests.reference import sketch_twin as twin
from tests.support.limits import examples

TEXTS = st.one_of(
    st.none(),
    st.text(alphabet="ab \n", max_size=80),
    st.text(alphabet="aé漢😀 \u3000\x00", max_size=80),
    st.text(alphabet=st.characters(codec="ascii"), max_size=300),
    st.text(max_size=100),
)
WORDS = [f"w{k}" for k in range(3000)]


def parts_of(*documents: str | None, kind: pa.DataType | None = None) -> StringBuffers:
    return string_buffers(pa.array(documents, kind or pa.large_string()))


def keys_of(*documents: str | None, n: int = 24, unit: str = "char", bands: int = 20, rows: int = 13) -> np.ndarray:
    return band_keys(parts_of(*documents), n=n, unit=unit, bands=bands, rows=rows, seed=42)[0]


def shared(keys: np.ndarray) -> int:
    """Bands in which the first two documents agree."""
    return int((keys[0] == keys[1]).sum())


def essay(n_words: int, seed: int = 0) -> list[str]:
    return [WORDS[k] for k in np.random.default_rng(seed).integers(0, len(WORDS), n_words)]


def test_keys_never_change_within_a_version() -> None:
    assert SKETCH_VERSION == 1
    keys = keys_of("The quick brown fox jumps over the lazy dog.", "短い漢字の文。", bands=2, rows=3)
    assert [[f"{key:016x}" for key in row] for row in keys.tolist()] == [
        ["eb1e71853a4e74a2", "cb089c2461164707"],
        ["608619c5d84be7e7", "a305910ce1e901c8"],
    ]
    keys = keys_of("The quick brown fox jumps over the lazy dog.", n=2, unit="word", bands=2, rows=3)
    assert [f"{key:016x}" for key in keys[0].tolist()] == ["3b159abb23700d84", "a76e46f3efb97f05"]


@settings(max_examples=examples(150), deadline=None)
@given(
    documents=st.lists(TEXTS, max_size=5),
    n=st.integers(1, 30),
    unit=st.sampled_from(["char", "word"]),
    shape=st.sampled_from([(1, 1), (2, 3), (5, 2), (1, 16)]),
    seed=st.sampled_from([0, 42, 2**64 - 1]),
    wide=st.booleans(),
    method=st.sampled_from(["fss", "permutations"]),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.large_binary()]),
    cut=st.integers(0, 3),
)
def test_keys_equal_the_twin(
    documents: list[str | None],
    n: int,
    unit: str,
    shape: tuple[int, int],
    seed: int,
    wide: bool,
    method: str,
    kind: pa.DataType,
    cut: int,
) -> None:
    column = pa.array([document and document.encode() for document in documents], pa.large_binary()).cast(kind)
    options = {"bands": shape[0], "rows": shape[1], "seed": seed, "wide": wide, "method": method}
    keys, n_shingles = band_keys(string_buffers(column.slice(cut)), n=n, unit=unit, **options)
    hashes = [twin.shingles(document, n, unit, seed) for document in documents[cut:]]
    assert n_shingles.tolist() == [len(one) for one in hashes]
    assert keys.tolist() == [twin.band_keys(one, **options) for one in hashes]
    assert (keys.shape, keys.dtype, keys.flags.c_contiguous) == ((len(hashes), shape[0]), np.uint64, True)


@pytest.mark.parametrize("unit", ["char", "word"])
@pytest.mark.parametrize("n", [1, 5, 130])
def test_documents_of_several_chunks_equal_the_twin(n: int, unit: str) -> None:
    words = essay(1500)
    plain = " ".join(words)
    documents = [
        plain,
        plain[:5000] + "é" + plain[5000:],
        "\u3000".join(words),
        "漢" * 3000 + plain,
        "x" * 5000 + " y z",
    ]
    keys, n_shingles = band_keys(parts_of(*documents), n=n, unit=unit, bands=4, rows=5, seed=7)
    hashes = [twin.shingles(document, n, unit, 7) for document in documents]
    assert n_shingles.tolist() == [len(one) for one in hashes]
    assert keys.tolist() == [twin.band_keys(one, 4, 5, 7, False, "fss") for one in hashes]


def test_the_longest_shingles_equal_the_twin() -> None:
    documents = [" ".join(essay(300))[:1060], "é" + " ".join(essay(300))[:1060], " ".join("abc" * 350)]
    for unit in ("char", "word"):
        keys, _ = band_keys(parts_of(*documents), n=1024, unit=unit, bands=2, rows=2, seed=7)
        hashes = [twin.shingles(document, 1024, unit, 7) for document in documents]
        assert keys.tolist() == [twin.band_keys(one, 2, 2, 7, False, "fss") for one in hashes]


def test_shingles_of_ascii_documents_occur_in_others() -> None:
    passage = " ".join(essay(2000))
    keys = keys_of(passage, passage + " ©", passage + " 漢😀")
    assert shared(keys) == shared(keys[1:]) == 20


def test_short_documents_are_one_shingle_and_blank_ones_none() -> None:
    documents = ["short", "short", "shirt", "x" * 24, "x" * 25, "", " \n\u3000", None]
    keys, n_shingles = band_keys(parts_of(*documents), n=24, unit="char", bands=3, rows=2, seed=1)
    assert n_shingles.tolist() == [1, 1, 1, 1, 2, 0, 0, 0]
    assert keys[0].tolist() == keys[1].tolist()
    assert keys[3].tolist() == keys[4].tolist()  # one distinct shingle each
    assert not (keys[0] == keys[2]).any()
    assert keys[5:].tolist() == [[0, 0, 0]] * 3
    assert (keys[:5] != 0).all()
    _, n_words = band_keys(parts_of("one two", "one two three four", "\t"), n=3, unit="word", bands=1, rows=1, seed=1)
    assert n_words.tolist() == [1, 2, 0]


def test_no_documents() -> None:
    keys, n_shingles = band_keys(parts_of(), n=5, unit="char", bands=3, rows=2, seed=1)
    assert (keys.shape, n_shingles.shape) == ((0, 3), (0,))


def test_sets_not_multisets() -> None:
    once = " ".join(essay(300))
    keys = keys_of(once + " " + once, " ".join([once] * 9))
    assert shared(keys) == 20


def test_keys_differ_between_bands_seeds_and_units() -> None:
    text = " ".join(essay(400))
    keys = keys_of(text)
    assert np.unique(keys).size == 20
    other = band_keys(parts_of(text), n=24, unit="char", bands=20, rows=13, seed=43)[0]
    assert not np.isin(other, keys).any()
    assert not np.isin(keys_of(text, unit="word"), keys).any()


def test_one_word_inserted() -> None:
    words = essay(600)
    keys = keys_of(" ".join(words), " ".join([*words[:7], "inserted", *words[7:]]))
    assert shared(keys) >= 12  # 27 of 3,500 shingles differ: J**13 = 0.85 of 20 bands
    keys = keys_of(
        " ".join(words), " ".join([*words[:300], "inserted", *words[300:]]), n=5, unit="word", bands=14, rows=8
    )
    assert shared(keys) >= 9


def test_paragraphs_swapped() -> None:
    first, second = " ".join(essay(300, 1)), " ".join(essay(300, 2))
    assert shared(keys_of(first + "\n\n" + second, second + "\n\n" + first)) >= 12


def test_boilerplate_added() -> None:
    text = " ".join(essay(900))
    keys = keys_of(text, "Home | News | Contact\n" + text + "\nAll rights reserved. Cookies.", bands=14, rows=8)
    assert shared(keys) >= 9
    assert shared(keys_of(text, " ".join(essay(900, 5)), bands=14, rows=8)) == 0


def pairs(jaccard: float, n_union: int, n_pairs: int) -> tuple[list[np.ndarray], float]:
    """Random sets, two by two, and the similarity nearest to `jaccard` that their size allows."""
    n_common = round(jaccard * n_union)
    middle = n_common + (n_union - n_common) // 2
    drawn = np.random.default_rng([n_union, n_common]).integers(0, 2**64, (n_pairs, n_union), np.uint64)
    sets = [one for row in drawn for one in (row[:middle], np.concatenate([row[:n_common], row[middle:]]))]
    return sets, n_common / n_union


def keys_of_hashes(
    sets: list[np.ndarray], bands: int, rows: int, seed: int, wide: bool = False, method: str = "fss"
) -> np.ndarray:
    """Keys of sets that are given as their shingle hashes; with one row a band, keys are equal where bins are."""
    plan = shingling("test", 1, "char", seed)._replace(kind=HASHES)
    ends = 8 * np.cumsum([one.size for one in sets], dtype=np.int64)
    data = np.concatenate(sets).view(np.uint8)
    return sketched(data, np.concatenate([[0], ends[:-1]]), ends, plan, bands, rows, wide, method)[0]


def check_curve(jaccard: float, n_union: int, bands: int, rows: int, method: str = "fss", n_pairs: int = 1000) -> None:
    sets, exact = pairs(jaccard, n_union, n_pairs)
    keys = keys_of_hashes(sets, bands, rows, n_union, method=method)
    values = keys_of_hashes(sets, bands * rows, 1, n_union, method=method)
    promised = 1 - (1 - exact**rows) ** bands
    n_hits = int((keys[0::2] == keys[1::2]).any(axis=1).sum())
    # 4 standard deviations of a count, and one hit where almost none are expected
    assert abs(n_hits - n_pairs * promised) <= 4 * math.sqrt(n_pairs * promised * (1 - promised)) + 1
    estimates = (values[0::2] == values[1::2]).mean(axis=1)
    rmse = math.sqrt(((estimates - exact) ** 2).mean())
    assert rmse <= 1.05 * math.sqrt(exact * (1 - exact) / (bands * rows))


@pytest.mark.parametrize("jaccard", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("n_union", [5, 60, 1000])
@pytest.mark.parametrize("shape", [(14, 8), (20, 13)])
def test_candidates_follow_the_curve(jaccard: float, n_union: int, shape: tuple[int, int]) -> None:
    check_curve(jaccard, n_union, *shape)


@pytest.mark.slow
@pytest.mark.parametrize("jaccard", [0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("n_union", [5, 20, 60, 200, 1000, 5000])
@pytest.mark.parametrize("shape", [(14, 8), (20, 13)])
def test_candidates_follow_the_curve_everywhere(jaccard: float, n_union: int, shape: tuple[int, int]) -> None:
    check_curve(jaccard, n_union, *shape, n_pairs=2000 if n_union >= 1000 else 1000)


def test_permutations_follow_the_curve() -> None:
    sets, exact = pairs(0.7, 60, 1000)
    keys = keys_of_hashes(sets, 14, 8, 3, method="permutations")
    values = keys_of_hashes(sets, 14 * 8, 1, 3, method="permutations")
    n_hits = int((keys[0::2] == keys[1::2]).any(axis=1).sum())
    assert abs(n_hits - 564.5) <= 4 * math.sqrt(1000 * 0.5645 * 0.4355)
    assert abs((values[0::2] == values[1::2]).mean() - exact) < 0.006


def test_hashes_equal_the_twin() -> None:
    drawn = np.random.default_rng(8).integers(0, 2**64, 5000, np.uint64)
    sets = [drawn[:0], drawn[:1], drawn[:40], np.repeat(drawn[:7], 30), drawn]
    for bands, rows in ((4, 4), (16, 1)):
        keys = keys_of_hashes(sets, bands, rows, 9, wide=True)
        assert keys.tolist() == [twin.band_keys(one.tolist(), bands, rows, 9, True, "fss") for one in sets]


@pytest.mark.parametrize("n_distinct", [1, 3, 300, 20_000])
def test_many_repeated_hashes_are_those_of_the_set(n_distinct: int) -> None:
    """More hashes than are kept: the distinct ones are collected, or the document is walked again."""
    distinct = np.random.default_rng(n_distinct).integers(0, 2**64, n_distinct, np.uint64)
    many = np.tile(distinct, 70_000 // n_distinct + 1)
    for bands, rows in ((20, 13), (1, 1)):
        keys = keys_of_hashes([distinct, many, many[::-1].copy()], bands, rows, 1)
        assert keys[0].tolist() == keys[1].tolist() == keys[2].tolist()


def test_documents_walked_again_round_by_round() -> None:
    """So many distinct hashes that they are not kept, chosen so that one bin stays empty until the second round."""
    drawn = np.random.default_rng(4).integers(0, 2**64, 80_000, np.uint64)
    drawn = drawn[((drawn & np.uint64(0xFFFFFFFF)) * np.uint64(260) >> np.uint64(32)) != 7]
    keys = keys_of_hashes([drawn, drawn[:12_000]], 260, 1, 1)
    assert keys[0].tolist() == twin.band_keys(drawn.tolist(), 260, 1, 1, False, "fss")
    assert keys[1].tolist() == twin.band_keys(drawn[:12_000].tolist(), 260, 1, 1, False, "fss")
    assert twin.values(drawn.tolist(), 260, 1, False, "fss")[7] >> 32 == 1


def test_long_monotonous_documents() -> None:
    """One distinct shingle: 260 rounds over 5 million places would take minutes."""
    keys, n_shingles = band_keys(
        parts_of("a" * 5_000_000, "a" * 24, "é" * 3_000_000, "é" * 30, " a" * 9, "x"),
        n=24,
        unit="char",
        bands=20,
        rows=13,
        seed=42,
    )
    assert n_shingles.tolist() == [4_999_977, 1, 2_999_977, 7, 1, 1]
    assert keys[0].tolist() == keys[1].tolist()
    assert keys[2].tolist() == keys[3].tolist()
    keys, n_shingles = band_keys(
        parts_of("ab " * 1_000_000, "ab " * 5, "z" * 3_000_000),
        n=5,
        unit="word",
        bands=20,
        rows=13,
        seed=42,
    )
    assert n_shingles.tolist() == [999_996, 1, 1]
    assert keys[0].tolist() == keys[1].tolist()


def test_bytes_that_are_no_text_are_read_as_something_inside_the_document() -> None:
    rng = np.random.default_rng(2)
    raw = [rng.integers(128, 256, n).astype(np.uint8).tobytes() for n in (1, 2, 3, 70, 5000)]
    for unit in ("char", "word"):
        options = {"n": 3, "unit": unit, "bands": 2, "rows": 2, "seed": 1}
        alone = [band_keys(parts_of(one, kind=pa.large_binary()), **options) for one in raw]
        keys, n_shingles = band_keys(parts_of(*raw, kind=pa.large_binary()), **options)
        assert keys.tolist() == [one[0][0].tolist() for one in alone]
        assert n_shingles.tolist() == [int(one[1][0]) for one in alone]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number from 1 to 1024, got 0"),
        ({"n": 1025}, "n must be"),
        ({"n": 2.5}, "n must be"),
        ({"unit": "byte"}, "unit must be 'char' or 'word', got 'byte'"),
        ({"bands": 0}, "bands must be"),
        ({"rows": True}, "rows must be"),
        ({"bands": 300, "rows": 300}, "bands \\* rows must be a whole number from 1 to 65536, got 90000"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**64}, "seed must be"),
        ({"method": "minhash"}, "method must be 'fss' or 'permutations', got 'minhash'"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, object], message: str) -> None:
    options = {"n": 5, "unit": "char", "bands": 2, "rows": 2, "seed": 1, **changes}
    with pytest.raises(UsageError, match="^band_keys: " + message):
        band_keys(parts_of("text"), **options)


def test_offsets_outside_the_data_are_refused() -> None:
    parts = StringBuffers(np.array([0, 3, 9]), np.zeros(8, np.uint8), None)
    with pytest.raises(ValueError, match="outside the 8 bytes"):
        band_keys(parts, n=5, unit="char", bands=2, rows=2, seed=1)
