"""One schema for all blocks, whatever the cut: decode, observe, join, cast."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.schema.run_schema import (
    NO_FIELDS,
    Facts,
    facts_from_json,
    facts_of,
    facts_to_json,
    join_facts,
    run_schema,
    to_run_schema,
)
from tamis.tasks.columns.inference import STRING, Observed
from tests.support.limits import examples

leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63), 0.5, -0.0, "a", "1", "é"]),
)
value = st.recursive(
    leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("pq"), inner, max_size=2)),
    max_leaves=5,
)
records = st.lists(st.dictionaries(st.sampled_from("xy"), value, max_size=2), min_size=1, max_size=6)


def decode(lines: list[bytes]) -> pa.Table:
    block = JsonlBlock.parse(np.frombuffer(b"".join(lines), np.uint8))
    assert not block.bad
    names = block.field_names()
    return (
        pa.table([block.column(n) for n in names], names=names)
        if names
        else pa.table({"_": pa.nulls(len(lines))}).select([])
    )


def through(blocks: list[list[bytes]]) -> tuple[str, list[str]]:
    """Write documents block by block, join and cast them to the schema of the run; return (schema, rows)."""
    written: list[tuple[pa.Table, Facts]] = []
    for lines in blocks:
        table = decode(lines)
        facts = facts_of(table)
        assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts
        written.append((to_run_schema(table, run_schema([(table.schema, facts)], [])), facts))
    target = run_schema([(t.schema, f) for t, f in written], [])
    rows = [json.dumps(r, sort_keys=True) for t, _ in written for r in to_run_schema(t, target).to_pylist()]
    return str(target), rows


@settings(max_examples=examples(500), deadline=None)
@given(records, st.integers(1, 63))
@example([{"x": {"p": 1}}, {"x": {"p": "a"}}, {"x": "text"}], 63)
@example([{"x": [{}]}, {"x": [{"p": 1}]}, {"x": [{"p": 0.5}]}], 63)
@example([{"x": {"p": {}}}, {"x": "t"}], 63)
@example([{}, {"x": 1}], 63)
@example([{"x": [2**63]}, {"x": [1]}, {"x": [-1]}], 63)
def test_the_cut_into_blocks_does_not_matter(made: list[dict[str, Any]], cuts: int) -> None:
    lines = [json.dumps(r).encode() + b"\n" for r in made]
    blocks: list[list[bytes]] = [[]]
    for i, line in enumerate(lines):
        blocks[-1].append(line)
        if cuts >> i & 1:
            blocks.append([])
    assert through([b for b in blocks if b]) == through([lines])


def test_types_that_somebody_chose_are_joined_along_the_lattice() -> None:
    a = pa.schema([("n", pa.int16()), ("t", pa.timestamp("ms"))])
    b = pa.schema([("n", pa.int32()), ("t", pa.timestamp("ms"))])
    assert run_schema([(a, {}), (b, {})], []) == pa.schema([("n", pa.int32()), ("t", pa.timestamp("ms"))])
    assert facts_of(pa.table({"n": pa.array([1], pa.int16()), "j": [1]})).keys() == {"j"}


def test_a_column_with_facts_here_and_a_type_there() -> None:
    table = pa.table({"n": [1]})
    assert (
        str(run_schema([(table.schema, facts_of(table)), (pa.schema([("n", pa.float32())]), {})], []).field("n").type)
        == "double"
    )


def test_facts_without_end_become_text() -> None:
    parts = [facts_of(decode([json.dumps({"x": {f"u{i}": i}}).encode() + b"\n"])) for i in range(1200)]
    assert join_facts(parts)["x"].flags & STRING
    assert str(run_schema([(pa.schema([("x", pa.null())]), p) for p in parts], []).field("x").type) == "large_string"


def test_nothing_at_all() -> None:
    assert run_schema([], []).names == [NO_FIELDS]
    assert join_facts([]) == {}
    assert join_facts([{"x": Observed()}]) == {"x": Observed()}
