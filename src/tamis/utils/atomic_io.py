"""JSON files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from typing import Any

from tamis import files

Path = str | os.PathLike[str]


def fsync_directory(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    files.sync_folder(path)


def write_json_atomically(
    path: Path,
    payload: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = True,
) -> None:
    """Replace `path`: readers see the old file or the new one."""
    text = json.dumps(payload, indent=indent, separators=separators, sort_keys=sort_keys)
    files.write_bytes(path, text.encode("utf-8", "surrogatepass"), 0o644)
    fsync_directory(_folder(path))


def write_json_atomically_if_absent(
    path: Path,
    payload: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = True,
) -> bool:
    """Write `path` unless it exists; of several that try at once one succeeds. Returns whether it was this one."""
    temporary = files.unguessable(_folder(path), f".{os.path.basename(path)[:80]}.")
    write_json_atomically(temporary, payload, indent, separators, sort_keys)
    try:
        files.publish(temporary, path)
    except FileExistsError:
        return False
    finally:
        files.remove(temporary)
    fsync_directory(_folder(path))
    return True


def _folder(path: Path) -> str:
    return os.path.dirname(os.path.abspath(path))
