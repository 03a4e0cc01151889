"""Location of a hub id's files on this machine, without huggingface_hub.

Importing huggingface_hub takes half a second and 35 MB, and processes that only plan need the location, too.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

_COMMIT = re.compile("[0-9a-f]{40}")


def snapshot(identifier: str, cache_dir: str | None, endings: tuple[str, ...], revision: str | None = None) -> Path:
    """Return the folder with the files of a revision (None: main) in the local cache.

    Raises FileNotFoundError if it is not there, or if it lacks a file with one of these endings.
    """
    place = Path(cache_dir or _usual_cache()).expanduser().resolve() / "--".join(["models", *identifier.split("/")])
    wanted = revision or "main"
    try:
        commit = wanted if _COMMIT.fullmatch(wanted) else (place / "refs" / wanted).read_text(encoding="utf-8")
        folder = place / "snapshots" / commit
        missing = [name for name in _listed(place / "trees" / f"{commit}.json") if not (folder / name).is_file()]
    except (OSError, ValueError) as exc:
        raise FileNotFoundError(f"{identifier}: not in the local cache ({exc})") from None
    if not folder.is_dir() or any(name.endswith(endings) for name in missing):
        raise FileNotFoundError(f"{identifier}: not in the local cache, or not whole: {folder}")
    return folder


def _usual_cache() -> str:
    home = os.environ.get("HF_HOME", os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    usual = os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return os.path.expandvars(os.path.expanduser(os.environ.get("HF_HUB_CACHE", usual)))


def _listed(tree: Path) -> list[str]:
    """Return the files of a revision, if a download of all of them recorded their names; else []."""
    try:
        return list(json.loads(tree.read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
