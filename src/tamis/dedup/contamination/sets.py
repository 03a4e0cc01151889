"""Evaluation sets: where they are, which of their fields count, and their items as texts.

A set is a file (JSONL, a JSON array, Parquet, Arrow) or a folder, such as a dataset downloaded from Hugging Face. The
text of an item is what its fields hold, in order, joined by line feeds; lists and mappings count with all texts and
numbers inside. See also: index.py, which holds the n-grams of the items.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import FormatError, UsageError
from tamis.formats import registry
from tamis.formats.input_files.listing import list_files
from tamis.sizes import format_size

USUAL_FIELDS = ("question", "problem", "prompt", "text", "query", "instruction", "input", "goal", "sentence")
"""The first of these that a set has counts where no fields are named."""
_METADATA = ("dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json")
_MAX_ARRAY_BYTES = 256_000_000
_MAX_LINE_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_SUFFIXES = tuple(s + c for s in registry.suffixes() for c in registry.codecs_of(s))


@dataclass(frozen=True)
class EvaluationSet:
    """One evaluation set. `fields`: those that count, a.b for a field inside a field; none: the usual one."""

    path: str
    name: str
    fields: list[str] = field(default_factory=list)

    def files(self) -> list[str]:
        """Return its files, in order; UsageError if there are none."""
        listed = list_files(self.path, _SUFFIXES).paths if os.path.isdir(self.path) else [self.path]
        names = [path for path in listed if os.path.basename(path) not in _METADATA]
        if not names:
            raise UsageError(f"evaluation set {self.name}: {self.path} holds no JSONL, Parquet or Arrow files")
        return names


@dataclass(frozen=True)
class Item:
    """One item of a set. `row`: of its file, from 0."""

    row: int
    text: str


def evaluation_sets(against: Any, fields: Sequence[str] = ()) -> list[EvaluationSet]:
    """Parse evaluation sets as users give them: a path or several, or mappings with `path`, `name` and `fields`.

    A folder that holds several datasets is as many sets. `fields`: of sets that name none themselves.
    """
    entries = [against] if isinstance(against, (str, os.PathLike, Mapping)) else against
    if not isinstance(entries, Sequence) or not entries:
        raise UsageError(
            "against: expected the path of an evaluation set, or a list such as [evals/, {path: mmlu.parquet, fields: "
            f"[question, choices]}}], got {against!r}"
        )
    usual = _checked_fields(fields)
    sets = [each for entry in entries for each in _sets_of(entry, usual)]
    names = [s.name for s in sets]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise UsageError(f"against: two evaluation sets are called {twice!r}; give each a name")
    return sets


def _sets_of(entry: Any, usual_fields: list[str]) -> list[EvaluationSet]:
    """Parse one entry: several sets if it is a folder of sets without a name."""
    about = dict(entry) if isinstance(entry, Mapping) else {"path": entry}
    path, name = about.get("path"), about.get("name")
    if set(about) - {"path", "name", "fields"} or not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UsageError(f"against: an evaluation set has a path, and may have name and fields; got {entry!r}")
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not os.path.exists(root):
        raise UsageError(f"against: there is no {os.fspath(path)}; give the file or folder of an evaluation set")
    fields = _checked_fields(about.get("fields") or ()) or usual_fields
    if name is not None and (not isinstance(name, str) or not name):
        raise UsageError(f"against: the name of an evaluation set must be text, got {name!r}")
    parts = [root] if name is not None else _sets_below(root)
    return [EvaluationSet(part, name or _name_of(part), fields) for part in parts]


def _checked_fields(fields: Any) -> list[str]:
    if isinstance(fields, str) or not all(isinstance(f, str) and f for f in fields):
        raise UsageError(f"against: fields must be a list of names, got {fields!r}")
    return list(fields)


def _sets_below(root: str) -> list[str]:
    """Return the sets at a path: itself, or each file and folder in a folder of sets."""
    if not os.path.isdir(root):
        return [root]
    names = sorted(n for n in os.listdir(root) if not n.startswith((".", "_")))
    is_one = "data" in names or any(name in _METADATA for name in names)
    if is_one:
        return [root]
    paths = [os.path.join(root, n) for n in names if os.path.isdir(os.path.join(root, n)) or _is_set_file(n)]
    if not paths:
        raise UsageError(
            f"against: {root} holds no evaluation sets (JSONL, Parquet or Arrow files, or folders of them)"
        )
    return paths


def _is_set_file(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


def _name_of(path: str) -> str:
    name = os.path.basename(path)
    if os.path.isdir(path):
        return name
    ending = max((s for s in _SUFFIXES if name.lower().endswith(s)), key=len, default="")
    return name[: len(name) - len(ending)] or name


# -- identity ----------------------------------------------------------------------------------------------------------
def stat_of(sets: Sequence[EvaluationSet]) -> list[list[Any]]:
    """Return what shows, without reading them, whether the files of sets have changed."""
    facts = []
    for one in sets:
        for path in one.files():
            info = os.stat(path)
            facts.append([one.name, path, info.st_size, info.st_mtime_ns])
    return facts


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- items -------------------------------------------------------------------------------------------------------------
def items_of(one: EvaluationSet, path: str) -> Iterator[Item]:
    """Yield the items of a file of a set; those without text in the fields that count have an empty text."""
    fields: list[str] = []
    for row, record in enumerate(_records(path)):
        if not isinstance(record, Mapping):
            raise FormatError(f"{path}: row {row} is no mapping of fields to values")
        if not fields:
            fields = _fields_of(one, path, record)
        texts = [text for name in fields for text in _texts(_value(record, name))]
        yield Item(row, "\n".join(texts))


def _fields_of(one: EvaluationSet, path: str, record: Mapping[str, Any]) -> list[str]:
    present = sorted(map(str, record))
    shown = ", ".join(present[:20])
    if not one.fields:
        usual = next((name for name in USUAL_FIELDS if name in record), None)
        if usual is None:
            raise UsageError(
                f"evaluation set {one.name}: {path} has the fields {shown}; name those that count (--field, or fields "
                "in a recipe)"
            )
        return [usual]
    missing = [name for name in one.fields if name.partition(".")[0] not in record and name not in record]
    if len(missing) == len(one.fields):
        raise UsageError(f"evaluation set {one.name}: {path} has no field {', '.join(missing)}; it has {shown}")
    return one.fields


def _value(record: Mapping[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts and numbers in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def _records(path: str) -> Iterator[Any]:
    if registry.is_table(path):
        rows = registry.table_format(path)
        n_rows = rows.describe(path).n_rows
        for _, table in rows.iter_rows(path, 0, n_rows):
            yield from table.to_pylist()
        return
    lines = _lines(path)
    first = next(lines, b"")
    if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        yield from _array(path, b"".join([first, *_limited(path, lines)]))
        return
    for number, line in enumerate(itertools.chain([first], lines)):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise FormatError(
                f"{path}: line {number + 1} is no JSON ({exc}); an evaluation set must be whole"
            ) from None


def _limited(path: str, lines: Iterator[bytes]) -> Iterator[bytes]:
    total = 0
    for line in lines:
        total += len(line)
        if total > _MAX_ARRAY_BYTES:
            raise FormatError(
                f"{path}: a JSON array of more than {format_size(_MAX_ARRAY_BYTES)}; write one object per line instead"
            )
        yield line


def _array(path: str, data: bytes) -> list[Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{path}: neither JSON lines nor a JSON array ({exc})") from None
    return values if isinstance(values, list) else [values]


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, decoded as its name says."""
    from tamis.formats.compression.streams import StreamReader

    rest = b""
    with StreamReader.open(path) as stream:
        while data := stream.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            yield from (line + b"\n" for line in lines)
            if len(rest) > _MAX_LINE_BYTES:
                raise FormatError(f"{path}: a line of more than {format_size(_MAX_LINE_BYTES)}")
    if rest:
        yield rest
