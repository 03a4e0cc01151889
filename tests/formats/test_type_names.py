"""Declared schemas as text, stored schemas as JSON, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import FormatError, UsageError
from tamis.formats.schema.type_names import from_json, parse_schema, to_json


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("string", pa.large_string()),
        ("str", pa.large_string()),
        ("int64", pa.int64()),
        ("uint8", pa.uint8()),
        ("double", pa.float64()),
        ("bool", pa.bool_()),
        ("binary", pa.large_binary()),
        ("date32", pa.date32()),
        (" list< string > ", pa.list_(pa.large_string())),
        ("list<list<int64>>", pa.list_(pa.list_(pa.int64()))),
        ("struct<a: int64, b: list<string>>", pa.struct({"a": pa.int64(), "b": pa.list_(pa.large_string())})),
        ("timestamp[us]", pa.timestamp("us")),
        ("timestamp[ms, tz=UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[ns, UTC]", pa.timestamp("ns", "UTC")),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
    ],
)
def test_parse_schema(text: str, kind: pa.DataType) -> None:
    assert parse_schema({"x": text}) == pa.schema({"x": kind})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strng", "field 'x': unknown type 'strng'; known are null, bool"),
        ("float", "write float32 or float64"),
        ("list<string", "ends where '>' is expected"),
        ("list<>", "unknown type '>'"),
        ("string string", "did not expect 'string'"),
        ("timestamp[h]", "unknown unit 'h'"),
        ("struct<a: int64, a: int64>", "two fields of a struct have one name"),
        ("", "ends where a type is expected"),
        ("int64;", "cannot read ';'"),
        ("list<" * 40 + "int64" + ">" * 40, "nested deeper than 32"),
        ("decimal(99, 2)", "precision of 1 to 38"),
    ],
)
def test_parse_errors_name_the_field(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema({"x": text})
    assert message in str(caught.value)
    assert "field 'x'" in str(caught.value)


def test_a_declaration_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="field 'n': expected a type such as 'int64', got 5"):
        parse_schema({"n": 5})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="expected field names and types"):
        parse_schema({})


def test_json_round_trip() -> None:
    schema = pa.schema(
        [
            pa.field("text", pa.large_string(), nullable=False),
            pa.field("odd name: <,>", pa.list_(pa.struct({"a b": pa.int8(), "c": pa.list_(pa.float32(), 3)}))),
            pa.field("t", pa.timestamp("us", "Europe/Zurich")),
            pa.field("m", pa.map_(pa.large_string(), pa.int64())),
            pa.field("d", pa.decimal128(10, -2)),
            pa.field("b", pa.binary(16)),
            pa.field("time", pa.time64("us")),
            pa.field("time32", pa.time32("s")),
            pa.field("span", pa.duration("ns")),
            pa.field("none", pa.null()),
            pa.field("empty", pa.struct([])),
        ]
    )
    plain = to_json(schema)
    assert plain[0] == {"name": "text", "type": "large_string".removeprefix("large_"), "nullable": False}
    assert from_json(json.loads(json.dumps(plain))) == schema


def test_a_type_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(FormatError, match="cannot be stored"):
        to_json(pa.schema({"a": pa.dictionary(pa.int8(), pa.string())}))


def field(kind: Any) -> dict[str, Any]:
    return {"name": "a", "type": kind, "nullable": True}


def deep(n_levels: int) -> Any:
    kind: Any = "int64"
    for _ in range(n_levels):
        kind = {"list": kind}
    return kind


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        "text",
        [1],
        [{"name": "a"}],
        [field("no such type")],
        [field({})],
        [field({"list": "int64", "size": 2**40})],
        [field({"list": "int64", "size": True})],
        [field({"decimal": [64, 5, 2]})],
        [field({"decimal": [128, 500, 2]})],
        [field({"timestamp": "hours", "tz": None})],
        [field({"timestamp": "us", "tz": 5})],
        [field({"bytes": -5})],
        [field({"pickle": "gASVAAAA"})],
        [field("int64"), field("int64")],
        [{"name": 5, "type": "int64", "nullable": True}],
        [{**field("int64"), "more": 1}],
        [field(deep(100))],
        [field({"struct": [{"name": str(i), "type": "int64", "nullable": True} for i in range(30_000)]})],
    ],
)
def test_a_stored_schema_is_not_trusted(plain: Any) -> None:
    with pytest.raises(FormatError, match="stored schema"):
        from_json(plain)
