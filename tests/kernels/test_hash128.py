"""hash128 against its twin, and the quality that identities need: no collisions, full avalanche."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.records.hash128 import (
    HASH_VERSION,
    combine,
    hash_arrow_strings,
    hash_fixed,
    hash_spans,
    mix_rows,
    sum128,
)
from tests.reference import hash_twin as twin
from tests.support.limits import examples


def hash_of(data: bytes, seed: int = 0) -> tuple[int, int]:
    hi, lo = hash_spans(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]), seed)
    return int(hi[0]), int(lo[0])


def n_distinct(hi: np.ndarray, lo: np.ndarray) -> int:
    return int(np.unique(np.stack([hi, lo], axis=1), axis=0).shape[0])


def test_values_never_change_within_a_version() -> None:
    assert HASH_VERSION == 1
    assert [f"{half:016x}" for half in hash_of(b"")] == ["9c0f744cf9d11fda", "58d0771e789b5a66"]
    assert [f"{half:016x}" for half in hash_of(b"tamis")] == ["87262e6bae545385", "7a785d7e4d4f6925"]
    assert [f"{half:016x}" for half in hash_of(bytes(range(100)), seed=7)] == ["2c310a20a18185fd", "439779c7f2c49826"]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=6), st.integers(0, 2**64 - 1))
def test_spans_equal_the_twin(values: list[bytes], seed: int) -> None:
    lens = np.array([len(value) for value in values], np.int64)
    starts = np.cumsum(lens) - lens
    buf = np.frombuffer(b"".join(values), np.uint8)
    expected = [twin.hash_bytes(value, seed) for value in values]
    hi, lo = hash_spans(buf, starts, lens, seed)
    assert list(zip(hi.tolist(), lo.tolist(), strict=True)) == expected
    offsets = np.append(starts, buf.size)
    for width in (np.int32, np.int64):
        hi, lo = hash_arrow_strings(offsets.astype(width), buf, None, seed)
        assert list(zip(hi.tolist(), lo.tolist(), strict=True)) == expected


def test_position_in_the_buffer_does_not_matter() -> None:
    text = b"the same bytes at every alignment and next to other bytes"
    buf = np.frombuffer(b"?".join([text] * 40) + text, np.uint8)
    starts = np.arange(40) * (len(text) + 1)
    hi, lo = hash_spans(buf, np.append(starts, buf.size - len(text)), np.full(41, len(text)))
    assert n_distinct(hi, lo) == 1


def test_null_is_neither_empty_nor_text() -> None:
    offsets, data = np.array([0, 0, 4, 4]), np.frombuffer(b"null", np.uint8)
    hi, lo = hash_arrow_strings(offsets, data, np.array([True, True, False]))
    assert n_distinct(hi, lo) == 3
    assert (int(hi[1]), int(lo[1])) == hash_of(b"null")


def test_zeros_of_every_length_differ() -> None:
    buf = np.zeros(3000, np.uint8)
    hi, lo = hash_spans(buf, np.zeros(3001, np.int64), np.arange(3001))
    assert n_distinct(hi, lo) == 3001
    assert np.unique(hi).size == np.unique(lo).size == 3001


def test_no_collision_among_two_million_similar_inputs() -> None:
    numbers = np.arange(1_000_000)
    digits = (numbers[:, None] // 10 ** np.arange(7, -1, -1) % 10 + ord("0")).astype(np.uint8)  # "00000000" and on
    hi, lo = hash_spans(digits.reshape(-1), numbers * 8, np.full(numbers.size, 8))
    words = np.zeros((1_000_000, 5), np.uint64)  # 40 bytes that differ in two words by one small number each
    words[:, 1], words[:, 4] = numbers % 1000, numbers // 1000
    hi2, lo2 = hash_spans(words.reshape(-1).view(np.uint8), numbers * 40, np.full(numbers.size, 40))
    for half in (np.concatenate([hi, hi2]), np.concatenate([lo, lo2])):
        half.sort()
        assert half.size == 2_000_000
        assert (half[1:] != half[:-1]).all()


@pytest.mark.parametrize("n_bytes", [1, 3, 8, 13, 32, 33, 100])
def test_every_input_bit_changes_half_of_both_halves(n_bytes: int) -> None:
    n_samples = 400
    rng = np.random.default_rng(n_bytes)
    base = rng.integers(0, 256, (n_samples, n_bytes)).astype(np.uint8)
    starts, lens = np.arange(n_samples) * n_bytes, np.full(n_samples, n_bytes)
    hi, lo = hash_spans(base.reshape(-1), starts, lens)
    for bit in range(8 * n_bytes):
        flipped = base.copy()
        flipped[:, bit // 8] ^= np.uint8(1 << (bit % 8))
        hi2, lo2 = hash_spans(flipped.reshape(-1), starts, lens)
        for difference in (hi ^ hi2, lo ^ lo2):
            bits = np.unpackbits(difference.view(np.uint8).reshape(n_samples, 8), axis=1)
            assert 0.46 < bits.mean() < 0.54
            # 64 shares of 400 samples: six standard deviations are 0.15
            assert bits.mean(axis=0).min() > 0.33
            assert bits.mean(axis=0).max() < 0.67


def test_the_halves_and_the_seeds_are_independent() -> None:
    buf = np.random.default_rng(3).integers(0, 256, 40_000).astype(np.uint8)
    starts, lens = np.arange(2000) * 20, np.full(2000, 20)
    hi, lo = hash_spans(buf, starts, lens)
    hi_seeded, _ = hash_spans(buf, starts, lens, seed=1)
    for a, b in ((hi, lo), (hi, hi_seeded)):
        share = np.unpackbits((a ^ b).view(np.uint8)).mean()
        assert 0.49 < share < 0.51


def test_combine_and_fixed_equal_the_twin() -> None:
    values = np.array([0, 1, 2, 2**63, 2**64 - 1, 12345], np.uint64)
    hi, lo = hash_fixed(values)
    assert list(zip(hi.tolist(), lo.tolist(), strict=True)) == [twin.hash_word(v) for v in values.tolist()]
    out_hi, out_lo = combine(hi, lo, lo, hi, salt=9)
    expected = [twin.combine(a, b, b, a, 9) for a, b in zip(hi.tolist(), lo.tolist(), strict=True)]
    assert list(zip(out_hi.tolist(), out_lo.tolist(), strict=True)) == expected


def test_combine_depends_on_order_and_salt() -> None:
    hi, lo = hash_fixed(np.arange(4, dtype=np.uint64))
    a, b = (hi[:1], lo[:1]), (hi[1:2], lo[1:2])
    results = [combine(*a, *b, 0), combine(*b, *a, 0), combine(*a, *b, 1), combine(*a, *a, 0)]
    assert n_distinct(np.concatenate([r[0] for r in results]), np.concatenate([r[1] for r in results])) == 4


def test_fixed_values_and_children_do_not_collide() -> None:
    hi, lo = hash_fixed(np.arange(200_000, dtype=np.uint64))
    assert np.unique(hi).size == np.unique(lo).size == 200_000
    ordinals = np.tile(np.arange(100), 2000)
    child_hi, child_lo = mix_rows(np.repeat(hi[:2000], 100), np.repeat(lo[:2000], 100), ordinals)
    assert np.unique(child_hi).size == np.unique(child_lo).size == 200_000
    all_third = mix_rows(hi[:2000], lo[:2000], 3)
    assert all_third[0].tolist() == child_hi[3::100].tolist()
    assert all_third[1].tolist() == child_lo[3::100].tolist()


def test_sum_wraps_carries_and_selects() -> None:
    hi = np.array([1, 2**64 - 1, 5], np.uint64)
    lo = np.array([2**64 - 1, 2**64 - 1, 7], np.uint64)
    values = [(h << 64) | low for h, low in zip(hi.tolist(), lo.tolist(), strict=True)]
    assert sum128(hi, lo) == sum(values) % 2**128
    assert sum128(hi[::-1], lo[::-1]) == sum128(hi, lo)
    assert sum128(hi, lo, np.array([0, 2])) == values[0] + values[2]
    assert sum128(hi, lo, np.array([False, True, False])) == values[1]
    assert sum128(hi[:0], lo[:0]) == 0


def test_spans_outside_the_buffer_are_refused() -> None:
    buf = np.zeros(10, np.uint8)
    for start, length in ((-1, 2), (8, 3), (0, -1), (11, 0), (2**62, 2**62)):
        with pytest.raises(ValueError, match="span 1"):
            hash_spans(buf, np.array([0, start]), np.array([1, length]))
    with pytest.raises(ValueError, match="as many lengths"):
        hash_spans(buf, np.array([0]), np.array([1, 2]))
    with pytest.raises(ValueError, match="span 1"):
        hash_arrow_strings(np.array([0, 4, 11]), buf, None)
    with pytest.raises(ValueError, match="expected validity for 2 rows"):
        hash_arrow_strings(np.array([0, 4, 8]), buf, np.array([True]))
