"""Values as canonical text. Covers: the one text of a number, a bool or nested data when its column widens to string.

The text does not depend on the path that the value took: 1 and 1.0 are both "1", because an integer column may have
become a float column before it became a string column.
"""

from __future__ import annotations

import base64
import json
import math
from operator import itemgetter
from typing import Any

EXACT_INT = 2**53
"""Up to here every integer is a float64; beyond it widening to float would change values."""


def number_text(value: int | float) -> str:
    """Return the canonical text of a number.

    >>> number_text(1), number_text(1.0), number_text(0.1), number_text(1e300), number_text(-0.0)
    ('1', '1', '0.1', '1e+300', '-0.0')
    """
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        if value.is_integer() and abs(value) <= EXACT_INT and (value != 0 or math.copysign(1, value) > 0):
            return str(int(value))
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def canonical_text(value: Any) -> str:
    """Return the canonical text of a top-level value: strings unchanged, nested values as JSON.

    >>> canonical_text(True), canonical_text("a"), canonical_text({"b": 1.0, "a": None}), canonical_text([None, "x"])
    ('true', 'a', '{"b":1}', '[null,"x"]')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, (dict, list, tuple)):
        return json_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


class _Literal(str):
    """JSON text that is finished, among values that are not."""


def json_text(value: Any) -> str:
    """Return compact JSON with sorted keys and without members that are null.

    A field that one record lacks and another one has reads as null. A stack instead of recursion: records may be nested
    1000 levels deep.
    """
    done: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Literal):
            done.append(item)
        elif item is None:
            done.append("null")
        elif isinstance(item, (bool, int, float)):
            done.append(canonical_text(item))
        elif isinstance(item, dict):
            members = sorted(((str(k), v) for k, v in item.items() if v is not None), key=itemgetter(0))
            done.append("{")
            waiting.append(_Literal("}"))
            for i in range(len(members) - 1, -1, -1):
                key, member = members[i]
                waiting += (member, _Literal(f"{',' if i else ''}{_quoted(key)}:"))
        elif isinstance(item, (list, tuple)):
            done.append("[")
            waiting.append(_Literal("]"))
            for i in range(len(item) - 1, -1, -1):
                waiting += (item[i], _Literal(",")) if i else (item[i],)
        else:
            done.append(_quoted(canonical_text(item)))
    return "".join(done)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
