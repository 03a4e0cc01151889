"""A table as the origin of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis.formats.table_block import TableBlock, row_hashes


def test_columns_of_one_many_and_no_chunks() -> None:
    one, two = pa.table({"a": [1, 2], "b": ["x", None]}), pa.table({"a": [3], "b": ["z"]})
    block = TableBlock(pa.concat_tables([one, two]))
    assert (block.n_rows, block.field_names()) == (3, ["a", "b"])
    assert block.column("a").to_pylist() == [1, 2, 3]
    assert isinstance(block.column("b"), pa.Array)
    assert TableBlock(one).column("b").to_pylist() == ["x", None]
    empty = TableBlock(one.schema.empty_table())
    assert (empty.column("a").type, len(empty.column("a"))) == (pa.int64(), 0)


def test_a_column_that_no_table_has_is_null() -> None:
    assert TableBlock(pa.table({"a": [1, 2]})).column("z").to_pylist() == [None, None]


def test_identity_is_that_of_the_rows() -> None:
    table = pa.table({"a": [1, 2, 1]})
    hi, lo = TableBlock(table).identity()
    assert np.array_equal(hi, row_hashes(table)[0])
    assert (hi[0], lo[0]) == (hi[2], lo[2])
    assert (hi[0], lo[0]) != (hi[1], lo[1])
