"""WARC records as documents: fields, charsets, encodings, and every record accounted for by a document or a reason."""

from __future__ import annotations

import gzip
import io
import zlib

import pytest

from tamis.formats.base import DecodedRecords
from tamis.formats.compression import zstd
from tamis.formats.record_frames import FrameKind, RecordFrame, read_frames
from tamis.formats.warc.charset import decode_page
from tamis.formats.warc.format import EMPTY, ENCODED, NOT_HTTP, NOT_READABLE, decode, scan
from tests.support.warc_files import members, page, record, response

MAX = 1 << 20


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers]).encode() + b"\r\n\r\n" + body


def read(data: bytes, name: str = "a.warc.gz", max_record: int = MAX) -> DecodedRecords:
    frames = list(scan(io.BytesIO(data), name, max_record))
    return decode(((i, frame) for i, frame in enumerate(frames)), f"/in/{name}", max_record)


def rows(decoded: DecodedRecords) -> list[dict[str, object]]:
    assert decoded.table is not None
    return list(decoded.table.to_pylist())


def only(block: bytes, kind: str = "response", extra: bytes = b"") -> dict[str, object]:
    (row,) = rows(read(b"".join(members(record(1, block, kind, extra=extra)))))
    return row


def skipped(block: bytes) -> dict[str, int]:
    decoded = read(b"".join(members(record(1, block))))
    assert not rows(decoded)
    assert not decoded.bad
    return {reason: len(found) for reason, found in decoded.skipped.items()}


def test_the_fields_of_a_response() -> None:
    block = http(
        "<p>caf\u00e9".encode("latin-1"), "Content-Type: Text/HTML; charset=iso-8859-1", status="404 Not Found"
    )
    data = b"".join(members(record(0), record(7, block, extra=b"WARC-Date: 2024-05-01T10:00:00Z\r\n")))
    row = rows(read(data))[1]
    assert row == {
        "url": "http://example.org/7",
        "warc_id": f"{7:032d}",
        "source_id": "a.warc.gz",
        "warc_offset": len(members(record(0))[0]),
        "date": "2024-05-01T10:00:00Z",
        "status": 404,
        "content_type": "text/html",
        "charset": "windows-1252",
        "flaw": None,
        "content": "<p>caf\u00e9",
    }


def test_conversions_and_resources_are_documents_and_others_are_counted_by_kind() -> None:
    data = b"".join(
        members(
            record(1, b"software: x", "warcinfo"),
            record(2, b"GET /", "request"),
            record(3),
            record(4, b"a: b", "metadata"),
            record(5, "Text in UTF-8: \u4e2d".encode(), "conversion", extra=b"Content-Type: text/plain\r\n"),
            record(6, b"<p>r", "resource", extra=b"Content-Type: text/html\r\n"),
            record(7, b"", "revisit"),
            record(8, b"?", "surprise"),
        )
    )
    decoded = read(data, "a.warc.wet.gz")
    assert [r["warc_id"] for r in rows(decoded)] == [f"{i:032d}" for i in (3, 5, 6)]
    assert rows(decoded)[1]["content"] == "Text in UTF-8: \u4e2d"
    assert [r["status"] for r in rows(decoded)] == [200, None, None]
    assert {reason: len(found) for reason, found in decoded.skipped.items()} == {
        "warcinfo records": 1,
        "request records": 1,
        "metadata records": 1,
        "revisit records": 1,
        "records of an unknown type": 1,
    }


def test_every_kind_of_body_is_a_document_or_has_a_reason() -> None:
    html = "Content-Type: text/html"
    assert skipped(http(b"", html)) == {EMPTY: 1}
    assert skipped(b"\x00\x01 no HTTP") == {NOT_HTTP: 1}
    assert skipped(http(b"\x89PNG", "Content-Type: image/png")) == {"records that are not text (image)": 1}
    assert skipped(http(b"abc", "Content-Type: made/up")) == {"records that are not text (other)": 1}
    assert skipped(http(b"abc", html, "Content-Encoding: rot13")) == {ENCODED: 1}
    assert skipped(http(b"abc", html, "Content-Encoding: gzip, gzip, gzip, gzip")) == {ENCODED: 1}
    assert skipped(http(bytes(range(256)) * 8)) == {NOT_READABLE: 1}


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("gzip", gzip.compress(page(1))),
        ("x-gzip", gzip.compress(page(1))),
        ("deflate", zlib.compress(page(1))),
        ("deflate", zlib.compress(page(1))[2:-4]),
        ("zstd", zstd.Packer(3).pack(page(1))),
        ("gzip, gzip", gzip.compress(gzip.compress(page(1)))),
        ("gzip", page(1)),  # decoded by the crawler, which kept the header
        ("zstd", page(1)),
        ("br", page(1)),
    ],
)
def test_content_encodings_and_wrong_declarations_of_them(name: str, packed: bytes) -> None:
    assert only(http(packed, "Content-Type: text/html", f"Content-Encoding: {name}"))["content"] == page(1).decode()


