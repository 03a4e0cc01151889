"""What a pipeline is, apart from how it is executed: used to refuse resuming with other stages.

Parameters and source code count; pickle bytes do not (they differ from run to run), nor do execution settings.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

from tamis.engine.job import Job
from tamis.stages.base import ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, Writer

_EXECUTION = {
    "batch_size",
    "resources",
    "runtime_env",
    "name",
    "num_workers",
    "num_workers_per_node",
    "ray_stage_spec",
    "xenna_stage_spec",
}
_PLACES = {
    "blocksize",
    "files_per_partition",
    "mode",
    "file_paths",
    "limit",
    "path",
}  # of sources and writers: inputs are compared by themselves
_DEPTH = 6


def describe_job(job: Job, extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry per stage, plus one for settings that change the output."""
    stages: list[Any] = [job.source, job.reader, *job.stages, job.writer]
    entries = [_describe_stage(s) for s in stages if s is not None]
    return [*entries, {"stage": "settings", "params": dict(extra), "source": ""}]


def differences(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    """What changed, as sentences."""
    found = []
    if [e["stage"] for e in before] != [e["stage"] for e in now]:
        return [f"the stages were {[e['stage'] for e in before]} and are {[e['stage'] for e in now]}"]
    for old, new in zip(before, now, strict=True):
        for key in sorted(set(old["params"]) | set(new["params"])):
            a, b = old["params"].get(key), new["params"].get(key)
            if a != b:
                found.append(f"{new['stage']}: {key} was {a!r} and is {b!r}")
        if old["source"] != new["source"]:
            found.append(f"{new['stage']}: its source code changed")
    return found


def _describe_stage(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    # A user's stage may call a threshold "limit": only where Tamis reads and writes do these names mean execution.
    left_out = _EXECUTION | _PLACES if isinstance(stage, (FilePartitioningStage, Reader, Writer)) else _EXECUTION
    params = {k: _plain(v, _DEPTH) for k, v in vars(stage).items() if k not in left_out and not k.startswith("_")}
    cls = type(stage)
    return {"stage": f"{cls.__module__}.{cls.__qualname__}", "params": params, "source": _source(cls)}


def _source(thing: Any) -> str:
    """Hash of the source code; code of Tamis itself counts by its name only (a new version may resume an old run)."""
    if getattr(thing, "__module__", "").split(".")[0] == "tamis":
        return ""
    try:
        text = inspect.getsource(thing)
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        text = code.co_code.hex() + repr(code.co_names) if code is not None else getattr(thing, "__qualname__", "")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _plain(value: Any, depth: int) -> Any:
    """A JSON value that is equal for equal parameters, run after run."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if depth == 0:
        return type(value).__qualname__
    if isinstance(value, (list, tuple)):
        return [_plain(v, depth - 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v, depth - 1) for v in value), key=repr)
    if isinstance(value, Mapping):
        return {str(k): _plain(v, depth - 1) for k, v in value.items()}
    if inspect.isfunction(value) or inspect.isclass(value):
        return f"{value.__module__}.{value.__qualname__}:{_source(value)}"
    own = {k: _plain(v, depth - 1) for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_")}
    cls = type(value)
    return {"class": f"{cls.__module__}.{cls.__qualname__}:{_source(cls)}", **own}
