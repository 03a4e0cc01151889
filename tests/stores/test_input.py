"""Pipelines and deduplications over input in a bucket: the same documents as from a local folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.main import app
from tamis.errors import StoreError, UsageError
from tamis.stages.text.io import DocumentReader, JsonlReader, JsonlWriter
from tamis.stores import opening
from tamis.stores.listing import list_input
from tests.support.cli_runner import CliRunner


def _documents(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": i, "text": f"document {i} " + "word " * (i % 50)} for i in range(first, first + n)]


def _lines(documents: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(d).encode() + b"\n" for d in documents)


def make_input(folder: Path) -> None:
    """JSONL, gzip, Parquet and Arrow, a bad line among them."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(_lines(_documents(3000)) + b"{broken\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(_lines(_documents(500, 3000))))
    table = pa.Table.from_pylist(_documents(700, 3500))
    pq.write_table(table, folder / "c.parquet", row_group_size=100)
    pa.feather.write_feather(table, str(folder / "d.arrow"), compression="zstd")


def upload(s3: Any, bucket: str, folder: Path, prefix: str) -> None:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())


def test_input_in_a_bucket_gives_what_local_input_gives(bucket: str, s3: Any, tmp_path: Path) -> None:
    make_input(tmp_path / "in")
    upload(s3, bucket, tmp_path / "in", "in")
    results = []
    for source, output in ((str(tmp_path / "in"), "local"), (f"s3://{bucket}/in", "remote")):
        pipeline = Pipeline(
            "copy", stages=[DocumentReader(source, blocksize="40kB"), JsonlWriter(str(tmp_path / output))]
        )
        pipeline.run(InProcessExecutor())
        results.append(pipeline.last_result)
    local, remote = (r.ledger.to_dict() for r in results)
    assert remote["written"] == local["written"]
    assert remote["content"] == local["content"]
    assert results[1].ledger.written.n == 4900
    assert results[1].ledger.quarantined.n == 1


def test_a_run_continues_only_over_the_same_objects(bucket: str, s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=_lines(_documents(10)))
    make = lambda: Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in"), JsonlWriter(str(tmp_path / "out"))])  # noqa: E731
    make().run(InProcessExecutor())
    again = make()
    again.run(InProcessExecutor())
    assert again.last_result.status == "already"
    s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=_lines(_documents(10))[::-1])
    with pytest.raises(Exception, match=r"in/a.jsonl was modified"):
        make().run(InProcessExecutor())


def test_a_later_run_of_the_same_program_reads_what_is_there_then(bucket: str, s3: Any, tmp_path: Path) -> None:
    for n in (10, 20):
        s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=_lines(_documents(n)))
        pipeline = Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in"), JsonlWriter(str(tmp_path / str(n)))])
        pipeline.run(InProcessExecutor(), progress=False)
        assert (pipeline.last_result.ledger.written.n, pipeline.last_result.ledger.n_bad_ranges) == (n, 0)


def test_a_store_that_goes_away_ends_the_run_and_blames_no_document(
    bucket: str, s3: Any, proxy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tamis.stores import retry

    s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=_lines(_documents(2000)))
    monkeypatch.setattr(
        retry.call_with_retries, "__defaults__", (retry.Policy(n_tries=2, first_s=0.01), lambda s: None)
    )
    proxy.fault = lambda method, path, n: (
        "500" if "Range" not in path and method == "GET" and "list-type" not in path else ""
    )
    make = lambda: Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in"), JsonlWriter(str(tmp_path / "out"))])  # noqa: E731
    with pytest.raises(Exception, match="failed 2 times"):
        make().run(InProcessExecutor())
    proxy.fault = lambda method, path, n: ""
    opening.forget(f"s3://{bucket}/in/a.jsonl")
    pipeline = make()
    pipeline.run(InProcessExecutor())
    assert (pipeline.last_result.ledger.written.n, pipeline.last_result.ledger.quarantined.n) == (2000, 0)
    assert issubclass(StoreError, OSError)


@pytest.mark.slow
def test_workers_of_their_own_read_a_bucket_inside_a_budget(bucket: str, s3: Any, tmp_path: Path) -> None:
    """boto3 is loaded where workers are forked from, and by nobody for local jobs (test_layout.py)."""
    for i in range(3):
        s3.put_object(Bucket=bucket, Key=f"in/{i}.jsonl", Body=_lines(_documents(4000, i * 4000)))
    pipeline = Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in"), JsonlWriter(str(tmp_path / "out"))])
    pipeline.run(memory="512MB")
    result = pipeline.last_result
    assert result.ledger.written.n == 12000
    assert 0 < result.peak_bytes <= 512 * 10**6


def test_sets_in_patterns(bucket: str, s3: Any, tmp_path: Path) -> None:
    """As a shell has them; one that means nothing is told in a sentence."""
    for name in ("a", "b", "^", "z", "["):
        s3.put_object(Bucket=bucket, Key=f"in/{name}.jsonl", Body=_lines(_documents(1)))

    def names(pattern: str) -> list[str]:
        found = list_input(f"s3://{bucket}/in/{pattern}.jsonl", lambda name: True, [])
        return [url.rpartition("/")[2][0] for url, _, _ in found.files]

    assert names("[ab]") == ["a", "b"]
    assert names("[!a-b]") == ["[", "^", "z"]
    assert names("[[^]") == ["[", "^"]
    with pytest.raises(UsageError, match=r"in/\[z-a\].jsonl: not a pattern .*smaller letter first"):
        names("[z-a]")
    result = CliRunner().invoke(
        app, ["run", "copy", "--set", f"input=s3://{bucket}/in/[z-a]*", "--set", f"output={tmp_path}/o"]
    )
    assert result.exit_code == 2
    assert "not a pattern" in result.stderr


def test_scratch_that_would_be_read_is_refused(bucket: str, s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="in/a.jsonl", Body=_lines(_documents(3)))

    def read(path: str, scratch: str) -> list[str]:
        found = list_input(f"s3://{bucket}/{path}", lambda name: True, [], f"s3://{bucket}/{scratch}")
        return [url.removeprefix(f"s3://{bucket}/") for url, _, _ in found.files]

    for path, scratch in (
        ("in", "in"),
        ("in/", "in/tmp/"),
        ("", "tmp"),
        ("in/*", "in"),
        ("in/*", "in/tmp"),
        ("in/**/*.jsonl", "in/x"),
    ):
        with pytest.raises(UsageError, match=r"scratch: .* is inside the input: .* begins with a dot"):
            read(path, scratch)
    for path, scratch in (
        ("in", "inner"),
        ("in", "tmp"),
        ("in", "in/.tmp"),
        ("in/*.jsonl", "in"),
        ("in/a.jsonl", "in"),
    ):
        assert read(path, scratch) == ["in/a.jsonl"]
    pipeline = Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in"), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(UsageError, match="is inside the input"):
        pipeline.run(InProcessExecutor(), progress=False, scratch=f"s3://{bucket}/in/tmp")
    assert not (tmp_path / "out").exists()
