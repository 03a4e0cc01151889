"""Blocks of JSONL records: scanned once, decoded field by field on demand.

`JsonlBlock` is an Origin (tasks.py): it owns the raw bytes and knows where each record and each wanted value lies. Reading a
column decodes only that field. Arrow types follow the values of the block: text, bool, int64, uint64, float64, nested, or
text when the values do not agree (schema.py says how values of different types become text).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tamis.formats.schema import canonical_text
from tamis.kernels import buffers, hash128, json_scan, json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]

BAD_RECORD = {
    json_scan.NOT_OBJECT: "valid JSON, but not an object",
    json_scan.INVALID_JSON: "not valid JSON",
    json_scan.INVALID_UTF8: "not valid UTF-8",
    json_scan.TOO_DEEP: "nested deeper than 1000 levels",
    json_scan.TOO_LARGE: "larger than max_record",
}
_MISSING, _NULL, _FALSE, _TRUE, _INT, _FLOAT, _STRING, _ESCAPED, _OBJECT, _ARRAY = range(10)


class JsonlBlock:
    """The valid records of some bytes of JSONL. `bad` names the others as (start, end, reason) in `buf`."""

    def __init__(self, buf: Array, scan: json_scan.Scan) -> None:
        self.buf = buf
        ok = scan.status == json_scan.OK
        self.bad = [
            (int(scan.start[i]), int(scan.end[i]), BAD_RECORD[int(scan.status[i])]) for i in np.flatnonzero(~ok)
        ]
        self.n_blank = scan.n_blank
        self._scan = scan if not self.bad else _only(scan, np.flatnonzero(ok))
        self.n_rows = self._scan.n_records
        self._names: list[str] | None = None

    @classmethod
    def parse(cls, buf: Array, keys: Sequence[str] = (), max_record_bytes: int = 1 << 62) -> JsonlBlock:
        return cls(buf, json_scan.scan_records(buf, list(keys), max_record_bytes))

    @property
    def start(self) -> Array:
        return self._scan.start

    @property
    def end(self) -> Array:
        return self._scan.end

    @property
    def close(self) -> Array:
        return self._scan.close

    @property
    def n_fields(self) -> Array:
        return self._scan.n_fields

    def field_names(self) -> list[str]:
        if self._names is None:
            self._names = json_scan.discover_keys(self.buf, self._scan)
        return self._names

    def spans(self, names: Sequence[str]) -> tuple[Array, Array, Array]:
        """(types, start, length) of these fields, each (n_rows, len(names)); strings without their quotes."""
        names = list(names)
        known = list(self._scan.keys)
        if all(n in known for n in names):
            at = [known.index(n) for n in names]
            return self._scan.types[:, at], self._scan.val_start[:, at], self._scan.val_len[:, at]
        return json_scan.rescan(self.buf, self._scan, names)

    def column(self, name: str) -> pa.Array:
        types, start, length = (np.ascontiguousarray(x[:, 0]) for x in self.spans([name]))
        return decode_values(self.buf, types, start, length)

    def identity(self) -> tuple[Array, Array]:
        """128-bit content hash of every record's bytes."""
        return hash128.hash_spans(self.buf, self.start, self.end - self.start)

    def literals(self, names: Sequence[str]) -> tuple[Array, Array, Array]:
        """(types, start, length) of the values as they stand in the record, quotes included; length -1 where missing."""
        types, start, length = (np.array(x) for x in self.spans(names))
        quoted = (types == _STRING) | (types == _ESCAPED)
        start[quoted] -= 1
        length[quoted] += 2
        length[types == _MISSING] = -1
        return types, start, length


def decode_values(buf: Array, types: Array, start: Array, length: Array) -> pa.Array:
    """One field of every record as an Arrow array; missing and null are null."""
    counts = np.bincount(types, minlength=10)
    kinds = {k for k in range(_FALSE, 10) if counts[k]}
    if not kinds:
        return pa.nulls(len(types))
    if kinds <= {_STRING, _ESCAPED}:
        offsets, data, validity = json_text.unescape(buf, types, start, length)
        return buffers.string_array(offsets, data, validity)
    if kinds <= {_FALSE, _TRUE}:
        return pa.array(types == _TRUE, mask=types <= _NULL)
    if kinds == {_INT}:
        text = _texts(buf, types, start, length)
        for kind in (pa.int64(), pa.uint64()):
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue
        return text
    if kinds <= {_INT, _FLOAT}:
        return pa.array(_floats(buf, types, start, length), mask=types <= _NULL)
    values = _python_values(buf, types, start, length)
    if kinds <= {_OBJECT} or kinds <= {_ARRAY}:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            pass
    return pa.array([None if v is None else canonical_text(v) for v in values], pa.large_string())


def _texts(buf: Array, types: Array, start: Array, length: Array) -> pa.Array:
    """The raw JSON text of the values; null where missing or null."""
    valid = types > _NULL
    lens = np.where(valid, length, 0)
    offsets = np.zeros(len(types) + 1, np.int64)
    np.cumsum(lens, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    json_text.copy_spans(buf, np.ascontiguousarray(start), np.ascontiguousarray(lens), data, offsets[:-1])
    return buffers.string_array(offsets, data, valid)


def _floats(buf: Array, types: Array, start: Array, length: Array) -> Array:
    # float() and not Arrow's cast: NaN, Infinity and the last bit of a long decimal are then those of json.loads.
    raw, out = memoryview(buf), np.zeros(len(types))
    for i in np.flatnonzero(types > _NULL):
        out[i] = float(bytes(raw[start[i] : start[i] + length[i]]))
    return out


def _python_values(buf: Array, types: Array, start: Array, length: Array) -> list[Any]:
    raw, values = memoryview(buf), []
    for kind, at, n in zip(types.tolist(), start.tolist(), length.tolist(), strict=True):
        if kind <= _NULL:
            values.append(None)
            continue
        if kind in (_STRING, _ESCAPED):
            at, n = at - 1, n + 2
        values.append(_without_surrogates(json.loads(bytes(raw[at : at + n]))))
    return values


def _without_surrogates(value: Any) -> Any:
    """Lone surrogates cannot be UTF-8; decoded text has U+FFFD in their place (the raw record keeps them)."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value


def _only(scan: json_scan.Scan, rows: Array) -> json_scan.Scan:
    return json_scan.Scan(
        n_records=len(rows),
        n_blank=scan.n_blank,
        start=scan.start[rows],
        end=scan.end[rows],
        close=scan.close[rows],
        n_fields=scan.n_fields[rows],
        status=scan.status[rows],
        types=scan.types[rows],
        val_start=scan.val_start[rows],
        val_len=scan.val_len[rows],
        keys=scan.keys,
    )
