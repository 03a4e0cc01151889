"""`tamis merge`: the files and logs of all shards become one run, as if one machine had done it. What is left to do (one schema for all
files, the decisions of a deduplication, the report) is done by the run that goes on from there.

Files move first (they keep their names, which no two shards share), then one write makes them the run's: its log. A crash before
leaves shards to be joined again; a crash behind it leaves a run to go on with. Shards are removed when that run has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any

from tamis import files
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.engine.run.output.names import check_name, folder_of
from tamis.engine.run.shard import NAME, Shard
from tamis.errors import RunConflict, UsageError
from tamis.stores.homes import local_of
from tamis.stores.s3 import Bucket
from tamis.stores.urls import is_bucket, split_s3

_COPY_BYTES = 1 << 20


def find_shards(base: str) -> list[Shard]:
    """The shards that lie in `base`, in order. UsageError where some are missing, or where there are of two kinds."""
    found = sorted({(int(m[2]), int(m[1])) for name in _names(base) if (m := NAME.fullmatch(name)) is not None})
    counts = {n for n, _ in found}
    if not found:
        raise UsageError(f"{base} holds no shards; make them with --shard 0/N to --shard N-1/N")
    if len(counts) > 1:
        raise UsageError(
            f"{base} holds shards of {' and of '.join(str(n) for n in sorted(counts))}; remove those that are not meant"
        )
    n = counts.pop()
    missing = sorted(set(range(n)) - {i for _, i in found})
    if missing:
        named = ", ".join(f"{i}/{n}" for i in missing[:5]) + (
            f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        )
        raise UsageError(
            f"{base}: shard {named} is not there: run the same command with --shard {missing[0]}/{n} first"
        )
    return [Shard(i, n) for i in range(n)]


def _names(base: str) -> list[str]:
    if is_bucket(base):
        name, prefix = split_s3(base)
        return sorted({o.key[len(prefix) + 1 :].partition("/")[0] for o in Bucket(name).objects(f"{prefix}/shard-")})
    return os.listdir(base) if os.path.isdir(base) else []


def join_shards(base: str, target: RunDir, differences: Callable[[Any, Any], list[str]]) -> None:
    """Make the shards in `base` the run of `target`, which is open. Nothing where that has been done. `differences`: of two descriptions of
    stages, as sentences (engine/run/identity.py)."""
    if target.has_commits():
        return
    shards = find_shards(base)
    records: list[dict[str, Any]] = []
    first: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for shard in shards:
        place = RunDir(shard.place_in(base))
        if place.remote is None and not place.exists():
            raise UsageError(f"{place.target} holds no run: run the same command with --shard {shard} again")
        place.open()
        try:
            plan = _checked(place, shard)
            first, steps = first or plan, steps or place.read_json("steps.json") or {}
            changed = differences(first["stages"], plan["stages"])
            if changed or [plan[k] for k in ("inputs", "name")] != [first[k] for k in ("inputs", "name")]:
                raise RunConflict(
                    f"{place.target} was made of other files, or with other stages or settings, than shard 0"
                    f"{f' ({changed[0]})' if changed else ''}; make it again with --fresh"
                )
            if place.read_json("steps.json") != steps:
                raise RunConflict(f"{place.target} is another sample than shard 0; make it again with --fresh")
            for record in place.log.read():
                records.append(_moved(record, place, target))
        finally:
            place.close()
    target.write_plan({k: v for k, v in first.items() if k not in ("version", "shard")})
    target.write_json("steps.json", steps)
    if target.remote is not None:
        target.remote.adopt(records)
    target.log.rewrite(records)


def _checked(place: RunDir, shard: Shard) -> dict[str, Any]:
    """The plan of a shard that has ended well."""
    plan, done = place.read_plan(), place.read_json("manifest.json")
    if plan is None or done is None or done.get("status") != "finished":
        raise UsageError(f"{place.target} is not finished: run the same command with --shard {shard} again")
    if plan.get("shard") != str(shard):
        raise RunConflict(f"{place.target} is shard {plan.get('shard')} by its plan; make it again with --fresh")
    return plan


def _moved(record: dict[str, Any], place: RunDir, target: RunDir) -> dict[str, Any]:
    """A record of a shard's log with its files in the place of the whole."""
    if record["t"] == "replace":
        return {**record, "file": _moved_file(record["file"], place, target)}
    return {**record, "files": [_moved_file(f, place, target) for f in record["files"]]}


def _moved_file(file: dict[str, Any], place: RunDir, target: RunDir) -> dict[str, Any]:
    about = {k: v for k, v in file.items() if k != "upload"}
    kind, name = str(file["kind"]), file["name"]
    if kind == "listed":
        return about
    check_name(name)
    if kind == "output" and place.remote is not None:
        if name not in place.remote.sizes:
            return about  # replaced later in the log
        if target.remote is not None:
            target.remote.take(place.remote, name)
        else:
            place.remote.bucket.fetch_key(f"{place.remote.prefix}/{name}", os.path.join(target.output, name))
        return about
    source = os.path.join(place.output if kind == "output" else folder_of(kind, place.quarantine), name)
    if kind == "output" and target.remote is not None:  # local shards of a pass whose scratch lies in a bucket
        if os.path.exists(source):  # else sent before, or replaced in the shard
            target.remote.give(name, source)
            files.remove(source)
        return about
    final = os.path.join(target.output if kind == "output" else folder_of(kind, target.quarantine), name)
    _move(source, final, about)
    if target.remote is not None and kind != "output":
        target.remote.keep_file(f"{kind}/{name}", final)
    return about


def _move(source: str, final: str, about: dict[str, Any]) -> None:
    """Give a file its place in the whole. Done by an earlier call that was killed: nothing; somebody else's file there: RunConflict."""
    if not os.path.exists(source):  # moved before, or replaced in the shard
        if os.path.exists(final) and "bytes" in about and os.path.getsize(final) != about["bytes"]:
            raise RunConflict(f"{final} is not the file that a shard wrote; move it away and restore that")
        return
    if os.path.exists(final):
        import filecmp

        if not os.path.samefile(source, final) and not filecmp.cmp(source, final, shallow=False):
            raise RunConflict(
                f"{final} is there already, and no shard wrote it; move it away, then the same command goes on"
            )
        files.remove(source)
        return
    try:
        files.move(source, final)
    except OSError:  # another disk: a scratch folder
        with files.replacing(final) as out, open(source, "rb") as data:
            shutil.copyfileobj(data, out, _COPY_BYTES)


def drop_shards(base: str) -> None:
    """Remove what is left of shards that were joined: only what Tamis wrote."""
    for name in _names(base):
        if NAME.fullmatch(name) is None:
            continue
        place = RunDir(f"{base}/{name}" if is_bucket(base) else os.path.join(base, name))
        if place.remote is not None:
            place.open()
            try:
                place.forget()
            finally:
                place.close()
        remove_own_folder(place.path)
        with contextlib.suppress(OSError):  # somebody put something else there
            os.rmdir(place.output)
    with contextlib.suppress(OSError):  # of one pass: nothing else lies there
        os.rmdir(local_of(base))
