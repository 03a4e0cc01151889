"""Records of whole and of damaged WARC files."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest

from tamis.formats.compression import zstd
from tamis.formats.warc.records import MAX_HEADERS, WarcFault, WarcScanner
from tests.support.warc_files import members, record

RECORDS = [record(i) for i in range(8)]


def scan(data: bytes, codec: str | None = "gz", max_bytes: int = 1 << 20) -> list[int | tuple[int, int]]:
    """Numbers of the records, and (offset, length) of faults, in order."""
    found: list[int | tuple[int, int]] = []
    for item in WarcScanner(io.BytesIO(data), codec, max_bytes):
        found.append((item.offset, item.length) if isinstance(item, WarcFault) else int(item.record_id))
    return found


def reasons(data: bytes, codec: str | None = "gz", max_bytes: int = 1 << 20) -> list[str]:
    return [f.reason for f in WarcScanner(io.BytesIO(data), codec, max_bytes) if isinstance(f, WarcFault)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def around(parts: list[bytes], bad: int) -> list[int | tuple[int, int]]:
    """All records but one, whose bytes are a fault."""
    begin = sum(len(p) for p in parts[:bad])
    return [*range(bad), (begin, len(parts[bad])), *range(bad + 1, len(parts))]


def test_every_single_flipped_byte_costs_one_record() -> None:
    parts = members(*RECORDS[:4])
    whole = b"".join(parts)
    begin = len(parts[0])
    for at in range(begin, begin + len(parts[1])):
        found = scan(flipped(whole, at))
        # Some bytes of a gzip header (time, system) mean nothing; names would: flags are read.
        assert found in (around(parts, 1), [0, 1, 2, 3]), (at - begin, found)
        assert found != [0, 1, 2, 3] or at - begin in (*range(4, 10),), at - begin


@pytest.mark.parametrize("codec", ["gz", None])
def test_records_one_by_one(codec: str | None) -> None:
    parts = members(*RECORDS) if codec else RECORDS
    assert scan(b"".join(parts), codec) == list(range(8))
    offsets = [item.offset for item in WarcScanner(io.BytesIO(b"".join(parts)), codec, 100)]
    assert offsets == [sum(len(p) for p in parts[:i]) for i in range(8)]


def test_headers_in_any_case_folded_and_with_bare_line_ends() -> None:
    data = b"WARC/1.1\nwarc-TYPE: response\nWARC-Target-URI: <http://h/\n a>\nCONTENT-length: 2\n\nab\n\n"
    (found,) = WarcScanner(io.BytesIO(data), None, 100)
    assert not isinstance(found, WarcFault)
    assert (found.kind, found.url, found.block) == ("response", "http://h/ a", b"ab")


def test_records_after_a_fault_are_marked_and_have_offsets() -> None:
    parts = members(*RECORDS[:3])
    items = list(WarcScanner(io.BytesIO(parts[0] + parts[1][:-30] + b"x" * 30 + parts[2]), "gz", 1 << 20))
    assert [type(i).__name__ for i in items] == ["WarcRecord", "WarcFault", "WarcRecord"]
    ends = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert [i.offset for i in items] == ends
    assert [getattr(i, "resynchronised", None) for i in items] == [False, None, True]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(1, length=-5), "expected a Content-Length in digits, got '-5'"),
        (record(1, length="9" * 30), "expected a Content-Length in digits"),
        (record(1, length=20), "Content-Length is wrong: the record is followed by"),
        (record(1, length=100_000), "Content-Length 100,000 reaches beyond the record's member"),
        (record(1, length=10**12), "Content-Length 1,000,000,000,000 reaches beyond the record's member"),
        (record(1, extra=b"X: " + b"y" * 30_000_000 + b"\r\n"), "headers of the record do not end within 65,536 bytes"),
        (record(1, extra=b"X: y\r\n" * 500_000), "headers of the record do not end within 65,536 bytes"),
        (record(1, extra=b"X:\r\n" * (MAX_HEADERS + 1)), "the record has more than 1,000 headers"),
        (b"<html>no record</html>\r\n", "expected a record (WARC/1.0), found b'<html>no record</html>"),
    ],
    ids=["negative", "digits", "short", "long", "huge", "30 MB of headers", "500,000 headers", "1,001 headers", "html"],
)
def test_a_bad_record_costs_itself_only(bad: bytes, reason: str) -> None:
    parts = members(RECORDS[0], bad, RECORDS[2])
    assert scan(b"".join(parts)) == around(parts, 1)
    (got,) = reasons(b"".join(parts))
    assert reason in got
    plain = [RECORDS[0], bad, RECORDS[2]]
    if b"\r\nX:" not in bad:
        assert scan(b"".join(plain), None) == around(plain, 1)
        frames = [zstd.ZstdCompressor().compress(r, zstd.ZstdCompressor.FLUSH_FRAME) for r in plain]
        assert scan(b"".join(frames), "zst") == around(frames, 1)


def test_headers_of_any_size_are_not_held() -> None:
    data = b"".join(members(RECORDS[0], record(1, extra=b"X: " + b"y" * 30_000_000 + b"\r\n"), RECORDS[2]))
    tracemalloc.start()
    assert len(scan(data)) == 3
    assert tracemalloc.get_traced_memory()[1] < 6_000_000
    tracemalloc.stop()


def test_plain_headers_that_do_not_end_are_skipped() -> None:
    plain = [RECORDS[0], record(1, extra=b"X: y\r\n" * 50_000), RECORDS[2]]
    assert scan(b"".join(plain), None) == around(plain, 1)


@pytest.mark.parametrize("codec", ["gz", None])
def test_garbage_between_records_is_a_fault_of_its_own(codec: str | None) -> None:
    parts = members(*RECORDS[:2]) if codec else RECORDS[:2]
    data = parts[0] + b"garbage\n" * 100 + parts[1]
    assert scan(data, codec) == [0, (len(parts[0]), 800), 1]
    data = b"garbage\n" * 10 + parts[0] + parts[1] + b"garbage\n"
    assert scan(data, codec) == [(0, 80), 0, 1, (80 + len(parts[0]) + len(parts[1]), 8)]


@pytest.mark.parametrize("codec", ["gz", None])
def test_a_cut_file_loses_its_last_record(codec: str | None) -> None:
    parts = members(*RECORDS[:3]) if codec else RECORDS[:3]
    begin = len(parts[0]) + len(parts[1])
    for n_bytes in (1, 5, 20, len(parts[2]) - 10):
        data = (b"".join(parts))[: begin + n_bytes]
        assert scan(data, codec) == [0, 1, (begin, n_bytes)], n_bytes
        (fault,) = (f for f in WarcScanner(io.BytesIO(data), codec, 1 << 20) if isinstance(f, WarcFault))
        assert (fault.is_cut, fault.lost_bytes(len(data))) == (True, len(data))
    assert scan(b"", codec) == []


def test_a_member_of_many_records() -> None:
    bad = record(1, length=-5)
    data = gzip.compress(RECORDS[0] + bad + RECORDS[2])
    found = scan(data)
    assert [f for f in found if isinstance(f, int)] == [0, 2]
    (fault,) = [f for f in found if isinstance(f, tuple)]
    assert fault[0] == 0
    assert 1 <= fault[1] <= len(data)
    # The first record of the only member, too.
    assert [f for f in scan(gzip.compress(bad + RECORDS[2] + RECORDS[3])) if isinstance(f, int)] == [2, 3]
    # What follows damage of the compressed bytes cannot be read.
    long = gzip.compress(b"".join(record(i) for i in range(300)), 1)
    found = scan(flipped(long, len(long) // 2))
    read = [f for f in found if isinstance(f, int)]
    assert read == list(range(len(read)))
    assert 0 < len(read) < 300
    last = found[-1]
    assert isinstance(last, tuple)
    assert last[0] + last[1] == len(long)


def test_a_record_over_several_members_is_one() -> None:
    text = RECORDS[0]
    assert scan(gzip.compress(text[:100]) + gzip.compress(text[100:300]) + gzip.compress(text[300:] + RECORDS[1])) == [
        0,
        1,
    ]


def test_a_checksum_is_compared_before_a_record_is_given_out() -> None:
    parts = members(*RECORDS[:3])
    for at in (1, 5, 8):  # the length, the checksum
        bad = flipped(parts[1], len(parts[1]) - at)
        assert scan(parts[0] + bad + parts[2]) == around(parts, 1)


def test_lines_of_a_page_do_not_pass_for_records_where_members_tell() -> None:
    fake = b"HTTP/1.1 200 OK\r\n\r\n\r\n\r\n" + record(77)
    parts = members(RECORDS[0], record(1, fake, length=-1), RECORDS[2])
    assert scan(b"".join(parts)) == around(parts, 1)
    good = members(RECORDS[0], record(1, fake), RECORDS[2])
    assert scan(b"".join(good)) == [0, 1, 2]
    assert scan(RECORDS[0] + record(1, fake) + RECORDS[2], None) == [0, 1, 2]


def test_large_records_are_skipped_and_checked() -> None:
    large = record(1, b"x" * 5_000_000)
    for codec in ("gz", None):
        parts = members(RECORDS[0], large, RECORDS[2]) if codec else [RECORDS[0], large, RECORDS[2]]
        items = list(WarcScanner(io.BytesIO(b"".join(parts)), codec, 1000))
        assert [(i.n_bytes, i.block is None) for i in items if not isinstance(i, WarcFault)][1] == (5_000_000, True)
        assert len(items) == 3
        short = record(1, b"x" * 5_000_000, length=4_000_000)
        parts = members(RECORDS[0], short, RECORDS[2]) if codec else [RECORDS[0], short, RECORDS[2]]
        assert scan(b"".join(parts), codec, 1000) == around(parts, 1)


def test_kinds_that_are_not_requested_come_without_their_blocks() -> None:
    data = b"".join(members(record(0, b"x", "warcinfo"), RECORDS[1]))
    items = WarcScanner(io.BytesIO(data), "gz", 1 << 20, frozenset({"response"}))
    assert [(i.kind, i.block is None) for i in items if not isinstance(i, WarcFault)] == [
        ("warcinfo", True),
        ("response", False),
    ]


def test_hostile_files_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.formats.warc.records._REREAD_BYTES", 1 << 16)
    # Magic bytes without end, members inside of members, and lines that look like records.
    for data in (b"\x1f\x8b\x08\x00" * 50_000, _nested(2000)):
        found = scan(data)
        assert sum(f[1] for f in found if isinstance(f, tuple)) == len(data)
    lines = b"WARC/1.0\nWARC-Type: response\nContent-Length: 500000\n\n" * 5_000
    found = scan(lines, None)
    assert sum(f[1] for f in found if isinstance(f, tuple)) == len(lines)


def _nested(n: int) -> bytes:
    """Members that each hold all that follow as stored bytes."""
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00"
    start = b"WARC/1.0\r\n"
    return (head + b"\x00\xff\xff\x00\x00" + start) * n
