"""Small JSON files by which a deduplication knows what is done, written whole or not at all; locks. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

from tamis.errors import RunConflict


def read_json(path: str) -> Any:
    """None where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise RunConflict(f"{path} is damaged ({exc}); start over with fresh (--fresh)") from None


def write_json(path: str, value: Any) -> None:
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


@contextlib.contextmanager
def locked(path: str, busy: str) -> Iterator[None]:
    """Hold the file `path`, in a folder that is made if need be. `busy`: what to say when another process does."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise RunConflict(f"cannot write to {folder}: {exc.strerror or exc}") from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise RunConflict(busy) from None
    try:
        yield
    finally:
        os.close(lock)


def make_private(folder: str) -> None:
    """A folder of this user's alone. What others could have put there would be taken for our own decisions."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        seen = os.lstat(folder)
    except OSError as exc:
        raise RunConflict(f"cannot write to {folder}: {exc.strerror or exc}") from exc
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        raise RunConflict(f"{folder} is not a folder that only you can write to; remove it, or give another --scratch")
