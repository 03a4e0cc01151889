"""A byte that is changed on the way or in the store is noticed wherever the store keeps a checksum of what was read."""

from __future__ import annotations

import base64
import collections
import gzip
import hashlib
import itertools
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import DownloadError, Incomplete, StoreError
from tamis.formats.compression.streams import StreamReader
from tamis.stages.text.download.remote import fetch_object
from tamis.stores import checksums, opening, retry, spool
from tamis.stores import s3 as requests
from tamis.stores.checksums import Expected, Running, expected_of
from tamis.stores.reading import Damaged
from tests.support.bucket_runs import copy, documents
from tests.support.run_dirs import run_dir_path
from tests.support.s3_server import FaultyProxy

DATA = random.Random(7).randbytes(11_000_000)
PART = 5 << 20  # the least that stores take


def upload_parts(s3: Any, bucket: str, key: str, data: bytes, sizes: list[int]) -> None:
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    parts, at = [], 0
    for number, size in enumerate(sizes, 1):
        asked = {"Bucket": bucket, "Key": key, "UploadId": upload, "PartNumber": number}
        parts.append({"PartNumber": number, "ETag": s3.upload_part(Body=data[at : at + size], **asked)["ETag"]})
        at += size
    s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})


def flipping(n: int, key: str = "") -> Callable[[str, str, int], str]:
    """Return a fault of the first `n` answers that have contents of an object."""
    left = [n]

    def fault(method: str, path: str, _: int) -> str:
        if method != "GET" or key not in path or "list-type" in path or not left[0]:
            return ""
        left[0] -= 1
        return "flip"

    return fault


def read_whole(url: str) -> bytes:
    with opening.open_input(url) as file:
        return file.read()


def read_in_order(url: str) -> bytes:
    with opening.open_input(url) as file:
        file.read(3)  # as a reader that looks for a byte order mark
        file.seek(0)
        return b"".join(iter(lambda: file.read(300_000), b""))


@pytest.mark.parametrize("read", [read_whole, read_in_order])
@pytest.mark.parametrize(
    "parts", [(), (PART, PART, len(DATA) - 2 * PART), (len(DATA),)], ids=["one", "parts", "single"]
)
def test_a_changed_byte_is_noticed(
    read: Callable[[str], bytes], parts: tuple[int, ...], bucket: str, s3: Any, proxy: FaultyProxy
) -> None:
    if parts:
        upload_parts(s3, bucket, "a", DATA, list(parts))
    else:
        s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    assert read(f"s3://{bucket}/a") == DATA
    proxy.fault = flipping(1000)
    with pytest.raises(
        Damaged, match=r"what arrived is not what the store holds: the (MD5|CRC32) of its 11000000 bytes"
    ):
        read(f"s3://{bucket}/a")


def test_a_byte_that_was_changed_on_the_way_only_is_read_again(bucket: str, s3: Any, proxy: FaultyProxy) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    proxy.fault = flipping(1)
    assert read_whole(f"s3://{bucket}/a") == DATA
    assert proxy.n_faults == 1


def test_parts_of_different_sizes_are_no_damage(bucket: str, s3: Any) -> None:
    upload_parts(s3, bucket, "a", DATA, [PART, PART - 1000 + 2000, len(DATA) - 2 * PART - 1000])
    assert read_whole(f"s3://{bucket}/a") == DATA


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_of_the_store_are_compared(algorithm: str, bucket: str, s3: Any, proxy: FaultyProxy) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA, ChecksumAlgorithm=algorithm)
    found = requests.Bucket(bucket).head("a")
    assert found is not None
    assert found.expected is not None
    assert found.expected.algorithm == ("md5" if algorithm == "SHA256" else algorithm.lower())
    proxy.fault = flipping(1000)
    with pytest.raises(Damaged):
        read_whole(f"s3://{bucket}/a")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"ETag": '"' + "ab" * 16 + '"'}, Expected("md5", b"\xab" * 16)),
        ({"ETag": '"' + "ab" * 16 + '-3"'}, Expected("md5", b"\xab" * 16, 3)),
        ({"ETag": '"' + "ab" * 16 + '"', "ServerSideEncryption": "AES256"}, Expected("md5", b"\xab" * 16)),
        ({"ETag": '"' + "ab" * 16 + '"', "ServerSideEncryption": "aws:kms"}, None),
        ({"ETag": '"' + "ab" * 16 + '"', "SSECustomerAlgorithm": "AES256"}, None),
        (
            {
                "ETag": '"' + "ab" * 16 + '"',
                "ServerSideEncryption": "aws:kms",
                "ChecksumCRC64NVME": encoded(b"12345678"),
            },
            Expected("crc64nvme", b"12345678"),
        ),
        ({"ETag": '"' + "ab" * 16 + '-3"', "ChecksumCRC32": encoded(b"1234")}, Expected("md5", b"\xab" * 16, 3)),
        (
            {"ETag": '"' + "ab" * 16 + '-3"', "ChecksumCRC32": encoded(b"1234") + "-3", "ChecksumType": "COMPOSITE"},
            Expected("md5", b"\xab" * 16, 3),
        ),
        (
            {"ETag": '"' + "ab" * 16 + '-3"', "ChecksumCRC32": encoded(b"1234"), "ChecksumType": "FULL_OBJECT"},
            Expected("crc32", b"1234"),
        ),
        ({"ETag": '"x"', "ChecksumCRC32": "no base64", "ChecksumSHA256": encoded(b"short")}, None),
        ({}, None),
    ],
)
def test_what_an_answer_says_of_the_contents(answer: dict[str, str], expected: Expected | None) -> None:
    assert expected_of(answer) == expected


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("crc32c", "e3069283"),
        ("crc64nvme", "ae8b14860a799888"),
        ("crc32", "cbf43926"),
        ("sha1", hashlib.sha1(b"123456789").hexdigest()),
    ],
)
def test_algorithms_by_their_check_values(algorithm: str, digest: str) -> None:
    for cuts in ([0, 9], [0, 1, 8, 9]):
        running = Running(Expected(algorithm, bytes.fromhex(digest)), 9)
        for start, end in itertools.pairwise(cuts):
            assert running.add(start, memoryview(b"123456789")[start:end])
    assert not Running(Expected(algorithm, bytes.fromhex(digest)), 9).add(0, memoryview(b"123456780"))


