"""Small runs into a bucket, and what lies there then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tamis import InProcessExecutor, Pipeline
from tamis.stages.text.io import JsonlReader, JsonlWriter


def write_input(folder: Path, n_files: int = 2, n: int = 100) -> str:
    folder.mkdir(exist_ok=True)
    for f in range(n_files):
        lines = [json.dumps({"id": f * n + i, "text": f"document {f * n + i}"}) for i in range(n)]
        (folder / f"{f}.jsonl").write_text("\n".join([*lines, "{bad"]) + "\n")
    return str(folder)


def copy(source: str, output: str, writer: Any = JsonlWriter, **options: Any) -> Any:
    pipeline = Pipeline("copy", stages=[JsonlReader(source, files_per_partition=1), writer(output, **options)])
    pipeline.run(InProcessExecutor())
    return pipeline.last_result


def keys(s3: Any, bucket: str, prefix: str = "") -> list[str]:
    return [o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]


def documents(s3: Any, bucket: str, prefix: str) -> list[int]:
    found = []
    for key in keys(s3, bucket, f"{prefix}/part-"):
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        found += [json.loads(line)["id"] for line in body.splitlines()]
    return sorted(found)


def n_uploads(s3: Any, bucket: str) -> int:
    return len(s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []))
