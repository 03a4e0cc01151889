"""Where compiled kernels are kept, and whether they are all there. Never imports numba.

One private folder `kernels-<key>` per combination of kernel sources, numba, llvmlite, Python and CPU: copies of the same
sources share it, and an edited callee in another file makes another one. A folder holds a `READY` file once everything in it has been compiled.

Kernels come in groups: the engine's own (group "", the files right here) and one per subfolder ("text"), so that a run
compiles and loads only what its stages need. A group's key covers its own files and the engine's, which it may call.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tamis import files

READY = "READY"
N_FOLDERS_KEPT = 60  # some 300 kB each; several checkouts and branches of one user have three each


def kernels_are_cached(groups: Iterable[str] = ("",)) -> bool:
    """True when a process of this machine has compiled every kernel, so that importing them compiles nothing."""
    folders = [cache_dir(group) for group in groups]
    return all(folder is not None and (folder / READY).is_file() for folder in folders)


def group_of(module: str) -> str:
    """The group that a kernel module belongs to.

    >>> group_of("tamis.kernels.hash128"), group_of("tamis.kernels.text.words")
    ('', 'text')
    """
    inside = module.removeprefix("tamis.kernels.").split(".")
    return inside[0] if len(inside) > 1 else ""


def cache_dir(group: str = "") -> Path | None:
    """The private folder for this build of a group, created when absent; None where no folder is usable."""
    for base in _candidates():
        folder = base / f"kernels-{cache_key(group)}"
        if _usable(folder):
            return folder
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if _usable(folder):  # another process made it between our two looks
                return folder
            continue
        except OSError:
            continue
        if _usable(folder):
            _prune(base, folder)
            return folder
    return None


def mark_ready(folder: Path) -> None:
    write_atomically(folder / READY, (cache_key() + "\n").encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Whole or not at all; several processes may do so at once."""
    files.write_bytes(path, data, 0o600, sync=False)


@lru_cache(maxsize=16)
def cache_key(group: str = "") -> str:
    """Hash of everything that decides the machine code of a group."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for text in (group, sys.version, platform.machine(), _cpu(), _version("numba"), _version("llvmlite")):
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    # A group's kernels may have helpers of another group compiled into them; helpers are in modules with an underscore.
    inside = {*(here / group).glob("*.py"), *here.glob("*/_[a-z]*.py")} if group else set()
    for source in [*sorted(here.glob("*.py")), *sorted(inside)]:
        digest.update(f"{source.name}\0".encode())
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _candidates() -> list[Path]:
    """An explicit TAMIS_CACHE_DIR is the only candidate: falling back elsewhere would surprise who set it."""
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


def _usable(folder: Path) -> bool:
    """Ours alone and writable. The cache holds machine code: a folder that others can write to would run theirs."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
    return private and os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _prune(base: Path, new: Path) -> None:
    others = [entry for entry in base.glob("kernels-*") if entry != new and _usable(entry)]
    others.sort(key=_mtime, reverse=True)
    for old in others[N_FOLDERS_KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def _mtime(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _cpu() -> str:
    """Model and instruction sets: machine code made for another CPU of a shared home folder may not run here."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            wanted = ("model name", "flags", "Features", "CPU part")
            lines = [line for line in file.read(20_000).split("\n\n")[0].splitlines() if line.startswith(wanted)]
    except OSError:
        lines = []
    overrides = [
        f"{name}={os.environ[name]}" for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if name in os.environ
    ]
    return "\n".join([*(lines or [platform.processor()]), *overrides])
