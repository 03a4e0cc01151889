"""Identity of a run's input: which files it has, and whether they are still the files that were read.

Covers: the description of input files in `plan.json`, comparing two of them, and the guard that holds all passes of a workflow to
the input of its first pass. Does not cover: checks while a file is read (engine/worker/read.py).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tamis import files as own_files
from tamis.engine.ledger import N_POSITION_GROUPS, Ledger, positions_from_dict, positions_to_dict
from tamis.errors import RunConflict
from tamis.formats.input_files.listing import FileList
from tamis.stores.urls import is_remote

_FINGERPRINTED_FILES = 256
_FINGERPRINT_BYTES = 1 << 16
_MAX_NAMED = 3


@dataclass(frozen=True)
class InputIdentity:
    """Input files with what tells a changed one: size, time of modification and, where they are few, a fingerprint each."""

    paths: list[str]
    sizes: list[int]
    mtimes_ns: list[int]
    prints: list[str]

    @classmethod
    def of(cls, files: FileList) -> InputIdentity:
        """Describe the files as they are now."""
        few = zip(files.paths, files.sizes, strict=True) if len(files) <= _FINGERPRINTED_FILES else ()
        return cls(files.paths, list(files.sizes), list(files.mtimes_ns), [_fingerprint(p, size) for p, size in few])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> InputIdentity:
        return cls(data["paths"], data["sizes"], data["mtimes_ns"], data["prints"])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changes(self, now: InputIdentity) -> list[str]:
        """Return what differs in `now`, one clause for each file."""
        old = {p: i for i, p in enumerate(self.paths)}
        new = {p: i for i, p in enumerate(now.paths)}
        clauses = [f"{p} is new" for p in new if p not in old] + [f"{p} is gone" for p in old if p not in new]
        for path, i in new.items():
            if path not in old:
                continue
            j = old[path]
            if self.sizes[j] != now.sizes[i]:
                clauses.append(f"{path} had {self.sizes[j]} bytes and has {now.sizes[i]}")
            elif self.mtimes_ns[j] != now.mtimes_ns[i]:
                clauses.append(f"{path} was modified")
            elif self.prints and now.prints and self.prints[j] != now.prints[i]:
                clauses.append(f"{path} has other contents")
        if not clauses and self.paths != now.paths:
            clauses.append("the files come in another order")
        return clauses


def _fingerprint(path: str, size: int) -> str:
    """Hash the first and the last 64 KiB of a file."""
    if is_remote(path):
        return "remote"  # its version takes the place of a local file's modification time
    digest = hashlib.blake2b(digest_size=8)
    try:
        with open(path, "rb", buffering=0) as file:
            digest.update(file.read(_FINGERPRINT_BYTES))
            if size > _FINGERPRINT_BYTES:
                file.seek(max(_FINGERPRINT_BYTES, size - _FINGERPRINT_BYTES))
                digest.update(file.read(_FINGERPRINT_BYTES))
    except OSError:
        return "unreadable"
    return digest.hexdigest()


class InputGuard:
    """Holds all passes of one workflow to the input that its first pass read; decisions between passes go by position in it.

    The reference is stored in `path`, so that a resumed workflow has it. While one process drives the workflow, inodes are
    compared, too: they tell a file that was replaced by another of the same size and time. They are never stored, since other nodes
    and later mounts may number files otherwise. Content that was changed under the same size, time and inode is noticed after
    the next pass that reads it, by the sums of `Ledger.positions`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._inodes: tuple[int, array[int]] | None = None  # hash of the paths, and the inode of each

    def reference(self) -> InputIdentity | None:
        """Return the input of the first pass; None before that has ended."""
        data = own_files.read_json(self._path)
        return None if data is None else InputIdentity.from_dict(data["inputs"])

    def start(self, files: FileList) -> None:
        """Take the files as they are now as the reference, for a workflow whose first pass reads something else."""
        self._write(InputIdentity.of(files), {})

    def check(self, files: FileList) -> None:
        """Raise RunConflict if the files, as they are now, are not those of the reference."""
        if (reference := self.reference()) is not None:
            self._refuse(reference.changes(InputIdentity.of(files)))
        paths = hash(tuple(files.paths))
        if self._inodes is not None and self._inodes[0] == paths:
            pairs = zip(files.paths, self._inodes[1], files.inodes, strict=True)
            self._refuse([f"{path} was replaced" for path, before, now in pairs if before != now])
        self._inodes = paths, files.inodes

    def confirm(self, inputs: Mapping[str, Any], ledger: Ledger) -> None:
        """Compare what a pass has read with the reference, or make it the reference; raise RunConflict where they differ.

        `inputs`: as in the plan of the pass; `ledger`: of all that it read.
        """
        identity = InputIdentity.from_dict(inputs)
        data = own_files.read_json(self._path)
        if data is None:
            self._write(identity, ledger.positions)
            return
        reference, positions = InputIdentity.from_dict(data["inputs"]), positions_from_dict(data["positions"])
        self._refuse(reference.changes(identity))
        if not positions:
            self._write(reference, ledger.positions)
            return
        groups = sorted(
            g for g in positions.keys() | ledger.positions.keys() if positions.get(g) != ledger.positions.get(g)
        )
        names = [_group_name(group, identity.paths) for group in groups]
        self._refuse([f"{name} does not hold the records that the first pass read" for name in names])

    def _write(self, identity: InputIdentity, positions: Mapping[int, int]) -> None:
        own_files.write_json(self._path, {"inputs": identity.to_dict(), "positions": positions_to_dict(positions)})

    def _refuse(self, changes: list[str]) -> None:
        if changes:
            more = f" (and {len(changes) - _MAX_NAMED} more)" if len(changes) > _MAX_NAMED else ""
            raise RunConflict(
                f"the input changed after it was compared: {'; '.join(changes[:_MAX_NAMED])}{more}. Use nothing of the output; "
                "start over with fresh (--fresh)"
            )


def _group_name(group: int, paths: list[str]) -> str:
    """Name the files whose records are summed up in one group (`Ledger.positions`)."""
    members = paths[group::N_POSITION_GROUPS]
    return members[0] if len(members) == 1 else f"one of {members[0]}, {members[1]}, ..."
