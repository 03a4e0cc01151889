"""Schemas as text and as JSON. Covers: declared schemas ({"n": "int64"}), and storing a schema in the run directory.

Neither direction trusts its input: types are built from a fixed list of names, with limits on depth and number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tamis.errors import FormatError, UsageError
from tamis.tasks.columns.inference import MAX_DEPTH, MAX_TYPES

_SIMPLE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{f"int{n}": getattr(pa, f"int{n}")() for n in (8, 16, 32, 64)},
    **{f"uint{n}": getattr(pa, f"uint{n}")() for n in (8, 16, 32, 64)},
    **{f"float{n}": getattr(pa, f"float{n}")() for n in (16, 32, 64)},
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
_ALIASES = {
    "boolean": "bool",
    "int": "int64",
    "double": "float64",
    "str": "string",
    "utf8": "string",
    "large_string": "string",
    "large_binary": "binary",
    "bytes": "binary",
    "date": "date32",
}
_NAME_OF = {kind: name for name, kind in _SIMPLE.items()} | {pa.string(): "string", pa.binary(): "binary"}
_UNITS = ("s", "ms", "us", "ns")
_TOKEN = re.compile(r"\s*([A-Za-z_][\w.\-]*|[0-9]+|[<>\[\],:=()+])")


def parse_schema(declared: Mapping[str, str]) -> pa.Schema:
    """Parse {"text": "string", "tags": "list<string>", "t": "timestamp[us, UTC]"} as a schema.

    >>> print(parse_schema({"n": "int64", "t": "timestamp[us, UTC]"}))
    n: int64
    t: timestamp[us, tz=UTC]
    """
    if not isinstance(declared, Mapping) or not declared:
        raise UsageError(f"schema: expected field names and types such as {{'text': 'string'}}, got {declared!r}")
    fields = []
    for name, text in declared.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError(f"schema, field {name!r}: expected a type such as 'int64', got {text!r}")
        fields.append(pa.field(name, _Parser(name, text).parse()))
    return pa.schema(fields)


class _Parser:
    """Recursive descent over `simple | list<T> | struct<name: T, ...> | timestamp[unit(, tz)] | decimal(p, s)`."""

    def __init__(self, field: str, text: str) -> None:
        self._field, self._text, self._cursor = field, text, 0
        self._tokens: list[str] = []
        offset = 0
        while text[offset:].strip():
            match = _TOKEN.match(text, offset)
            if match is None or len(self._tokens) > MAX_TYPES:
                raise self._error(f"cannot read {text[offset : offset + 20]!r}")
            self._tokens.append(match.group(1))
            offset = match.end()

    def parse(self) -> pa.DataType:
        kind = self._type(0)
        if self._cursor < len(self._tokens):
            raise self._error(f"did not expect {self._tokens[self._cursor]!r}")
        return kind

    def _type(self, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        name = self._next("a type")
        if name in ("list", "large_list"):
            self._expect("<")
            items = self._type(depth + 1)
            self._expect(">")
            return pa.list_(items)
        if name == "struct":
            return self._struct(depth)
        if name == "timestamp":
            return self._timestamp()
        if name in ("decimal", "decimal128"):
            self._expect("(")
            precision = self._number()
            self._expect(",")
            scale = self._number()
            self._expect(")")
            if not (1 <= precision <= 38 and scale <= precision):
                raise self._error("a decimal has a precision of 1 to 38 and a scale up to it")
            return pa.decimal128(precision, scale)
        if name == "float":
            raise self._error("'float' means different things; write float32 or float64")
        kind = _SIMPLE.get(_ALIASES.get(name, name))
        if kind is None:
            known_types = ", ".join([*_SIMPLE, "list<T>", "struct<a: T>", "timestamp[us]", "decimal(p, s)"])
            raise self._error(f"unknown type {name!r}; known are {known_types}")
        return kind

    def _struct(self, depth: int) -> pa.DataType:
        self._expect("<")
        fields: list[pa.Field] = []
        while True:
            name = self._next("a field name")
            self._expect(":")
            fields.append(pa.field(name, self._type(depth + 1)))
            if self._next("',' or '>'") == ">":
                break
        if len({field.name for field in fields}) < len(fields):
            raise self._error("two fields of a struct have one name")
        return pa.struct(fields)

    def _timestamp(self) -> pa.DataType:
        self._expect("[")
        unit = self._next("a unit")
        if unit not in _UNITS:
            raise self._error(f"unknown unit {unit!r}; expected one of {', '.join(_UNITS)}")
        zone = None
        if self._next("']'") == ",":
            zone = self._next("a time zone")
            if zone == "tz":
                self._expect("=")
                zone = self._next("a time zone")
            self._expect("]")
        return pa.timestamp(unit, zone)

    def _number(self) -> int:
        text = self._next("a number")
        if not text.isdigit() or len(text) > 3:
            raise self._error(f"expected a number, got {text!r}")
        return int(text)

    def _next(self, expected: str) -> str:
        if self._cursor == len(self._tokens):
            raise self._error(f"ends where {expected} is expected")
        self._cursor += 1
        return self._tokens[self._cursor - 1]

    def _expect(self, token: str) -> None:
        got = self._next(repr(token))
        if got != token:
            raise self._error(f"expected {token!r}, got {got!r}")

    def _error(self, problem: str) -> UsageError:
        return UsageError(f"schema, field {self._field!r}: {problem} in {self._text[:200]!r}")


def to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return a plain structure for JSON: [{"name": "n", "type": "int64", "nullable": true}, ...]."""
    return [_field_to_json(field) for field in schema]


