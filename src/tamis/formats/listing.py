"""Which files an input means: folders, globs, files, lists of these; in a stable order, in little memory."""

from __future__ import annotations

import glob
import os
import stat
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tamis.errors import UsageError


@dataclass
class FileList:
    """Paths with size and time, about 200 bytes per file (a supervisor may hold 100,000)."""

    paths: list[str] = field(default_factory=list)
    sizes: array[int] = field(default_factory=lambda: array("q"))
    mtimes_ns: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.paths)

    def append(self, path: str, size: int, mtime_ns: int) -> None:
        self.paths.append(path)
        self.sizes.append(size)
        self.mtimes_ns.append(mtime_ns)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)


def list_files(paths: str | Sequence[str], suffixes: tuple[str, ...], limit: int | None = None) -> FileList:
    """Files with one of the suffixes. Folders are searched recursively; names that start with . or _ are left out there."""
    entries = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(p) for p in paths]
    files, seen = FileList(), set()
    for entry in entries:
        if "://" in entry:
            raise UsageError(f"{entry}: remote paths are not read by this version; copy the files to a local folder")
        for path in _expand(os.path.expanduser(entry), suffixes):
            if path in seen:
                continue
            seen.add(path)
            try:
                info = os.stat(path)
                files.append(path, info.st_size, info.st_mtime_ns)
            except OSError:
                files.append(path, -1, -1)  # reported as unreadable by the worker that gets it
            if limit is not None and len(files) >= limit:
                return files
    if not files:
        raise UsageError(
            f"no input files: {', '.join(entries)} holds nothing that ends in {', '.join(sorted(set(suffixes)))}"
        )
    return files


def _expand(entry: str, suffixes: tuple[str, ...]) -> Iterable[str]:
    if os.path.isdir(entry):
        yield from _walk(entry, suffixes)
    elif glob.has_magic(entry) and not os.path.exists(entry):
        matches = sorted(glob.glob(entry, recursive=True))
        if not matches:
            raise UsageError(f"no input files: nothing matches {entry}")
        for match in matches:
            if os.path.isdir(match):
                yield from _walk(match, suffixes)
            elif match.endswith(suffixes):
                yield os.path.abspath(match)
    else:
        try:
            mode = os.stat(entry).st_mode
        except FileNotFoundError:
            raise UsageError(f"no such file or folder: {entry}") from None
        except PermissionError:
            mode = stat.S_IFREG
        if not stat.S_ISREG(mode):
            raise UsageError(f"{entry} is not a regular file (a pipe or device cannot be split or read twice)")
        if not entry.endswith(suffixes):
            raise UsageError(f"{entry}: cannot tell its format; expected a name that ends in {', '.join(suffixes)}")
        yield os.path.abspath(entry)


def _walk(folder: str, suffixes: tuple[str, ...]) -> Iterable[str]:
    found = []
    for base, folders, names in os.walk(os.path.abspath(folder)):
        folders[:] = [f for f in folders if not f.startswith((".", "_"))]
        found += [os.path.join(base, n) for n in names if n.endswith(suffixes) and not n.startswith((".", "_"))]
    return sorted(found)
