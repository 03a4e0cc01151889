"""Statistics of data files from a bounded sample, for `tamis inspect`; no printing here.

JSONL: the head of the file and, where it can be entered anywhere (uncompressed), a few further places chosen by a fixed
seed. Parquet: the first rows of a few row groups. WARC: the first records. Memory: one sampled piece at a time (at most
the sample size).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tamis.errors import FormatError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader
from tamis.formats.registry import codecs_of, record_format, record_name, suffixes, table_format, table_name
from tamis.formats.whole_file import MAX_RECORD_BYTES
from tamis.stores.opening import open_buffered

SUFFIXES = tuple(suffix + codec for suffix in suffixes() for codec in codecs_of(suffix))
MAX_FIELDS = 1000
PAGES = "documents"
MAX_BAD_SHOWN = 1000
N_PLACES = 4
LENGTH_BOUNDS = (1, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_READ_BYTES = 1 << 20
# Compressed bytes to decode before the ratio of a stream is believed.
_RATE_BYTES = 2 << 20
_JSON_BLANK = b" \t\r"


@dataclass
class FieldSample:
    """One top-level field: how often, with which types, and one value."""

    n_present: int = 0
    types: Counter[str] = field(default_factory=Counter)
    example: str | None = None


@dataclass(frozen=True)
class BadLine:
    """A line that is no record; `offset` counts decoded bytes from the start of the file."""

    path: str
    offset: int
    n_bytes: int
    reason: str


@dataclass
class FileSample:
    """One file: sizes and an estimate (or, when `is_exact`, the number) of its documents."""

    path: str
    format: str
    size_bytes: int
    sampled_bytes: int = 0
    n_sampled: int = 0
    n_documents: int | None = None
    is_exact: bool = False
    fault: str = ""


@dataclass
class DataSample:
    """Everything seen, over all files."""

    text_field: str = "text"
    files: list[FileSample] = field(default_factory=list)
    fields: dict[str, FieldSample] = field(default_factory=dict)
    n_documents: int = 0
    n_blank: int = 0
    n_bad: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    text_lengths: list[int] = field(default_factory=list)
    n_fields_left_out: int = 0
    records: Counter[str] = field(default_factory=Counter)  # of files of records (WARC): how many of each kind
    count_tokens: Callable[[str], int] | None = None
    n_tokens: int = 0
    n_token_chars: int = 0
    n_token_bytes: int = 0

    def add_document(self, document: dict[str, object]) -> None:
        self.n_documents += 1
        for key, value in document.items():
            field_sample = self.fields.get(key)
            if field_sample is None:
                if len(self.fields) >= MAX_FIELDS:
                    self.n_fields_left_out += 1
                    continue
                field_sample = self.fields[key] = FieldSample()
            field_sample.n_present += 1
            field_sample.types[type_name(value)] += 1
            if field_sample.example is None and value not in (None, ""):
                field_sample.example = example_of(value)
        text = document.get(self.text_field)
        if isinstance(text, str):
            self.text_lengths.append(len(text))
            if self.count_tokens is not None:
                self.n_tokens += self.count_tokens(text)
                self.n_token_chars += len(text)
                self.n_token_bytes += len(text.encode("utf-8", "surrogatepass"))

    def add_bad(self, path: str, offset: int, n_bytes: int, reason: str) -> None:
        self.n_bad += 1
        if len(self.bad_lines) < MAX_BAD_SHOWN:
            self.bad_lines.append(BadLine(path, offset, n_bytes, reason))

    def histogram(self) -> list[tuple[int, int | None, int]]:
        """Return (from, below, number of texts) per class of length; the last class has no upper bound."""
        counts = [0] * (len(LENGTH_BOUNDS) + 1)
        for length in self.text_lengths:
            counts[sum(length >= bound for bound in LENGTH_BOUNDS)] += 1
        lows = (0, *LENGTH_BOUNDS)
        highs: Sequence[int | None] = (*LENGTH_BOUNDS, None)
        return list(zip(lows, highs, counts, strict=True))


def type_name(value: object) -> str:
    """Return the name of the JSON type of a value.

    >>> [type_name(v) for v in (None, True, 1, 1.5, "a", [], {})]
    ['null', 'bool', 'int', 'float', 'string', 'list', 'object']
    """
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object", bytes: "binary"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def example_of(value: object) -> str:
    if isinstance(value, str):
        return value[:200]
    return (repr(value) if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, default=str))[:200]


def take_sample(
    paths: Sequence[str],
    sizes: Sequence[int],
    sample_bytes: int,
    text_field: str,
    max_files: int,
    count_tokens: Callable[[str], int] | None = None,
) -> DataSample:
    """Look into at most `max_files` of the files (spread evenly); together about `sample_bytes` decoded bytes."""
    sample = DataSample(text_field, count_tokens=count_tokens)
    step = max(len(paths) / max_files, 1.0)
    indices = {int(i * step) for i in range(min(len(paths), max_files))}
    share_bytes = max(sample_bytes // max(len(indices), 1), 64 * 1024)
    for i, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        file_sample = FileSample(path, _format(path), max(size, 0))
        sample.files.append(file_sample)
        if i not in indices:
            continue
        before = sample.n_documents
        try:
            look = _sample_rows if table_name(path) else _sample_records if record_name(path) else _sample_lines
            look(file_sample, sample, share_bytes)
        except FormatError as exc:
            file_sample.fault = str(exc)
        except OSError as exc:
            file_sample.fault = f"cannot be read: {exc.strerror or exc}"
        file_sample.n_sampled = sample.n_documents - before
    return sample


def _format(path: str) -> str:
    if name := table_name(path):
        return name
    codec, name = codec_of(path), record_name(path) or "jsonl"
    return f"{name}.{codec}" if codec else name


def _sample_lines(file_sample: FileSample, sample: DataSample, share_bytes: int) -> None:
    if file_sample.format == "jsonl":
        _sample_plain_lines(file_sample, sample, share_bytes)
    else:
        _sample_stream(file_sample, sample, share_bytes)


def _sample_plain_lines(file_sample: FileSample, sample: DataSample, share_bytes: int) -> None:
    before = sample.n_documents
    with open_buffered(file_sample.path) as file:
        if file_sample.size_bytes <= share_bytes:
            data = file.read(share_bytes)
            file_sample.sampled_bytes = _use_lines(data, 0, True, True, file_sample, sample)
            file_sample.n_documents, file_sample.is_exact = sample.n_documents - before, True
            return
        for offset, n_bytes in places(file_sample.size_bytes, share_bytes):
            file.seek(offset)
            data = file.read(n_bytes)
            file_sample.sampled_bytes += _use_lines(
                data, offset, offset == 0, offset + n_bytes >= file_sample.size_bytes, file_sample, sample
            )
    if file_sample.sampled_bytes:
        file_sample.n_documents = round(
            (sample.n_documents - before) / file_sample.sampled_bytes * file_sample.size_bytes
        )


def places(size_bytes: int, share_bytes: int) -> list[tuple[int, int]]:
    """Return (offset, length) of the pieces to read of a large file: half at the head, the rest spread.

    One piece falls into each quarter of what follows the head, at a place fixed by the size: no overlaps, same answer
    twice.

    >>> places(1000, 80)
    [(0, 40), (239, 10), (389, 10), (691, 10), (954, 10)]
    """
    head, piece = share_bytes // 2, share_bytes // 2 // N_PLACES
    rng = random.Random(size_bytes)
    stride = (size_bytes - head) // N_PLACES
    return [(0, head)] + [(head + i * stride + rng.randrange(stride - piece + 1), piece) for i in range(N_PLACES)]


def _sample_stream(file_sample: FileSample, sample: DataSample, share_bytes: int) -> None:
    before, data, is_whole = sample.n_documents, bytearray(), False
    with StreamReader.open(file_sample.path) as reader:
        try:
            while len(data) < share_bytes and not is_whole:
                piece = reader.read(min(_READ_BYTES, share_bytes - len(data)))
                data += piece
                is_whole = not piece
            # The reader takes its input in pieces and is ahead of what it gave: the rate is known only further on.
            while reader.compressed_offset < _RATE_BYTES and reader.decoded_offset < 32 * _RATE_BYTES:
                if reader.skip(_READ_BYTES) < _READ_BYTES:
                    break
        except StreamFault as exc:
            file_sample.fault = (
                f"{exc.reason} (compressed byte {exc.compressed_offset}, decoded byte {exc.decoded_offset})"
            )
        consumed_bytes, decoded_bytes = reader.compressed_offset, reader.decoded_offset
    file_sample.sampled_bytes = _use_lines(bytes(data), 0, True, is_whole, file_sample, sample)
    n_found = sample.n_documents - before
    if is_whole:
        file_sample.n_documents, file_sample.is_exact = n_found, True
    elif file_sample.sampled_bytes and consumed_bytes:
        readable_bytes = decoded_bytes if file_sample.fault else decoded_bytes * file_sample.size_bytes / consumed_bytes
        file_sample.n_documents = round(n_found / file_sample.sampled_bytes * readable_bytes)


def _sample_records(file_sample: FileSample, sample: DataSample, share_bytes: int) -> None:
    """Take the documents at the beginning of a file of records."""
    records = record_format(file_sample.path)
    assert records is not None
    before = sample.n_documents
    with open_buffered(file_sample.path) as raw:
        decoded, scan = records.first_documents(raw, file_sample.path, share_bytes, MAX_RECORD_BYTES)
        is_whole = next(iter(scan), None) is None
    assert decoded.table is not None
    for row in decoded.table.to_pylist():
        sample.add_document(row)
        sample.records[f"{PAGES}, {row.get('content_type') or 'of unknown type'}"] += 1
    for reason, found in decoded.skipped.items():
        sample.records[reason] += len(found)
    for _, frame in decoded.bad:
        sample.add_bad(file_sample.path, frame.offset, frame.length, frame.reason)
    file_sample.sampled_bytes, n = decoded.table.nbytes, sample.n_documents - before
    file_sample.is_exact = is_whole
    if is_whole:
        file_sample.n_documents = n
    elif scan.stored_offset:  # in a single compressed member, how far it was read is not known
        file_sample.n_documents = round(n * file_sample.size_bytes / scan.stored_offset)


def _use_lines(
    data: bytes, offset: int, at_start: bool, at_end: bool, file_sample: FileSample, sample: DataSample
) -> int:
    """Take the whole lines in `data`; returns how many bytes they hold. Parts of lines at its borders are left out."""
    first = 0 if at_start else data.find(b"\n") + 1
    end = len(data) if at_end else data.rfind(b"\n") + 1
    if (first == 0 and not at_start) or end <= first:
        return 0
    if at_start and data.startswith(b"\xef\xbb\xbf"):
        first = 3
    for start, stop in _line_bounds(data, first, end):
        line = data[start:stop]
        if not line.strip(_JSON_BLANK):
            sample.n_blank += 1
            continue
        try:
            document = json.loads(line.decode("utf-8"), parse_int=_any_int)
        except UnicodeDecodeError as exc:
            sample.add_bad(file_sample.path, offset + start, len(line), f"not UTF-8 at byte {exc.start} of the line")
        except RecursionError:
            sample.add_bad(file_sample.path, offset + start, len(line), "nested too deeply")
        except ValueError as exc:
            sample.add_bad(file_sample.path, offset + start, len(line), f"not JSON: {exc}")
        else:
            if isinstance(document, dict):
                sample.add_document(document)
            else:
                sample.add_bad(file_sample.path, offset + start, len(line), f"not an object but {type_name(document)}")
    return end - first


def _line_bounds(data: bytes, first: int, end: int) -> Iterator[tuple[int, int]]:
    while first < end:
        stop = data.find(b"\n", first, end)
        stop = end if stop < 0 else stop
        yield first, stop
        first = stop + 1


def _any_int(digits: str) -> int:
    # Python refuses to convert more than 4300 digits; such a number is valid JSON and only its type matters here.
    return int(digits) if len(digits) < 4000 else 0


def _sample_rows(file_sample: FileSample, sample: DataSample, share_bytes: int) -> None:
    rows = table_format(file_sample.path)
    info = rows.describe(file_sample.path)
    file_sample.n_documents, file_sample.is_exact = info.n_rows, True
    for name, _ in info.columns:
        if len(sample.fields) < MAX_FIELDS:
            sample.fields.setdefault(name, FieldSample())
    groups = [group for group in info.row_groups if group.n_rows]
    rng = random.Random(info.n_rows)
    later = sorted(rng.sample(range(1, len(groups)), min(N_PLACES, len(groups) - 1))) if len(groups) > 1 else []
    for i in [0, *later] if groups else []:
        n_bytes = 0
        group = groups[i]
        for _, table in rows.iter_rows(
            file_sample.path, group.first_row, group.first_row + group.n_rows, batch_bytes=_READ_BYTES
        ):
            for row in table.to_pylist():
                sample.add_document(row)
            n_bytes += table.nbytes
            if n_bytes >= share_bytes // (len(later) + 1):
                break
        file_sample.sampled_bytes += n_bytes