def test_crcs_of_any_length_are_those_of_their_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the polynomial of zlib, which says what is right."""
    monkeypatch.setitem(checksums._POLYNOMIALS, "as zlib", (0xEDB88320, 4))
    chance = random.Random(3)
    for size in (1, 7, 8, 9, 63, 64, 65, 1000, 1 << 20, (1 << 20) + 1, 2_500_000):
        data = chance.randbytes(size)
        running = Running(Expected("as zlib", zlib.crc32(data).to_bytes(4, "big")), size)
        cut = chance.randrange(size)
        assert running.add(0, memoryview(data)[:cut])
        assert running.add(cut, memoryview(data)[cut:])


def test_reading_out_of_order_compares_nothing_and_harms_nothing(bucket: str, s3: Any) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    with opening.open_input(f"s3://{bucket}/a") as file:
        for offset, n in ((0, 2_000_000), (9_000_000, 2_000_000), (2_000_000, 9_000_000), (0, 11_000_000), (5, 7)):
            file.seek(offset)
            assert file.read(n) == DATA[offset : offset + n]


def jsonl(n: int) -> bytes:
    return b"".join(json.dumps({"id": i, "text": f"{i} " + "word " * 200}).encode() + b"\n" for i in range(n))


def test_a_run_sets_a_damaged_object_aside_and_reads_one_that_was_changed_on_the_way_again(
    bucket: str, s3: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        s3.put_object(Bucket=bucket, Key=f"in/{name}.jsonl", Body=jsonl(1500 if name == "a" else 100))
    proxy.fault = flipping(1, "a.jsonl")
    assert copy(f"s3://{bucket}/in", str(tmp_path / "once")).ledger.written.n == 1600
    assert proxy.n_faults == 1
    opening._sources.clear()
    proxy.fault = flipping(1000, "a.jsonl")
    with pytest.raises(Incomplete):
        copy(f"s3://{bucket}/in", str(tmp_path / "always"))
    entries = [path.read_text() for path in (run_dir_path(tmp_path / "always") / "quarantine").glob("*.jsonl")]
    assert any("what arrived is not what the store holds" in entry and "a.jsonl" in entry for entry in entries)


def test_objects_of_tamis_own_are_compared(
    bucket: str, s3: Any, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = requests.Bucket(bucket)
    store.put("small", b"x" * 1000)
    s3.put_object(Bucket=bucket, Key="large", Body=DATA)
    proxy.fault = flipping(1)
    assert store.get("small") == b"x" * 1000
    proxy.fault = flipping(1)
    store.fetch_key("large", str(tmp_path / "large"))
    assert (tmp_path / "large").read_bytes() == DATA
    proxy.fault = flipping(1)
    store.fetch(next(store.objects("large")), str(tmp_path / "listed"))
    assert (tmp_path / "listed").read_bytes() == DATA
    monkeypatch.setattr(spool, "_place", None)
    spool.keep_copies(str(tmp_path / "spool"))
    proxy.fault = flipping(1)
    with spool.open_bytes(f"s3://{bucket}/large") as file:
        assert file.pread(len(DATA), 0) == DATA
    proxy.fault = flipping(1000)
    for read in (
        lambda: store.get("small"),
        lambda: store.fetch_key("large", str(tmp_path / "other")),
    ):
        with pytest.raises(Damaged):
            read()
    assert not (tmp_path / "other").exists()
    with pytest.raises(DownloadError, match="what arrived is not what the store holds"):
        fetch_object(f"s3://{bucket}/large", str(tmp_path / "download"))
    assert not (tmp_path / "download").exists()


def test_a_store_that_stops_answering_is_no_fault_of_a_compressed_file(
    bucket: str, s3: Any, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry.call_with_retries, "__defaults__", (retry.Policy(n_tries=2), lambda s: None))
    s3.put_object(Bucket=bucket, Key="a.jsonl.gz", Body=gzip.compress(DATA))
    with StreamReader.open(f"s3://{bucket}/a.jsonl.gz") as reader:
        assert reader.read(1000)
        proxy.fault = lambda method, path, n: "500"
        with pytest.raises(StoreError, match="failed 2 times"):
            collections.deque(iter(lambda: reader.read(1 << 20), b""), maxlen=0)


def test_documents_of_a_bucket_are_unchanged(bucket: str, s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="in/a.jsonl.gz", Body=gzip.compress(jsonl(2000)))
    assert copy(f"s3://{bucket}/in", f"s3://{bucket}/out").ledger.written.n == 2000
    assert documents(s3, bucket, "out") == list(range(2000))
