"""Blocks of JSONL records: scanned once, decoded field by field on demand.

`JsonlBlock` is an Origin (tasks/lineage.py): it owns the raw bytes and the positions of records and of requested
values. Reading a column decodes only that field. Arrow types follow the values of the block, by the rules of
tasks/columns/inference.py: text, bool, int64, uint64, float64, nested, or JSON values (tasks/columns/json_type.py) when
they do not agree. `exact` never converts a value to fit a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InputChanged
from tamis.kernels import buffers
from tamis.kernels.records import hash128, json_scan, json_text, record_lines, splice
from tamis.tasks import MISSING, NULL, OTHER, TEXT
from tamis.tasks.columns import literals
from tamis.tasks.columns.canonical import EXACT_INT
from tamis.tasks.columns.frame_types import BOOL, FLOAT, HUGE_INTEGER, INEXACT_INTEGER, INTEGER, NESTED, KindCount
from tamis.tasks.columns.frame_types import NULL as KIND_NULL
from tamis.tasks.columns.frame_types import TEXT as KIND_TEXT
from tamis.tasks.columns.inference import typed_array
from tamis.tasks.columns.json_type import deep_recursion, json_column, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tamis.formats.jsonl.file_spans import FileSpans

Array = np.ndarray[Any, Any]

BAD_RECORD = {
    json_scan.NOT_OBJECT: "valid JSON, but not an object",
    json_scan.INVALID_JSON: "not valid JSON",
    json_scan.INVALID_UTF8: "not valid UTF-8",
    json_scan.TOO_DEEP: "nested deeper than 1000 levels",
    json_scan.TOO_LARGE: "larger than max_record",
}
_MISSING, _NULL, _FALSE, _TRUE, _INT, _FLOAT, _STRING, _ESCAPED, _OBJECT, _ARRAY = range(10)
_FEW = 4  # less than this share of the records (one in four) is copied together to be scanned
_MOST = 4 / 3  # of a block that was not read, up to three in four of its bytes are read by themselves
_MOST_KEPT_BYTES = 1 << 20  # of records that were read apart and may be asked for another field
_KINDS = np.array([MISSING, NULL, OTHER, OTHER, OTHER, OTHER, TEXT, TEXT, OTHER, OTHER], np.uint8)


# What each of these is in columns/frame_types.py.
_FLAGS = np.array([0, KIND_NULL, BOOL, BOOL, INTEGER, FLOAT, KIND_TEXT, KIND_TEXT, NESTED, NESTED], np.int64)
_SAFE_DIGITS = 15  # integers of up to so many digits are below 2^53


class JsonlBlock:
    """The valid records of some bytes of JSONL. `bad` names the others as (start, end, reason) in `buf`."""

    is_typed = False
    keeps_bytes = True

    def __init__(self, buf: Array, scan: json_scan.Scan) -> None:
        self._buf: Array | None = buf
        self.stored: FileSpans | None = None  # the bytes in files, of a block that was not read
        self.is_open = False  # whether the bytes are in the input uncompressed
        ok = scan.status == json_scan.OK
        self.bad = [
            (int(scan.start[i]), int(scan.end[i]), BAD_RECORD[int(scan.status[i])]) for i in np.flatnonzero(~ok)
        ]
        self.n_blank = scan.n_blank
        self._parsed: json_scan.Scan | None = scan if not self.bad else scan.only(np.flatnonzero(ok))
        self.start, self.end = self._parsed.start, self._parsed.end
        self.n_rows = self._parsed.n_records
        self._names: tuple[Array | None, list[str]] | None = None  # of the rows requested last
        self._selection: Array | None = None  # records that are looked into from now on, in order; None: all
        self._is_part = False  # whether only those were read
        self._spans: tuple[list[str], tuple[Array, Array, Array]] | None = None  # as they were last looked for
        self._last_column: tuple[str, Array, pa.Array] | None = None  # a field of some records, as it was last read
        self._last_part: tuple[Array, Array] | None = None  # those records, if they are few: for another field of them
        self._identity: tuple[Array, Array] | None = None
        self.places: tuple[Array, Array] | None = None  # number of the input file and offset in it, by row

    @classmethod
    def parse(cls, buf: Array, keys: Sequence[str] = (), max_record_bytes: int = 1 << 62) -> JsonlBlock:
        return cls(buf, json_scan.scan_records(buf, list(keys), max_record_bytes))

    @classmethod
    def parse_valid(cls, buf: Array, max_record_bytes: int = 1 << 62) -> JsonlBlock:
        """Parse records that an earlier pass over the same bytes found valid: only their lines are located.

        Fields are located when they are requested. If anything is unexpected, the records are parsed as always.
        """
        lines = record_lines.record_lines(buf)
        if lines is None or (len(lines[0]) and int((lines[1] - lines[0]).max()) > max_record_bytes):
            return cls.parse(buf, (), max_record_bytes)
        block = cls(buf, json_scan.scan_records(buf[:0], [], max_record_bytes))
        block._parsed = None
        block.start, block.end, block.n_blank = lines
        block.n_rows = len(block.start)
        return block

    @classmethod
    def from_index(cls, stored: FileSpans, start: Array, end: Array, identity: tuple[Array, Array]) -> JsonlBlock:
        """Return the block of records that an earlier pass located and hashed, each followed by a line feed.

        Their bytes are read when a field is requested.
        """
        block = cls(np.empty(0, np.uint8), json_scan.scan_records(np.empty(0, np.uint8), [], 1 << 62))
        block._buf = block._parsed = None
        block.stored, block.start, block.end, block._identity = stored, start, end, identity
        block.n_rows = len(start)
        return block

    @property
    def buf(self) -> Array:
        if self._buf is None:
            assert self.stored is not None
            rows = self._selection
            if rows is not None and _MOST * int((self.end[rows] - self.start[rows]).sum()) < self.stored.n_bytes:
                buf, self._is_part = self.stored.spread(self.stretches(rows)), True
            else:
                buf, rows = self.stored.gather([(0, self.stored.n_bytes)]), np.arange(self.n_rows)
            self._verify(buf, self.start[rows], rows)
            self._buf = buf
        return self._buf

    def _verify(self, data: Array, starts: Array, rows: Array) -> None:
        """Raise InputChanged unless `data` holds the records of these rows as an earlier pass hashed them.

        `starts`: the offsets of the records in `data`.
        """
        assert self._identity is not None
        assert self.stored is not None
        hi, lo = hash128.hash_spans(data, starts, self.end[rows] - self.start[rows])
        differs = np.flatnonzero((hi != self._identity[0][rows]) | (lo != self._identity[1][rows]))
        if len(differs):
            path = self.stored.path_at(int(self.start[rows[differs[0]]]))
            raise InputChanged(f"{path} changed: it does not hold the records that an earlier pass read")

    def windows(self, rows: Array) -> Iterator[memoryview]:
        """Yield the bytes of these records (ascending) with their line feeds, a window at a time.

        Each view is overwritten by the next. Records are verified as soon as all of their bytes were read; the bytes of
        one that is longer than a window are held until then.
        """
        assert self.stored is not None
        sizes = self.end[rows] - self.start[rows] + 1
        ends = np.cumsum(sizes)
        n_done, total = 0, 0  # records that were verified, and bytes that were read
        tail = b""  # of the record that the last window ended in
        for view in self.stored.windows(self.stretches(rows)):
            total += len(view)
            n_whole = int(np.searchsorted(ends, total, side="right"))
            if n_whole > n_done:
                data = np.frombuffer(tail + bytes(view) if tail else view, np.uint8)
                first = int(ends[n_done] - sizes[n_done])
                self._verify(data, ends[n_done:n_whole] - sizes[n_done:n_whole] - first, rows[n_done:n_whole])
                tail = data[int(ends[n_whole - 1]) - first :].tobytes()
                n_done = n_whole
            else:
                tail += bytes(view)
            yield view

    def stretches(self, rows: Array) -> list[tuple[int, int]]:
        """Join records (ascending) that follow each other to byte ranges, each with its last line feed."""
        if not len(rows):
            return []
        start, end = self.start[rows], self.end[rows]
        first = np.flatnonzero(np.concatenate([[True], start[1:] != end[:-1] + 1]))
        last = np.concatenate([first[1:], [len(rows)]]) - 1
        return list(zip(start[first].tolist(), (end[last] + 1).tolist(), strict=True))

    @property
    def is_read(self) -> bool:
        return self._buf is not None

    @property
    def _scan(self) -> json_scan.Scan:
        if self._parsed is None:
            buf = self.buf  # decides what is read, perhaps
            if self._selection is not None and (self._is_part or len(self._selection) * _FEW <= self.n_rows):
                self._parsed = self._scan_of(self._selection)
            else:
                self._parsed = _valid(json_scan.scan_records(buf, [], 1 << 62), self.n_rows)
        return self._parsed

    def narrow(self, rows: Array) -> None:
        """Restrict later parsing to these records (-1: no record).

        The other records are no longer referenced and need not be scanned.
        """
        if self._parsed is None and not self._is_part:
            self._selection = np.unique(rows[rows >= 0])

    def _scan_of(self, rows: Array) -> json_scan.Scan:
        """Scan these records only; the others have no fields."""
        data, _ = splice.assemble_plain(self.buf, self.start, self.end, rows)
        scan = _valid(json_scan.scan_records(data, [], 1 << 62), len(rows))
        close, status = np.full(self.n_rows, -1, np.int64), np.full(self.n_rows, json_scan.NOT_OBJECT, np.uint8)
        n_fields = np.zeros(self.n_rows, np.int32)
        close[rows], status[rows] = scan.close + (self.start[rows] - scan.start), scan.status
        n_fields[rows] = scan.n_fields
        return json_scan.Scan.of_lines(self.start, self.end, close, n_fields, status, self.n_blank)

    @property
    def close(self) -> Array:
        return self._scan.close

    @property
    def n_fields(self) -> Array:
        return self._scan.n_fields

    @property
    def is_parsed(self) -> bool:
        return self._parsed is not None

    def column_of(self, name: str, rows: Array) -> pa.Array:
        """Return one field of some records, parsing the contents of those records only."""
        start, end = self.start[rows], self.end[rows] + 1
        if self._buf is None and self.stored is not None and int((end - start).sum()) * _MOST < self.stored.n_bytes:
            if (
                self._last_column is not None
                and self._last_column[0] == name
                and bool(np.isin(rows, self._last_column[1]).all())
            ):
                return self._last_column[2].take(pa.array(np.searchsorted(self._last_column[1], rows)))
            if self._last_part is not None and bool(np.isin(rows, self._last_part[0]).all()):
                part = JsonlBlock.parse(self._last_part[1], [name]).column(name)
                return part.take(pa.array(np.searchsorted(self._last_part[0], rows)))
            order = np.argsort(rows, kind="stable")
            data = self.stored.gather(list(zip(start[order].tolist(), end[order].tolist(), strict=True)))
            self._verify(data, np.cumsum((end - start)[order]) - (end - start)[order], rows[order])
            column = JsonlBlock.parse(data, [name]).column(name)
            self._last_column = name, rows[order], column
            self._last_part = (rows[order], data) if len(data) <= _MOST_KEPT_BYTES else None
            return column.take(pa.array(np.argsort(order)))
        if (values := self._column_in_buffer(name, rows)) is not None:
            return values
        data, _ = splice.assemble_plain(self.buf, self.start, self.end, rows)
        return JsonlBlock.parse(data, [name]).column(name)

    def _column_in_buffer(self, name: str, rows: Array) -> pa.Array | None:
        """Return the same column as `column_of`, reading the records in the buffer without copying or rechecking them.

        Returns None if one of them is followed by white space.
        """
        start, end = self.start[rows], self.end[rows]
        if not len(rows) or bool((end <= start).any()) or bool((self.buf[end - 1] != ord("}")).any()):
            return None
        status, n_fields = np.full(len(rows), json_scan.OK, np.uint8), np.zeros(len(rows), np.int32)
        lines = json_scan.Scan.of_lines(start, end, end - 1, n_fields, status)
        types, position, length = (np.ascontiguousarray(x[:, 0]) for x in json_scan.rescan(self.buf, lines, [name]))
        return decode_values(self.buf, types, position, length)

    def field_names(self, rows: Array | None = None) -> list[str]:
        if rows is not None and not len(rows):
            rows = None
        if self._names is None or self._names[0] is not rows:
            scan = self._scan if rows is None else self._scan.only(np.unique(rows[rows >= 0]))
            self._names = rows, json_scan.discover_keys(self.buf, scan)
        return self._names[1]

    def spans(self, names: Sequence[str]) -> tuple[Array, Array, Array]:
        """Return (types, start, length) of these fields, each (n_rows, len(names)); strings without their quotes."""
        names = list(names)
        if self._spans is not None and self._spans[0] == names:
            return self._spans[1]
        scanned = list(self._scan.keys)
        if all(n in scanned for n in names):
            columns = [scanned.index(n) for n in names]
            return self._scan.types[:, columns], self._scan.val_start[:, columns], self._scan.val_len[:, columns]
        # A modifier asks for what it reads, and the writer for the same again.
        self._spans = names, json_scan.rescan(self.buf, self._scan, names)
        return self._spans[1]

    def kinds(self, name: str) -> Array:
        """Return the kind of value in this field of every record: tasks.MISSING, NULL, TEXT or OTHER."""
        return _KINDS[self.spans([name])[0][:, 0]]

    def count_kinds(self, name: str, rows: Array) -> KindCount:
        """Return the kinds of values of this field in these records, by their JSON tokens."""
        types, start, length = self._spans_of(name, rows)
        n_of = np.bincount(types, minlength=10)
        flags = int(np.bitwise_or.reduce(_FLAGS[np.flatnonzero(n_of)])) if len(rows) else 0
        long = (types == _INT) & (length > _SAFE_DIGITS)
        if long.any():
            largest = max(abs(int(v)) for v in _texts(self.buf, types[long], start[long], length[long]).to_pylist())
            flags |= (INEXACT_INTEGER if largest > EXACT_INT else 0) | (HUGE_INTEGER if largest >= 1 << 63 else 0)
        return KindCount(flags, len(rows) - int(n_of[_MISSING]))

    def column(self, name: str) -> pa.Array:
        types, start, length = (np.ascontiguousarray(x[:, 0]) for x in self.spans([name]))
        return decode_values(self.buf, types, start, length)

    def exact(self, name: str, rows: Array) -> pa.Array:
        """Return one field of some records (null where a row is -1), typed only if that preserves every value."""
        return decode_values(self.buf, *self._spans_of(name, rows), exact=True)

    def _spans_of(self, name: str, rows: Array) -> tuple[Array, Array, Array]:
        """Return (types, start, length) of one field in these rows."""
        types, start, length = (x[:, 0][np.maximum(rows, 0)] for x in self.spans([name]))
        types = np.where(rows >= 0, types, _MISSING).astype(np.uint8)
        return types, np.ascontiguousarray(start), np.ascontiguousarray(length)

    def identity(self) -> tuple[Array, Array]:
        """Return the 128-bit content hash of every record's bytes.

        Remembered: records that are written as they are need no other.
        """
        if self._identity is None:
            self._identity = hash128.hash_spans(self.buf, self.start, self.end - self.start)
        return self._identity

    @property
    def known_identity(self) -> tuple[Array, Array] | None:
        """`identity`, where it was found already."""
        return self._identity

    def sizes(self, rows: Array) -> Array:
        records = np.maximum(rows, 0)
        return (
            np.where(rows >= 0, self.end[records] - self.start[records], 0)
            if self.n_rows
            else np.zeros(len(rows), np.int64)
        )

    def lengths(self, rows: Array) -> Array:
        return self.sizes(rows)

    def raw(self, row: int) -> bytes:
        if self.stored is not None and not self._holds(row):
            line = self.stored.gather([(int(self.start[row]), int(self.end[row]) + 1)])
            self._verify(line, np.zeros(1, np.int64), np.array([row]))
            return line[:-1].tobytes()
        return self.buf[self.start[row] : self.end[row]].tobytes()

    def _holds(self, row: int) -> bool:
        """Return True if the buffer has the bytes of a record."""
        if self._buf is None or not self._is_part:
            return self._buf is not None
        return self._selection is not None and row in self._selection

    def literals(self, names: Sequence[str]) -> tuple[Array, Array, Array]:
        """Return (types, start, length) of the values as written in the record, with quotes (-1 where missing)."""
        types, start, length = (np.array(x) for x in self.spans(names))
        quoted = (types == _STRING) | (types == _ESCAPED)
        start[quoted] -= 1
        length[quoted] += 2
        length[types == _MISSING] = -1
        return types, start, length


def decode_values(buf: Array, types: Array, start: Array, length: Array, exact: bool = False) -> pa.Array:
    """Decode one field of every record into an Arrow array; missing and null are null.

    `exact`: no integer becomes a float, and no nested type is used.
    """
    counts = np.bincount(types, minlength=10)
    kinds = {k for k in range(_FALSE, 10) if counts[k]}
    if not kinds:
        return pa.nulls(len(types))
    if kinds <= {_STRING, _ESCAPED}:
        offsets, data, validity = json_text.unescape(buf, types, start, length)
        return buffers.string_array(offsets, data, validity)
    if kinds <= {_FALSE, _TRUE}:
        return pa.array(types == _TRUE, mask=types <= _NULL)
    if kinds <= {_INT, _FLOAT}:
        text = _texts(buf, types, start, length)
        array = _numbers(text, types, length, kinds, exact)
        return json_column(text) if array is None else array
    if not exact and kinds == {_ARRAY}:
        array = literals.parse_float_lists(_texts(buf, types, start, length))
        if array is not None:
            return array
    if not exact and (kinds == {_OBJECT} or kinds == {_ARRAY}):
        with deep_recursion():
            array = typed_array(_python_values(buf, types, start, length))
        if array is not None:
            return array
    quoted = (types == _STRING) | (types == _ESCAPED)
    return json_column(_texts(buf, types, np.where(quoted, start - 1, start), np.where(quoted, length + 2, length)))


def _texts(buf: Array, types: Array, start: Array, length: Array) -> pa.Array:
    """Return the raw JSON text of the values, with null where missing or null."""
    valid = types > _NULL
    data, offsets = json_text.gather(buf, start, np.where(valid, length, 0))
    return buffers.string_array(offsets, data, valid)


def _numbers(text: pa.Array, types: Array, length: Array, kinds: set[int], exact: bool) -> pa.Array | None:
    """Return integers or floats as one array of numbers; None if no type holds all of them."""
    if kinds == {_INT}:
        return _integers(text)
    if (exact and _INT in kinds) or _any_inexact(text, types, length):
        return None
    return _floats(text, types)


def _integers(text: pa.Array) -> pa.Array | None:
    """Return int64 or uint64; None for integers that fit neither."""
    try:
        return text.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    text = pc.if_else(pc.equal(text, "-0"), "0", text)  # the one integer with two spellings
    try:
        return text.cast(pa.uint64())
    except pa.ArrowInvalid:
        return None


def _any_inexact(text: pa.Array, types: Array, length: Array) -> bool:
    """Return True if an integer among floats would change when converted to one.

    Few integers have the 16 digits that this takes.
    """
    long = np.flatnonzero((types == _INT) & (length >= 16))
    digits = text.take(pa.array(long)).to_pylist() if len(long) else []
    return any(len(d) > 17 or abs(int(d)) > EXACT_INT for d in digits)


def _floats(text: pa.Array, types: Array) -> pa.Array:
    # Arrow's parser rounds correctly, as float() does, and knows NaN and Infinity; a test compares the two.
    values = text.cast(pa.float64())
    integers = types == _INT
    if not integers.any():
        return values
    array = values.to_numpy(zero_copy_only=False)
    return pa.array(np.where(integers & (array == 0), 0.0, array), mask=types <= _NULL)  # -0 is the integer 0


def _python_values(buf: Array, types: Array, start: Array, length: Array) -> list[Any]:
    raw: memoryview = memoryview(buf)  # type: ignore[arg-type]
    values: list[Any] = []
    for kind, i, n in zip(types.tolist(), start.tolist(), length.tolist(), strict=True):
        if kind <= _NULL:
            values.append(None)
            continue
        if kind in (_STRING, _ESCAPED):
            i, n = i - 1, n + 2
        values.append(load(bytes(raw[i : i + n])))
    return values


def _valid(scan: json_scan.Scan, n: int) -> json_scan.Scan:
    """Return a scan of records that were valid before; raise InputChanged where they are not any more."""
    if scan.n_records != n or bool((scan.status != json_scan.OK).any()):
        raise InputChanged("records that were valid before are not any more: the input changed during the run")
    return scan
