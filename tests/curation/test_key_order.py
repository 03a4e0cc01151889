"""The order of rows by keys, through buckets on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis.curation.key_order import KEY, in_key_order


@pytest.mark.parametrize("n_bytes", [1, 100_000])  # what is said of the size, which compressed files make too small
@pytest.mark.parametrize("most_bits", [64, 34, 1])  # keys in all ranges, in few of them, of one bucket
def test_the_order_is_that_of_the_keys_and_no_table_is_large(tmp_path: Path, n_bytes: int, most_bits: int) -> None:
    rng = np.random.default_rng(7)
    keys = (
        rng.integers(0, 1 << most_bits, 5000, np.uint64, endpoint=False)
        if most_bits < 64
        else rng.integers(0, np.iinfo(np.uint64).max, 5000, np.uint64)
    )
    texts = [f"text {i}" for i in range(5000)]
    tables = [
        pa.table({"text": texts[first : first + 300], KEY: keys[first : first + 300]}) for first in range(0, 5000, 300)
    ]
    ordered = list(in_key_order(iter(tables), str(tmp_path / "buckets"), n_bytes, 60_000))
    found = [text for table in ordered for text in table["text"].to_pylist()]
    assert found == [texts[i] for i in np.argsort(keys, kind="stable").tolist()]
    assert not (tmp_path / "buckets").exists()
    if most_bits == 64:  # as buckets are files of streams, they have some bytes more
        assert max(table.nbytes for table in ordered) <= 15_000
