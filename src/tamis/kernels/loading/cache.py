"""The private folder for kernels compiled on this machine: for edited kernels, and for CPUs without shipped libraries.

It holds machine code, so a folder that others can write to, or that another user made, is never used.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from tamis import files

N_FILES_KEPT = 60  # some 100 kB each; several checkouts and branches of one user have three each


def folder(level: str) -> Path | None:
    """Return the cache folder for kernels of a CPU level if it exists and only this user can write to it.

    Creates nothing.
    """
    for base in _bases():
        path = base / f"kernels-{level}"
        if _is_ours(path):
            return path
    return None


def new_folder(level: str) -> Path | None:
    """Return the cache folder for kernels of a CPU level like `folder`, creating it if it is absent.

    Returns None if no folder can be used.
    """
    for base in _bases():
        path = base / f"kernels-{level}"
        with contextlib.suppress(OSError):  # another process may make it at the same time
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        if _is_ours(path) and os.access(path, os.W_OK):
            return path
    return None


def keep(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and remove the oldest ones next to it when they are too many."""
    files.write_bytes(path, data, 0o600)
    others = sorted((entry for entry in path.parent.glob("*.so") if entry != path), key=_mtime, reverse=True)
    for old in others[N_FILES_KEPT - 1 :]:
        old.unlink(missing_ok=True)


def _bases() -> list[Path]:
    """Return the candidate cache folders.

    An explicit TAMIS_CACHE_DIR is the only candidate: falling back elsewhere would surprise the user who set it.
    """
    explicit = os.environ.get("TAMIS_CACHE_DIR")
    if explicit:
        return [Path(explicit)]
    bases = []
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and os.path.isabs(xdg):
        bases.append(Path(xdg) / "tamis")
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        bases.append(Path(home) / ".cache" / "tamis")
    return bases


def _is_ours(path: Path) -> bool:
    try:
        info, above = path.lstat(), path.parent.stat().st_mode
    except OSError:
        return False
    if above & 0o022 and not above & stat.S_ISVTX:
        return False  # they could put another folder in its place
    private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
    return private and os.access(path, os.R_OK | os.X_OK)


def _mtime(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
