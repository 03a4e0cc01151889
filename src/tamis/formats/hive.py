"""Names of folders that hold the values of fields, as Hive, Spark, pyarrow and DuckDB read them: language=en/topic=law.

Covers: encoding values so that they cannot lead elsewhere, and decoding them. The files in such folders do not have the
fields; `Folders` tells which values the documents of a file have. See also: engine/worker/value_files.py (writing).
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tamis.errors import UsageError
from tamis.stores.urls import is_remote

DEFAULT = "__HIVE_DEFAULT_PARTITION__"
"""Stands for a missing, null or empty value."""
MAX_FIELDS = 8
Values = tuple[str | None, ...]

_UNSAFE = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^\ud800-\udfff]")  # those of Hive, NUL and lone surrogates
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_MAX_NAME_BYTES = 255
_MARK_BYTES = 17  # of what replaces the end of a name that is too long
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def check_names(value: str | Sequence[str] | None, what: str) -> tuple[str, ...]:
    """Return the fields of `partition_by`, given as a list or as text with commas; raise UsageError for bad ones.

    >>> check_names("language, quality_bucket", "partition_by")
    ('language', 'quality_bucket')
    """
    if value is None:
        return ()
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"{what}: expected names of fields, e.g. language,quality_bucket, got {value!r}")
    if len(set(names)) < len(names):
        raise UsageError(f"{what}: a field is named twice in {value!r}")
    if len(names) > MAX_FIELDS:
        raise UsageError(f"{what}: expected at most {MAX_FIELDS} fields, got {len(names)}")
    hidden = next((name for name in names if name.startswith(("_", "."))), None)
    if hidden is not None:
        raise UsageError(f"{what}: {hidden!r}: folders that begin with _ or . are skipped by readers; rename the field")
    return tuple(names)


# -- writing ----------------------------------------------------------------------------------------------------------
def escaped(text: str) -> str:
    """Encode the characters that Hive encodes: those that have a meaning in paths or cannot be in a name.

    >>> escaped("a/b=../c"), escaped("Ünïcode stays")
    ('a%2Fb%3D..%2Fc', 'Ünïcode stays')
    """
    return _UNSAFE.sub(lambda match: _percent(match[0]), text)


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def segment(name: str, value: str | None) -> str:
    """Return the name of the folder for a value of a field.

    One that would be longer than file systems allow is cut and ends in a hash of the value.

    >>> segment("lang", "en"), segment("lang", None)
    ('lang=en', 'lang=__HIVE_DEFAULT_PARTITION__')
    """
    if not value:
        return f"{escaped(name)}={DEFAULT}"
    text = f"%5F{value[1:]}" if value == DEFAULT else escaped(value)
    return _fitting(f"{escaped(name)}={text}", value)


def _fitting(text: str, value: str) -> str:
    data = text.encode()
    if len(data) <= _MAX_NAME_BYTES:
        return text
    mark = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    cut = data[: _MAX_NAME_BYTES - _MARK_BYTES].decode("utf-8", "ignore")
    return f"{re.sub('%[0-9A-F]?$', '', cut)}~{mark}"


def folders(names: Sequence[str], values: Iterable[Values]) -> dict[Values, str]:
    """Return the folder of each combination of values, with / between the fields.

    Names that differ in the case of letters alone have their capitals encoded, since some file systems take them for
    the same.

    >>> folders(["lang"], [("en",), ("EN",), ("de",)])
    {('en',): 'lang=en', ('EN',): 'lang=%45%4E', ('de',): 'lang=de'}
    """
    plain = {each: [segment(name, value) for name, value in zip(names, each, strict=True)] for each in values}
    spellings: dict[tuple[int, str], set[str]] = {}
    for parts in plain.values():
        for i, part in enumerate(parts):
            spellings.setdefault((i, part.casefold()), set()).add(part)
    return {
        each: "/".join(
            _lowered(part, each[i] or "") if len(spellings[i, part.casefold()]) > 1 else part
            for i, part in enumerate(parts)
        )
        for each, parts in plain.items()
    }


def _lowered(part: str, value: str) -> str:
    """Encode the capitals of a value, and what else changes its case, in the name of a folder."""
    name, _, text = part.partition("=")
    encoded = re.sub(r"%[0-9A-F]{2}|.", lambda m: m[0] if m[0] == m[0].casefold() else _cased(m[0]), text)
    return _fitting(f"{name}={encoded}", value)


def _cased(spelling: str) -> str:
    return spelling if spelling.startswith("%") else _percent(spelling)


def is_partitioned(name: str) -> bool:
    """Return True for a file in folders of `partition_by`, each of which is a field and a value.

    >>> is_partitioned("lang=en/part-00000.jsonl"), is_partitioned("../part-00000.jsonl"), is_partitioned("=/a")
    (True, False, False)
    """
    *folders, file = name.split("/")
    return bool(folders and file) and all(f.partition("=")[1] and f[0] not in "=._" for f in folders)


def output_entries(output: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the entries of an output and of folders of values in it, each with its name in the output."""
    try:
        with os.scandir(os.path.join(output, below)) as scanned:
            entries = list(scanned)
    except FileNotFoundError:
        return
    for entry in entries:
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False) and is_partitioned(f"{name}/file"):
            yield from output_entries(output, f"{name}/")
        else:
            yield name, entry


