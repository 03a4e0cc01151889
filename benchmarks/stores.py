"""Figures of object stores: `make bench-stores`, or `python benchmarks/stores.py [--megabytes 1000] [--write]`.

Serves made JSONL as an S3 bucket on loopback (a small server of our own, in a process of its own, that sends files from
the page cache: servers for tests are slower than any client). Reads it with boto3 alone (8 MiB ranges, 4 threads), then
with a remote file of Tamis, in turns, the best of five each; then copies it with `tamis run` under 512 MB, measured
from outside, beside the same run out of a local folder; then once more, small, through a store that fails
(store_faults.py). `--write`: benchmarks-stores.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))
import store_faults
from figures import write_page
from measuring import TAMIS, measure

RANGE_BYTES, N_THREADS = 8 << 20, 4
GOAL, BUDGET, BUDGET_MB = 0.8, "512MB", 512
N_TURNS = 5
RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {output}
"""


class Served(BaseHTTPRequestHandler):
    """GET and HEAD of objects with ranges, and the listing of a bucket: what reading takes."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._object(body=False)

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" not in asked:
            self._object(body=True)
            return
        prefix = asked.get("prefix", [""])[0]
        found = sorted(p for p in self.folder.rglob("*") if p.is_file())
        rows = "".join(
            f"<Contents><Key>{key}</Key><Size>{p.stat().st_size}</Size><ETag>{_etag(p)}</ETag></Contents>"
            for p in found
            if (key := str(p.relative_to(self.folder))).startswith(prefix)
        )
        data = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _object(self, body: bool) -> None:
        path = self.folder / unquote(urlsplit(self.path).path).partition("/bucket/")[2]
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = path.stat().st_size
        first, last, status = 0, size - 1, 200
        if asked := self.headers.get("Range"):
            first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
            last, status = min(last, size - 1), 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", _etag(path))
        self.end_headers()
        if body:
            self.wfile.flush()
            with open(path, "rb") as file:
                while first <= last:
                    first += os.sendfile(self.connection.fileno(), file.fileno(), first, last - first + 1)


def _etag(path: Path) -> str:
    return f'"{path.stat().st_mtime_ns:x}-1"'


def serve(folder: str) -> None:
    Served.folder = Path(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def read_with(who: str) -> None:
    """Read the whole object, in a process of its own; prints seconds, by the clock and of the CPU."""
    import boto3
    from botocore.config import Config

    key, url = "in/data.jsonl", "s3://bucket/in/data.jsonl"
    if who == "boto3":
        client = boto3.client("s3", config=Config(max_pool_connections=16))
        size = client.head_object(Bucket="bucket", Key=key)["ContentLength"]

        def part(at: int) -> int:
            asked = f"bytes={at}-{min(size, at + RANGE_BYTES) - 1}"
            return len(client.get_object(Bucket="bucket", Key=key, Range=asked)["Body"].read())

        with ThreadPoolExecutor(N_THREADS) as pool:
            began, before = time.perf_counter(), time.process_time()
            n_read = sum(pool.map(part, range(0, size, RANGE_BYTES)))
    else:
        from tamis.stores.opening import open_input

        held = memoryview(bytearray(RANGE_BYTES * N_THREADS))
        with open_input(url) as file:
            began, before, n_read = time.perf_counter(), time.process_time(), 0
            while n := file.readinto(held):  # type: ignore[attr-defined]
                n_read += n
    took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - before}
    print(json.dumps({**took, "bytes": n_read}))


def make_data(path: Path, n_bytes: int) -> None:
    words = [f"word{i:04d}" for i in range(997)]
    block = "".join(
        json.dumps({"id": i, "text": " ".join(words[(i * 31 + k) % 997] for k in range(200))}) + "\n"
        for i in range(4000)
    ).encode()
    path.parent.mkdir(parents=True)
    with open(path, "wb") as file:
        while file.tell() < n_bytes:
            file.write(block)


def copied(folder: Path, source: str, env: Mapping[str, str]) -> dict[str, Any]:
    """`tamis run` from there to a local folder, measured from outside."""
    recipe, output = folder / "recipe.yaml", folder / "out"
    recipe.write_text(RECIPE.format(source=source, output=output))
    run = measure([TAMIS, "run", str(recipe), "--memory", BUDGET, "--json"], env=dict(env))
    if run["said"].get("status") != "finished":
        raise SystemExit(f"the run failed: {run['said']}")
    shutil.rmtree(output)
    return run


def told_of(run: Mapping[str, Any]) -> str:
    return f"{run['cpu_s']:.1f} s CPU, peak {run['peak_pss_mb']:.0f} MB (sum of PSS, seen from outside)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", metavar="FOLDER")
    parser.add_argument("--read", choices=["boto3", "tamis"])
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve)
        return
    if asked.read:
        read_with(asked.read)
        return
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-stores-"))
    server = None
    try:
        make_data(folder / "bucket" / "in" / "data.jsonl", asked.megabytes * 10**6)
        me = [sys.executable, __file__]
        server = subprocess.Popen([*me, "--serve", str(folder / "bucket")], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        env = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "us-east-1",
            "TAMIS_PROFILES": "off",
        }
        best: dict[str, dict[str, float]] = {}
        for who in ("boto3", "tamis") * N_TURNS:
            done = subprocess.run(
                [*me, "--read", who], env=env, capture_output=True, text=True, check=True, timeout=600
            )
            told = json.loads(done.stdout)
            best[who] = min(best.get(who, told), told, key=lambda t: float(t["seconds"]))
        mb_s = {who: told["bytes"] / 1e6 / told["seconds"] for who, told in best.items()}
        share = mb_s["tamis"] / mb_s["boto3"]
        cpu = {who: f"{told['cpu_s'] / (told['bytes'] / 1e9):.2f} s CPU a GB" for who, told in best.items()}
        remote = copied(folder, "s3://bucket/in", env)
        local = copied(folder, str(folder / "bucket" / "in"), env)
        faults, kept = store_faults.row(folder, folder / "bucket" / "in" / "data.jsonl")
        lines = [
            f"{asked.megabytes} MB of JSONL out of a server on loopback that shares the cores, ranges of 8 MiB, 4 at "
            f"a time; the best of {N_TURNS}.",
            "",
            "| | MB/s | |",
            "|---|---|---|",
            f"| boto3's own parallel ranges | {mb_s['boto3']:.0f} | {cpu['boto3']} |",
            f"| a remote file of Tamis | {mb_s['tamis']:.0f} | {share:.0%} of boto3 (goal: {GOAL:.0%}); "
            f"{cpu['tamis']} |",
            f"| `tamis run`, copied from the bucket to a local folder under {BUDGET} | "
            f"{asked.megabytes / remote['said']['seconds']:.0f} | {told_of(remote)} |",
            f"| the same out of a local folder | {asked.megabytes / local['said']['seconds']:.0f} | {told_of(local)} |",
            faults,
        ]
        print("\n".join(lines))
        if asked.write:
            machine = f"on {len(os.sched_getaffinity(0))} cores with a load of {os.getloadavg()[2]:.0f}"
            write_page(
                "benchmarks-stores.md",
                ["# Object stores", "", f"Written by `make bench-stores`, {machine}.", "", *lines],
            )
        if share < GOAL or remote["peak_pss_mb"] > BUDGET_MB or not kept:
            raise SystemExit("a goal was missed")
    finally:
        if server is not None:
            server.kill()
            server.wait(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
