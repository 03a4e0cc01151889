"""Lists of numbers of several steps, in one buffer: joined they are what Arrow joins, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.formats.number_buffer import NumberBuffer, have_number_lists, join_tables

WIDTH = 256


def tables(kind: pa.DataType, n: int = 6, rows: int = 100) -> list[pa.Table]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        lists = [(rng.standard_normal(WIDTH) * 100).astype(int).tolist() for _ in range(rows)]
        made.append(pa.table({"id": list(range(i * rows, (i + 1) * rows)), "numbers": pa.array(lists, kind)}))
    return made


def address_of(table: pa.Table) -> Any:
    return table.column("numbers").chunk(0).values.buffers()[1].address


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.int32())])
def test_steps_are_joined_without_a_copy(kind: pa.DataType) -> None:
    parts = tables(kind)
    buffer = NumberBuffer(2_000_000)
    held = [buffer.hold(part.slice(3, 90)) for part in parts]
    joined = join_tables(held)
    joined.validate(full=True)
    assert joined.equals(pa.concat_tables([part.slice(3, 90) for part in parts]).combine_chunks())
    assert joined.column("numbers").num_chunks == 1
    assert address_of(joined) == address_of(held[0])


def test_what_does_not_fit_or_has_nulls_is_joined_as_usual() -> None:
    kind = pa.list_(pa.float32())
    parts = tables(kind)
    nothing = pa.table({"id": [None], "numbers": pa.array([None], kind)}).cast(parts[0].schema)
    within = pa.table({"id": [7], "numbers": pa.array([[1.0, None]], kind)})
    for pieces, n_bytes in ((parts, 1 << 20), (parts, 300_000), ([parts[0], nothing, parts[1], within], 1 << 20)):
        buffer = NumberBuffer(max(n_bytes, 1 << 20) if n_bytes > 300_000 else n_bytes)
        joined = join_tables([buffer.hold(piece) for piece in pieces])
        joined.validate(full=True)
        assert joined.equals(pa.concat_tables(pieces).combine_chunks())


def test_rows_that_were_taken_out_are_not_joined_with_what_was_between() -> None:
    parts, buffer = tables(pa.list_(pa.float32()), 3), NumberBuffer(1 << 20)
    held = [buffer.hold(part) for part in parts]
    joined = join_tables([held[0], held[1].slice(10, 20), held[2]])
    assert joined.equals(pa.concat_tables([parts[0], parts[1].slice(10, 20), parts[2]]).combine_chunks())


def test_only_lists_of_numbers_are_held() -> None:
    table = pa.table({"text": ["a"], "tags": [["x", "y"]]})
    assert NumberBuffer(1 << 20).hold(table) is table
    assert not have_number_lists(str(field.type) for field in table.schema)
    assert have_number_lists([str(pa.large_list(pa.field("item", pa.float16(), nullable=False)))])