def name_in_output(path: str) -> str:
    """Return the name of a file in an output, with the folders of its values.

    >>> name_in_output("/data/out/lang=en/part-00000.jsonl"), name_in_output("/data/out/part-00000.jsonl")
    ('lang=en/part-00000.jsonl', 'part-00000.jsonl')
    """
    parts = path.split("/")
    first = len(parts) - 1
    while first and is_partitioned(f"{parts[first - 1]}/file"):
        first -= 1
    return "/".join(parts[first:])


# -- reading ----------------------------------------------------------------------------------------------------------
class Folders:
    """The values that the folders of input files name, below the folders that a reader was given.

    A field whose values are whole numbers in all files has numbers, any other has texts.
    """

    def __init__(self, entries: Iterable[str], paths: Iterable[str]) -> None:
        """`entries`: files, folders and globs as a reader got them; `paths`: of all input files."""
        self._roots = sorted({_root(entry) for entry in entries}, key=len, reverse=True)
        texts: dict[str, set[str]] = {}
        folders_seen: set[str] = set()
        for path in paths:
            folder = path.rpartition("/")[0]
            if "=" in folder and folder not in folders_seen:
                folders_seen.add(folder)
                for name, text in self._texts(folder).items():
                    texts.setdefault(name, set()).add(text or "")
        self.names = list(texts)
        self._numbers = {name for name, found in texts.items() if all(not t or _WHOLE.fullmatch(t) for t in found)}

    def values_of(self, path: str) -> Mapping[str, str | int | None]:
        """Return the values of the documents of a file by field; fields that its folders do not name are left out."""
        texts = self._texts(path.rpartition("/")[0])
        return {name: int(text) if text is not None and name in self._numbers else text for name, text in texts.items()}

    def _texts(self, folder: str) -> dict[str, str | None]:
        root = next((r for r in self._roots if folder.startswith(r)), None)
        if root is None:
            return {}
        pairs = (part.partition("=") for part in folder[len(root) :].split("/"))
        return {
            unescaped(name): None if text == DEFAULT or not text else unescaped(text)
            for name, equals, text in pairs
            if name and equals
        }


def unescaped(text: str) -> str:
    """Decode what `escaped` encoded.

    >>> unescaped(escaped("100 % = a/b"))
    '100 % = a/b'
    """
    if "%" not in text:
        return text
    data = _ESCAPE.sub(lambda match: chr(0xDC00 + int(match[1], 16)), text)
    plain = b"".join(
        bytes([ord(c) - 0xDC00]) if 0xDC00 <= ord(c) <= 0xDCFF else c.encode("utf-8", "surrogatepass") for c in data
    )
    return plain.decode("utf-8", "replace")


def _root(entry: str) -> str:
    """Return the folder below which an entry of an input is searched: up to its first wildcard."""
    entry = entry if is_remote(entry) else os.path.abspath(os.path.expanduser(entry))
    if not glob.has_magic(entry):
        return entry.rstrip("/") + "/"
    parts = entry.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]) + "/"
