"""What a pipeline is, apart from how it is executed: used to refuse resuming with other stages.

Parameters and source code count, also that of functions and classes of the same package which a stage uses
(code_used.py); pickle bytes do not (they differ from run to run), nor do execution settings. Secrets are veiled
(tamis/secrets.py): the description is kept in the run directory, and another password makes no other run.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tamis import secrets
from tamis.engine.job import Job
from tamis.engine.run.code_used import code_used
from tamis.engine.schema import StageDescription
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
# Of sources and writers: inputs are compared by themselves.
_LOCATIONS = {"blocksize", "files_per_partition", "mode", "file_paths", "limit", "leave_out", "path"}
_BY_WORKFLOW = {"hints"}  # of readers: how a pass reads, not which records
_DEPTH = 6
_FILES = "model files"
# Parameters of stages of Tamis that change nothing that is written: what `tamis why` reports of a stage, and whether a
# model may bring code along (which counts by its files).
_NO_EFFECT = {"replayed_rules", "trust_remote_code"}
_TAMIS_CLASS = re.compile(r"(tamis\.)(?:[a-z0-9_]+\.)+(_*[A-Z][\w.]*:?)")


def describe_job(job: Job, extra: Mapping[str, Any]) -> list[StageDescription]:
    """Describe a job as one entry per stage, plus one for settings that change the output."""
    stages: list[Any] = [job.source, job.reader, *job.stages, job.writer]
    return [*(_describe_stage(s) for s in stages if s is not None), StageDescription("settings", dict(extra))]


def differences(before: Sequence[StageDescription], now: Sequence[StageDescription]) -> list[str]:
    """Return the differences between two job descriptions, as sentences."""
    before, now = comparable(before), comparable(now)
    if [s.stage for s in before] != [s.stage for s in now]:
        return [f"the stages were {[s.stage for s in before]} and are {[s.stage for s in now]}"]
    return [d for old, new in zip(before, now, strict=True) for d in _stage_differences(old, new)]


def _stage_differences(old: StageDescription, new: StageDescription) -> list[str]:
    clauses = []
    is_tamis = new.stage.startswith("tamis.")
    for key in sorted({*old.params, *new.params}):
        a, b = old.params.get(key), new.params.get(key)
        is_equal = is_same_model(a, b) if key == _FILES else a == b or (is_tamis and key in _NO_EFFECT)
        if not is_equal:
            clauses.append(f"{new.stage}: {key} was {a!r} and is {b!r}")
    if old.source != new.source:
        clauses.append(f"{new.stage}: its source code changed")
    edited = [name for name in new.uses if name in old.uses and old.uses[name] != new.uses[name]]
    return clauses + [f"{new.stage}: {name}, which it uses, changed" for name in edited]


def is_same_model(before: str | None, now: str | None) -> bool:
    """Return True if two fingerprints of a model are of the same files.

    The fingerprints of several folders are joined by "+". One that is missing on either side does not count: its
    folder was fetched since.

    >>> is_same_model(None, "a+b"), is_same_model("a", "a+b"), is_same_model("a+b", "a+c"), is_same_model("c+b", "a+b")
    (True, True, False, False)
    """
    pairs = zip((before or "").split("+"), (now or "").split("+"), strict=False)
    return all(a == b or not a or not b for a, b in pairs)


def comparable(stages: Sequence[StageDescription]) -> list[StageDescription]:
    """Normalize the description of a job for a comparison: a class of Tamis may move to another module.

    Classes of Tamis are compared by class name, all others by the whole path. For `differences` and `tamis diff`.
    """
    return [replace(s, stage=_class_name(s.stage), params=_without_modules(s.params)) for s in stages]


def _class_name(path: str) -> str:
    attributes = _TAMIS_CLASS.fullmatch(path)
    return attributes[1] + attributes[2] if attributes else path


def _without_modules(value: Any) -> Any:
    """Strip the modules from class names in a value that `_plain` returned.

    In such a value, class names end in a colon.
    """
    if isinstance(value, dict):
        return {k: _without_modules(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_modules(v) for v in value]
    return _class_name(value) if isinstance(value, str) and value.endswith(":") else value


def _describe_stage(stage: ProcessingStage[Any, Any]) -> StageDescription:
    # A user's stage may call a threshold "limit": only where Tamis reads and writes do these names mean execution.
    reads_or_writes = isinstance(stage, (FilePartitioningStage, Reader, Writer))
    left_out = _EXECUTION | _LOCATIONS | _BY_WORKFLOW if reads_or_writes else _EXECUTION
    cls = type(stage)
    params = {k: _named(k, v, _DEPTH) for k, v in vars(stage).items() if k not in left_out and not k.startswith("_")}
    if files := stage.model_files():
        params[_FILES] = files
    return StageDescription(f"{cls.__module__}.{cls.__qualname__}", params, _source(cls), code_used(stage, _source))


def _source(obj: Any) -> str:
    """Hash of the source code; code of Tamis itself counts by its name only (a new version may resume an old run)."""
    if getattr(obj, "__module__", "").split(".")[0] == "tamis":
        return ""
    try:
        text = _text(obj)
    except (OSError, TypeError, ValueError, KeyError, SyntaxError):
        code = getattr(obj, "__code__", None)
        text = code.co_code.hex() + repr(code.co_names) if code is not None else getattr(obj, "__qualname__", "")
    return _hash(text.encode("utf-8", "surrogatepass"))


def _text(obj: Any) -> str:
    """Return the source of a function or class, like inspect.getsource.

    Before Python 3.13, inspect.getsource parses the whole module again for each class.
    """
    obj = inspect.unwrap(obj)
    if not inspect.isclass(obj):
        return inspect.getsource(obj)
    lines, _ = inspect.findsource(sys.modules[obj.__module__])
    first = vars(obj).get("__firstlineno__") or _first_lines("".join(lines)).get(obj.__qualname__)
    if first is None:
        raise OSError("class not found")
    return "".join(inspect.getblock(lines[first - 1 :]))


@functools.lru_cache(maxsize=4)
def _first_lines(module: str) -> dict[str, int]:
    r"""Return the first line of each class definition in a module's text, by qualified name.

    Decorators count as part of the definition.

    >>> _first_lines("class A:\n  class B: pass\ndef f():\n  @d\n  class C: pass")
    {'A': 1, 'A.B': 2, 'f.<locals>.C': 4}
    """
    import ast

    first_lines: dict[str, int] = {}
    waiting: list[tuple[str, ast.AST]] = [("", ast.parse(module))]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            first_lines.setdefault(prefix + node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)]))
            prefix += f"{node.name}."
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            prefix += f"{node.name}.<locals>."
        waiting += [(prefix, child) for child in reversed(list(ast.iter_child_nodes(node)))]
    return first_lines


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _plain(value: Any, depth: int) -> Any:
    """Convert a value to a JSON value that is equal for equal parameters, run after run."""
    if secrets.is_secret(value):
        return secrets.HIDDEN
    if isinstance(value, str):
        return secrets.without_password(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return repr(value)
    if depth == 0:
        return type(value).__qualname__
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return _plain_container(value, depth)
    if inspect.isclass(value) or inspect.isroutine(value):
        return _plain_code(value, depth)
    if isinstance(value, functools.partial):
        return [_plain(v, depth - 1) for v in (value.func, value.args, dict(value.keywords))]
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value), depth - 1)
    if inspect.ismodule(value):
        return value.__name__
    cls = type(value)
    return {"class": f"{cls.__module__}.{cls.__qualname__}:{_source(cls)}", **_attributes(value, depth)}


def _plain_container(value: Any, depth: int) -> Any:
    """Convert a sequence, a set or a mapping like `_plain`."""
    if isinstance(value, (list, tuple)):
        return [_plain(v, depth - 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v, depth - 1) for v in value), key=repr)
    return {str(k): _named(str(k), v, depth - 1) for k, v in value.items()}


def _plain_code(value: Any, depth: int) -> Any:
    """Convert a class, a function or a method like `_plain`: by its name, its source and what is bound to it."""
    if inspect.isfunction(value) or inspect.isclass(value):
        name = f"{value.__module__}.{value.__qualname__}:{_source(value)}"
        bound = _bound(value, depth) if inspect.isfunction(value) else []
        return [name, *bound] if bound else name
    # Methods, and what is not written in Python: str.strip.
    name, of = getattr(value, "__qualname__", repr(value)), getattr(value, "__self__", None)
    return name if of is None or inspect.ismodule(of) else [name, _plain(of, depth - 1)]


def _named(name: str, value: Any, depth: int) -> Any:
    """Convert a value like `_plain`, for a value with a name, which may be that of a secret."""
    kind = secrets.kind_of(name)
    if kind and isinstance(value, (str, bytes, bytearray)):
        return secrets.veil(value if isinstance(value, str) else bytes(value), kind)
    plain = _plain(value, depth)
    return (
        secrets.redacted(plain, kind) if kind and isinstance(value, (list, tuple, set, frozenset, Mapping)) else plain
    )


def _bound(function: Any, depth: int) -> list[Any]:
    """Return values that a function uses besides its source: its closure and its defaults."""
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    values = [
        *zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True),
        *(function.__kwdefaults__ or {}).items(),
    ]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            values.append((name, cell.cell_contents))
        except ValueError:  # not assigned yet
            continue
    return [_named(name, v, depth - 1) for name, v in values]


def _attributes(value: Any, depth: int) -> dict[str, Any]:
    """Return what distinguishes an object from others of its class."""
    if isinstance(value, enum.Enum):
        return {"name": value.name}
    if isinstance(value, re.Pattern):
        return {"pattern": _plain(value.pattern, depth - 1), "flags": value.flags}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": _hash(bytes(value))}
    slots = [name for part in type(value).__mro__ for name in _names(getattr(part, "__slots__", ()))]
    attributes = {
        **{name: getattr(value, name) for name in slots if hasattr(value, name)},
        **getattr(value, "__dict__", {}),
    }
    if attributes:
        return {k: _named(k, v, depth - 1) for k, v in attributes.items() if not k.startswith("_")}
    if callable(getattr(value, "tobytes", None)):  # numpy's arrays and numbers, without importing it
        return {"bytes": _hash(value.tobytes()), "kind": str(getattr(value, "dtype", ""))}
    cls: Any = type(value)
    text = "" if cls.__repr__ is object.__repr__ else repr(value)
    return {"value": text} if text and " at 0x" not in text else {}  # an address is another one in every run


def _names(slots: str | tuple[str, ...]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
