"""JSON values that do not agree, as one Arrow column: stored as JSON text, returned as the value itself.

Arrow has one type per column, JSON has not: one "n/a" among numbers. Such a column is of the extension type
`tamis.json`: its storage is the text of each value as in the record, and `to_pylist()` returns the JSON values (5,
"n/a", None, {...}). No function of Arrow computes with it, so none can take a number for a text. Covers: the type and
reading a value.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tamis._dataclasses import dataclass

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# The scanner lets 1000 levels pass; json.loads and what walks over its values take a few frames for each.
_MAX_LEVELS = 4000


@dataclass(frozen=True)
class Digits:
    """An integer of more digits than Python converts (4300), represented by its text.

    No tuple: those are lists of JSON.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> int | Digits:
        try:
            return int(text)
        except ValueError:
            return cls(text)

    def __str__(self) -> str:
        return self.text


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise the recursion limit for values nested as deep as the scanner accepts."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _MAX_LEVELS))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def load(raw: bytes) -> Any:
    """Parse JSON text into a value.

    Lone surrogates cannot be encoded as UTF-8 and are replaced by U+FFFD (the raw record keeps them).
    """
    try:
        value = json.loads(raw)
    except ValueError:
        value = json.loads(raw, parse_int=Digits.parse)
    return _without_surrogates(value) if _SURROGATE.search(raw) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value


class JsonScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no types
    """One value of such a column."""

    def as_py(self, **_: Any) -> Any:
        if self.value is None:
            return None
        with deep_recursion():
            return load(self.value.as_buffer().to_pybytes())


class JsonType(pa.ExtensionType):  # type: ignore[misc]
    """The type of a column of JSON values that do not agree. There is one: `JSON`."""

    def __init__(self) -> None:
        super().__init__(pa.large_string(), "tamis.json")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> JsonType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[JsonScalar]:
        return JsonScalar

    def to_pandas_dtype(self) -> Any:
        """Return the dtype used by a table's `to_pandas()`: a column of Python objects, each value unchanged."""
        return _pandas_dtype()


@lru_cache(maxsize=1)
def _pandas_dtype() -> Any:
    from pandas.api.extensions import ExtensionDtype
    from pandas.arrays import NumpyExtensionArray

    class JsonDtype(ExtensionDtype):
        """Only on the way from Arrow: the column that comes out has pandas' own dtype for objects."""

        name, type = "tamis.json", object

        def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> Any:
            chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
            values = [value for chunk in chunks for value in json_values(chunk)]
            return NumpyExtensionArray(np.fromiter(values, object, len(values)))

    return JsonDtype()


JSON = JsonType()
try:  # so that it survives Arrow files between segments
    pa.register_extension_type(JSON)
except pa.ArrowKeyError:  # this file was loaded before, under whatever name
    pass


def is_json(kind: pa.DataType) -> bool:
    return isinstance(kind, JsonType)


def json_column(storage: pa.Array) -> pa.Array:
    """Return JSON texts (large_string; null stays null) as a column of values."""
    return pa.ExtensionArray.from_storage(JSON, storage)


def json_values(array: pa.Array) -> list[Any]:
    """Return the values of a JSON column; equivalent to `to_pylist`, but faster."""
    raw = array.storage.cast(pa.large_binary()).to_pylist()
    with deep_recursion():
        return [None if text is None else load(text) for text in raw]
