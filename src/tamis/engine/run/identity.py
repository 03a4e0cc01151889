"""The identity of a pipeline, apart from how it is executed: used to refuse resuming with other stages.

Parameters and source code count, also that of functions and classes of the same package which a stage uses
(code_used.py); pickle bytes do not (they differ from run to run), nor do execution settings. Secrets are veiled
(tamis/secrets.py): the description is kept in the run directory, and another password makes no other run.

The plan also keeps the code that it depends on, so that a message can name the line that was edited. Strings may be
passwords, and everyone may read a run directory: they are left out, like comments, which do not change what a stage
does.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import hashlib
import inspect
import io
import os
import re
import sys
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tamis import secrets
from tamis.engine.job import Job
from tamis.engine.run.code_used import code_used, constants_used
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
_LOCATIONS = {"blocksize", "files_per_partition", "mode", "file_paths", "limit", "leave_out", "path", "one_per_file"}
_BY_WORKFLOW = {"hints"}  # of readers: how a pass reads, not which records
_DEPTH = 6
_FILES = "model files"
# Parameters of stages of Tamis that change nothing that is written: what `tamis why` reports of a stage, and whether a
# model may bring code along (which counts by its files).
_NO_EFFECT = {"judge", "trust_remote_code"}
_HASHED = re.compile(r"([A-Za-z_][\w.<>]*):[0-9a-f]*")  # code as `_plain` describes it: its name and its hash
_VEILED = re.compile(r"<hidden(?: [0-9a-f]+)?>")
_CONSTANT = "= "
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
    clauses = [*_parameter_changes(old, new)]
    if old.source != new.source:
        clauses.append("its source code changed" + _changed_lines(old, new, ""))
    for name in new.uses:
        before, now = old.uses.get(name), new.uses[name]
        if before is None or before == now:
            continue
        if now.startswith(_CONSTANT):
            clauses.append(f"{name} {before.removeprefix(_CONSTANT)} -> {now.removeprefix(_CONSTANT)}")
        else:
            clauses.append(f"{name}, which it uses, changed" + _changed_lines(old, new, name))
    return [f"{new.stage}: {clause}" for clause in clauses]


def _changed_lines(old: StageDescription, new: StageDescription, name: str) -> str:
    lines = describe_change(old.lines.get(name, ()), new.lines.get(name, ()))
    return f": {lines}" if lines else ""


def _parameter_changes(old: StageDescription, new: StageDescription) -> Iterator[str]:
    is_tamis = new.stage.startswith("tamis.")
    for key in sorted({*old.params, *new.params}):
        a, b = old.params.get(key), new.params.get(key)
        is_equal = is_same_model(a, b) if key == _FILES else a == b or (is_tamis and key in _NO_EFFECT)
        if not is_equal and key == _FILES and a and b:
            yield "its model files changed"
        elif not is_equal:
            yield from _value_changes(key, a, b)


def _mapping_changes(name: str, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    if "bytes" in now:
        return [f"{name}: its bytes changed"]
    keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    return [c for key in keys for c in _value_changes(_member(name, key), before.get(key), now.get(key))]


def _code_name(value: Any) -> str | None:
    """Return the name of a function or class that a parameter is, None for other values."""
    match = _HASHED.fullmatch(str(value))
    return None if match is None else match[1]


def _value_changes(name: str, before: Any, now: Any) -> list[str]:
    """Describe how a parameter changed, as far down as both values have the same structure.

    >>> _value_changes("filter", {"class": "m.F:00ff", "low": "0.12"}, {"class": "m.F:00ff", "low": "0.05"})
    ['filter.low 0.12 -> 0.05']
    >>> _value_changes("rule", "m.rule:1f", "m.rule:2e"), _value_changes("n", None, "many")
    (['rule: the source code of m.rule changed'], ["n None -> 'many'"])
    """
    if isinstance(before, dict) and isinstance(now, dict):
        return _mapping_changes(name, before, now)
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now) and _has_parts(now):
        parts = enumerate(zip(before, now, strict=True))
        return [change for i, (a, b) in parts if a != b for change in _value_changes(f"{name}[{i}]", a, b)]
    code = _code_name(now)
    if code is not None and code == _code_name(before):
        return [f"{name}: the source code of {code} changed"]
    if secrets.HIDDEN in (before, now) or _VEILED.fullmatch(str(now)) is not None:
        return [f"{name} changed"]
    return [f"{name} {shown(before)} -> {shown(now)}"]


def _has_parts(values: Sequence[Any]) -> bool:
    """Return True for a list of lists, objects or code, of which only what changed is worth a message."""
    return any(isinstance(v, (list, dict)) or _HASHED.fullmatch(str(v)) for v in values)


def _member(name: str, key: str) -> str:
    return name if key == "class" else f"{name}.{key}"


def shown(value: Any) -> str:
    """Format a described value for a message: numbers as numbers, code by its name."""
    if isinstance(value, dict) and isinstance(value.get("class"), str):
        value = value["class"]
    if not isinstance(value, str):
        return repr(value)
    if (code := _HASHED.fullmatch(value)) is not None:
        return code[1]
    try:
        float(value)
    except ValueError:
        return repr(value)
    return value


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
    return [dataclasses.replace(s, stage=_class_name(s.stage), params=_without_modules(s.params)) for s in stages]


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
    lines = {name: code.splitlines() for name, code in {"": _lines(cls), **code_used(stage, _lines)}.items() if code}
    name = f"{cls.__module__}.{cls.__qualname__}"
    constants = {name: f"{_CONSTANT}{value!r}" for name, value in constants_used(stage).items()}
    return StageDescription(name, params, _source(cls), code_used(stage, _source) | constants, lines)


def _lines(obj: Any) -> str:
    """Return the code of a function or class of the user's in the form that names a change (source_changes.py)."""
    if getattr(obj, "__module__", "").split(".")[0] == "tamis":
        return ""
    try:
        return "\n".join(code_lines(_text(obj)))
    except (OSError, TypeError, ValueError, KeyError, SyntaxError):
        return ""


