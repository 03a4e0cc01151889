"""The local folder of a run whose output lies in a bucket: lock, run database, staged files, a copy of its log.

Everything that going on needs is in the bucket; the folder can be lost, and is made anew from there on any machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from tamis.stores.urls import is_bucket, output_url, split_s3

VARIABLE = "TAMIS_RUNS"
_RUN = "_tamis"
_settled: dict[str, str] = {}


def home_of(url: str) -> str:
    """The folder that stands for an output in a bucket: below $TAMIS_RUNS, or where this user keeps state."""
    base = os.environ.get(VARIABLE)
    if not base:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        base = os.path.join(state, "tamis", "runs")
    url = output_url(url)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", url.removeprefix("s3://"))[:80]
    key = hashlib.blake2b(url.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return os.path.join(os.path.abspath(base), f"{readable}-{key}")


def settle(url: str, folder: str) -> None:
    """In this process `folder` stands for an output in a bucket: that of a pass whose scratch lies there."""
    _settled[output_url(url)] = folder


def local_of(output: str) -> str:
    """The folder of an output on this machine: itself, or the one that stands for a bucket's."""
    return (_settled.get(output_url(output)) or home_of(output)) if is_bucket(output) else output


def free_at(path: str) -> int | None:
    """Bytes that are free where something will lie, which need not be there yet; None in a bucket."""
    if is_bucket(path):
        return None
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def present(output: str) -> str:
    """As `local_of`, for who looks at a run: where this machine has nothing of it, what the bucket keeps of it is brought here."""
    folder = local_of(output)
    if not is_bucket(output) or os.path.exists(os.path.join(folder, _RUN, "plan.json")):
        return folder
    from tamis.stores.s3 import Bucket

    name, prefix = split_s3(output_url(output))
    bucket, start = Bucket(name), f"{prefix}/{_RUN}/"
    for found in bucket.objects(start):
        parts = found.key[len(start) :].split("/")
        if parts[0] in ("log", "") or len(parts) > 2 or any(p in ("", ".", "..") for p in parts):
            continue  # the log is for who goes on, and is read by the run itself
        path = os.path.join(folder, _RUN, *parts)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        bucket.fetch(found, path)
    return folder
