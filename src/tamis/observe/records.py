"""Single records of input files, by their offset: whole lines, and how the text of one begins.

Plain JSONL is entered at the offset; compressed JSONL and WARC are decoded up to it. Excerpts for the report are
bounded reads of plain JSONL only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

MAX_RECORD_BYTES = 256 << 20
MAX_FRAME_BYTES = 64 << 20  # the default of max_record, on which positions in files of records depend
_MARK = b"\xef\xbb\xbf"  # the mark of a UTF-8 file, which its first record follows


def line_at(path: str, offset: int) -> bytes | None:
    """Return the line that begins at an offset (of the decoded file); None if no line does.

    Raise ValueError for a line that is too large to show.
    """
    from tamis.formats.compression.codecs import codec_of
    from tamis.formats.compression.streams import StreamReader
    from tamis.formats.registry import record_format

    if record_format(path) is not None:
        return _record_at(path, offset)
    pieces, size, before = [], 0, max(offset - 1, 0) if offset != len(_MARK) else 0
    raw = open(path, "rb", buffering=0)  # noqa: SIM115 (closed with the stream)
    with StreamReader(raw, codec := codec_of(path)) as stream:
        if codec is None:
            raw.seek(before)
        elif stream.skip(before) < before:
            return None
        head = b""
        while len(head) < offset - before and (piece := stream.read(offset - before - len(head))):
            head += piece
        if offset and not head.endswith(b"\n") and head != _MARK:
            return None
        while piece := stream.read(1 << 16):
            line, end, _ = piece.partition(b"\n")
            pieces.append(line)
            size += len(line)
            if end:
                break
            if size > MAX_RECORD_BYTES:
                raise ValueError(f"the record is larger than {MAX_RECORD_BYTES >> 20} MiB")
    return b"".join(pieces).removeprefix(_MARK) if pieces else None


def _record_at(path: str, position: int) -> bytes | None:
    """Return the document at a position of a file of records as a line of JSON."""
    from tamis.formats.registry import record_format

    records = record_format(path)
    assert records is not None
    at = 0
    with open(path, "rb", buffering=0) as raw:
        for frame in records.scan(raw, path, MAX_FRAME_BYTES):
            if at == position:
                table = records.decode([(at, frame)], path, MAX_FRAME_BYTES).table
                rows = table.to_pylist() if table is not None else []
                return json.dumps(rows[0], ensure_ascii=False).encode("utf-8", "replace") if rows else None
            if at > position:
                break
            at += frame.n_bytes
    return None


MAX_CHARS = 300
_READ_BYTES = 1 << 16
_MAX_DECODED_IN_ALL = 1 << 30  # of a compressed file from which many records are read
_MAX_DECODED = 32 << 20  # of a compressed file that is decoded up to a record
_NAMES = ("text", "content", "raw_content", "body")  # looked for first; otherwise the longest text of the record


def excerpt(path: str, offset: int) -> str:
    """Return the beginning of the text of the record at an offset; "" if it cannot be read at once."""
    if not path.endswith(".jsonl") or "://" in path or offset < 0:
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            data = os.pread(descriptor, _READ_BYTES, offset)
        finally:
            os.close(descriptor)
    except OSError:  # gone since, or no longer to be read
        return ""
    return beginning(data)


def records_at(path: str, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield the records at these positions of an input file, in ascending order, each as one line of JSON.

    Plain files are entered at the position, others are decoded once, up to the last one. Raise ValueError if there is
    no record, or if too much would have to be decoded.
    """
    from tamis.formats.registry import holds_rows, table_format

    name = path.removeprefix("file://")
    if "://" in name:
        raise ValueError(f"{path} is in a store")
    if holds_rows(name):
        remaining = set(positions)
        for first, table in table_format(name).iter_rows(name, positions[0], positions[-1] + 1):
            for row, record in enumerate(table.to_pylist(), first):
                if row in remaining:
                    yield json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
        return
    if ".jsonl" not in os.path.basename(name):
        raise ValueError(f"{path} holds records that cannot be read one by one")
    if not name.endswith(".jsonl"):
        if os.path.getsize(name) > _MAX_DECODED_IN_ALL:
            raise ValueError(f"{path} would have to be decoded, and is larger than {_MAX_DECODED_IN_ALL >> 30} GiB")
        yield from _lines_at(name, positions)
        return
    for position in positions:
        line = line_at(name, position)
        if line is None:
            raise ValueError(f"no record begins at {position} of {path}: the file was changed after the run")
        yield line


def _lines_at(path: str, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield the lines at ascending positions of a compressed file, which is decoded once."""
    from tamis.formats.compression.streams import StreamReader

    with StreamReader.open(path) as stream:
        data, start = b"", 0
        for position in positions:
            while start + len(data) <= position:
                start += len(data)
                if not (data := stream.read(_READ_BYTES)):
                    raise ValueError(f"{path} ends before {position}: the file was changed after the run")
            data, start = data[position - start :], position
            while b"\n" not in data and len(data) < MAX_RECORD_BYTES and (piece := stream.read(_READ_BYTES)):
                data += piece
            yield data.partition(b"\n")[0]


def text_at(path: str, offset: int, field: str) -> str | None:
    """Return a text of the record at an offset of a JSONL file; None if it cannot be read at once."""
    name = path.removeprefix("file://")
    if ".jsonl" not in os.path.basename(name) or "://" in name or offset < 0:
        return None
    if not name.endswith(".jsonl") and os.path.getsize(name) > _MAX_DECODED:
        return None
    line = line_at(name, offset)
    record = json.loads(line.decode("utf-8", "replace")) if line is not None else None
    value = record.get(field) if isinstance(record, dict) else None
    return value if isinstance(value, str) else None


def beginning(data: bytes) -> str:
    r"""Return the beginning of the text of a record.

    >>> beginning(b'{"id": "a", "text": "One  line.\\nAnother."}\n{"id": "b"}')
    'One line. Another.'
    >>> beginning(b'{"text": "cut off in the mid')
    'cut off in the mid'
    >>> beginning(b"no JSON")
    ''
    """
    line, end, _ = data.partition(b"\n")
    text = line.decode("utf-8", "replace")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = {} if end else _cut_off(text)
    texts = {k: v for k, v in record.items() if isinstance(v, str)} if isinstance(record, dict) else {}
    named = [texts[name] for name in _NAMES if name in texts]
    chosen = named[0] if named else max(texts.values(), key=len, default="")
    return " ".join(chosen[: 4 * MAX_CHARS].split())[:MAX_CHARS]


def _cut_off(text: str) -> dict[str, str]:
    """Return the text of a record of which only the beginning was read."""
    for name in _NAMES:
        _, key, rest = text.partition(f'"{name}"')
        rest = rest.lstrip().removeprefix(":").lstrip()
        if key and rest.startswith('"'):
            value = rest[: 8 * MAX_CHARS]
            for whole in (rest, f'{value}"', f'{value[: value.rfind(chr(92))]}"'):  # an escape may be cut, too
                try:
                    return {name: json.JSONDecoder().raw_decode(whole)[0]}
                except ValueError:
                    continue
    return {}
