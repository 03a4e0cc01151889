"""`tamis merge`: the files and logs of all shards become one run, as if one machine had done it.

What is left to do (one schema for all files, the decisions of a deduplication, the report) is done by the run that goes
on from there.

Files move first (they keep their names, which no two shards share), then one write makes them the run's: its log. A
crash before leaves shards to be joined again; a crash after it leaves a run to resume. Shards are removed when
that run has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tamis import files
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.engine.run.output.names import check_name, folder_of
from tamis.engine.run.output.sample_store import SampleStore
from tamis.engine.run.shard import Shard
from tamis.engine.samples import FILE as SAMPLES
from tamis.engine.schema import (
    CommitOrReplace,
    CommittedFile,
    FileKind,
    ReplaceRecord,
    ResultStatus,
    RunPlan,
    StageDescription,
)
from tamis.errors import RunConflict, UsageError
from tamis.stores.run_locations import SHARD_NAME, local_output_dir, run_dir_of
from tamis.stores.s3 import Bucket
from tamis.stores.scratch_references import remove_referenced_below
from tamis.stores.urls import is_bucket, split_s3

_COPY_BYTES = 1 << 20
Differences = Callable[[Sequence[StageDescription], Sequence[StageDescription]], list[str]]


def find_shards(base: str) -> list[Shard]:
    """Return the shards in `base`, in order.

    Raise UsageError if some are missing, or if there are shards of different counts.
    """
    shards = sorted({(int(m[2]), int(m[1])) for name in _names(base) if (m := SHARD_NAME.fullmatch(name)) is not None})
    counts = {n for n, _ in shards}
    if not shards:
        raise UsageError(f"{base} holds no shards; make them with --shard 0/N to --shard N-1/N")
    if len(counts) > 1:
        raise UsageError(
            f"{base} holds shards of {' and of '.join(str(n) for n in sorted(counts))}; remove those that are not meant"
        )
    n = counts.pop()
    missing = sorted(set(range(n)) - {i for _, i in shards})
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


def join_shards(base: str, target: RunDir, differences: Differences, may_hold_others: bool = False) -> None:
    """Make the shards in `base` the run of `target`, which is open; do nothing if that has been done.

    `differences`: of two descriptions of stages, as sentences (engine/run/identity.py). `may_hold_others`: the output
    may contain files that no shard wrote. All shards are checked before a file of the first one is moved: a shard that
    has lost files cannot be run again.
    """
    if target.has_commits():
        return
    shards = find_shards(base)
    plan, steps, names = _look_at_all(base, shards, differences)
    others = [] if may_hold_others else [n for n in target.foreign_names() if n not in names]
    if others:
        raise RunConflict(
            f"{target.target} holds {others[0]!r} (and {len(others) - 1} more), which no shard wrote; move it away, "
            "then run the same command again to resume"
        )
    records: list[CommitOrReplace] = []
    samples = SampleStore(target.path)
    for shard in shards:
        with _opened(base, shard) as run_dir:
            _checked(run_dir, shard)
            samples.merge([os.path.join(run_dir.path, SAMPLES)])
            replaced = {name for r in run_dir.log.read() if isinstance(r, ReplaceRecord) for name in r.old}
            records += [_moved(record, run_dir, target, replaced) for record in run_dir.log.read()]
    target.write_plan(replace(plan, shard=""))
    target.write_steps(steps)
    if target.remote is not None:
        target.remote.adopt(records)
    samples.close()
    target.log.rewrite(records)


def can_join_again(base: str, option: str) -> bool:
    """Return True if all files that the shards in `base` wrote still exist, so that the joined output may be removed.

    Otherwise raise RunConflict if the user asked for the removal (`option`: by which option), else return False.
    """
    try:
        shards = find_shards(base)
        missing = next((n for shard in shards for n in _missing(base, shard)), "")
    except UsageError:
        missing = base
    if missing and option:
        advice = "Leave --fresh out to resume; to" if option == "--fresh" else "To"
        raise RunConflict(
            f"{option}: the shards of {base} were joined already or are not all there ({missing} is missing), so that "
            "nothing could take the place "
            f"of what would be removed. {advice} start over, make the shards again (--shard I/N --fresh) in an empty "
            "folder"
        )
    return not missing


def _missing(base: str, shard: Shard) -> Iterator[str]:
    """Yield output files of a shard that are missing where it wrote them."""
    with _opened(base, shard) as run_dir:
        remote = run_dir.remote
        for file in run_dir.files().values():
            exists = (
                file.name in remote.sizes if remote is not None else os.path.exists(f"{run_dir.output}/{file.name}")
            )
            if file.is_output and not exists:
                yield f"{run_dir.target}/{file.name}"


def _opened(base: str, shard: Shard) -> RunDir:
    run_dir = RunDir(shard.output_in(base))
    if run_dir.remote is None and not run_dir.exists():
        raise UsageError(f"{run_dir.target} holds no run: run the same command with --shard {shard} again")
    return run_dir.open()


def _look_at_all(base: str, shards: list[Shard], differences: Differences) -> tuple[RunPlan, list[float], set[str]]:
    """Return the plan and sampling steps that all shards share, and the names of their output files.

    Raise an error if the shards do not belong together.
    """
    first: RunPlan | None = None
    steps: list[float] = []
    names: set[str] = set()
    for shard in shards:
        with _opened(base, shard) as run_dir:
            plan = _checked(run_dir, shard)
            first, steps = first or plan, steps or run_dir.read_steps()
            changed = differences(first.stages, plan.stages)
            if changed or (plan.inputs, plan.name) != (first.inputs, first.name):
                raise RunConflict(
                    f"{run_dir.target} was made of other files, or with other stages or settings, than shard 0"
                    f"{f' ({changed[0]})' if changed else ''}; make it again with --fresh"
                )
            if run_dir.read_steps() != steps:
                raise RunConflict(f"{run_dir.target} is another sample than shard 0; make it again with --fresh")
            for record in run_dir.log.read():
                names |= {f.name for f in record.files if f.is_output}
    assert first is not None
    return first, steps, names


def _checked(run_dir: RunDir, shard: Shard) -> RunPlan:
    """Return the plan of a shard; raise an error unless the shard finished successfully."""
    plan, manifest = run_dir.read_plan(), run_dir.read_manifest()
    if plan is None or manifest is None or manifest.status != ResultStatus.FINISHED:
        raise UsageError(f"{run_dir.target} is not finished: run the same command with --shard {shard} again")
    if plan.shard != str(shard):
        raise RunConflict(f"{run_dir.target} is shard {plan.shard} by its plan; make it again with --fresh")
    return plan


def _moved(record: CommitOrReplace, source: RunDir, target: RunDir, replaced: set[str]) -> CommitOrReplace:
    """Move the files of a record of a shard's log to the joined output; return the record for its log.

    `replaced`: names of files that were replaced by others.
    """
    moved = [file._replace(upload=None) for file in record.files]
    for file in moved:
        if file.is_output:
            _move_output(file, source, target, is_replaced=file.name in replaced)
        elif file.kind is not FileKind.LISTED:
            _move_side_file(file, source, target)
    return ReplaceRecord(record.old, moved) if isinstance(record, ReplaceRecord) else record._replace(files=moved)


def _move_output(file: CommittedFile, source: RunDir, target: RunDir, is_replaced: bool) -> None:
    name = check_name(file.name)
    path, final = os.path.join(source.output, name), os.path.join(target.output, name)
    if source.remote is not None:
        if name not in source.remote.sizes:
            return  # replaced later in the log
        if target.remote is not None:
            target.remote.take(source.remote, name)
        else:
            source.remote.bucket.fetch_key(f"{source.remote.prefix}/{name}", final)
    elif target.remote is not None:  # local shards of a pass whose scratch is in a bucket
        if os.path.exists(path):  # else sent before, or replaced in the shard
            target.remote.give(name, path)
            files.remove(path)
    elif not _move(path, final, file) and not is_replaced:
        raise _lost(path)


def _move_side_file(file: CommittedFile, source: RunDir, target: RunDir) -> None:
    """Move a file of the run directory: quarantine, verdicts and the like."""
    name = check_name(file.name)
    path, final = (os.path.join(folder_of(file.kind, run_dir.quarantine), name) for run_dir in (source, target))
    if not _move(path, final, file):
        raise _lost(path)
    if target.remote is not None:
        target.remote.keep_file(f"{file.kind}/{name}", final)


def _lost(path: str) -> RunConflict:
    return RunConflict(f"{path} was written by a shard and is gone; restore it, or make the shard again with --fresh")


def _move(source: str, final: str, file: CommittedFile) -> bool:
    """Move a file to the joined output; return False if it exists neither there nor in the shard.

    Does nothing if an earlier call that was killed has moved it; raises RunConflict if a foreign file has
    its name.
    """
    if not os.path.exists(source):  # moved before, or replaced in the shard
        if os.path.exists(final) and file.n_bytes is not None and os.path.getsize(final) != file.n_bytes:
            raise RunConflict(f"{final} is not the file that a shard wrote; move it away and restore that")
        return os.path.exists(final)
    if os.path.exists(final):
        import filecmp

        if not os.path.samefile(source, final) and not filecmp.cmp(source, final, shallow=False):
            raise RunConflict(
                f"{final} is there already, and no shard wrote it; move it away, then run the same command again to "
                "resume"
            )
        files.remove(source)
        return True
    try:
        files.move(source, final)
    except FileExistsError:  # since a moment ago
        raise RunConflict(
            f"{final} appeared, and no shard wrote it; move it away, then run the same command again to resume"
        ) from None
    except OSError:  # another disk: a scratch folder
        with files.replacing(final) as out, open(source, "rb") as data:
            shutil.copyfileobj(data, out, _COPY_BYTES)
    return True


def drop_shards(base: str) -> None:
    """Remove what is left of shards that were joined: only what Tamis wrote."""
    for name in _names(base):
        if SHARD_NAME.fullmatch(name) is None:
            continue
        run_dir = RunDir(f"{base}/{name}" if is_bucket(base) else os.path.join(base, name))
        if run_dir.remote is not None:
            with run_dir.open():
                run_dir.forget()
        if remove_referenced_below(run_dir.path):
            remove_own_folder(run_dir.path)
        with contextlib.suppress(OSError):  # the user put something else into it
            os.rmdir(run_dir.output)
    if not os.path.isdir(run_dir_of(base)):  # of one pass: nothing else is there
        with contextlib.suppress(OSError):
            os.rmdir(local_output_dir(base))