def _field_to_json(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type_to_json(field.type), "nullable": field.nullable}


def _type_to_json(kind: pa.DataType) -> Any:
    if (name := _NAME_OF.get(kind)) is not None:
        return name
    if pa.types.is_struct(kind):
        return {"struct": [_field_to_json(kind.field(i)) for i in range(kind.num_fields)]}
    if pa.types.is_fixed_size_list(kind):
        return {"list": _type_to_json(kind.value_type), "size": kind.list_size}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"list": _type_to_json(kind.value_type)}
    if pa.types.is_map(kind):
        return {"map": [_type_to_json(kind.key_type), _type_to_json(kind.item_type)]}
    if pa.types.is_timestamp(kind):
        return {"timestamp": kind.unit, "tz": kind.tz}
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return {"duration" if pa.types.is_duration(kind) else "time": kind.unit}
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return {"decimal": [kind.bit_width, kind.precision, kind.scale]}
    if pa.types.is_fixed_size_binary(kind):
        return {"bytes": kind.byte_width}
    raise FormatError(f"type {kind} cannot be stored; cast the column to one of {', '.join(_SIMPLE)} or a list")


def from_json(plain: Any) -> pa.Schema:
    """Parse what `to_json` wrote; raise FormatError for anything that it could not have written."""
    reader = _JsonReader()
    try:
        return pa.schema(reader.fields(plain, 0))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException) as exc:
        raise FormatError(f"stored schema: {type(exc).__name__}: {exc}; the file is damaged, start afresh") from exc


class _JsonReader:
    def __init__(self) -> None:
        self._n_types = 0

    def fields(self, plain: Any, depth: int) -> list[pa.Field]:
        if not isinstance(plain, list):
            raise ValueError(f"expected a list of fields, got {type(plain).__name__}")
        fields = []
        for item in plain:
            name, nullable = item["name"], item["nullable"]
            if not isinstance(name, str) or not isinstance(nullable, bool) or set(item) != {"name", "type", "nullable"}:
                raise ValueError(f"bad field {str(item)[:80]}")
            fields.append(pa.field(name, self.type(item["type"], depth + 1), nullable))
        if len({field.name for field in fields}) < len(fields):
            raise ValueError("two fields have one name")
        return fields

    def type(self, plain: Any, depth: int) -> pa.DataType:
        self._n_types += 1
        if self._n_types > MAX_TYPES or depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_TYPES} types or {MAX_DEPTH} levels")
        if isinstance(plain, str):
            return _SIMPLE[plain]
        if not isinstance(plain, dict) or not plain:
            raise ValueError(f"bad type {str(plain)[:80]}")
        (kind, value), rest = next(iter(plain.items())), dict(list(plain.items())[1:])
        if kind == "struct":
            return pa.struct(self.fields(value, depth))
        if kind == "list":
            return pa.list_(self.type(value, depth + 1), _small_int(rest.get("size", -1), -1, 2**24))
        if kind == "map":
            return pa.map_(self.type(value[0], depth + 1), self.type(value[1], depth + 1))
        if kind in ("timestamp", "time", "duration") and value in _UNITS:
            return _time_type(kind, value, rest)
        if kind == "decimal":
            make = {128: pa.decimal128, 256: pa.decimal256}[value[0]]
            return make(_small_int(value[1], 1, 76), _small_int(value[2], -76, 76))
        if kind == "bytes":
            return pa.binary(_small_int(value, 0, 2**24))
        raise ValueError(f"unknown type {str(plain)[:80]}")


def _time_type(kind: str, unit: str, options: Mapping[str, Any]) -> pa.DataType:
    """Build a timestamp (with the time zone in `options`), a time of day or a duration."""
    if kind == "duration":
        return pa.duration(unit)
    if kind == "time":
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    zone = options["tz"]
    if zone is not None and not (isinstance(zone, str) and len(zone) < 64):
        raise ValueError(f"bad time zone {str(zone)[:80]}")
    return pa.timestamp(unit, zone)


def _small_int(value: Any, least: int, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limit:
        raise ValueError(f"expected a number from {least} to {limit}, got {str(value)[:40]}")
    return value
