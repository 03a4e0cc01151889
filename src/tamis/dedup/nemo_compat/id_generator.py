"""IdGenerator: which file has which numbers, in memory and on disk.

Ids are a function of file and place, so there is no actor.

`create_id_generator_actor` and the others keep the one generator of this program; readers with `_generate_ids` or
`_assign_ids` use it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tamis import files as own_files
from tamis.errors import FormatError, UsageError
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR, CURRENT, OFFSET_BITS, FileNumbers

__all__ = [
    "CURATOR_DEDUP_ID_STR",
    "IdGenerator",
    "IdGeneratorBase",
    "create_id_generator_actor",
    "get_id_generator_actor",
    "kill_id_generator_actor",
    "write_id_generator_to_disk",
]


class IdGeneratorBase:
    """Ranges of ids for groups of files. `register_batch` gives a group the next ids, or the same ones again."""

    def __init__(self, start_id: int = 0, batch_registry: Mapping[str, Sequence[int]] | None = None) -> None:
        self.next_id = int(start_id)
        self.batch_registry = {key: (int(a), int(b)) for key, (a, b) in dict(batch_registry or {}).items()}
        self.files: list[str] = []  # by number, where ids are those of file and place

    def hash_files(self, filepath: str | Sequence[str]) -> str:
        """Return a name for a group of files, derived from their paths in order."""
        paths = [filepath] if isinstance(filepath, str) else list(filepath)
        return hashlib.blake2b("\0".join(paths).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def register_batch(self, files: str | Sequence[str], count: int) -> int:
        """Return the first of `count` ids of these files; those of an earlier call if there was one."""
        key = self.hash_files(files)
        if key not in self.batch_registry:
            self.batch_registry[key] = (self.next_id, self.next_id + count - 1)
            self.next_id += count
        return self.batch_registry[key][0]

    def get_batch_range(self, files: str | Sequence[str] | None = None, key: str | None = None) -> tuple[int, int]:
        """Return the first and the last id of a group of files, given by their paths or by its name."""
        if key is None:
            if files is None:
                raise UsageError("get_batch_range: give files or key")
            key = self.hash_files(files)
        if key not in self.batch_registry:
            raise KeyError(f"no ids were registered for {files if files is not None else key}")
        return self.batch_registry[key]

    def to_disk(self, filepath: str, storage_options: Mapping[str, Any] | None = None) -> None:
        _local(filepath, storage_options)
        about = {"next_id": self.next_id, "batch_registry": self.batch_registry, "files": self.files}
        os.makedirs(os.path.dirname(filepath) or ".", exist_ok=True)
        with own_files.replacing(filepath) as file:
            file.write(json.dumps(about).encode("utf-8", "surrogateescape"))

    @classmethod
    def from_disk(cls, filepath: str, storage_options: Mapping[str, Any] | None = None) -> Any:
        _local(filepath, storage_options)
        generator = cls()
        try:
            with open(filepath, encoding="utf-8", errors="surrogateescape") as file:
                about = json.load(file)
            generator = cls(about["next_id"], about["batch_registry"])
            generator.files = [str(path) for path in about.get("files", [])]
        except OSError as exc:
            raise UsageError(f"{filepath}: no id generator can be read there: {exc.strerror or exc}") from exc
        except (ValueError, TypeError, KeyError) as exc:
            raise FormatError(f"{filepath} is no id generator that was written to disk: {exc}") from exc
        return generator


class IdGenerator(IdGeneratorBase):
    """The generator of this program."""

    def wait(self) -> None:
        """Return at once: it is no process of its own."""


def of_files(paths: Sequence[str]) -> IdGenerator:
    """Return the generator of ids by file and position for these files."""
    generator = IdGenerator(len(paths) << OFFSET_BITS)
    generator.files = list(paths)
    last = (1 << OFFSET_BITS) - 1
    generator.batch_registry = {
        generator.hash_files(path): (i << OFFSET_BITS, (i << OFFSET_BITS) + last) for i, path in enumerate(paths)
    }
    return generator


def create_id_generator_actor(filepath: str | None = None, storage_options: Mapping[str, Any] | None = None) -> None:
    """Begin a generator for this program, or resume one that was written to disk."""
    if CURRENT:
        raise UsageError("there is an id generator already; end it with kill_id_generator_actor()")
    CURRENT.append(FileNumbers(IdGenerator.from_disk(filepath, storage_options).files if filepath is not None else ()))


def get_id_generator_actor() -> IdGenerator:
    """Return the id generator of this program."""
    if not CURRENT:
        raise UsageError("there is no id generator; begin one with create_id_generator_actor()")
    return of_files(CURRENT[0].files)


def kill_id_generator_actor() -> None:
    CURRENT.clear()


def write_id_generator_to_disk(filepath: str, storage_options: Mapping[str, Any] | None = None) -> None:
    """Keep what the generator knows, for a removal or another program."""
    get_id_generator_actor().to_disk(filepath, storage_options)


def _local(path: str, storage_options: Mapping[str, Any] | None) -> None:
    if "://" in os.fspath(path) or storage_options:
        raise UsageError(f"{path}: remote paths (storage_options) are not supported here; give a local file")
