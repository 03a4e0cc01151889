"""`tamis merge`: the files and logs of all shards become one run, as if one machine had done it. What is left to do (one schema for all
files, the decisions of a deduplication, the report) is done by the run that goes on from there.

Files move first (they keep their names, which no two shards share), then one write makes them the run's: its log. A crash before
leaves shards to be joined again; a crash behind it leaves a run to go on with. Shards are removed when that run has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from tamis import files
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.engine.run.output.names import check_name, folder_of
from tamis.engine.run.shard import NAME, Shard
from tamis.errors import RunConflict, UsageError
from tamis.stores.run_locations import local_output_dir
from tamis.stores.s3 import Bucket
from tamis.stores.scratch_references import remove_referenced_below
from tamis.stores.urls import is_bucket, split_s3

_COPY_BYTES = 1 << 20


def find_shards(base: str) -> list[Shard]:
    """Return the shards in `base`, in order.

    Raise UsageError if some are missing, or if there are shards of different counts.
    """
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


def join_shards(
    base: str, target: RunDir, differences: Callable[[Any, Any], list[str]], may_hold_others: bool = False
) -> None:
    """Make the shards in `base` the run of `target`, which is open. Nothing where that has been done. `differences`: of two descriptions of
    stages, as sentences (engine/run/identity.py). `may_hold_others`: files that no shard wrote may lie in the output.

    All shards are looked at before a file of the first one is moved: a shard that has lost files cannot be run again."""
    if target.has_commits():
        return
    shards = find_shards(base)
    plan, steps, names = _look_at_all(base, shards, differences)
    others = [] if may_hold_others else [n for n in target.foreign_names() if n not in names]
    if others:
        raise RunConflict(
            f"{target.target} holds {others[0]!r} (and {len(others) - 1} more), which no shard wrote; move it away, then the same command goes on"
        )
    records: list[dict[str, Any]] = []
    for shard in shards:
        with _opened(base, shard) as place:
            _checked(place, shard)
            replaced = {str(r["old"]) for r in place.log.read() if r["t"] == "replace"}
            records += [_moved(record, place, target, replaced) for record in place.log.read()]
    target.write_plan({k: v for k, v in plan.items() if k not in ("version", "shard")})
    target.write_json("steps.json", steps)
    if target.remote is not None:
        target.remote.adopt(records)
    target.log.rewrite(records)


def can_join_again(base: str, asked: str) -> bool:
    """Return True if all files that the shards in `base` wrote still exist, so that the joined output may be removed.

    Otherwise raise RunConflict if the user asked for the removal (`asked`: by which option), else return False.
    """
    try:
        shards = find_shards(base)
        missing = next((n for shard in shards for n in _missing(base, shard)), "")
    except UsageError:
        missing = base
    if missing and asked:
        go_on = "Leave --fresh out to go on; to" if asked == "--fresh" else "To"
        raise RunConflict(
            f"{asked}: the shards of {base} were joined already or are not all there ({missing} is missing), so that nothing could take the place "
            f"of what would be removed. {go_on} start over, make the shards again (--shard I/N --fresh) in an empty folder"
        )
    return not missing


def _missing(base: str, shard: Shard) -> Iterator[str]:
    """Output files of a shard that are not where it wrote them."""
    with _opened(base, shard) as place:
        for file in place.files().values():
            name = str(file["name"])
            here = name in place.remote.sizes if place.remote is not None else os.path.exists(f"{place.output}/{name}")
            if file["kind"] == "output" and not here:
                yield f"{place.target}/{name}"


def _opened(base: str, shard: Shard) -> RunDir:
    place = RunDir(shard.place_in(base))
    if place.remote is None and not place.exists():
        raise UsageError(f"{place.target} holds no run: run the same command with --shard {shard} again")
    return place.open()


def _look_at_all(
    base: str, shards: list[Shard], differences: Callable[[Any, Any], list[str]]
) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """Return the plan and sampling steps that all shards share, and the names of their output files.

    Raise an error if the shards do not belong together.
    """
    first: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    names: set[str] = set()
    for shard in shards:
        with _opened(base, shard) as place:
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
                made = [record["file"]] if record["t"] == "replace" else record["files"]
                names |= {str(f["name"]) for f in made if f["kind"] == "output"}
    return first, steps, names


def _checked(place: RunDir, shard: Shard) -> dict[str, Any]:
    """Return the plan of a shard; raise an error unless the shard finished successfully."""
    plan, done = place.read_plan(), place.read_json("manifest.json")
    if plan is None or done is None or done.get("status") != "finished":
        raise UsageError(f"{place.target} is not finished: run the same command with --shard {shard} again")
    if plan.get("shard") != str(shard):
        raise RunConflict(f"{place.target} is shard {plan.get('shard')} by its plan; make it again with --fresh")
    return plan


def _moved(record: dict[str, Any], place: RunDir, target: RunDir, replaced: set[str]) -> dict[str, Any]:
    """Rewrite a record of a shard's log so that its files are located in the joined output.

    `replaced`: names of files that were replaced by others.
    """
    if record["t"] == "replace":
        return {**record, "file": _moved_file(record["file"], place, target, replaced)}
    return {**record, "files": [_moved_file(f, place, target, replaced) for f in record["files"]]}


def _moved_file(file: dict[str, Any], place: RunDir, target: RunDir, replaced: set[str]) -> dict[str, Any]:
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
    if not _move(source, final, about) and not (kind == "output" and name in replaced):
        raise RunConflict(
            f"{source} was written by a shard and is gone; restore it, or make the shard again with --fresh"
        )
    if target.remote is not None and kind != "output":
        target.remote.keep_file(f"{kind}/{name}", final)
    return about


def _move(source: str, final: str, about: dict[str, Any]) -> bool:
    """Give a file its place in the whole; False where it is in neither. Done by an earlier call that was killed: nothing; somebody else's
    file there: RunConflict."""
    if not os.path.exists(source):  # moved before, or replaced in the shard
        if os.path.exists(final) and "bytes" in about and os.path.getsize(final) != about["bytes"]:
            raise RunConflict(f"{final} is not the file that a shard wrote; move it away and restore that")
        return os.path.exists(final)
    if os.path.exists(final):
        import filecmp

        if not os.path.samefile(source, final) and not filecmp.cmp(source, final, shallow=False):
            raise RunConflict(
                f"{final} is there already, and no shard wrote it; move it away, then the same command goes on"
            )
        files.remove(source)
        return True
    try:
        files.move(source, final)
    except FileExistsError:  # since a moment ago
        raise RunConflict(
            f"{final} appeared, and no shard wrote it; move it away, then the same command goes on"
        ) from None
    except OSError:  # another disk: a scratch folder
        with files.replacing(final) as out, open(source, "rb") as data:
            shutil.copyfileobj(data, out, _COPY_BYTES)
    return True


def drop_shards(base: str) -> None:
    """Remove what is left of shards that were joined: only what Tamis wrote."""
    for name in _names(base):
        if NAME.fullmatch(name) is None:
            continue
        place = RunDir(f"{base}/{name}" if is_bucket(base) else os.path.join(base, name))
        if place.remote is not None:
            with place.open():
                place.forget()
        if remove_referenced_below(place.path):
            remove_own_folder(place.path)
        with contextlib.suppress(OSError):  # somebody put something else there
            os.rmdir(place.output)
    with contextlib.suppress(OSError):  # of one pass: nothing else lies there
        os.rmdir(local_output_dir(base))
