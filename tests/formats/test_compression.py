"""Compressed streams: round trips, members, bombs, and what is kept before every kind of fault."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import pickle
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

from tamis.errors import UsageError
from tamis.formats.compression import source, zstd
from tamis.formats.compression.codecs import CODECS, codec_of, strip_codec
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader, StreamWriter


@functools.cache
def compress(data: bytes, codec: str) -> bytes:
    if codec == "gz":
        return gzip.compress(data, 6, mtime=0)
    if codec == "zst":
        return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    return bz2.compress(data) if codec == "bz2" else lzma.compress(data, preset=1)


@functools.cache
def text(n_bytes: int, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]
    out = b" ".join(rng.choices(words, k=n_bytes // 3 + 1))
    return out[:n_bytes]


def drain(stream: bytes, codec: str | None, n_bytes: int = 70_000) -> tuple[bytes, StreamFault | None]:
    reader, parts = StreamReader(io.BytesIO(stream), codec), []
    try:
        while data := reader.read(n_bytes):
            assert len(data) <= n_bytes
            parts.append(data)
    except StreamFault as exc:
        fault = exc
    else:
        assert reader.read(10) == b""
        return b"".join(parts), None
    assert fault.decoded_offset == sum(map(len, parts))
    with pytest.raises(StreamFault):
        reader.read(1)
    return b"".join(parts), fault


def test_codec_of_the_suffix() -> None:
    assert [codec_of(f"x.jsonl.{c}") for c in CODECS] == list(CODECS)
    assert codec_of("x.jsonl") is None
    assert strip_codec("dir.gz/x.jsonl.xz") == "dir.gz/x.jsonl"
    assert strip_codec("dir.gz/x.jsonl") == "dir.gz/x.jsonl"


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("n_bytes", [0, 1, 5, 100_000, 2_000_000])
def test_round_trip(tmp_path: Path, codec: str, n_bytes: int) -> None:
    data = text(n_bytes)
    path = tmp_path / f"x.{codec}"
    with StreamWriter(path, codec) as writer:
        for start in range(0, n_bytes, 77_777):
            writer.write(memoryview(data)[start : start + 77_777])
    assert writer.n_bytes == n_bytes
    with StreamReader.open(path) as reader:
        parts = []
        while piece := reader.read(50_001):
            parts.append(piece)
    assert b"".join(parts) == data
    assert reader.decoded_offset == n_bytes


def test_no_codec_passes_bytes_through() -> None:
    assert drain(b"abc" * 200_000, None) == (b"abc" * 200_000, None)


@pytest.mark.parametrize("codec", [*CODECS, None])
def test_an_empty_file_is_an_empty_stream(codec: str | None) -> None:
    assert drain(b"", codec) == (b"", None)


@pytest.mark.parametrize("codec", list(CODECS))
def test_several_members_are_one_stream(codec: str) -> None:
    a, b = text(400_000, 1), text(300_000, 2)
    stream = compress(a, codec) + compress(b"", codec) + compress(b, codec) + compress(b"end", codec)
    assert drain(stream, codec) == (a + b + b"end", None)


@pytest.mark.parametrize("codec", ["gz", "bz2", "xz"])
def test_zero_padding_after_a_member_is_no_data(codec: str) -> None:
    stream = compress(b"one\n", codec) + b"\0" * 300_000 + compress(b"two\n", codec) + b"\0" * 512
    assert drain(stream, codec) == (b"one\ntwo\n", None)


def test_skippable_zstd_frames_are_skipped() -> None:
    skippable = b"\x53\x2a\x4d\x18" + (300_000).to_bytes(4, "little") + b"x" * 300_000
    stream = skippable + compress(b"one", "zst") + skippable + compress(b"two", "zst")
    assert drain(stream, "zst") == (b"onetwo", None)
    got, fault = drain(stream[:299_000], "zst")
    assert got == b""
    assert fault is not None
    assert fault.compressed_offset == 0


@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd_frames_of_every_shape(level: int) -> None:
    data = text(700_000)
    streamed = zstandard.ZstdCompressor(level=level, write_checksum=False).compressobj()
    unsized = streamed.compress(data) + streamed.flush()
    sized = zstandard.ZstdCompressor(level=level, write_checksum=False).compress(data)
    stored = zstandard.ZstdCompressor(level=level).compress(random.Random(3).randbytes(500_000))
    tiny = zstandard.ZstdCompressor(level=level, write_content_size=True).compress(b"x" * 300)
    assert drain(unsized + sized + stored + tiny, "zst") == (
        data + data + random.Random(3).randbytes(500_000) + b"x" * 300,
        None,
    )


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_bomb_is_decoded_in_bounded_memory(codec: str) -> None:
    stream = compress(bytes(60_000_000), codec)
    reader = StreamReader(io.BytesIO(stream), codec)
    tracemalloc.start()
    try:
        n_bytes = reader.skip(10**12)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_bytes == 60_000_000
    assert peak_bytes < (12_000_000 if codec == "xz" else 4_000_000)  # xz: a dictionary of 8 MiB is part of it


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.9999])
def test_a_truncated_file_gives_its_decodable_bytes_then_a_fault(codec: str, share: float) -> None:
    data = text(2_500_000)
    stream = compress(data, codec)
    cut = min(int(len(stream) * share), len(stream) - 1)
    got, fault = drain(stream[:cut], codec)
    assert fault is not None
    assert data.startswith(got)
    assert "the file ends inside" in fault.reason
    assert fault.compressed_offset <= cut
    slack_bytes = {"gz": 33_000, "zst": 140_000, "bz2": 900_000, "xz": 8_000}[codec]
    assert len(got) >= int(len(data) * share) - slack_bytes - len(data) // 20


def test_a_truncated_gzip_loses_no_byte_that_zlib_can_decode() -> None:
    stream = compress(text(900_000), "gz")
    for cut in (1, 9, 11, 1000, 100_001, len(stream) - 8, len(stream) - 1):
        expected = zlib.decompressobj(31).decompress(stream[:cut])
        assert drain(stream[:cut], "gz")[0] == expected


@pytest.mark.parametrize("at_share", [0.2, 0.6, 0.95])
def test_a_corrupt_deflate_stream_is_read_up_to_the_fault(at_share: float) -> None:
    data = text(1_200_000)
    stream = bytearray(compress(data, "gz"))
    at = int(len(stream) * at_share)
    stream[at : at + 40] = b"\xff" * 40
    # The reference: one byte of input at a time, which is as fine as zlib can be asked.
    reference, decoder = bytearray(), zlib.decompressobj(31)
    with contextlib.suppress(zlib.error):
        for i in range(len(stream)):
            reference += decoder.decompress(bytes(stream[i : i + 1]))
    got, fault = drain(bytes(stream), "gz")
    assert fault is not None
    assert got.startswith(bytes(reference))
    assert len(got) - len(reference) < 600
    assert at <= fault.compressed_offset < len(stream)


def test_a_wrong_gzip_checksum_is_a_fault_after_all_bytes() -> None:
    data = text(600_000)
    stream = bytearray(compress(data, "gz"))
    stream[-5] ^= 1
    got, fault = drain(bytes(stream), "gz")
    assert got == data
    assert fault is not None
    assert fault.decoded_offset == 600_000
    assert "incorrect data check" in fault.reason
    assert len(stream) - 9 < fault.compressed_offset < len(stream)


@pytest.mark.parametrize("codec", ["zst", "xz"])
def test_a_wrong_checksum_is_a_fault_after_all_bytes(codec: str) -> None:
    data = text(600_000)
    stream = bytearray(compress(data, codec))
    # zstd: the last four bytes; xz: the block check lies before index and footer (8 byte CRC64 by default).
    index_bytes = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    at = -1 if codec == "zst" else -12 - index_bytes - 1
    stream[at] ^= 0x55
    got, fault = drain(bytes(stream), codec)
    assert got == data
    assert fault is not None
    assert fault.decoded_offset == 600_000


def test_a_corrupt_bzip2_block_leaves_the_blocks_before_it() -> None:
    data = text(2_500_000)
    stream = bytearray(compress(data, "bz2"))
    at = len(stream) // 2
    stream[at : at + 20] = bytes(20)
    got, fault = drain(bytes(stream), "bz2")
    assert fault is not None
    assert data.startswith(got[:899_000])
    assert len(got) >= 899_000


def test_a_bzip2_block_with_a_wrong_checksum_loses_only_its_last_byte() -> None:
    data = text(600_000)
    stream = bytearray(compress(data, "bz2"))
    stream[11] ^= 1  # the checksum of the first block follows its magic number
    got, fault = drain(bytes(stream), "bz2")
    assert fault is not None
    assert got == data[:-1]


def test_a_corrupt_xz_stream_is_read_up_to_the_fault() -> None:
    data = text(1_500_000)
    stream = bytearray(compress(data, "xz"))
    at = int(len(stream) * 0.7)
    stream[at : at + 20] = b"\xff" * 20
    got, fault = drain(bytes(stream), "xz")
    assert fault is not None
    assert len(got) > 0.6 * len(data)
    n_same = next((i for i, (x, y) in enumerate(zip(got, data, strict=False)) if x != y), len(got))
    assert n_same > 0.65 * len(data)


def test_a_corrupt_zstd_block_leaves_the_blocks_before_it() -> None:
    data = text(1_500_000)
    stream = bytearray(compress(data, "zst"))
    at = int(len(stream) * 0.7)
    stream[at : at + 90_000] = b"\xff" * 90_000  # wider than a block, so that a block header is hit
    got, fault = drain(bytes(stream), "zst")
    assert fault is not None
    assert at - 90_000 < fault.compressed_offset <= at + 90_000
    assert data.startswith(got[: int(0.6 * len(data))])
    assert 0.6 * len(data) < len(got) < len(data)


@pytest.mark.parametrize("codec", list(CODECS))
def test_garbage_after_a_complete_member_is_a_fault_at_its_offset(codec: str) -> None:
    stream = compress(b"line\n" * 100, codec)
    got, fault = drain(stream + b"garbage!", codec)
    assert got == b"line\n" * 100
    assert fault is not None
    assert fault.compressed_offset == len(stream)


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_file_that_is_something_else_is_a_fault_at_zero(codec: str) -> None:
    got, fault = drain(b'{"text": "plain"}\n', codec)
    assert got == b""
    assert fault is not None
    assert (fault.decoded_offset, fault.compressed_offset) == (0, 0)
    assert "not a" in fault.reason


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_pipe_can_be_read_too(codec: str) -> None:
    data = text(1_500_000)
    stream = compress(data, codec)
    assert StreamReader(Pipe(stream), codec).skip(10**9) == 1_500_000
    reader = StreamReader(Pipe(stream[: len(stream) // 2] + bytes(len(stream) // 2)), codec)
    with pytest.raises(StreamFault) as caught:
        reader.skip(10**9)
    assert caught.value.decoded_offset == reader.decoded_offset


def test_too_large_a_zstd_window_is_named() -> None:
    params = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    streamed = zstandard.ZstdCompressor(compression_params=params).compressobj()
    stream = streamed.compress(b"abc") + streamed.flush()
    got, fault = drain(stream, "zst")
    assert got == b""
    assert fault is not None
    assert "268435456 bytes, at most 134217728 (2^27)" in fault.reason


def test_a_zstd_dictionary_is_named() -> None:
    samples = [text(600, seed) for seed in range(30)]
    dictionary = zstandard.train_dictionary(1024, samples)
    stream = zstandard.ZstdCompressor(dict_data=dictionary).compress(b"abc" * 100)
    fault = drain(stream, "zst")[1]
    assert fault is not None
    assert f"needs dictionary {dictionary.dict_id()}" in fault.reason


@pytest.mark.parametrize("codec", list(CODECS))
def test_random_damage_never_loses_the_beginning_and_never_crashes(codec: str) -> None:
    rng, data = random.Random(7), text(60_000)
    stream = compress(data, codec)
    for _ in range(25):
        damaged = bytearray(stream)
        at = rng.randrange(len(damaged))
        damaged[at] ^= 1 << rng.randrange(8)
        got, fault = drain(bytes(damaged), codec)
        assert got == data or fault is not None


@pytest.mark.parametrize("codec", list(CODECS))
def test_skip_decodes_and_discards(codec: str) -> None:
    data = text(500_000)
    reader = StreamReader(io.BytesIO(compress(data, codec)), codec)
    assert reader.skip(300_007) == 300_007
    assert reader.decoded_offset == 300_007
    assert reader.read(10) == data[300_007:300_017]
    assert reader.skip(10**9) == 500_000 - 300_017


@pytest.mark.parametrize(
    ("codec", "error"),
    [
        ("gz", zlib.error("Error -4 while decompressing data")),
        ("gz", MemoryError()),
        ("bz2", MemoryError()),
        ("xz", MemoryError()),
    ],
)
def test_a_failed_allocation_is_no_fault_of_the_stream(
    monkeypatch: pytest.MonkeyPatch, codec: str, error: Exception
) -> None:
    class Starved:
        eof, needs_input, unused_data = False, True, b""

        def copy(self) -> Starved:
            return self

        def decompress(self, data: bytes, max_length: int) -> bytes:
            raise error

    monkeypatch.setattr(type(CODECS[codec]), "new_decoder", lambda self: Starved())
    with pytest.raises(MemoryError):
        StreamReader(io.BytesIO(compress(b"abc", codec)), codec).read(10)


def test_a_failed_zstd_allocation_is_no_fault_of_the_stream() -> None:
    class Starved:
        def decompress(self, data: bytes) -> bytes:
            raise zstd.ZstdError("Unable to decompress Zstandard data: Allocation error : not enough memory")

    reader = StreamReader(io.BytesIO(compress(text(300_000), "zst")), "zst")
    reader.read(10)
    reader._next_bytes.__self__._frame = Starved()  # of its ZstdFrames
    with pytest.raises(MemoryError):
        reader.skip(10**9)


@pytest.mark.parametrize("codec", list(CODECS))
def test_written_bytes_are_deterministic(tmp_path: Path, codec: str) -> None:
    for name in ("one", "two"):
        with StreamWriter(tmp_path / name, codec) as writer:
            writer.write(text(200_000))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_gzip_output_carries_no_time_and_no_name(tmp_path: Path) -> None:
    with StreamWriter(tmp_path / "secret-name.gz", "gz") as writer:
        writer.write(b"abc")
    head = (tmp_path / "secret-name.gz").read_bytes()[:10]
    assert head[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("codec", list(CODECS))
def test_an_aborted_file_reads_as_truncated(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "x"
    with contextlib.suppress(RuntimeError), StreamWriter(path, codec) as writer:
        writer.write(random.Random(1).randbytes(3_000_000))
        raise RuntimeError
    fault = drain(path.read_bytes(), codec)[1]
    assert fault is not None


def test_how_much_a_fault_loses(tmp_path: Path) -> None:
    """What follows it; all of a part whose checksum is wrong; a file that was cut off counts as a whole."""
    packed = {}
    for codec in ("gz", "zst"):
        with StreamWriter(tmp_path / "x", codec) as writer:
            writer.write(random.Random(1).randbytes(3000))
        packed[codec] = (tmp_path / "x").read_bytes()
    for codec, one in packed.items():
        n = len(one)
        wrong = one[:-6] + bytes([one[-6] ^ 1]) + one[-5:] if codec == "gz" else one[:-1] + bytes([one[-1] ^ 1])
        data, fault = drain(one + wrong, codec)
        assert fault is not None
        assert (len(data), fault.kind, fault.suspect_offset, fault.lost_bytes(2 * n)) == (6000, "damaged", n, n)
        assert f"read from byte {n} on may be wrong, {n} of its {2 * n} compressed bytes" in fault.describe(2 * n)
        fault = drain(one + one[:-20], codec)[1]
        assert fault is not None
        assert (fault.kind, fault.lost_bytes(2 * n - 20)) == ("cut", 2 * n - 20)
        fault = drain(one + b"junk", codec)[1]
        assert fault is not None
        assert (fault.kind, fault.lost_bytes(n + 4)) == ("trailing" if codec == "gz" else "damaged", 4)
        assert f"damaged at byte {n}" in fault.describe(n + 4)


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown codec 'lz4'"):
        StreamReader(io.BytesIO(b""), "lz4")
    with pytest.raises(UsageError, match="unknown codec 'lz4'"):
        StreamWriter(tmp_path / "x", "lz4")


def test_a_fault_survives_pickling() -> None:
    fault = pickle.loads(pickle.dumps(StreamFault(5, 3, "because", "cut", 2)))
    assert (fault.decoded_offset, fault.compressed_offset, fault.reason) == (5, 3, "because")
    assert (fault.kind, fault.suspect_offset) == ("cut", 2)
    assert source.PIECE_BYTES == 262_144


def test_texts_are_packed_one_by_one_and_checked_when_unpacked() -> None:
    packer = zstd.Packer(level=1)
    for data in (b"", b"short", text(300_000)):
        frame = packer.pack(data)
        assert zstd.unpack(frame, len(data) + 1) == data
        assert zstandard.ZstdDecompressor().decompress(frame) == data  # another library knows its size
        for damaged in (frame[:-1], frame + frame, b""):
            with pytest.raises(zstd.ZstdError):
                zstd.unpack(damaged, len(data) + 1)
    with pytest.raises(zstd.ZstdError, match="at most 10 decoded bytes"):
        zstd.unpack(packer.pack(text(300_000)), 10)
