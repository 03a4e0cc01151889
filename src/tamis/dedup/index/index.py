"""An index of what earlier deduplications kept, so that new data is compared with it without the old files.

index.json        kind, parameters (they must be the same to be compared) and the entries, one per run that was added
entry-NAME-N/     what is known of every kept document; paths.json: its input files by number
  records.arrow   place, hash and keys, of exact and fuzzy deduplication (joint_records.py, entries.py)
  texts.parquet   place and text, of substring deduplication (texts.py)

32 bytes per document for exact deduplication; for fuzzy 12 more per band and a signature of 256, from which
similarities are estimated; for substrings the compressed texts. index.json is replaced whole, entries are never changed
in place: a kill leaves the old state or the new one. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis.dedup.kinds import SUBSTRINGS
from tamis.dedup.state import IndexPin
from tamis.errors import RunConflict, UsageError
from tamis.files import write_json
from tamis.stores.urls import absolute, is_remote

VERSION = 1
_MAX_BANDS = 1000
_DATA = {SUBSTRINGS.name: "texts.parquet"}  # the file of an entry, by kind
_RECORDS = "records.arrow"  # of other kinds
_NAME = re.compile(r"entry-[0-9a-f]{16}-[0-9]{1,9}")


@dataclass(frozen=True)
class Entry:
    """Documents that one run added. `by_file`: how many of each of its input files."""

    name: str
    input: Any
    output: str
    n_documents: int
    n_bytes: int
    by_file: list[int]

    @property
    def run(self) -> str:
        return self.name.rpartition("-")[0]

    def is_of(self, output: str) -> bool:
        """Return True if a run into this output added the entry."""
        return self.run == run_name(output)


@dataclass
class Index:
    path: str
    kind: str
    parameters: dict[str, Any]
    entries: list[Entry]
    sketch_version: int = 0  # of the kernels that made the keys; 0 for exact deduplication

    @property
    def bands(self) -> int:
        return int(self.parameters.get("bands", 0))

    def folder(self, entry: Entry) -> str:
        return os.path.join(self.path, entry.name)

    def data(self, entry: Entry) -> str:
        """Return the file with what is known of the documents of an entry."""
        return os.path.join(self.folder(entry), self.data_name)

    @property
    def data_name(self) -> str:
        return _DATA.get(self.kind, _RECORDS)

    def paths(self, entry: Entry) -> list[str]:
        """Return the input files of an entry by number."""
        path = os.path.join(self.folder(entry), "paths.json")
        try:
            with open(path, encoding="utf-8") as file:
                paths = json.load(file)
        except (OSError, ValueError) as exc:
            raise UsageError(f"{path} cannot be read ({exc}); the index is damaged") from None
        if (
            not isinstance(paths, list)
            or len(paths) != len(entry.by_file)
            or not all(isinstance(p, str) for p in paths)
        ):
            raise UsageError(f"{path} does not fit its index; the index is damaged")
        return paths

    def save(self) -> None:
        about: dict[str, Any] = {"version": VERSION, "kind": self.kind, "parameters": self.parameters}
        about["sketch_version"] = self.sketch_version
        write_json(os.path.join(self.path, "index.json"), about | {"entries": [asdict(e) for e in self.entries]})

    def tidy(self) -> None:
        """Remove folders that are no entries of the index, and files that a killed process left half written.

        The caller holds the lock.
        """
        names = {e.name for e in self.entries}
        for name in os.listdir(self.path):
            if _NAME.fullmatch(name) and name not in names:
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)
            elif name.startswith(".index.json.") and name.endswith(".tmp"):
                files.remove(os.path.join(self.path, name))

    def next_name(self, run: str) -> str:
        taken = [int(e.name.rpartition("-")[2]) for e in self.entries if e.run == run]
        return f"{run}-{max(taken, default=0) + 1}"


def read_index(path: str) -> Index:
    """Read the index of a folder; raise UsageError if it does not hold one, whatever it holds."""
    try:
        with open(os.path.join(path, "index.json"), encoding="utf-8") as file:
            data = json.load(file)
        if data["version"] != VERSION:
            raise UsageError(f"{path} was written by another version of Tamis (index version {data['version']!r})")
        entries = [_entry(e) for e in data["entries"]]
        index = Index(path, str(data["kind"]), dict(data["parameters"]), entries, int(data["sketch_version"]))
        if not 0 <= index.bands <= _MAX_BANDS:
            raise ValueError("bands")
        return index
    except FileNotFoundError:
        raise UsageError(f"{path} holds no index (no index.json); make one with index_path (--index)") from None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise UsageError(f"{path}/index.json cannot be read ({type(exc).__name__}: {exc})") from None


def _entry(data: dict[str, Any]) -> Entry:
    entry = Entry(**data)
    by_file = [int(n) for n in entry.by_file]
    if not _NAME.fullmatch(entry.name) or min([0, entry.n_documents, *by_file]) < 0:
        raise ValueError(f"entry {entry.name!r}")
    return entry


def run_name(output: str) -> str:
    """Return the name of a run's entry; an output has one entry, rebuilt whenever the run is."""
    digest = hashlib.blake2b(_place(output).encode("utf-8", "surrogateescape"), digest_size=8)
    return f"entry-{digest.hexdigest()}"


