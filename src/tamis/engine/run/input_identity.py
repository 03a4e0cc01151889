"""Identity of a run's input: which files it has, and whether they are still the files that were read.

Covers: describing the input files for `plan.json` (`InputIdentity` in schema.py compares two descriptions), and the
guard that holds all passes of a workflow to the input of its first pass. Does not cover: checks while a file is read
(engine/worker/read.py).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping

from tamis import files as own_files
from tamis.engine.ledger import N_POSITION_GROUPS, Ledger, positions_from_dict, positions_to_dict
from tamis.engine.schema import InputIdentity
from tamis.errors import RunConflict
from tamis.formats.input_files.listing import FileList
from tamis.stores.urls import is_remote

_FINGERPRINTED_FILES = 256
_FINGERPRINT_BYTES = 1 << 16
_MAX_NAMED = 3


def identify_inputs(files: FileList) -> InputIdentity:
    """Describe the input files as they are now."""
    few = zip(files.paths, files.sizes, strict=True) if len(files) <= _FINGERPRINTED_FILES else ()
    return InputIdentity(
        files.paths, list(files.sizes), list(files.mtimes_ns), [_fingerprint(p, size) for p, size in few]
    )


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
    """Holds all passes of one workflow to the input that its first pass read.

    Decisions between passes go by position in it.

    The reference is stored in `path`, so that a resumed workflow has it. While one process drives the workflow, inodes
    are compared, too: they reveal a file that was replaced by another of the same size and time. They are never stored,
    since other nodes and later mounts may number files otherwise. Content that was changed under the same size, time
    and inode is noticed after the next pass that reads it, by the sums of `Ledger.positions`.
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
        self._write(identify_inputs(files), {})

    def check(self, files: FileList) -> None:
        """Raise RunConflict if the files, as they are now, are not those of the reference."""
        if (reference := self.reference()) is not None:
            self._refuse(reference.changes(identify_inputs(files)))
        paths = hash(tuple(files.paths))
        if self._inodes is not None and self._inodes[0] == paths:
            pairs = zip(files.paths, self._inodes[1], files.inodes, strict=True)
            self._refuse([f"{path} was replaced" for path, before, now in pairs if before != now])
        self._inodes = paths, files.inodes

    def confirm(self, identity: InputIdentity, ledger: Ledger) -> None:
        """Compare what a pass has read with the reference, or make it the reference.

        Raise RunConflict where they differ.

        `identity`: of the inputs in the plan of the pass; `ledger`: of all that it read.
        """
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
                f"the input changed after it was compared: {'; '.join(changes[:_MAX_NAMED])}{more}. Use nothing of "
                "the output; start over with fresh (--fresh)"
            )


def _group_name(group: int, paths: list[str]) -> str:
    """Name the files whose records are summed up in one group (`Ledger.positions`)."""
    members = paths[group::N_POSITION_GROUPS]
    return members[0] if len(members) == 1 else f"one of {members[0]}, {members[1]}, ..."
