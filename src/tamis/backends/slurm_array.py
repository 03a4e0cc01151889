"""Jobs of a Slurm array under the names of NeMo Curator: each takes its shard from the environment.

A pipeline that is run in such a job processes one part of its input, as with `shard="3/16"` (engine/run/shard.py). With
`checkpoint_path` a file in it says which shards have finished, so that the others can be submitted again. Programs that
do without a pipeline choose their tasks and record their shards with the same functions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis.errors import RunConflict, UsageError
from tamis.tasks.tasks import Task

_ENABLED = "NEMO_CURATOR_SLURM_ARRAY_ENABLED"
_INDEX, _INDEX_OF_SLURM = "NEMO_CURATOR_SLURM_ARRAY_SHARD_INDEX", "SLURM_ARRAY_TASK_ID"
_TOTAL, _TOTAL_OF_SLURM = "NEMO_CURATOR_SLURM_ARRAY_TOTAL_SHARDS", "SLURM_ARRAY_TASK_COUNT"
_MINIMUM = "NEMO_CURATOR_SLURM_ARRAY_MINIMUM_SHARD_INDEX"
_YES, _NO = ("1", "on", "true", "yes"), ("0", "false", "no", "off")

_COMPLETED = os.path.join(".nemo_curator_metadata", ".slurm_array_completion")  # in checkpoint_path
_PREFIX = "completed_slurm_array_"

_is_inside: ContextVar[bool] = ContextVar("is_inside", default=False)  # of a run that has taken the shard


@dataclass
class SlurmArrayConfig:
    """The shard of one job: `shard_index` counts from `minimum_shard_index`."""

    shard_index: int
    total_shards: int
    minimum_shard_index: int = 0

    @classmethod
    def from_env(cls) -> SlurmArrayConfig | None:
        """Return the shard that the environment names; None outside of an array, or if that is disabled."""
        enabled = os.environ.get(_ENABLED, "1").strip().lower()
        if enabled in _NO:
            return None
        if enabled not in _YES:
            raise UsageError(f"${_ENABLED}: expected {', '.join(_YES)} or {', '.join(_NO)}, got {enabled!r}")
        if not {_ENABLED, _INDEX, _INDEX_OF_SLURM, _TOTAL, _TOTAL_OF_SLURM} & os.environ.keys():
            return None
        return cls(
            _number_in_env(_INDEX, _INDEX_OF_SLURM),
            _number_in_env(_TOTAL, _TOTAL_OF_SLURM),
            _number_in_env(_MINIMUM) if _MINIMUM in os.environ else 0,
        )

    def check(self) -> None:
        """Raise UsageError for a shard that does not exist."""
        if self.total_shards < 1:
            raise UsageError(f"${_TOTAL}: expected at least 1 shard, got {self.total_shards}")
        if self.minimum_shard_index < 0:
            raise UsageError(f"${_MINIMUM}: expected 0 or more, got {self.minimum_shard_index}")
        last = self.minimum_shard_index + self.total_shards - 1
        if not self.minimum_shard_index <= self.shard_index <= last:
            raise UsageError(
                f"${_INDEX}: expected {self.minimum_shard_index} to {last}, got {self.shard_index}; if the array does "
                f"not begin at {self.minimum_shard_index}, set ${_MINIMUM} to its first index"
            )

    @property
    def shard(self) -> str:
        """The value of the setting `shard`."""
        return f"{self.shard_index - self.minimum_shard_index}/{self.total_shards}"


def resolve_slurm_array_config(is_source_stage: bool) -> SlurmArrayConfig | None:
    """Return the shard of this job for a stage that makes tasks; None for others, and outside of an array."""
    array = SlurmArrayConfig.from_env() if is_source_stage else None
    if array is not None:
        array.check()
    return array


def _number_in_env(name: str, fallback: str = "") -> int:
    used = fallback if fallback and name not in os.environ else name
    if used not in os.environ:
        raise UsageError(
            f"${name} (or ${fallback}) is not set: a shard has an index and a total; set both, or {_ENABLED}=0 to "
            "process everything"
        )
    try:
        return int(os.environ[used])
    except ValueError:
        raise UsageError(f"${used}: expected an integer, got {os.environ[used]!r}") from None


def configure_slurm_array_source_filtering(shard_index: int, total_shards: int, minimum_shard_index: int) -> None:
    """Set the variables from which pipelines of this program, and programs that it starts, take their shard."""
    os.environ[_ENABLED] = "1"
    os.environ[_INDEX] = str(shard_index)
    os.environ[_TOTAL] = str(total_shards)
    os.environ[_MINIMUM] = str(minimum_shard_index)


def is_slurm_array_driver_process() -> bool:
    """Return True on the first node of a job, and where there is one node only."""
    return os.environ.get("SLURM_NODEID", "0") == "0"


# -- taking the shard ------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def array_shard(
    settings: Mapping[str, object], checkpoint_path: str | os.PathLike[str] | None = None
) -> Iterator[str | None]:
    """Yield the shard for the run in the block, None for a run of everything; record that it has finished.

    The outermost run takes the shard: runs inside the block get None. `settings`: of the run; a shard or a merge among
    them is what the caller wants instead.
    """
    array = None if _is_inside.get() else SlurmArrayConfig.from_env()
    is_explicit = settings.get("shard") is not None or bool(settings.get("merge"))
    if is_explicit:
        array = None
    completion = None
    if array is not None:
        array.check()
        completion = build_slurm_array_completion_manifest(
            checkpoint_path, array.shard_index, array.total_shards, array.minimum_shard_index
        )
    try:
        with ignoring_array():
            yield array.shard if array is not None else None
    except UsageError as exc:
        if array is not None:
            exc.add_note(f"The shard {array.shard} is that of this Slurm array; {_ENABLED}=0 processes everything.")
        raise
    if completion is not None and is_slurm_array_driver_process():
        completion.mark_completed()


@contextlib.contextmanager
def ignoring_array() -> Iterator[None]:
    """Have the runs in the block take no shard from the environment: their caller decides (commands have --shard)."""
    token = _is_inside.set(True)
    try:
        yield
    finally:
        _is_inside.reset(token)


@contextlib.contextmanager
def undivided(owner: str, settings: Mapping[str, object]) -> Iterator[None]:
    """Run the block, whose runs are not for one shard each; raise UsageError in a job of an array."""
    with array_shard(settings) as shard:
        if shard is not None:
            raise UsageError(f"{owner} is done as a whole and not by shards; run it in a job that is not of an array")
        yield


# -- taking tasks by hand ----------------------------------------------------------------------------------------------
def slurm_array_shard_for_task(task: Task[Any], slurm_array: SlurmArrayConfig) -> int:
    """Return the index of the shard of a task, which follows from its task_id alone."""
    digest = hashlib.sha256(task.task_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % slurm_array.total_shards + slurm_array.minimum_shard_index


def filter_slurm_array_source_tasks(
    tasks: list[Task[Any]], slurm_array: SlurmArrayConfig | None, stage_name: str
) -> list[Task[Any]]:
    """Return the tasks of this job; all of them outside of an array, and in a pipeline, which divides them itself."""
    if slurm_array is None or _is_inside.get():
        return tasks
    unsuitable = [task.task_id for task in tasks if not task.task_id or task.task_id.startswith("r")]
    if unsuitable:
        raise UsageError(
            f"{stage_name}: {len(unsuitable)} of {len(tasks)} tasks have no task_id that is the same in every job "
            f"(such as {unsuitable[0]!r}); name each by what it is made of"
        )
    return [task for task in tasks if slurm_array_shard_for_task(task, slurm_array) == slurm_array.shard_index]


# -- which shards have finished --------------------------------------------------------------------------------------
def _folder(checkpoint_path: str | os.PathLike[str]) -> Path:
    return Path(checkpoint_path, _COMPLETED).absolute()


def _write_run(checkpoint_path: str | os.PathLike[str], array: SlurmArrayConfig) -> None:
    """Record the shards of the array, or raise RunConflict if the path has those of another."""
    expected = {"minimum_shard_index": array.minimum_shard_index, "total_shards": array.total_shards}
    path = _folder(checkpoint_path) / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = files.unguessable(str(path.parent), ".run.json.")
    files.write_json(temporary, expected, mode=0o644)
    try:
        files.publish(temporary, path)
        return
    except FileExistsError:
        pass
    finally:
        files.remove(temporary)
    numbers = _read_numbers(path, "minimum_shard_index", "total_shards")
    if numbers != expected:
        raise RunConflict(
            f"{path} is of an array with {_in_words(numbers)}, this one has {_in_words(expected)}; give "
            "another checkpoint_path, or the number of shards that the array had"
        )


def _in_words(run: Mapping[str, int]) -> str:
    return f"{run['total_shards']} shards from {run['minimum_shard_index']}"


@dataclass(frozen=True)
class SlurmArrayCompletion:
    """The record of one shard in checkpoint_path. As a context it is written when the block ends without an error."""

    checkpoint_path: str | os.PathLike[str]
    slurm_array: SlurmArrayConfig

    def mark_completed(self) -> Path:
        """Record that the shard has finished; return the file."""
        array = self.slurm_array
        identity = {
            "minimum_shard_index": array.minimum_shard_index,
            "shard_index": array.shard_index,
            "total_shards": array.total_shards,
        }
        digest = hashlib.sha256(json.dumps(identity, separators=(",", ":"), sort_keys=True).encode()).hexdigest()[:16]
        path = _folder(self.checkpoint_path) / f"{_PREFIX}{digest}.json"
        files.write_json(path, {**identity, "status": "completed"}, mode=0o644)
        return path

    def __enter__(self) -> SlurmArrayCompletion:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self.mark_completed()


def build_slurm_array_completion_manifest(
    checkpoint_path: str | os.PathLike[str] | None, shard_index: int, total_shards: int, minimum_shard_index: int
) -> SlurmArrayCompletion | None:
    """Record the array in checkpoint_path and return the record of one shard; None without checkpoint_path."""
    if checkpoint_path is None:
        return None
    array = SlurmArrayConfig(shard_index, total_shards, minimum_shard_index)
    array.check()
    _write_run(checkpoint_path, array)
    return SlurmArrayCompletion(checkpoint_path, array)


def _read_numbers(path: Path, *names: str) -> dict[str, int]:
    """Return the numbers of these names in a file of this module; raise UsageError if it is another's."""
    try:
        values = json.loads(path.read_bytes())
        numbers = {name: values[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise UsageError(f"{path} is damaged ({type(exc).__name__}: {exc}); remove it, and run its shard") from exc
    if not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise UsageError(
            f"{path}: expected {' and '.join(names)} as integers, got {numbers}; remove it, and run its shard"
        )
    return numbers


# -- retries ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SlurmArrayRetryPlan:
    """The shards of an array that have not finished."""

    shard_indices: tuple[int, ...]
    total_shards: int
    minimum_shard_index: int


@dataclass(frozen=True)
class SlurmArrayRetrySubmission:
    """An array to submit. The shard of a job is the index of the job plus `shard_index_offset`."""

    array_indices: tuple[int, ...]
    shard_index_offset: int


def find_slurm_array_retries(checkpoint_path: str | os.PathLike[str]) -> SlurmArrayRetryPlan | None:
    """Return the shards that have not finished; None if no array was run with this checkpoint_path."""
    folder = _folder(checkpoint_path)
    completed = sorted(folder.glob(f"{_PREFIX}*.json"))
    if not (folder / "run.json").is_file():
        if completed:
            raise UsageError(f"{folder} says which shards have finished, but run.json, with their number, is missing")
        return None
    run = _read_numbers(folder / "run.json", "minimum_shard_index", "total_shards")
    first, total = run["minimum_shard_index"], run["total_shards"]
    finished = set()
    for path in completed:
        shard = _read_numbers(path, "minimum_shard_index", "shard_index", "total_shards")
        index = shard.pop("shard_index")
        if shard != run or not first <= index < first + total:
            raise UsageError(f"{path} is of shard {index} of {_in_words(shard)}, run.json of {_in_words(run)}")
        finished.add(index)
    return SlurmArrayRetryPlan(tuple(i for i in range(first, first + total) if i not in finished), total, first)


def build_slurm_array_retry_submissions(
    retry_plan: SlurmArrayRetryPlan, max_array_size: int | None = None
) -> tuple[SlurmArrayRetrySubmission, ...]:
    """Return the arrays to submit, of indices below `max_array_size` each.

    >>> build_slurm_array_retry_submissions(SlurmArrayRetryPlan((1, 12), 20, 0), 10)[1]
    SlurmArrayRetrySubmission(array_indices=(2,), shard_index_offset=10)
    """
    if max_array_size is not None and type(max_array_size) is not int:
        raise TypeError(f"max_array_size: expected an integer, got {max_array_size!r}")
    if max_array_size is not None and max_array_size < 1:
        raise UsageError(f"max_array_size: expected at least 1, got {max_array_size}")
    by_offset: dict[int, list[int]] = {}
    for index in retry_plan.shard_indices:
        offset = index - index % max_array_size if max_array_size is not None else 0
        by_offset.setdefault(offset, []).append(index - offset)
    return tuple(SlurmArrayRetrySubmission(tuple(by_offset[offset]), offset) for offset in sorted(by_offset))


def format_slurm_array_indices(indices: Iterable[int]) -> str:
    """Return indices as `sbatch --array` takes them.

    >>> format_slurm_array_indices([4, 1, 2, 3, 9])
    '1-4,9'
    """
    chosen = set(indices)
    if not all(type(index) is int for index in chosen):
        raise TypeError(f"indices: expected integers, got {chosen}")
    if any(index < 0 for index in chosen):
        raise UsageError(f"indices: expected 0 or more, got {min(chosen)}")
    ranges: list[list[int]] = []
    for index in sorted(chosen):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