def _place(output: str) -> str:
    return output.rstrip("/") if is_remote(output) else absolute(output)


def check_parameters(index: Index, kind: str, parameters: dict[str, Any]) -> None:
    """Check that two indexes have equal parameters: other keys cannot be compared."""
    if index.kind != kind:
        raise UsageError(f"{index.path} is an index of {index.kind} deduplication, this is {kind}; give another index")
    now = json.loads(json.dumps(parameters))
    for name in sorted({*index.parameters, *now}):
        if index.parameters.get(name) != now.get(name):
            raise UsageError(
                f"{index.path} was made with {name}={index.parameters.get(name)!r}, this run has {now.get(name)!r}; "
                "they must be the same: change it, or make another index (index_path, --index)"
            )


def pinned(path: str, kind: str, parameters: dict[str, Any], output: str) -> list[IndexPin]:
    """Return what a run is compared with, recorded so that a resumed run is compared with the same.

    The run's own entry is left out.
    """
    index = read_index(path)
    check_parameters(index, kind, parameters)
    pins = []
    for entry in index.entries:
        if not entry.is_of(output):
            index.paths(entry)
            pin = IndexPin(index.folder(entry), index.data(entry), entry.n_bytes, index.bands, index.sketch_version)
            pins.append(pin)
    check_pins(path, pins)
    return pins


def check_pins(path: str, pins: list[IndexPin]) -> None:
    """Raise RunConflict if an entry of the index is not what it was when the run began."""
    for pin in pins:
        try:
            same = os.path.getsize(pin.data) == pin.n_bytes
        except OSError:
            same = False
        if not same:
            raise RunConflict(f"the index {path} changed or is damaged: {pin.data}; start over with fresh (--fresh)")


def refuse_existing(path: str, output: str) -> None:
    """Raise UsageError unless a new index can be created here without touching an existing one or other data."""
    if os.path.exists(os.path.join(path, "index.json")):
        if [e for e in read_index(path).entries if not e.is_of(output)]:
            raise UsageError(
                f"{path} holds an index already; to compare with it and add to it give against={path!r} and "
                "append=True (--against --append)"
            )
    elif os.path.isdir(path) and any(not _NAME.fullmatch(n) and n != "lock" for n in os.listdir(path)):
        raise UsageError(f"{path} holds other data; give an empty folder for the index")


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the index lock, so that there is one writer at a time; create the folder of a new index."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as exc:
        raise RunConflict(f"cannot write to {path}: {exc.strerror or exc}") from exc
    with files.locked(os.path.join(path, "lock"), f"another process is changing the index {path}; wait for it"):
        yield
