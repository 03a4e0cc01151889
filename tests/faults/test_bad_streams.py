"""Damaged compressed files: rows before the fault are kept, what follows is quarantined by offset.

The yardstick is what the decoder of the standard library (or zstandard) can make of the same bytes, fed one by one.
Every case runs small (one worker decodes the file) and fed (blocks of 64 KiB handed out by a feeder).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tamis.formats.compression.codecs import CODECS
from tests.faults.fault_harness import (
    assert_conserved,
    compress,
    content_hash,
    documents,
    execute,
    lines_of,
    quarantine,
)

LINES = documents(9000)
PLAIN = b"".join(line + b"\n" for line in LINES)


def _decoder(codec: str) -> Any:
    if codec == "gz":
        return zlib.decompressobj(31)
    if codec == "bz2":
        return bz2.BZ2Decompressor()
    if codec == "xz":
        return lzma.LZMADecompressor()
    return zstandard.ZstdDecompressor().decompressobj()


def _decodable(data: bytes, codec: str) -> bytes:
    """All that an incremental decoder gives before it notices."""
    decoder, out = _decoder(codec), bytearray()
    try:
        for i in range(0, len(data), 16):
            out += decoder.decompress(data[i : i + 16])
    except (zlib.error, OSError, lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError):
        pass
    return bytes(out)


def _run(tmp_path: Path, codec: str, data: bytes, fed: bool) -> Any:
    source = tmp_path / "in" / f"a.jsonl.{codec}"
    source.parent.mkdir()
    source.write_bytes(data)
    result = execute(source.parent, tmp_path / "out", local=fed and codec == "gz", blocksize="64KiB" if fed else None)
    assert_conserved(result)
    assert (len(result.files) > 1) == fed, "the path that was to be tested was not taken"
    return result


@pytest.mark.parametrize("fed", [False, True], ids=["small", "fed"])
@pytest.mark.parametrize("codec", list(CODECS))
def test_truncated(tmp_path: Path, codec: str, fed: bool) -> None:
    data = compress(PLAIN, codec)
    if codec == "bz2":  # blocks of 900 kB: nothing of a block can be had before its end
        data = bz2.compress(PLAIN, 1)
    data = data[: len(data) * 2 // 3]
    result = _run(tmp_path, codec, data, fed)
    whole = _decodable(data, codec)
    whole = whole[: whole.rfind(b"\n") + 1]
    assert 0 < len(whole) < len(PLAIN)
    assert b"\n".join(lines_of(tmp_path / "out")) + b"\n" == whole
    (entry,) = [e for e in quarantine(tmp_path / "out") if "ends in the middle" in e["reason"]]
    assert (entry["lost_bytes"], result.ledger.lost_bytes) == (len(data), len(data)), (
        "an unknown rest counts as the whole file"
    )
    assert (result.exit_code, "100.00%" in result.message) == (3, True)
    assert entry["file"] == str(tmp_path / "in" / f"a.jsonl.{codec}")
    assert (entry["offset"], entry["unit"], entry["n"]) == (len(whole), "decoded bytes", 0)
    assert result.ledger.n_bad_ranges == 1


@pytest.mark.parametrize("fed", [False, True], ids=["small", "fed"])
@pytest.mark.parametrize("codec", list(CODECS))
def test_corrupt(tmp_path: Path, codec: str, fed: bool) -> None:
    data = bytearray(bz2.compress(PLAIN, 1) if codec == "bz2" else compress(PLAIN, codec))
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    result = _run(tmp_path, codec, bytes(data), fed)
    decodable = _decodable(bytes(data), codec)
    n_good = next(i for i, (a, b) in enumerate(zip(LINES, decodable.split(b"\n"), strict=False)) if a != b)
    assert n_good > 0
    written = lines_of(tmp_path / "out")
    assert written[:n_good] == LINES[:n_good], "rows before the fault are lost"
    (tail,) = [e for e in quarantine(tmp_path / "out") if "damaged" in e["reason"]]
    assert tail["unit"] == "decoded bytes"
    assert result.ledger.lost_bytes == tail["lost_bytes"]
    if codec == "gz":  # zlib notices at the end, by the checksum: nobody knows what before it was wrong
        assert (tail["lost_bytes"], "may be wrong" in tail["reason"]) == (len(data), True)
    else:
        assert len(data) // 2 - 300_000 < len(data) - tail["lost_bytes"] <= len(data) // 2 + 64
        assert f"{tail['lost_bytes']} of its {len(data)} compressed bytes are not read" in tail["reason"]
    assert result.exit_code == 3
    assert tail["offset"] >= sum(len(line) + 1 for line in LINES[:n_good])
    assert result.ledger.n_bad_ranges == 1


@pytest.mark.parametrize("codec", list(CODECS))
def test_concatenated_members(tmp_path: Path, codec: str) -> None:
    """Members may end in the middle of a record, and an empty member is nothing."""
    cut = len(PLAIN) // 3 + 17
    data = compress(PLAIN[:cut], codec) + compress(b"", codec) + compress(PLAIN[cut:], codec)
    _run(tmp_path, codec, data, fed=True)
    assert lines_of(tmp_path / "out") == LINES
    assert quarantine(tmp_path / "out") == []


def test_junk_after_the_last_member(tmp_path: Path) -> None:
    result = _run(tmp_path, "gz", compress(PLAIN, "gz") + b"junk that is no gzip", fed=True)
    assert result.exit_code == 0, "20 bytes are below the limit"
    assert lines_of(tmp_path / "out") == LINES
    (entry,) = quarantine(tmp_path / "out")
    assert (entry["offset"], entry["n"], entry["lost_bytes"]) == (len(PLAIN), 0, 20)


def test_bad_line_in_the_first_block_and_a_torn_tail(tmp_path: Path) -> None:
    """Both go to quarantine, though both belong to the same file and begin, as units of work, at its first byte."""
    lines = [b"{bad", *LINES]
    data = compress(b"\n".join(lines) + b"\n", "gz")
    result = _run(tmp_path, "gz", data[: len(data) // 2], fed=True)
    assert result.exit_code == 3
    reasons = sorted((e["offset"] == 0, e["n"]) for e in quarantine(tmp_path / "out"))
    assert reasons == [(False, 0), (True, 1)]
    written = lines_of(tmp_path / "out")
    assert written == LINES[: len(written)]


def test_not_compressed_at_all(tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.jsonl.gz"
    source.parent.mkdir()
    source.write_bytes(PLAIN[:1000])
    (source.parent / "b.jsonl").write_bytes(LINES[0] + b"\n")
    result = execute(source.parent, tmp_path / "out")
    assert_conserved(result)
    assert lines_of(tmp_path / "out") == LINES[:1]
    (entry,) = quarantine(tmp_path / "out")
    assert (entry["file"], entry["offset"], entry["lost_bytes"]) == (str(source), 0, 1000)


def test_input_of_which_nothing_can_be_read_is_never_a_success(tmp_path: Path) -> None:
    """Whatever the limit: two files that are no gzip, and one that needs too large a window."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl.gz").write_bytes(PLAIN[:1000])
    window = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    whole = zstandard.ZstdCompressor(compression_params=window).compressobj()
    (folder / "c.jsonl.zst").write_bytes(whole.compress(PLAIN[:5000]) + whole.flush())
    result = execute(folder, tmp_path / "out", local=False, settings={"quarantine_limit": "100%"})
    assert_conserved(result)
    assert (result.exit_code, result.ledger.written.n) == (3, 0)
    assert "nothing of the input could be read" in result.message
    told = {Path(e["file"]).name: e["reason"] for e in quarantine(tmp_path / "out")}
    assert "not a gzip file" in told["a.jsonl.gz"]
    assert "is not damaged" in told["c.jsonl.zst"]
    assert "window of 1073741824 bytes" in told["c.jsonl.zst"]


def test_a_line_that_is_no_record_is_all_there_is(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"{bad\n")
    assert execute(tmp_path / "in", tmp_path / "out", local=False).exit_code == 3


def test_resuming_after_a_damaged_stream_changes_nothing(tmp_path: Path) -> None:
    data = compress(PLAIN, "gz")
    _run(tmp_path, "gz", data[: len(data) // 2], fed=True)
    before = content_hash(tmp_path / "out")
    again = execute(tmp_path / "in", tmp_path / "out")
    assert (again.status, again.exit_code) == ("already", 3)
    more = execute(tmp_path / "in", tmp_path / "out", settings={"quarantine_limit": "100%"})
    assert (more.status, more.exit_code) == ("already", 0), "the limit is that of the command, not of the first run"
    assert content_hash(tmp_path / "out") == before
