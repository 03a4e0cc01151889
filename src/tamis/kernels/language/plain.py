"""Intrinsics of kernels in plain Python: with TAMIS_KERNELS=python every kernel's own body runs, step by step.

Numbers behave as in compiled kernels: signed integers of up to 64 bits are int64 (so that a byte plus one does not
wrap), uint64 wraps at 2**64, and values are cut to the type of the array that they are stored in. A pointer is the
array itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ALL = (1 << 64) - 1


def pointer(array: Any) -> Any:
    return array


def at(array: Any, index: int) -> Any:
    value = array[index]
    return value if array.dtype.kind == "f" or array.dtype == np.uint64 else np.int64(value)


def put(array: Any, index: int, value: Any) -> None:
    array[index] = np.asarray(value).astype(array.dtype)


def load_u64(array: Any, index: int) -> Any:
    return np.uint64(int.from_bytes(_bytes(array, index, 8).tobytes(), "little"))


def store_u64(array: Any, index: int, value: Any) -> None:
    _bytes(array, index, 8)[:] = np.frombuffer(int(value).to_bytes(8, "little"), np.uint8)


def mask_eq(array: Any, index: int, byte: int) -> Any:
    return _mask(_bytes(array, index, 64) == byte)


def mask_lt(array: Any, index: int, byte: int) -> Any:
    return _mask(_bytes(array, index, 64) < byte)


def mask_ge(array: Any, index: int, byte: int) -> Any:
    return _mask(_bytes(array, index, 64) >= byte)


def least_of_16(array: Any, index: int) -> Any:
    return _bytes(array, index, 16).min()


def least_of_64(array: Any, index: int) -> Any:
    return _bytes(array, index, 64).min()


def copy_block(target: Any, target_index: int, source: Any, source_index: int) -> None:
    copy_bytes(target, target_index, source, source_index, 64)


def copy_bytes(target: Any, target_index: int, source: Any, source_index: int, n_bytes: int) -> None:
    _bytes(target, target_index, n_bytes)[:] = _bytes(source, source_index, n_bytes)


def lowest_bit(mask: Any) -> int:
    return (int(mask) & -int(mask)).bit_length() - 1


def highest_bit(mask: Any) -> int:
    return int(mask).bit_length() - 1


def count_bits(mask: Any) -> int:
    return int(mask).bit_count()


def rotl64(value: Any, n_bits: Any) -> Any:
    number, by = int(value), int(n_bits)
    return np.uint64((number << by | number >> (64 - by)) & _ALL)


def load_f32(array: Any, index: int) -> Any:
    return _bytes(array, index, 4).copy().view(np.float32)[0]


def store_weighted(
    target: Any, target_index: int, source: Any, index: int, step: int, weights: Any, weight_index: int, n: int
) -> None:
    total = np.zeros(96, np.int16)
    for k in range(n):
        some = source[index + k * step : index + k * step + 96].astype(np.int32)
        some = some << 7 if source.dtype == np.uint8 else some
        total += ((some * np.int32(weights[weight_index + k]) + (1 << 14)) >> 15).astype(np.int16)
    target[target_index : target_index + 96] = np.clip(total, 0, 255 << 6) << 1


def turn_eight(target: Any, target_index: int, target_step: int, source: Any, index: int, step: int) -> None:
    for j in range(8):
        column = source[index + j : index + j + 7 * step + 1 : step].copy()
        target[target_index + j * target_step : target_index + j * target_step + 8] = column


def add_eight_bytes(sums: Any, first: int, array: Any, index: int) -> None:
    sums[first : first + 8] += _bytes(array, index, 32).copy().view(np.float32)


def add_eight(total: Any, first: int, array: Any, index: int) -> None:
    if first + 8 > total.size or index + 8 > array.size:
        raise IndexError(f"eight items at {first} of {total.size} and at {index} of {array.size}")
    total[first : first + 8] += array[index : index + 8].astype(np.float64)


def prefetch(array: Any, index: int) -> None:
    """Do nothing: prefetching has no visible effect."""


def _bytes(array: Any, index: int, n_bytes: int) -> Any:
    """Return some bytes of a uint8 array; raise IndexError where compiled code would access beyond its end."""
    if index < 0 or index + n_bytes > array.size:
        raise IndexError(f"bytes {index} to {index + n_bytes} of an array of {array.size}")
    return array[index : index + n_bytes]


def _mask(chosen: Any) -> Any:
    return np.uint64(int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little"))
