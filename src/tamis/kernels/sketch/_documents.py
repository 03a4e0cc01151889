"""What the wrappers of this group share: checked parameters, tables and scratch for `_shingles`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.sketch._shingles import BASE, CHARS, CHUNK, MAX_N, N_STATE, PIECE, POINT, SLACK, WORDS
from tamis.kernels.text._blocks import PAD

Unit = Literal["char", "word"]
_M64 = (1 << 64) - 1


class Shingling(NamedTuple):
    """Arguments of `next_shingles` that are the same for all documents."""

    kind: int
    n: int
    power: np.uint64
    seed: np.uint64
    table: NDArray[np.uint64]


def shingling(where: str, n: int, unit: Unit, seed: int) -> Shingling:
    """Return the checked shingling parameters; `where` begins the error message."""
    if unit not in get_args(Unit):
        raise UsageError(f"{where}: unit must be 'char' or 'word', got {unit!r}")
    check_number(where, "n", n, 1, MAX_N)
    check_number(where, "seed", seed, 0, _M64)
    return _shingling(int(n), unit, int(seed))


@lru_cache(maxsize=16)
def _shingling(n: int, unit: Unit, seed: int) -> Shingling:
    power = pow(int(BASE), n, 1 << 64)
    points = [mixed(point + int(POINT)) for point in range(128)]
    table = np.array([*points, *(g * power & _M64 for g in points)], np.uint64)
    table.flags.writeable = False
    return Shingling(CHARS if unit == "char" else WORDS, n, np.uint64(power), np.uint64(mixed(seed)), table)


def mixed(x: int) -> int:
    """Mix a Python number as `_shingles.mix` does."""
    x &= _M64
    x = (x ^ x >> 32) * 0xFF51AFD7ED558CCD & _M64
    x = (x ^ x >> 29) * 0xC4CEB9FE1A85EC53 & _M64
    return x ^ x >> 32


def scratch(n: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Allocate (pad, marks, units, state) for `next_shingles`: 50 kB."""
    units = np.empty(n + CHUNK + SLACK, np.uint64)
    return np.zeros(PAD, np.uint8), np.empty(PIECE + SLACK, np.int64), units, np.zeros(N_STATE, np.uint64)


def check_number(where: str, name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise UsageError(f"{where}: {name} must be a whole number from {least} to {most}, got {value!r}")
