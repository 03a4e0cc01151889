"""Shards in a bucket: each written by a machine of its own, joined by the store's own copying."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.engine.run.output.bucket_output import BucketOutput
from tamis.errors import RunConflict
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.stores import s3 as requests
from tamis.stores.uploads import send
from tests.support.bucket_runs import documents, keys, n_uploads


def put_input(s3: Any, bucket: str) -> None:
    for f in range(2):
        lines = [json.dumps({"id": f * 50 + i, "text": f"text {i if i % 2 else f * 50 + i}"}) for i in range(50)]
        s3.put_object(Bucket=bucket, Key=f"in/{f}.jsonl", Body="\n".join([*lines, "{bad"]).encode() + b"\n")


def test_a_run_in_shards(bucket: str, s3: Any, tmp_path: Path, monkeypatch: Any) -> None:
    put_input(s3, bucket)

    def copy(**settings: Any) -> Any:
        stages = [JsonlReader(f"s3://{bucket}/in"), JsonlWriter(f"s3://{bucket}/out")]
        pipeline = Pipeline("copy", stages=stages)
        pipeline.run(InProcessExecutor(), progress=False, quarantine_limit="10%", **settings)
        return pipeline.last_result

    for i in range(2):
        monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / f"machine-{i}"))
        assert copy(shard=f"{i}/2").ledger.written.n >= 40
    monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / "another"))
    joined = copy(merge=True)
    assert (joined.ledger.written.n, joined.ledger.quarantined.n) == (100, 2)
    assert documents(s3, bucket, "out") == list(range(100))
    assert [k for k in keys(s3, bucket, "out/") if "shard-" in k] == []
    assert n_uploads(s3, bucket) == 0
    assert copy().status == "already"


@pytest.mark.slow
def test_a_deduplication_in_shards(bucket: str, s3: Any, tmp_path: Path, monkeypatch: Any) -> None:
    put_input(s3, bucket)
    make = lambda: RemoveExactDuplicates(f"s3://{bucket}/out", f"s3://{bucket}/in")  # noqa: E731
    options: dict[str, Any] = {"quarantine_limit": "10%"}
    for i in range(2):
        monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / f"machine-{i}"))
        assert make().run(InProcessExecutor(), shard=f"{i}/2", **options).status == "shard"
    assert [k for k in keys(s3, bucket, "out/shard-keys-0/") if k.endswith(".arrow")]
    monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / "another"))
    joined = make().run(InProcessExecutor(), merge=True, **options)
    assert joined.n_duplicates == 25
    assert len(documents(s3, bucket, "out")) == 75
    assert [k for k in keys(s3, bucket, "out/") if "shard-" in k] == []


def test_large_objects_are_copied_in_parts_and_nothing_of_somebody_else_is_taken_for_one(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_COPY_BYTES", 5 << 20)
    data = os.urandom(6 << 20)
    (tmp_path / "a").write_bytes(data)
    whole, shard = BucketOutput(f"s3://{bucket}/out"), BucketOutput(f"s3://{bucket}/out/shard-00000-of-00001")
    sent = send(shard.bucket, f"{shard.prefix}/part-0", str(tmp_path / "a"))
    shard.bucket.complete(f"{shard.prefix}/part-0", sent.id, sent.parts, sent.mark)
    shard.list_objects()
    for _ in range(2):  # a join that was killed does it again
        whole.take(shard, "part-0")
        whole.list_objects()
    found = whole.bucket.head("out/part-0")
    assert found is not None
    assert found.mark == sent.mark
    assert s3.get_object(Bucket=bucket, Key="out/part-0")["Body"].read() == data
    s3.put_object(Bucket=bucket, Key="out/part-0", Body=bytes(6 << 20))  # as large, and not ours
    with pytest.raises(RunConflict, match="no shard wrote it"):
        whole.take(shard, "part-0")
    assert n_uploads(s3, bucket) == 0