def _source(obj: Any) -> str:
    """Hash of the source code; code of Tamis itself counts by its name only (a new version may resume an old run)."""
    if getattr(obj, "__module__", "").split(".")[0] == "tamis":
        return ""
    try:
        text = _text(obj)
    except (OSError, TypeError, ValueError, KeyError, SyntaxError):
        code = getattr(obj, "__code__", None)
        text = _compiled(code) if code is not None else getattr(obj, "__qualname__", "")
    return _hash(text.encode("utf-8", "surrogatepass"))


def _text(obj: Any) -> str:
    """Return the source of a function or class, like inspect.getsource.

    Before Python 3.13, inspect.getsource parses the whole module again for each class.
    """
    obj = inspect.unwrap(obj)
    if not inspect.isclass(obj):
        return inspect.getsource(obj)
    try:
        lines, _ = inspect.findsource(sys.modules[obj.__module__])
    except (OSError, TypeError):  # of a notebook, which has no file
        return _text_of_members(obj)
    first = _first_lines("".join(lines)).get(obj.__qualname__)
    if first is None:
        return _text_of_members(obj)
    return "".join(inspect.getblock(lines[first - 1 :]))


def _text_of_members(cls: type) -> str:
    """Return the source of a class as far as its members have one: of a cell of a notebook, or of exec()."""
    parts = [f"class {cls.__qualname__}:\n"]
    for name, member in vars(cls).items():
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", None) or member)
        if inspect.isfunction(function):
            # Not what @dataclass compiles; code of exec() and `python -c` has the same file name.
            if dataclasses.is_dataclass(cls) and name in _BY_DATACLASS and function.__code__.co_filename == "<string>":
                continue
            try:
                parts.append(textwrap.indent(textwrap.dedent(inspect.getsource(function)), "    "))
            except OSError:
                parts.append(f"    {name} = {_hash(_compiled(function.__code__).encode())!r}\n")
        elif isinstance(member, (bool, int, float, str)) and not name.startswith("__"):
            parts.append(f"    {name} = {member!r}\n")
    return "".join(parts)


_BY_DATACLASS = frozenset(
    [
        "__init__",
        "__repr__",
        "__eq__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__hash__",
        "__setattr__",
        "__delattr__",
        "__replace__",
    ]
)


def _compiled(code: types.CodeType) -> str:
    """Return what distinguishes compiled code, wherever it was written."""
    constants = [_compiled(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code.hex(), code.co_names, constants))


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


# -- changes of source code, in words ----------------------------------------------------------------------------------
MAX_LINES, MAX_COLUMNS = 400, 160
_MASK = '"..."'
_MAX_NAMED = 2
_STRING_STARTS = tuple(
    getattr(tokenize, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(tokenize, name)
)
_STRING_ENDS = tuple(getattr(tokenize, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, name))


def code_lines(text: str) -> list[str]:
    r"""Return the lines of a source text without indentation, comments and the contents of strings.

    >>> code_lines('def keep(x):\n    \"\"\"Say why.\"\"\"\n    return x > 0.5 and key != "sk-1"  # really\n')
    ['def keep(x):', '"..."', 'return x > 0.5 and key != "..."']
    """
    lines: list[str] = []
    line, end, depth = "", (0, 0), 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _STRING_ENDS:
                depth, end = depth - 1, token.end
                continue
            if token.type in _STRING_STARTS:
                depth += 1
            if depth > (token.type in _STRING_STARTS) or token.type in (tokenize.COMMENT, tokenize.INDENT):
                continue
            if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
                if line.strip():
                    lines.append(line.strip()[:MAX_COLUMNS])
                line = ""
                continue
            if token.type == tokenize.DEDENT:
                continue
            gap = " " * (token.start[1] - end[1]) if line and token.start[0] == end[0] else ""
            is_string = token.type == tokenize.STRING or token.type in _STRING_STARTS
            line, end = line + gap + (_MASK if is_string else token.string), token.end
    except (tokenize.TokenError, SyntaxError):  # a part of a file that is no program by itself
        pass
    return lines[:MAX_LINES]


def describe_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe how the lines of some code changed; empty if they did not, or are not known."""
    if not before or not now or list(before) == list(now):
        return ""
    changes = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if kind == "replace" and b - a == d - c:
            changes += [f"`{old}` -> `{new}`" for old, new in zip(before[a:b], now[c:d], strict=True)]
        elif kind != "equal":
            changes += [f"`{line}` removed" for line in before[a:b]] + [f"`{line}` added" for line in now[c:d]]
    more = f" and {len(changes) - _MAX_NAMED} more lines" if len(changes) > _MAX_NAMED else ""
    return ", ".join(changes[:_MAX_NAMED]) + more