def test_brotli() -> None:
    brotli = pytest.importorskip("brotli")
    packed = brotli.compress(page(1) * 50)
    row = only(http(packed, "Content-Type: text/html", "Content-Encoding: br"))
    assert row["content"] == (page(1) * 50).decode()


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "gzip, gzip"])
def test_a_bomb_is_refused_by_name_and_the_records_around_it_are_read(encoding: str) -> None:
    zeros = bytes(50 * MAX)
    if encoding == "br":
        body = pytest.importorskip("brotli").compress(zeros)
    elif encoding == "zstd":
        body = zstd.Packer(3).pack(zeros)
    else:
        body = gzip.compress(zeros)
        body = gzip.compress(body) if "," in encoding else body
    parts = members(record(1), record(2, http(body, f"Content-Encoding: {encoding}")), record(3))
    decoded = read(b"".join(parts))
    assert [r["warc_id"] for r in rows(decoded)] == [f"{i:032d}" for i in (1, 3)]
    ((_, refused),) = decoded.bad
    assert (refused.kind, refused.offset) == (FrameKind.REFUSED, len(parts[0]))
    assert "more than 1,048,576 bytes" in refused.reason
    assert "example.org/2" in refused.reason


def test_a_record_above_max_record_is_refused_without_being_read() -> None:
    parts = members(record(1), record(2, response(b"x" * MAX)), record(3))
    decoded = read(b"".join(parts))
    ((_, refused),) = decoded.bad
    assert len(rows(decoded)) == 2
    assert refused.offset == len(parts[0])
    assert "max_record" in refused.reason


def test_damage_is_a_fault_with_its_offset_and_pages_after_it_say_so() -> None:
    parts = members(record(1), record(2), record(3))
    broken = bytearray(b"".join(parts))
    broken[len(parts[0]) + 40] ^= 0x55
    decoded = read(bytes(broken))
    ((_, fault),) = decoded.bad
    assert (fault.kind, fault.offset, fault.length) == (FrameKind.FAULT, len(parts[0]), len(parts[1]))
    assert [r["flaw"] for r in rows(decoded)] == [None, "after damage"]


def test_a_truncated_record_says_so() -> None:
    assert only(response(b"<p>cut"), extra=b"WARC-Truncated: length\r\n")["flaw"] == "truncated: length"


# -- charsets ---------------------------------------------------------------------------------------------------------
CYRILLIC = "\u0411\u043e\u043b\u044c\u0448\u0430\u044f \u0440\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442 " * 30


@pytest.mark.parametrize(
    ("body", "declared", "charset"),
    [
        (b"\xef\xbb\xbf" + CYRILLIC.encode(), "koi8-r", "utf-8"),  # a mark comes before the header
        (b"\xff\xfe" + CYRILLIC.encode("utf-16-le"), "", "utf-16le"),
        (CYRILLIC.encode("koi8-r"), "KOI8-R", "koi8-r"),
        (CYRILLIC.encode(), "windows-1251", "windows-1251"),  # fits: what a header declares is believed
        (b"<meta charset='windows-1251'>" + CYRILLIC.encode("cp1251"), "", "windows-1251"),
        (b"<?xml version='1.0' encoding='windows-1251'?>" + CYRILLIC.encode("cp1251"), "", "windows-1251"),
        (b"<meta charset=utf-16>" + CYRILLIC.encode(), "", "utf-8"),  # tags that can be read are no UTF-16
        (CYRILLIC.encode("cp1251"), "", "windows-1251"),  # detected
        (CYRILLIC.encode("cp1251"), "utf-8", "windows-1251"),  # a header that does not fit
    ],
)
def test_where_a_charset_comes_from(body: bytes, declared: str, charset: str) -> None:
    decoded = decode_page(body, declared)
    assert decoded is not None
    assert decoded.charset == charset
    if charset != "windows-1251" or declared != "windows-1251":
        assert decoded.utf8.decode().endswith(CYRILLIC)


def test_labels_of_pages_never_reach_the_codecs_of_python() -> None:
    for label in ("punycode", "idna", "unicode_escape", "utf-7", "rot13", "zlib", "../x", "\x00"):
        assert decode_page(b"plain \\u0041 text", label) == (b"plain \\u0041 text", "utf-8")


