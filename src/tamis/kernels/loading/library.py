"""Where the compiled kernels of a group are, and whether they exist. Imports neither numpy nor numba.

Kernels come in groups, one per folder: "records", which every job needs, and others ("text", "sketch", "pixels",
"tokens", "substrings", "overlap", "markup"), so that a run compiles and loads only what its stages need. A group is one
shared library per CPU level (levels.py). Its file name contains a hash of all sources that its machine code is made of:
a library is found only while the sources are unchanged. Installed packages have the libraries in `built/`, next to the
sources. Kernels that were edited in a checkout are compiled at first use and stored in a private folder of the user
(cache.py). A file ends in the digest of its contents.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tamis.kernels.loading import cache
from tamis.kernels.loading.levels import CpuLevel, runs_python, this_level

HERE = Path(__file__).resolve().parents[1]
BUILT = HERE / "built"
_DIGEST_BYTES = 32
RECORDS = "records"
"""The group that every job needs. Others have helpers of its modules compiled into their kernels."""
# What the machine code of every group is made of, in addition to the kernels themselves and all of language/ but what
# only Python runs.
_ALWAYS = ("__init__.py", "loading/levels.py", "building/codegen.py", "building/compile_process.py")

_NO_KERNELS = ("building", "language", "loading")


def are_ready(groups: Iterable[str] = (RECORDS,)) -> bool:
    """Return True if there are libraries of all these groups for this CPU, so that nothing needs to be compiled."""
    return runs_python() or all(find(group) is not None for group in groups)


def find(group: str, level: CpuLevel | None = None) -> Path | None:
    """Return the path of a group's library: next to the sources, or in the user's own cache folder."""
    level = level or this_level()
    shipped = BUILT / level.name / file_name(group)
    if shipped.is_file():
        return shipped
    folder = cache.folder(level.name)
    cached = folder / file_name(group) if folder is not None else None
    return cached if cached is not None and cached.is_file() else None


def file_name(group: str) -> str:
    return f"{group}-{source_key(group)}.so"


def group_of(module: str) -> str:
    """Return the group that a kernel module belongs to: the folder it is in.

    >>> group_of("tamis.kernels.records.hash128"), group_of("tamis.kernels.text._words")
    ('records', 'text')
    """
    return module.removeprefix("tamis.kernels.").partition(".")[0]


@lru_cache(maxsize=16)
def source_key(group: str) -> str:
    """Hash of all sources that the machine code of a group is made of.

    A group's kernels may have helpers of another group compiled into them; helpers are in modules with an underscore.
    """
    digest = hashlib.sha256(group.encode())
    always = [*(HERE / name for name in _ALWAYS), *(HERE / "language").glob("*.py"), *(HERE / RECORDS).glob("*.py")]
    inside = [*(HERE / group).glob("*.py"), *HERE.glob("*/_[a-z]*.py")] if group != RECORDS else []
    for source in sorted({*always, *inside} - {HERE / "language" / "plain.py"}):
        digest.update(f"\0{source.relative_to(HERE)}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# -- groups -----------------------------------------------------------------------------------------------------------
def module_names(group: str) -> list[str]:
    """Return the module names of a group."""
    return [f"tamis.kernels.{group}.{m.name}" for m in pkgutil.iter_modules([str(HERE / group)]) if not m.ispkg]


def import_all(group: str) -> list[str]:
    """Import every module of a group."""
    names = module_names(group)
    for name in names:
        importlib.import_module(name)
    return names


def all_groups() -> list[str]:
    """Return every folder that has kernels, the one that all jobs need first."""
    folders = [module.name for module in pkgutil.iter_modules([str(HERE)]) if module.ispkg]
    return [RECORDS, *(name for name in folders if name not in (RECORDS, *_NO_KERNELS))]


# -- files ------------------------------------------------------------------------------------------------------------
def signed(data: bytes) -> bytes:
    """Return the contents of a library as stored on disk, with its digest appended."""
    return data + hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def is_whole(path: Path) -> bool:
    """Return True if a file is intact, as `signed` wrote it.

    A truncated library would end the process that loads it.
    """
    try:
        data = memoryview(path.read_bytes())
    except OSError:
        return False
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() == digest
