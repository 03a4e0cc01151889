"""Output in a bucket: whole or not at all, once, and gone on with from the bucket alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.engine.run.output import bucket_output
from tamis.engine.run.output.bucket_output import BucketOutput
from tamis.engine.run.output.commit_log import checked_line
from tamis.engine.run.output.directory import RunDir
from tamis.engine.schema import RetractRecord
from tamis.errors import RunConflict, StoreError, TamisError, UsageError
from tamis.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stores import s3 as requests
from tamis.stores.run_locations import default_local_dir, fetch_run_dir
from tests.support.bucket_runs import copy, documents, keys, n_uploads, write_input
from tests.support.run_dirs import run_dir_path


def test_a_run_writes_to_a_bucket_and_says_already(bucket: str, s3: Any, tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    local = copy(source, str(tmp_path / "out"))
    result = copy(source, f"s3://{bucket}/a/out/")
    assert result.output == f"s3://{bucket}/a/out"
    assert result.ledger.to_dict()["content"] == local.ledger.to_dict()["content"]
    assert documents(s3, bucket, "a/out") == list(range(200))
    found = keys(s3, bucket, "a/out/_tamis/")
    assert [k for k in found if "/log/" in k]
    assert {"plan.json", "steps.json", "manifest.json"} <= {k.rpartition("/")[2] for k in found}
    assert len([k for k in found if "/quarantine/" in k]) >= 2
    assert n_uploads(s3, bucket) == 0
    assert copy(source, f"s3://{bucket}/a/out").status == "already"
    assert next(f.name for f in result.files).startswith("part-000000-")


def test_the_bucket_alone_is_enough_to_continue(bucket: str, s3: Any, tmp_path: Path) -> None:
    source, url = write_input(tmp_path / "in"), f"s3://{bucket}/out"
    first = copy(source, url)
    shutil.rmtree(default_local_dir(url))
    again = copy(source, url)
    assert again.status == "already"
    assert again.ledger.to_dict() == first.ledger.to_dict()
    home = run_dir_path(Path(default_local_dir(url))) / "quarantine"
    assert len(list(home.glob("*.jsonl"))) == 2


def test_what_was_logged_and_not_completed_is_completed(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the driver was killed between the log and the completion."""
    source, url = write_input(tmp_path / "in"), f"s3://{bucket}/out"

    def killed(self: Any, sent: Any) -> None:
        if sent:
            raise StoreError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(BucketOutput, "_complete", killed)
        with pytest.raises(TamisError, match="killed here"):
            copy(source, url)
    assert [k for k in keys(s3, bucket, "out/") if "/log/" in k]
    assert keys(s3, bucket, "out/part-") == []
    assert n_uploads(s3, bucket) > 0
    shutil.rmtree(default_local_dir(url))
    result = copy(source, url)
    assert result.ledger.written.n == 200
    assert documents(s3, bucket, "out") == list(range(200))
    assert n_uploads(s3, bucket) == 0


