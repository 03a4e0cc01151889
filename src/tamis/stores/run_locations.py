"""Locate the run directory of an output, and the local folder that represents an output in a bucket.

The run directory of `out` is `out.tamis`, next to it, so that an output contains nothing but data. That of an output in
another one, `out/ids`, is `out.tamis/ids.tamis`, so that neither shows it. It is `out/_tamis` where there is no place
for a neighbour, or where a neighbour would be in the way (`run_dir_of`), and in buckets. No other module joins an
output and the name of its run directory.

Everything that resuming a run in a bucket needs is in the bucket; the local folder can be lost, and is made anew from
there on any machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from typing import TYPE_CHECKING

from tamis import files
from tamis.errors import TamisError
from tamis.stores.urls import is_bucket, output_url, split_s3

if TYPE_CHECKING:
    from tamis.stores.s3 import Bucket, Object

VARIABLE = "TAMIS_RUNS"
RUN_DIRECTORY = "_tamis"  # inside of an output
RUN_SUFFIX = ".tamis"  # of a run directory next to its output
SHARD_NAME = re.compile(r"shard-([0-9]{5})-of-([0-9]{5})")  # of the output of a shard, in the output of all
_SCRATCH_NAME = re.compile(r"tamis-(dedup-)?[0-9a-f]{16}")  # of a folder in --scratch, which passes write to
LOCKS = ("lock", "dedup.lock")  # the first files of a run directory
_MOUNTS = "/proc/self/mountinfo"
FETCHED = "fetched.json"  # of a run directory that was brought here to be looked at
_settled: dict[str, str] = {}


def default_local_dir(url: str) -> str:
    """Return the local folder that represents an output in a bucket.

    It is below $TAMIS_RUNS, or in this user's state directory.
    """
    base = os.environ.get(VARIABLE)
    if not base:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        base = os.path.join(state, "tamis", "runs")
    url = output_url(url)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", url.removeprefix("s3://"))[:80]
    key = hashlib.blake2b(url.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return os.path.join(os.path.abspath(base), f"{readable}-{key}{RUN_SUFFIX}")


def register_local_dir(url: str, folder: str) -> None:
    """Let `folder` represent an output in a bucket, in this process: that of a pass whose scratch is stored there."""
    _settled[output_url(url)] = folder


def local_output_dir(output: str) -> str:
    """Return the folder of an output on this machine: itself, or the one that represents a bucket's output."""
    return (_settled.get(output_url(output)) or default_local_dir(output)) if is_bucket(output) else output


def run_dir_of(output: str | os.PathLike[str]) -> str:
    """Return the run directory of an output, on this machine; a run directory is its own.

    One that exists stays where it is. A new one is next to the output or, if that is in the output of another run, in
    the run directory of that. It is inside of the output where neither is possible (the output is a mount point, or the
    folder for the run directory is read-only) and for parts of a run: shards, passes, what is in scratch.
    """
    output = os.fspath(output)
    if is_bucket(output):
        return os.path.join(local_output_dir(output), RUN_DIRECTORY)
    path = _resolve(output)
    if is_run_dir(path):
        return path
    inside = os.path.join(path, RUN_DIRECTORY)
    if os.path.isdir(inside) or _is_part(path):
        return inside
    apart = _run_dir_apart(path)
    return apart if os.path.isdir(apart) or (_can_hold(apart) and not _is_mount_point(path)) else inside


def _run_dir_apart(path: str) -> str:
    """Return the run directory of an output outside of it: next to it, or in that of the output that contains it."""
    neighbour = path + RUN_SUFFIX
    parent, name = os.path.split(path)
    parent = parent or "."
    if is_run_dir(neighbour) or not has_run(parent):
        return neighbour
    return os.path.join(run_dir_of(parent), name + RUN_SUFFIX)


def output_of_run_dir(run_dir: str | os.PathLike[str]) -> str:
    """Return the output that a run directory belongs to, on this machine; the inverse of `run_dir_of`.

    A run directory that was given another name stands for its output itself.
    """
    parent, name = os.path.split(os.path.abspath(run_dir))
    if name == RUN_DIRECTORY:
        return parent
    if name.endswith(RUN_SUFFIX) and is_run_dir(parent):  # of an output in another one
        parent = output_of_run_dir(parent)
    return os.path.join(parent, name.removesuffix(RUN_SUFFIX))


def named_output(path: str | os.PathLike[str]) -> str:
    """Return the output that a user names: by its path or URL, or by the path of its run directory."""
    path = os.fspath(path)
    return output_of_run_dir(path) if not is_bucket(path) and is_run_dir(_resolve(path)) else path


def is_run_dir(folder: str) -> bool:
    """Return True if a folder is the run directory of some output, by what is in it."""
    if not any(os.path.isfile(os.path.join(folder, name)) for name in LOCKS):
        return False
    name = os.path.basename(folder)
    return name == RUN_DIRECTORY or name.endswith(RUN_SUFFIX) or os.path.isfile(os.path.join(folder, "plan.json"))