def test_no_charset_is_guessed_for_bytes_with_a_nul(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = gzip.compress(bytes(range(256)) * 40 + CYRILLIC.encode("koi8-r"), mtime=0)
    assert b"\0" in archive
    with monkeypatch.context() as patched:
        patched.setattr("tamis.formats.warc.charset.optional", lambda *_: pytest.fail("statistics take long on these"))
        assert decode_page(archive, "utf-8") is None
        for mark in (b"", b"\xff\xfe"):  # UTF-16 is declared, by a header or a mark
            decoded = decode_page(mark + CYRILLIC.encode("utf-16-le"), "" if mark else "utf-16le")
            assert decoded is not None
            assert decoded.utf8.decode() == CYRILLIC
    guessed = decode_page(CYRILLIC.encode("koi8-r") * 20, "utf-8")
    assert guessed is not None
    assert guessed.charset == "koi8-r"


def test_a_page_that_was_cut_inside_of_a_character_stays_utf8() -> None:
    cut = decode_page(CYRILLIC.encode()[:-2] + b"\xd1", "utf-8")
    assert cut is not None
    assert cut.charset == "utf-8"
    assert "\ufffd" not in cut.utf8.decode()
    few = decode_page(CYRILLIC.encode() + b"\xff" + CYRILLIC.encode(), "")
    assert few is not None
    assert few.charset == "utf-8"
    assert few.utf8.decode().count("\ufffd") == 1


# -- files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst", "single.warc.gz"])
def test_the_same_documents_from_every_way_to_store_them(name: str) -> None:
    plain = [record(i) for i in range(20)]
    packer = zstd.Packer(3)
    data = {
        "a.warc": b"".join(plain),
        "a.warc.gz": b"".join(members(*plain)),
        "a.warc.zst": b"".join(packer.pack(r) for r in plain),
        "single.warc.gz": gzip.compress(b"".join(plain)),
    }[name]
    found = rows(read(data, name))
    assert [r["content"] for r in found] == [page(i).decode() for i in range(20)]
    offsets = [r["warc_offset"] for r in found]
    assert offsets == ([0] * 20 if name.startswith("single") else sorted(set(offsets)))


@pytest.mark.parametrize("packed", [False, True])
def test_a_zstd_file_brings_its_dictionary_along(packed: bool) -> None:
    records = [record(i) for i in range(300)]
    dictionary = zstd.zstd.train_dict(records, 4096)
    compressor = zstd.ZstdCompressor(level=3, zstd_dict=dictionary)
    frames = [compressor.compress(r, compressor.FLUSH_FRAME) for r in records]
    content = zstd.Packer(3).pack(dictionary.dict_content) if packed else dictionary.dict_content
    head = (0x184D2A5D).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
    assert len(rows(read(head + b"".join(frames), "a.warc.zst"))) == 300
    damaged = bytearray(head + b"".join(frames))
    damaged[len(head) + len(frames[0]) + 20] ^= 0x55
    after = read(bytes(damaged), "a.warc.zst")
    assert len(rows(after)) >= 298
    assert len(after.bad) == 1
    without = read(b"".join(frames), "a.warc.zst")
    assert not rows(without)
    assert "dictionary" in without.bad[0][1].reason


def test_a_dictionary_that_claims_to_be_huge_is_refused() -> None:
    head = (0x184D2A5D).to_bytes(4, "little") + (0xFFFFFFFF).to_bytes(4, "little")
    ((_, fault),) = read(head + bytes(100), "a.warc.zst").bad
    assert "at most" in fault.reason
    assert fault.length == 108


def test_the_records_that_other_libraries_write_and_read() -> None:
    """A file of warcio, with chunked and compressed bodies, as fastwarc reads it."""
    writer_module = pytest.importorskip("warcio.warcwriter")
    fastwarc = pytest.importorskip("fastwarc.warc")
    from warcio.statusandheaders import StatusAndHeaders

    out = io.BytesIO()
    writer = writer_module.WARCWriter(out, gzip=True)
    for i in range(60):
        body, headers = page(i) * (i % 7 + 1), [("Content-Type", "text/html")]
        if i % 3 == 1:
            body, headers = gzip.compress(body), [*headers, ("Content-Encoding", "gzip")]
        if i % 4 == 1:
            half = len(body) // 2
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:]))
            body, headers = chunks + b"0\r\n\r\n", [*headers, ("Transfer-Encoding", "chunked")]
        http_headers = StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")
        block = (f"http://example.org/{i}", "response", io.BytesIO(body), len(body))
        writer.write_record(writer.create_warc_record(*block, http_headers=http_headers))
    ours = rows(read(out.getvalue()))
    assert [row["content"] for row in ours] == [(page(i) * (i % 7 + 1)).decode() for i in range(60)]
    theirs = [
        (record.headers["WARC-Target-URI"], record.record_id, record.stream_pos)
        for record in fastwarc.ArchiveIterator(io.BytesIO(out.getvalue()))
    ]
    assert [(row["url"], f"<urn:uuid:{row['warc_id']}>", row["warc_offset"]) for row in ours] == theirs


# -- frames -----------------------------------------------------------------------------------------------------------
def test_frames_of_a_block_by_ranges() -> None:
    frames = [RecordFrame(FrameKind.DOCUMENT, i, 10, b"{}", b"x" * i) for i in range(5)]
    data = b"".join(b"".join(f.pack()) for f in frames)
    positions = [1000 + sum(f.n_bytes for f in frames[:i]) for i in range(5)]
    end = 1000 + len(data)
    whole = list(read_frames(io.BytesIO(data), 1000, 1000, end))
    assert [p for p, _ in whole] == positions
    assert [f for _, f in whole] == frames
    for cut in range(1000, end + 1):  # wherever it is cut, each frame is in exactly one of both ranges
        first = read_frames(io.BytesIO(data), 1000, 1000, cut)
        second = read_frames(io.BytesIO(data), 1000, cut, end)
        assert [p for p, _ in [*first, *second]] == positions
