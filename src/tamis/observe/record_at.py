"""One record of an input file, by its place: plain JSONL is entered there, compressed JSONL decoded up to it."""

from __future__ import annotations

MAX_RECORD_BYTES = 256 << 20
_MARK = b"\xef\xbb\xbf"  # of a file that says with it that it is UTF-8: its first record begins behind it


def line_at(path: str, offset: int) -> bytes | None:
    """Return the line that begins at an offset (of the decoded file); None if no line does.

    Raise ValueError for a line that is too large to show.
    """
    from tamis.formats.compression.codecs import codec_of
    from tamis.formats.compression.streams import StreamReader

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
