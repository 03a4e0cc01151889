"""The one door to records, whatever they are of: lines of JSON and rows of a table answer the same questions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.table_block import TableBlock
from tamis.tasks import MISSING, NULL, TEXT, DocumentBatch, Lineage, Origin

LINES = b'{"t":"a","n":1}\n{"t":null}\n{"t":"ccc","n":3}\n'


def lines() -> Origin:
    return JsonlBlock.parse(np.frombuffer(LINES, np.uint8))


def rows() -> Origin:
    return TableBlock(pa.table({"t": ["a", None, "ccc"], "n": [1, None, 3]}))


@pytest.mark.parametrize("make", [lines, rows])
def test_both_answer_the_same(make: object) -> None:
    origin: Origin = make()  # type: ignore[operator]
    some = np.array([2, -1, 0])
    assert (origin.n_rows, sorted(origin.field_names())) == (3, ["n", "t"])
    assert origin.column("t").to_pylist() == ["a", None, "ccc"]
    assert origin.column_of("n", np.array([2, 0])).to_pylist() == [3, 1]
    assert origin.exact("n", some).to_pylist() == [3, None, 1]
    assert (origin.sizes(some)[1], origin.lengths(some)[1]) == (0, 0)
    assert (origin.sizes(some)[[0, 2]] > 0).all()
    assert len(set(zip(*(half.tolist() for half in origin.identity()), strict=True))) == 3
    batch = DocumentBatch.of(Lineage(origin, some), "set")
    assert (batch.values("t"), batch.has_field("t"), batch.has_field("x")) == (["ccc", None, "a"], True, False)
    assert batch.kinds("t").tolist() in ([TEXT, MISSING, TEXT], [TEXT, NULL, TEXT])
    assert batch.lineage is not None
    assert (batch.lineage.is_untouched, DocumentBatch.over(origin, np.arange(3)).lineage.is_untouched) == (False, True)  # type: ignore[union-attr]


def test_lines_are_bytes_and_rows_are_not() -> None:
    assert [Lineage(lines(), np.array([1, -1])).raw(i) for i in (0, 1)] == [b'{"t":null}', None]
    assert Lineage(rows(), np.array([1])).raw(0) is None
    assert (lines().keeps_bytes, rows().keeps_bytes, lines().is_typed, rows().is_typed) == (True, False, False, True)
    assert lines().sizes(np.arange(3)).tolist() == [len(line) for line in LINES.splitlines()]


def test_a_column_that_only_a_stage_added_leaves_no_trace() -> None:
    batch = DocumentBatch.over(lines(), np.arange(3)).with_column("new", [1, 2, 3])
    assert batch.lineage is not None
    assert (batch.lineage.adds("new"), batch.lineage.adds("t")) == (True, False)
    assert batch.without_added("new").lineage.is_untouched  # type: ignore[union-attr]
    assert batch.without_added("t").lineage.hidden == {"t"}  # type: ignore[union-attr]
