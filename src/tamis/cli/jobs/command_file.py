"""Write and read `command.json` of a run directory: the command that made an output, for `tamis resume`.

Secrets among the values of --set are not saved, only their names: they are given again, or the recipe takes them from
the environment (${env:NAME}). Nor is consent: modules (only their names are), code of models, alert sinks. What is read
back is data and never trusted: the run directory must belong to this user (or is in a bucket: resume.py), and every
value is checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tamis import files, secrets
from tamis._dataclasses import dataclass
from tamis.cli.jobs.jobs import ClassifyJob, CommandJob, FilterJob, RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.parsing.options import LAUNCH, LaunchOptions
from tamis.engine.run.settings import SETTINGS, Setting, SettingValue
from tamis.errors import RunConflict, UsageError
from tamis.stores.options import command_line_options, parse_options
from tamis.stores.run_locations import fetch_run_dir, run_dir_of

FILE = "command.json"
_VERSION = 2
_MAX_BYTES = 1_000_000
# The address of a sink is all that it takes to write there.
_SINK = re.compile(r"alerts\.sinks\..+\.(webhook|command|headers)(\..*)?")
_DEDUP = ("dedup.json", "dedup", "dedup.lock")  # files of a deduplication; the lock alone with scratch elsewhere
_RESUMED: dict[str, Setting] = {s.name: s for s in (*SETTINGS.values(), *LAUNCH.values()) if s.is_resumed}


@dataclass(frozen=True)
class SavedCommand:
    """The content of a `command.json`."""

    cwd: str
    job: CommandJob
    settings: Mapping[str, SettingValue]
    launch: LaunchOptions
    modules: tuple[str, ...] = ()  # used by the recipe; the user must allow them again
    secrets: tuple[str, ...] = ()  # keys of --set whose values were not saved
    storage: tuple[str, ...] = ()  # its --storage-option

    @property
    def request(self) -> Request:
        return Request(self.job, self.settings, self.launch)


# -- writing ----------------------------------------------------------------------------------------------------------
def save(request: Request, run_dir: str) -> None:
    """Write the command whole or not at all, without secrets."""
    job = encode_job(request.job)
    hidden: set[str] = set()
    if isinstance(request.job, RecipeJob):
        hidden = secret_names(request.job.overrides)
        job["recipe"] = os.path.abspath(request.job.path)
        job["overrides"] = {k: v for k, v in request.job.overrides.items() if k not in hidden}
    launch = {name: getattr(request.launch, name) for name in LAUNCH}
    values = {name: value for name, value in {**launch, **request.settings}.items() if value is not None}
    data = {
        "version": _VERSION,
        "cwd": os.getcwd(),
        "job": job,
        "settings": {name: value for name, value in values.items() if name in _RESUMED},
        "modules": list(request.consent.modules),
        "secrets": sorted(hidden),
        "storage": command_line_options(),
    }
    files.write_json(os.path.join(run_dir, FILE), data, indent=1)


def encode_job(job: CommandJob) -> dict[str, Any]:
    """Return a job as plain values; `decode_job` is the inverse."""
    return {"kind": job.kind, **_plain(job)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def secret_names(overrides: Mapping[str, str]) -> set[str]:
    """Return the names of the --set overrides that are secrets.

    An override is a secret by its name, or because a stage (or a sink) has such a value under the name of a secret.
    """
    values = secrets.known()
    return {
        name
        for name, value in overrides.items()
        if secrets.kind_of(name.rpartition(".")[2]) or _SINK.fullmatch(name) or any(s in value for s in values)
    }


# -- reading ----------------------------------------------------------------------------------------------------------
def load(output: str) -> SavedCommand:
    """Return the command that made `output`.

    Raise RunConflict, before anything is read, if the run directory does not belong to this user alone.
    """
    from tamis.engine.run.output.directory import check_run_dir

    output = fetch_run_dir(output)
    path = os.path.join(run_dir_of(output), FILE)
    check_run_dir(os.path.dirname(path))
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        data = json.loads(raw) if len(raw) <= _MAX_BYTES else None
    except FileNotFoundError:
        raise _no_command(output) from None
    except (OSError, ValueError) as exc:
        raise RunConflict(f"{path} cannot be read ({exc}); run the command itself again") from None
    try:
        return _decode(data)
    except UsageError as exc:
        raise RunConflict(f"{path} is damaged ({exc}); run the command itself again") from None


def _no_command(output: str) -> UsageError:
    """Return the error for an output without a command: what to do depends on what made it."""
    run_dir = run_dir_of(output)
    if any(os.path.exists(os.path.join(run_dir, name)) for name in _DEDUP):
        return UsageError(
            f"{output} is the output of a deduplication, a curation from Python or joining; run the same command "
            "again (tamis dedup ..., or "
            "its recipe or script): it continues where it stopped"
        )
    if os.path.exists(os.path.join(run_dir, "plan.json")):
        return UsageError(
            f"{output} was not made by `tamis run`; run the same Python script again, it resumes by itself"
        )
    return UsageError(f"{output} contains no run of Tamis; give the output folder of a run, or a recipe")


def _decode(data: Any) -> SavedCommand:
    """Return the command; raise UsageError that names the field if a value is not one that `save` writes."""
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise UsageError(f"expected version {_VERSION}")
    cwd = data.get("cwd")
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise UsageError("cwd: expected an absolute path")
    job = decode_job(data.get("job"))
    if isinstance(job, RecipeJob) and not os.path.isabs(job.recipe):
        raise UsageError("recipe: expected an absolute path")
    texts = {name: _value(data.get(name), tuple[str, ...], name) for name in ("modules", "secrets", "storage")}
    try:
        parse_options(list(texts["storage"]))
    except UsageError as exc:
        raise UsageError(f"storage: {exc}") from None
    settings = data.get("settings")
    if not isinstance(settings, dict):
        raise UsageError("settings: expected values by name")
    for name, value in settings.items():
        try:
            _RESUMED[name].check(value)
        except (KeyError, UsageError):
            raise UsageError(f"settings.{name}: unknown, or not a value it can have") from None
    launch = LaunchOptions(**{name: value for name, value in settings.items() if name in LAUNCH})
    run = {name: value for name, value in settings.items() if name in SETTINGS}
    return SavedCommand(cwd, job, run, launch, **texts)


def decode_job(data: Any) -> CommandJob:
    """Return a job of plain values; raise UsageError for what is none."""
    from tamis.cli.media.video_job import VideoJob

    jobs: dict[str, Any] = {cls.kind: cls for cls in (RecipeJob, FilterJob, ClassifyJob, VideoJob)}
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in jobs:
        raise UsageError(f"job: expected one of {', '.join(jobs)}, got {kind!r:.80}")
    job: CommandJob = _value({k: v for k, v in data.items() if k != "kind"}, jobs[kind], "job")
    return job


def _value(value: Any, expected: Any, name: str) -> Any:
    """Return a plain value as what a field of this type holds; raise UsageError if it is of another type."""
    if is_dataclass(expected):
        return _fields(value, expected, name)
    origin, parts = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        for part in parts:
            with contextlib.suppress(UsageError):
                return _value(value, part, name)
    elif origin is tuple and isinstance(value, list):
        return tuple(_value(item, parts[0], name) for item in value)
    elif origin is Mapping and isinstance(value, dict):
        return {key: _value(item, parts[1], f"{name}.{key}") for key, item in value.items()}
    elif _is_plain_value(value, expected):
        return value
    raise UsageError(f"{name}: not a value it can have")


def _is_plain_value(value: Any, expected: Any) -> bool:
    """Return True if a value is one of a Literal, or exactly of the type; an int may be a float, a bool no int."""
    if get_origin(expected) is Literal:
        return value in get_args(expected)
    if expected is NoneType:
        return value is None
    return type(value) is expected or (expected is float and type(value) is int)


def _fields(value: Any, cls: Any, name: str) -> Any:
    """Return a dataclass of plain values by the names of its fields."""
    hints = get_type_hints(cls)
    types = {f.name: hints[f.name] for f in fields(cls)}
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    if not isinstance(value, dict) or not required <= value.keys() <= types.keys():
        raise UsageError(f"{name}: expected the fields {', '.join(types)}")
    return cls(**{key: _value(item, types[key], key) for key, item in value.items()})
