"""Fifty faults over a run out of a bucket and into one: a part of `make bench-stores`.

A real S3 server (moto) on loopback with a proxy before it that answers 500 and 503, drops connections, loses answers,
cuts bodies in half and waits, by chance. `tamis run` copies JSONL from one prefix to another; its content hash is
compared with that of the same run between local folders, and the bucket is looked at for unfinished uploads.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measuring import TAMIS, measure
from tests.support.s3_server import CREDENTIALS, FaultyProxy, S3Server

KINDS = ("500", "503", "drop", "lost", "cut", "slow")
SHARE = 0.25  # of all requests
N_FAULTS = 50
N_FILES = 24
RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
    files_per_partition: 1
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {target}
"""


def row(folder: Path, text: Path) -> tuple[str, bool]:
    """Return a row of the table, and whether it is as it should be. `text`: the JSONL that the input is cut from."""
    import boto3

    source = folder / "faults-in"
    source.mkdir(parents=True)
    with open(text, "rb") as file:
        for i in range(N_FILES):
            (source / f"{i:03d}.jsonl").write_bytes(b"".join(file.readline() for _ in range(100)))
    plain = _run(folder, str(source), str(folder / "faults-out"), dict(os.environ))
    chance = random.Random(7)
    with S3Server() as server:
        own = boto3.client(
            "s3", endpoint_url=server.url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        own.create_bucket(Bucket="copies")
        for path in sorted(source.iterdir()):
            own.put_object(Bucket="copies", Key=f"in/{path.name}", Body=path.read_bytes())
        proxy = FaultyProxy(server.port)
        proxy.fault = lambda method, path, n: chance.choice(KINDS) if chance.random() < SHARE else ""
        try:
            env = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url, "TAMIS_RUNS": str(folder / "runs")}
            faulty = _run(folder, "s3://copies/in", "s3://copies/out", env)
        finally:
            proxy.close()
        n_left = len(own.list_multipart_uploads(Bucket="copies").get("Uploads", []))
    same = faulty.get("status") == "finished" and faulty["content_hash"] == plain["content_hash"]
    told = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(k for _, _, k in proxy.requests if k).items()))
    outcome = f"{'the same' if same else 'ANOTHER'} content hash, {n_left} uploads left behind"
    ok = same and n_left == 0 and proxy.n_faults >= N_FAULTS
    return (
        f"| `tamis run`, bucket to bucket, {proxy.n_faults} faults in {len(proxy.requests)} requests | | {told}: "
        f"{outcome} |",
        ok,
    )


def _run(folder: Path, source: str, target: str, env: dict[str, str]) -> dict[str, Any]:
    recipe = folder / "faults.yaml"
    recipe.write_text(RECIPE.format(source=source, target=target))
    said = measure([TAMIS, "run", str(recipe), "--memory", "512MB", "--json", "--quiet"], env=env)["said"]
    return said if isinstance(said, dict) else {}
