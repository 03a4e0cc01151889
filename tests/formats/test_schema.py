"""The lattice of types: literal cases, and the laws that make partitions irrelevant."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.formats.schema.run_schema import canonical_order, join, normal, run_schema

TEXT = pa.large_string()
SCALARS = [
    *[pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
    *[pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), TEXT, pa.large_binary(), pa.date32()],
    *[pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.decimal128(5, 2), pa.dictionary(pa.int8(), pa.string())],
]


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.tuples(st.sampled_from("abcd"), inner), max_size=3, unique_by=lambda pair: pair[0])
    return fields.map(lambda pairs: pa.struct([pa.field(name, kind) for name, kind in pairs]))


TYPES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: inner.map(pa.list_) | inner.map(lambda kind: pa.list_(kind, 2)) | structs(inner),
    max_leaves=5,
)
SCHEMAS = structs(TYPES).map(lambda kind: pa.schema([kind.field(i) for i in range(kind.num_fields)]))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (pa.null(), pa.bool_(), pa.bool_()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.uint64(), TEXT),
        (pa.uint64(), pa.float64(), TEXT),
        (pa.uint32(), pa.uint64(), pa.uint64()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.uint8(), pa.uint16(), pa.uint16()),
        (pa.int8(), pa.int32(), pa.int32()),
        (pa.float16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.bool_(), pa.int64(), TEXT),
        (pa.int64(), pa.string(), TEXT),
        (pa.date32(), pa.date32(), pa.date32()),
        (pa.date32(), pa.timestamp("us"), TEXT),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.list_(pa.int64()), pa.large_list(pa.null()), pa.list_(pa.int64())),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3)),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 4), pa.list_(pa.float32())),
        (pa.list_(pa.int64()), pa.int64(), TEXT),
        (pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), TEXT),
        (
            pa.struct({"z": pa.int64(), "a": pa.bool_()}),
            pa.struct({"m": pa.string(), "z": pa.float64()}),
            pa.struct({"a": pa.bool_(), "m": TEXT, "z": pa.float64()}),
        ),
        (
            pa.struct({"z": pa.int64(), "a": pa.null()}),
            pa.struct({"z": pa.null(), "a": pa.bool_()}),
            pa.struct({"z": pa.int64(), "a": pa.bool_()}),
        ),
    ],
)
def test_join(a: pa.DataType, b: pa.DataType, expected: pa.DataType) -> None:
    assert join(a, b) == expected
    assert join(b, a) == expected


@given(TYPES)
def test_join_is_idempotent(a: pa.DataType) -> None:
    assert join(a, a) == normal(a)
    assert join(a, pa.null()) == normal(a)
    assert normal(normal(a)) == normal(a)


@given(TYPES, TYPES)
def test_join_is_commutative_and_above_both(a: pa.DataType, b: pa.DataType) -> None:
    joined = join(a, b)
    assert joined == join(b, a)
    assert join(joined, a) == joined
    assert join(joined, b) == joined


@given(TYPES, TYPES, TYPES)
def test_join_is_associative(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
    assert join(join(a, b), c) == join(a, join(b, c))


def test_join_is_associative_over_all_scalars() -> None:
    wrong = [(a, b, c) for a in SCALARS for b in SCALARS for c in SCALARS if join(join(a, b), c) != join(a, join(b, c))]
    assert wrong == []


def test_the_schema_of_a_run_holds_the_columns_of_all_parts_each_joined() -> None:
    a, b = pa.schema({"x": pa.int64(), "a": pa.string()}), pa.schema({"n": pa.bool_(), "x": pa.float64()})
    for parts in ((a, b), (b, a)):
        found = run_schema([(part, {}) for part in parts], ["x", "a"])
        assert found == pa.schema({"x": pa.float64(), "a": TEXT, "n": pa.bool_()})


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_the_schema_of_a_run_does_not_depend_on_the_order_of_partitions(
    a: pa.Schema, b: pa.Schema, c: pa.Schema
) -> None:
    one, two = (run_schema([(part, {}) for part in parts], ["c", "a"]) for parts in ((a, b, c), (c, b, a)))
    assert one == two


def test_canonical_order() -> None:
    schema = pa.schema({"z": pa.int64(), "b": pa.int64(), "text": pa.int64(), "id": pa.int64()})
    assert canonical_order(schema, ["id", "text", "gone", "id"]).names == ["id", "text", "b", "z"]
