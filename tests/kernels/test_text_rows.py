"""Rows of string columns: the same as Arrow's own take and replace_with_mask."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tamis.kernels import text_rows

KINDS = (pa.large_string(), pa.string(), pa.binary(), pa.large_binary(), pa.int64())


def column(kind: pa.DataType, with_nulls: bool, n: int = 50, seed: int = 0) -> pa.Array:
    """Sliced out of a longer one; texts of 0 to 300 bytes."""
    random = np.random.default_rng(seed)
    values: list[object] = [int(i) if kind == pa.int64() else f"ä{i}" * int(random.integers(100)) for i in range(n + 7)]
    if with_nulls:
        values = [None if i % 5 == 3 else v for i, v in enumerate(values)]
    return pa.array(values, kind)[7:]


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_taking_is_arrows_taking(kind: pa.DataType, with_nulls: bool) -> None:
    array = column(kind, with_nulls)
    for rows in ([], [0], [49, 3, 3, 0], list(range(0, 50, 2)), [-1, 5, -1]):
        at = np.array(rows, np.int64)
        expected = array.take(pa.array([None if r < 0 else r for r in rows], pa.int64()))
        found = text_rows.take(array, at)
        found.validate(full=True)
        assert found.equals(expected)
        assert (found.type, found.null_count) == (kind, expected.null_count)
    with pytest.raises(IndexError):
        text_rows.take(array, np.array([50]))


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_replacing_is_arrows_replacing(kind: pa.DataType, with_nulls: bool) -> None:
    array = column(kind, with_nulls)
    for rows in ([], [0], [3, 8, 49], list(range(50))):
        mask = np.zeros(50, bool)
        mask[rows] = True
        for new_nulls in (False, True):
            values = column(kind, new_nulls, seed=1)[: len(rows)]
            found = text_rows.replace(array, mask, values)
            found.validate(full=True)
            assert found.equals(pc.replace_with_mask(array, pa.array(mask), values))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(pa.ArrowCapacityError, match="do not fit into a column of type string"):
        text_rows.take(pa.array(["x" * 2**20]), np.zeros(2**11, np.int64))
    with pytest.raises(pa.ArrowInvalid):
        text_rows.replace(pa.array(["a", "b"]), np.array([True, True]), pa.array(["c"]))
