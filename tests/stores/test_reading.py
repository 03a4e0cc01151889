"""Remote files: ranges bound to a version, in parallel, whole in spite of what networks do."""

from __future__ import annotations

import hashlib
import os
import random
from typing import Any

import pytest

from tamis.errors import StoreError, UsageError
from tamis.formats.input_files.listing import list_files
from tamis.stores import opening, options, retry
from tamis.stores import s3 as requests
from tamis.stores.reading import Changed
from tests.support.s3_server import FaultyProxy

DATA = random.Random(5).randbytes(5_300_000)


def test_a_remote_file_reads_like_a_local_one(bucket: str, s3: Any, tmp_path: Any) -> None:
    s3.put_object(Bucket=bucket, Key="a/data.bin", Body=DATA)
    (tmp_path / "data.bin").write_bytes(DATA)
    chance = random.Random(1)
    with opening.open_input(f"s3://{bucket}/a/data.bin") as remote, open(tmp_path / "data.bin", "rb") as local:
        for _ in range(60):
            at, n = chance.randrange(len(DATA) + 10), chance.choice([0, 1, 100, 70_000, 1_500_000, 4_200_000])
            assert remote.seek(at) == local.seek(at)
            assert remote.read(n) == local.read(n)
            assert remote.tell() == local.tell()
        assert remote.seek(-3, os.SEEK_END) == local.seek(-3, os.SEEK_END)
        assert remote.read() == local.read()
    assert opening.size_of(f"s3://{bucket}/a/data.bin") == len(DATA)


def test_large_reads_are_several_ranges_and_small_ones_few_requests(bucket: str, s3: Any, proxy: FaultyProxy) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    with opening.open_input(f"s3://{bucket}/a") as file:
        assert file.read() == DATA
        assert sum(method == "GET" for method, _, _ in proxy.requests) == 4
        proxy.requests.clear()
        file.seek(0)
        pieces = [file.read(1000) for _ in range(500)]
    assert b"".join(pieces) == DATA[:500_000]
    assert len(proxy.requests) <= 2


@pytest.mark.parametrize("fault", ["500", "503", "drop", "lost", "cut", "slow"])
def test_every_fault_passes(fault: str, bucket: str, s3: Any, proxy: FaultyProxy) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    proxy.fault = lambda method, path, n: fault if n in (0, 2, 3) else ""
    with opening.open_input(f"s3://{bucket}/a") as file:
        assert hashlib.md5(file.read()).digest() == hashlib.md5(DATA).digest()
    assert proxy.n_faults == 3


def test_a_store_that_never_answers_is_an_error_that_says_so(
    bucket: str, s3: Any, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=b"x" * 100)
    proxy.fault = lambda method, path, n: "500"
    waited: list[float] = []
    monkeypatch.setattr(retry.call_with_retries, "__defaults__", (retry.POLICY, waited.append))
    with pytest.raises(StoreError, match=r"s3://.*failed 8 times, the last time with: 500"):
        opening.open_input(f"s3://{bucket}/a")
    assert len(waited) == 7
    assert all(0 < s <= 10 for s in waited)


def test_an_object_that_changes_is_never_mixed(bucket: str, s3: Any) -> None:
    s3.put_object(Bucket=bucket, Key="a", Body=DATA)
    with opening.open_input(f"s3://{bucket}/a") as file:
        assert file.read(10) == DATA[:10]
        s3.put_object(Bucket=bucket, Key="a", Body=DATA[::-1])
        file.seek(3_000_000)
        with pytest.raises(Changed, match="changed during the run"):
            file.read(10)


def test_what_is_not_there_and_what_is_refused(bucket: str, s3: Any) -> None:
    with pytest.raises(FileNotFoundError):
        opening.open_input(f"s3://{bucket}/nothing")
    with pytest.raises(StoreError, match="no bucket"):
        list_files(f"s3://{bucket}-not", (".jsonl",))
    with pytest.raises(UsageError, match="credentials come from the environment"):
        list_files("s3://me:secret@bucket/a", (".jsonl",))
    with pytest.raises(UsageError, match="ftp:// is not read"):
        list_files("ftp://host/a.jsonl", (".jsonl",))


def test_listing_follows_the_rules_of_folders(bucket: str, s3: Any) -> None:
    for key in (
        "in/b.jsonl",
        "in/a/c.jsonl.gz",
        "in/_hidden/x.jsonl",
        "in/notes.txt",
        "in/run/_tamis/plan.json",
        "in/run/part-0.jsonl",
        "in/.x.jsonl",
        "other/z.jsonl",
        "in/",
    ):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    url = f"s3://{bucket}"
    found = list_files(f"{url}/in", (".jsonl", ".jsonl.gz"))
    assert found.paths == [f"{url}/in/a/c.jsonl.gz", f"{url}/in/b.jsonl"]
    assert list(found.sizes) == [15, 10]
    reasons = {p.reason: p.n for p in found.skipped.entries()}
    assert reasons == {
        "hidden, the name begins with . or _": 2,
        "ends in .txt": 1,
        "the output of a Tamis run: read only where it is named as input itself": 1,
    }
    assert list_files(f"{url}/*/*.jsonl", (".jsonl",)).paths == [f"{url}/in/b.jsonl", f"{url}/other/z.jsonl"]
    assert list_files([f"{url}/other/z.jsonl", f"{url}/in/b.jsonl"], (".jsonl",)).paths == [
        f"{url}/other/z.jsonl",
        f"{url}/in/b.jsonl",
    ]
    assert list_files(f"{url}/in/run/", (".jsonl",)).paths == [f"{url}/in/run/part-0.jsonl"]
    with pytest.raises(UsageError, match="nothing below it"):
        list_files(f"{url}/absent", (".jsonl",))


def test_storage_options_are_checked_and_never_hold_credentials() -> None:
    assert options.check({"anon": True, "client_kwargs": {"region_name": "eu-west-1"}}).region_name == "eu-west-1"
    for given in ({"key": "AKIA"}, {"secret": "x"}, {"client_kwargs": {"aws_secret_access_key": "x"}}):
        with pytest.raises(UsageError, match="environment only") as told:
            options.check(given)
        assert "AKIA" not in str(told.value)
    with pytest.raises(UsageError, match="colour is not known"):
        options.check({"colour": 1})
    with pytest.raises(UsageError, match="endpoint_url must be"):
        options.check({"endpoint_url": "http://me:secret@host"})
    for seconds in (0, "soon", None, float("inf")):
        with pytest.raises(UsageError, match="read_timeout must be a number of seconds"):
            options.check({"config_kwargs": {"read_timeout": seconds}})


@pytest.mark.parametrize(("given", "scheme"), [(None, "https"), (True, "https"), (False, "http")])
def test_use_ssl_decides_where_no_endpoint_does(
    given: bool | None, scheme: str, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    made = requests.client(options.check({"use_ssl": given}))
    assert made.meta.endpoint_url.partition(":")[0] == scheme


def test_options_reach_a_bucket(bucket: str, s3: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=b'{"text":"a"}\n')
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    options.remember(f"s3://{bucket}/in", {"client_kwargs": {"endpoint_url": server.url}, "anon": False})
    assert list_files(f"s3://{bucket}/in", (".jsonl",)).paths == [f"s3://{bucket}/in/a.jsonl"]
