"""Types of JSON fields in pandas frames: found by a scan of all records, or declared by the user.

The type of a field is a function of the kinds of JSON values that it has in any record (`KindCount.flags`) and of
whether a record has none: bool, int64, float64, string (pandas' `str`), or object, whose cells hold each value as in
the JSON. A text never becomes a number, and only a declaration makes a time of one.

Covers: the join of kinds, and what may be declared. See also: frames.py (series of these types),
engine/run/column_scan.py (the scan).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError

NULL, BOOL, INTEGER, FLOAT, TEXT, NESTED, INEXACT_INTEGER, HUGE_INTEGER = (1 << i for i in range(8))
"""Kinds of values. INEXACT_INTEGER: beyond 2^53, so that a float64 may not hold it; HUGE_INTEGER: not an int64."""

OBJECT, TIME = "object", "datetime64[ns]"
DECLARABLE = ("bool", "boolean", "int64", "Int64", "float64", "string", OBJECT, TIME)
_ALIASES = {
    "str": "string", "int": "int64", "float": "float64", "O": OBJECT, "datetime64": TIME, "datetime": TIME,
}  # fmt: skip
_PYTHON = {bool: "bool", int: "int64", float: "float64", str: "string", object: "object"}


@dataclass
class KindCount:
    """The kinds of values of one field (`flags`), and how many records have it, with a null or a value."""

    flags: int = 0
    n_present: int = 0

    def add(self, other: KindCount) -> None:
        self.flags |= other.flags
        self.n_present += other.n_present

    def frame_type(self, n_records: int) -> str:
        """Return the type of the field among `n_records` records.

        >>> KindCount(INTEGER, 3).frame_type(3), KindCount(INTEGER, 2).frame_type(3), KindCount(TEXT, 1).frame_type(9)
        ('int64', 'float64', 'string')
        >>> KindCount(INTEGER | FLOAT, 3).frame_type(3), KindCount(INTEGER | TEXT, 3).frame_type(3)
        ('float64', 'object')
        """
        has_gaps = bool(self.flags & NULL) or self.n_present < n_records
        match self.flags & (BOOL | INTEGER | FLOAT | TEXT | NESTED):
            case kind if kind == TEXT:
                return "string"
            case kind if kind == BOOL and not has_gaps:
                return "bool"
            case kind if kind == INTEGER and not has_gaps:
                return OBJECT if self.flags & HUGE_INTEGER else "int64"
            case kind if kind and not kind & ~(INTEGER | FLOAT):
                return OBJECT if self.flags & (INEXACT_INTEGER | HUGE_INTEGER) else "float64"
            case _:
                return OBJECT


def joined_types(parts: Iterable[tuple[int, Mapping[str, KindCount]]]) -> dict[str, str]:
    """Return the type of every field, from parts of the input: the number of records, and the kinds of each field."""
    total, fields = 0, {}  # type: int, dict[str, KindCount]
    for n_records, kinds in parts:
        total += n_records
        for name, kind in kinds.items():
            fields.setdefault(name, KindCount()).add(kind)
    return {name: kind.frame_type(total) for name, kind in sorted(fields.items())}


def declared_types(owner: str, declared: Mapping[str, Any]) -> dict[str, str]:
    """Return the checked types that a user declares for fields; `owner` begins the message of an error.

    >>> declared_types("reader", {"n": "int64", "title": str})
    {'n': 'int64', 'title': 'string'}
    """
    types = {}
    for name, kind in declared.items():
        text = _PYTHON.get(kind, "") if isinstance(kind, type) else str(kind)
        text = _ALIASES.get(text, text)
        if not isinstance(name, str) or text not in DECLARABLE:
            raise UsageError(f"{owner}: the type of {name!r} must be one of {', '.join(DECLARABLE)}, got {kind!r}")
        types[name] = text
    return types
