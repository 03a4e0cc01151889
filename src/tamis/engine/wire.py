"""Messages between processes as bytes, and back: JSON of their fields, each checked against its annotation.

The one encoder and the one decoder of everything that processes of a run send each other. Never pickle: a worker runs
the user's code, and what it sends is data. What does not fit the annotations raises `Garbled`; the reader of a channel
then ends the process that sent it, and the run continues.
"""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

Kinds = Mapping[str, type]
"""The messages that one side of a channel may hear, by name."""
T = TypeVar("T")
_MAX_BITS = 128  # an identity of a document; whatever counts bytes or rows has fewer
_Reader = Callable[[Any], Any]


class Garbled(Exception):
    """Bytes that are none of the messages expected, or one with fields of other types than it has."""


def kinds(*classes: type) -> Kinds:
    """Map messages by name, for `decode`."""
    return {c.__name__: c for c in classes}


def encode(message: Any) -> bytes:
    """Encode a message as bytes for `decode`."""
    return json.dumps({"type": type(message).__name__, **plain(message)}, separators=(",", ":")).encode()


def decode(data: bytes | bytearray, expected: Kinds) -> Any:
    """Decode a message from bytes; raise `Garbled` if it is none of `expected`."""
    try:
        values = json.loads(data)
        kind = expected[values.pop("type")]
        return _reader(kind)(values)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise Garbled(f"{type(exc).__name__}: {exc}"[:300]) from exc


def to_json(message: Any) -> dict[str, Any]:
    """Return a dataclass or NamedTuple as JSON values, for `from_json`."""
    values: dict[str, Any] = plain(message)
    return values


def from_json(kind: type[T], values: Any) -> T:
    """Return the value of this type that `to_json` gave these values for; raise `Garbled` if they are none."""
    try:
        message: T = _reader(cast("Any", kind))(values)
        return message
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise Garbled(f"{type(exc).__name__}: {exc}"[:300]) from exc


def plain(value: Any) -> Any:
    """Convert a value to JSON values: dataclasses and NamedTuples become objects."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if _has_fields(value):
        return {name: plain(getattr(value, name)) for name in _names(cast("Any", type(value)))}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


@functools.cache
def field_readers(kind: type) -> dict[str, _Reader]:
    """Return, for each field of a message, the function that builds its value from JSON values, or raises."""
    hints = get_type_hints(kind)
    return {name: _reader(hints[name]) for name in _names(kind)}


def _has_fields(kind: Any) -> bool:
    """Return True for dataclasses and NamedTuples, and for their instances."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else kind._fields


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Return the function that builds a value of the annotated type from JSON values, or raises."""
    if get_origin(hint) is not None:
        return _generic_reader(get_origin(hint), get_args(hint))
    if hint is Any:
        return lambda value: value
    if hasattr(hint, "from_dict"):
        return lambda value: hint.from_dict(_checked(value, dict))
    if _has_fields(hint):
        return _fields_reader(hint)
    if is_typeddict(hint):  # its owner reads what is inside
        return lambda value: _checked(value, dict)
    if issubclass(hint, StrEnum):
        return lambda value: hint(value)
    return {int: _int, float: _float}.get(hint) or (lambda value: _checked(value, hint))


def _generic_reader(origin: Any, args: tuple[Any, ...]) -> _Reader:
    if origin in (Union, types.UnionType):
        (inner,) = [_reader(a) for a in args if a is not type(None)]
        return lambda value: None if value is None else inner(value)
    if origin is list:
        member = _reader(args[0])
        return lambda value: [member(v) for v in _checked(value, list)]
    if origin is tuple:
        members = [_reader(a) for a in args]
        return lambda value: tuple(read(v) for read, v in zip(members, _checked(value, list), strict=True))
    if origin is dict:
        member = _reader(args[1])
        return lambda value: {k: member(v) for k, v in _checked(value, dict).items()}
    raise TypeError(f"messages have no fields of type {origin}")


def _fields_reader(kind: Any) -> _Reader:
    readers = field_readers(kind)

    def read(value: Any) -> Any:
        return kind(**{name: readers[name](field) for name, field in _checked(value, dict).items()})

    return read


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} where {kind.__name__} is expected")
    return value


def _int(value: Any) -> int:
    number: int = _checked(value, int)
    if number.bit_length() > _MAX_BITS:
        raise ValueError("a number beyond all bounds")
    return number


def _float(value: Any) -> float:
    number = float(value if type(value) is int else _checked(value, float))
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number
