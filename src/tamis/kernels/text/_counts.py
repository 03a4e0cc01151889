"""Counts of a document, which kernels write as rows, and the columns by name that they become."""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language.intrinsics import put
from tamis.kernels.language.jit import helper


@helper
def put_counts(out, row, counts):
    """Write all counts of one document, a tuple, to their positions."""
    for k in range(len(counts)):
        put(out, row * len(counts) + k, counts[k])


def room_for(names: Collection[str], n_rows: int) -> NDArray[np.int64]:
    """Allocate the array to which a kernel writes the counts of this many documents."""
    return np.empty(n_rows * len(names), np.int64)


def by_name(names: Collection[str], out: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return one array per name."""
    columns = out.reshape(-1, len(names)).T
    return {name: np.ascontiguousarray(column) for name, column in zip(names, columns, strict=True)}