def test_uploads_of_killed_runs_are_aborted_by_age_and_others_left_alone(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = write_input(tmp_path / "in", 1), f"s3://{bucket}/out"
    copy(source, url)
    mine = s3.create_multipart_upload(Bucket=bucket, Key="out/part-000009-000000000000000.jsonl")["UploadId"]
    other = s3.create_multipart_upload(Bucket=bucket, Key="out/sub/part-1.jsonl")["UploadId"]
    # This server says of every upload that it was begun in 2010.
    monkeypatch.setattr(bucket_output, "OLD_UPLOAD_S", 1e12)
    folder = RunDir(url)
    folder.open()
    folder.close()
    assert n_uploads(s3, bucket) == 2  # young: somebody may be writing
    monkeypatch.setattr(bucket_output, "OLD_UPLOAD_S", 3600.0)
    folder = RunDir(url)
    folder.open()
    folder.close()
    left = [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]
    assert left == [other]
    assert mine not in left


def test_two_runs_cannot_commit_to_one_output(bucket: str, s3: Any, tmp_path: Path) -> None:
    source, url = write_input(tmp_path / "in"), f"s3://{bucket}/out"
    copy(source, url)
    first, second = RunDir(url), BucketOutput(url)
    first.open()
    try:
        second.open(str(Path(first.path)), first.log)
        assert first.remote is not None
        first.remote._log([RetractRecord(7)])
        with pytest.raises(StoreError, match="another run commits to s3://"):
            second._log([RetractRecord(7)])
    finally:
        first.close()


def test_a_store_that_ignores_conditions_is_refused(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = requests.Bucket._put
    monkeypatch.setattr(requests.Bucket, "_put", lambda self, key, data, conditions=None: plain(self, key, data))
    with pytest.raises(RunConflict, match="ignores conditional writes"):
        copy(write_input(tmp_path / "in"), f"s3://{bucket}/out")
    assert keys(s3, bucket) == []


def test_fresh_removes_what_tamis_wrote_and_nothing_else(bucket: str, s3: Any, tmp_path: Path) -> None:
    source, url = write_input(tmp_path / "in"), f"s3://{bucket}/out"
    copy(source, url)
    s3.put_object(Bucket=bucket, Key="out/mine.txt", Body=b"mine")
    copy(write_input(tmp_path / "in2", 1, 10), url, mode="overwrite")
    assert documents(s3, bucket, "out") == list(range(10))
    assert s3.get_object(Bucket=bucket, Key="out/mine.txt")["Body"].read() == b"mine"


def test_other_data_and_other_work_are_refused(bucket: str, s3: Any, tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 1)
    s3.put_object(Bucket=bucket, Key="theirs/a.txt", Body=b"x")
    with pytest.raises(RunConflict, match=r"data that Tamis did not write \('a.txt'\); .* mode='append'"):
        copy(source, f"s3://{bucket}/theirs")
    copy(source, f"s3://{bucket}/out")
    with pytest.raises(RunConflict, match="already contains a different run"):
        copy(write_input(tmp_path / "in2", 2), f"s3://{bucket}/out")
    s3.delete_object(Bucket=bucket, Key=keys(s3, bucket, "out/part-")[0])
    with pytest.raises(RunConflict, match="was committed by this run and is gone"):
        copy(source, f"s3://{bucket}/out")
    for bad in ("s3://bucket", "s3://bucket/a/../b", "https://host/a"):
        with pytest.raises(UsageError):
            JsonlWriter(bad)


def test_parquet_files_get_one_schema_in_a_bucket_too(bucket: str, s3: Any, tmp_path: Path) -> None:
    import io

    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "n": 1}\n')
    (tmp_path / "in" / "b.jsonl").write_text('{"id": 2, "n": 1.5, "more": "x"}\n')
    copy(str(tmp_path / "in"), f"s3://{bucket}/out", ParquetWriter)
    found = keys(s3, bucket, "out/part-")
    tables = [pq.read_table(io.BytesIO(s3.get_object(Bucket=bucket, Key=k)["Body"].read())) for k in found]
    assert len({str(t.schema) for t in tables}) == 1
    assert sorted(i for t in tables for i in t["id"].to_pylist()) == [1, 2]
    assert copy(str(tmp_path / "in"), f"s3://{bucket}/out", ParquetWriter).status == "already"


def test_workers_of_their_own_read_and_write_a_bucket_and_secrets_stay_out_of_it(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in Path(write_input(tmp_path / "in")).iterdir():
        s3.put_object(Bucket=bucket, Key=f"in/{path.name}", Body=path.read_bytes())
    url = f"s3://{bucket}/out"
    pipeline = Pipeline("copy", stages=[JsonlReader(f"s3://{bucket}/in", files_per_partition=1), JsonlWriter(url)])
    pipeline.run(memory="512MB")
    assert documents(s3, bucket, "out") == list(range(200))
    assert pipeline.last_result.peak_bytes <= 512 * 10**6
    kept = b"".join(s3.get_object(Bucket=bucket, Key=k)["Body"].read() for k in keys(s3, bucket, "out/_tamis/"))
    kept += b"".join(p.read_bytes() for p in Path(default_local_dir(url)).rglob("*") if p.is_file())
    assert b"not-so-secret" not in kept
    assert b"test-access-key-id" not in kept


def test_a_step_that_was_taken_back_goes_wherever_that_was_interrupted(bucket: str, s3: Any, tmp_path: Path) -> None:
    """As if the driver was killed between the log and the removal; and a log that others wrote is refused."""
    source, url = write_input(tmp_path / "in", 1), f"s3://{bucket}/out"
    copy(source, url)
    folder = RunDir(url)
    folder.open()
    assert folder.remote is not None
    folder.remote._log([RetractRecord(0)])
    folder.close()
    assert keys(s3, bucket, "out/part-")
    folder = RunDir(url)
    folder.open()
    folder.close()
    assert keys(s3, bucket, "out/part-") == []
    assert list(folder.log.read()) == []
    s3.put_object(
        Bucket=bucket, Key=f"out/_tamis/log/{2:020d}", Body=checked_line(b'{"t":"commit","files":[{"upload":3}]}')
    )
    with pytest.raises(RunConflict, match="is damaged"):
        RunDir(url).open()


def test_a_log_that_names_a_folder_elsewhere_writes_nothing_there(bucket: str, s3: Any, tmp_path: Path) -> None:
    source, url = write_input(tmp_path / "in", 1), f"s3://{bucket}/out"
    copy(source, url)
    file = {"kind": "../../elsewhere", "name": "a", "bytes": 1}
    s3.put_object(Bucket=bucket, Key="elsewhere/a", Body=b"x")
    n = len(keys(s3, bucket, "out/_tamis/log/"))
    hostile = {"t": "commit", "step": 0, "cover": [], "files": [file], "ledger": {}}
    s3.put_object(Bucket=bucket, Key=f"out/_tamis/log/{n:020d}", Body=checked_line(json.dumps(hostile).encode()))
    with pytest.raises(RunConflict, match="is damaged"):
        RunDir(url).open()
    assert not list(tmp_path.rglob("elsewhere"))


def test_a_run_that_is_refused_leaves_the_uploads_of_another_machine_alone(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This server says of every upload that it was begun in 2010.
    monkeypatch.setattr(bucket_output, "OLD_UPLOAD_S", 1e12)
    source, url = write_input(tmp_path / "in", 1), f"s3://{bucket}/out"
    copy(source, url)
    s3.create_multipart_upload(Bucket=bucket, Key="out/part-000009-000000000000000.jsonl")
    with pytest.raises(RunConflict, match="already contains a different run"):
        copy(write_input(tmp_path / "in2", 1, 10), url)
    assert n_uploads(s3, bucket) == 1
    copy(write_input(tmp_path / "in2", 1, 10), url, mode="overwrite")  # who has committed knows that nobody else does
    assert n_uploads(s3, bucket) == 0


def test_who_looks_at_a_run_again_sees_what_became_of_it(
    bucket: str, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = write_input(tmp_path / "in"), f"s3://{bucket}/out"

    def written_as_seen_from(machine: str) -> int:
        monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / machine))
        manifest = run_dir_path(Path(fetch_run_dir(url))) / "manifest.json"
        return int(json.loads(manifest.read_text())["ledger"]["written"][0])

    def sampled(machine: str, share: float) -> None:
        monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / machine))
        stages = [JsonlReader(source, files_per_partition=1), JsonlWriter(url)]
        Pipeline("copy", stages=stages).run(InProcessExecutor(), sample=share)

    sampled("first", 0.2)
    few = written_as_seen_from("laptop")
    assert 0 < few < 200
    sampled("second", 1.0)  # another machine goes on
    assert [written_as_seen_from(m) for m in ("second", "laptop", "first")] == [200, 200, 200]
    (tmp_path / "laptop").rename(tmp_path / "away")
    assert written_as_seen_from("away") == 200
    s3.put_object(Bucket=bucket, Key="out/_tamis/../../escaped", Body=b"x")
    written_as_seen_from("away")
    assert not (tmp_path / "escaped").exists()