def has_run(folder: str) -> bool:
    """Return True if a folder is the output of a run."""
    path = _resolve(folder)
    parent, name = os.path.split(os.path.abspath(path))
    places = (os.path.join(path, RUN_DIRECTORY), path + RUN_SUFFIX)
    places_above = (os.path.join(parent, RUN_DIRECTORY), parent + RUN_SUFFIX)
    return any(map(is_run_dir, (*places, *(os.path.join(above, name + RUN_SUFFIX) for above in places_above))))


def _resolve(path: str) -> str:
    """Return a path without trailing slashes that ends in a name, and not in that of a link."""
    path = path.rstrip("/") or "/"
    is_named = os.path.basename(path) not in ("", ".", "..") and not os.path.islink(path)
    return path if is_named else os.path.realpath(path)


def _is_part(path: str) -> bool:
    """Return True if an output is a part of a run: a shard, or a folder in scratch or in a run directory."""
    parts = os.path.abspath(path).split("/")
    return SHARD_NAME.fullmatch(parts[-1]) is not None or any(
        part == RUN_DIRECTORY or part.endswith(RUN_SUFFIX) or _SCRATCH_NAME.fullmatch(part) is not None
        for part in parts
    )


def _is_mount_point(path: str) -> bool:
    """Return True if a folder is on another file system than the one it is in, or mounted there."""
    path = os.path.abspath(path)
    try:
        if path == "/" or os.stat(path).st_dev != os.stat(os.path.dirname(path)).st_dev:
            return True
        with open(_MOUNTS, "rb") as file:
            mounts = [line.split(b" ")[4] for line in file]
    except (OSError, IndexError):
        return False
    escaped = (mount for mount in mounts if os.path.basename(mount))
    name = os.fsencode(os.path.realpath(path))
    return any(re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), mount) == name for mount in escaped)


def _can_hold(path: str) -> bool:
    """Return True if this user may create a folder at a path, whose parents need not exist."""
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(parent):
        parent = os.path.dirname(parent)
    return os.access(parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def free_space(path: str) -> int | None:
    """Return the bytes that are free at a path, which need not exist yet; None in a bucket."""
    if is_bucket(path):
        return None
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def fetch_run_dir(output: str) -> str:
    """Return the same folder as `local_output_dir`, with the run's files fetched from the bucket, to inspect a run.

    They are fetched if this machine has nothing of the run, has an earlier state of what it fetched before, or
    started a run that another machine finished. Not while a run works here.
    """
    folder = local_output_dir(output)
    if not is_bucket(output):
        return folder
    run = os.path.join(folder, RUN_DIRECTORY)
    is_local = os.path.exists(os.path.join(run, "plan.json"))
    try:
        if not is_local or not files.is_held(os.path.join(run, "lock")):
            _bring(output, run, is_local)
    except TamisError:  # the store does not answer: what is here is shown
        if not is_local:
            raise
    return folder


def _bring(output: str, run: str, is_local: bool) -> None:
    """Fetch files of the run directory that changed since they were fetched last."""
    from tamis.stores.s3 import Bucket

    name, prefix = split_s3(output_url(output))
    bucket, start = Bucket(name), f"{prefix}/{RUN_DIRECTORY}/"
    remote = {key: o for o in bucket.objects(start) if _is_shown(key := o.key[len(start) :])}
    fetched = _fetched(run)
    if is_local and not fetched and not _was_finished_elsewhere(bucket, remote.get("manifest.json"), run):
        return  # a run of this machine: what it knows of itself is newer than what it has sent
    for key, item in remote.items():
        path = os.path.join(run, key)
        if fetched.get(key) != item.etag or not os.path.exists(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            bucket.fetch(item, path)
    for key in filter(_is_shown, fetched.keys() - remote.keys()):  # a manifest, say, of a run that was gone on with
        files.remove(os.path.join(run, key))
    if not remote:
        return
    files.write_json(os.path.join(run, FETCHED), {key: item.etag for key, item in remote.items()})


def _is_shown(key: str) -> bool:
    """Return True if an object of a run directory is a file for inspecting the run.

    The log is not: it serves to resume the run, and is read by the run itself.
    """
    parts = key.split("/")
    return parts[0] != "log" and len(parts) <= 2 and not any(p in ("", ".", "..") for p in parts)


def _fetched(run: str) -> dict[str, str]:
    """Return which version of which file was fetched; {} if this machine itself has run here."""
    try:
        with open(os.path.join(run, FETCHED), "rb") as file:
            versions = json.load(file)
    except (OSError, ValueError):
        return {}
    return versions if isinstance(versions, dict) else {}


def _was_finished_elsewhere(bucket: Bucket, manifest: Object | None, run: str) -> bool:
    """Return True if the bucket has a manifest that differs from the local one."""
    data = bucket.get(manifest.key) if manifest is not None else None
    if data is None:
        return False
    try:
        with open(os.path.join(run, "manifest.json"), "rb") as file:
            return file.read() != data
    except OSError:
        return True
