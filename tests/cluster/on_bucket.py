"""Input, output and scratch in a bucket (an S3 server on loopback), workers on a real Ray cluster.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tests.cluster.on_one_node import HERE, command, start
from tests.support.s3_server import CREDENTIALS, S3Server


def write_documents() -> None:
    """Of every seven documents one is no prose; every second one is there twice, some in every file."""
    (HERE / "data").mkdir()
    for f in range(3):
        with open(HERE / "data" / f"{f}.jsonl", "w") as file:
            for n in range(200):
                lines = [
                    f"The river number {n // 2} carries the drum {f if n % 4 else ''} to place {k}." for k in range(8)
                ]
                text = "no prose" if n % 7 == 0 else "\n".join(lines)
                file.write(json.dumps({"id": f"{f}-{n}", "text": text}) + "\n")


def main() -> None:
    import boto3

    from tamis.core.client import RayClient

    write_documents()
    with S3Server(600.0) as server:
        # Workers find the credentials where a user's would: in the environment of the node.
        os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=server.url, TAMIS_RUNS=str(HERE / "runs"))
        s3: Any = boto3.client("s3", endpoint_url=server.url)
        s3.create_bucket(Bucket="corpus")
        for path in sorted((HERE / "data").iterdir()):
            s3.upload_file(str(path), "corpus", f"in/{path.name}")
        found: dict[str, Any] = {"here": command("filter", "c4", "data", "here", "--memory", "1GB", "--quiet")}
        client = RayClient(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000)
        start(client)
        try:
            words = ["--executor", "ray", "--address", client.address, "--memory", "1GB", "--quiet"]
            found["filter"] = command(
                "filter", "c4", "s3://corpus/in", "s3://corpus/clean", "--blocksize", "100kB", *words
            )
            far = ["--scratch", "s3://corpus/tmp"]
            found["dedup"] = command("dedup", "exact", "s3://corpus/in", "s3://corpus/unique", *far, *words)
            found["exact here"] = command("dedup", "exact", "data", "exact-here", "--memory", "1GB", "--quiet")
        finally:
            client.stop()
        found["kept here"] = ids_in((HERE / "here").glob("*.jsonl"))
        found["kept"] = sorted(objects(s3, "clean/"))
        found["unique here"] = ids_in((HERE / "exact-here").glob("*.jsonl"))
        found["unique"] = sorted(objects(s3, "unique/"))
        found["scratch"] = s3.list_objects_v2(Bucket="corpus", Prefix="tmp/")["KeyCount"]
        found["uploads"] = len(s3.list_multipart_uploads(Bucket="corpus").get("Uploads", []))
    print(json.dumps(found))


def ids_in(paths: Any) -> list[str]:
    return sorted(json.loads(line)["id"] for path in paths for line in path.read_text().splitlines())


def objects(s3: Any, prefix: str) -> list[str]:
    found: list[str] = []
    for entry in s3.list_objects_v2(Bucket="corpus", Prefix=prefix).get("Contents", []):
        if entry["Key"].endswith(".jsonl") and "/_tamis/" not in entry["Key"]:
            body = s3.get_object(Bucket="corpus", Key=entry["Key"])["Body"].read()
            found += [json.loads(line)["id"] for line in body.splitlines()]
    return found


if __name__ == "__main__":
    main()