def test_folders_by_fields_in_a_bucket(bucket: str, s3: Any, tmp_path: Path) -> None:
    rows = [{"id": i, "text": "t", "lang": ["en", "a/b", None][i % 3]} for i in range(30)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    url = f"s3://{bucket}/out"
    first = copy(str(tmp_path / "in"), url, partition_by="lang")
    folders = ("lang=a%2Fb", "lang=en", "lang=__HIVE_DEFAULT_PARTITION__")
    assert [k for k in keys(s3, bucket, "out/") if "_tamis" not in k] == sorted(
        f"out/{folder}/part-00000.jsonl" for folder in folders
    )
    body = s3.get_object(Bucket=bucket, Key="out/lang=en/part-00000.jsonl")["Body"].read()
    assert [json.loads(line) for line in body.splitlines()] == [{"id": i, "text": "t"} for i in range(0, 30, 3)]
    shutil.rmtree(default_local_dir(url))
    assert copy(str(tmp_path / "in"), url, partition_by="lang").status == "already"
    assert n_uploads(s3, bucket) == 0
    copy(url, str(tmp_path / "back"))
    found = [json.loads(line) for p in (tmp_path / "back").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert {d["id"]: d.get("lang") for d in found} == {row["id"]: row["lang"] for row in rows}
    assert first.n_files == 3
