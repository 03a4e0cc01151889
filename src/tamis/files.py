"""Atomic files, locks and private folders; the only module that renames or replaces files.

Two rules hold for everything Tamis writes. No process sees half a file: it is written in the target's folder under a
name that cannot be guessed, then moved. And no other file is touched: a file is always a new one (O_EXCL) and links are
never followed (O_NOFOLLOW), so a link in the way is replaced itself, and not what it points to.

What Tamis takes for its own (a run directory, scratch) is in folders that belong to this user and that no one else
can write to; any other is refused. Imports nothing heavy: the supervisor uses it too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Self, cast

from tamis.errors import RunConflict

OWN = 0o644  # files of the run directory: everyone may look, whatever the umask says only we write
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SUFFIX = ".tmp"
_OLD_S = 600.0
_TRIES, _TRY_S = 10, 0.02  # of a lock: who looks whether it is held (`is_held`) has it for a moment
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
Path = str | os.PathLike[str]


# -- new files -------------------------------------------------------------------------------------------------------
def create(path: Path, mode: int = 0o666) -> BinaryIO:
    """Create a file and open it for writing.

    An existing file with this name is removed first (of a link: the link).
    """
    return open(_create(path, mode), "wb")


def fresh(path: Path, mode: int = 0o666) -> str:
    """Create a file like `create`, for libraries that open files by name themselves, and return its name.

    For folders that are ours alone.
    """
    os.close(_create(path, mode))
    return os.fspath(path)


def _create(path: Path, mode: int) -> int:
    try:
        return os.open(path, os.O_WRONLY | _NEW, mode)
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode) and not os.path.islink(path):
            raise  # a folder, a device
        os.unlink(path)
        return os.open(path, os.O_WRONLY | _NEW, mode)


def open_to_append(path: Path, mode: int = OWN) -> int:
    """Open a file descriptor that appends to a file, creating the file if needed; refuse a link (OSError)."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write that replaces `path` when the block ends.

    If the block ends in an error, nothing has changed. `sync`: flush the file to disk before it replaces `path`, so
    that a power cut leaves either the old file or the new one.
    """
    temporary = _temporary_path(path)
    fd = os.open(temporary, os.O_RDWR | _NEW, mode)
    try:
        with open(fd, "w+b") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def write_bytes(path: Path, data: bytes, mode: int = 0o666, sync: bool = True) -> None:
    with replacing(path, mode, sync) as file:
        file.write(data)


def write_text(path: Path, text: str, mode: int = 0o666, sync: bool = True) -> None:
    """Write text as UTF-8.

    What cannot be encoded (a lone surrogate of a file name) is written as an escape.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"), mode, sync)


def write_json(path: Path, value: Any, indent: int | None = None, mode: int = OWN) -> None:
    write_bytes(path, json.dumps(value, indent=indent).encode(), mode)


def json_lines(value: Mapping[str, Any], depth: int = 2) -> str:
    """Return an object as JSON with a line for each key of its first levels.

    The encoder in C does not indent; the one in Python, which does, takes ten times as long.

    >>> print(json_lines({"n": {"a": {"b": 1}}, "names": ["a", "b"]}))
    {
    "n": {
    "a": {"b": 1}
    },
    "names": ["a", "b"]
    }
    """
    lines = []
    for key, item in value.items():
        is_deep = depth > 1 and item and isinstance(item, Mapping)
        lines.append(f"{json.dumps(key)}: {json_lines(item, depth - 1) if is_deep else json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def read_json(path: Path) -> Any:
    """Return what `write_json` stored; None where there is no file, RunConflict where it is damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise RunConflict(f"{os.fspath(path)} is damaged ({exc}); start over with fresh (--fresh)") from None


def _temporary_path(path: Path) -> str:
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(folder, f".{name[:80]}.{os.urandom(8).hex()}{_SUFFIX}")


def sweep(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder of ours.

    Recent files may be in use at this moment.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                        os.unlink(entry.path)


# -- what is open ----------------------------------------------------------------------------------------------------
class Closing(ABC):
    """A resource that `with` closes, however its block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> object:
        """Let go of what is held."""


class Finishing(Closing):
    """Resources that `with` closes together.

    Where its block ends in an error, `abort` leaves nothing that could be taken for that.
    """

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @abstractmethod
    def abort(self) -> None:
        """Let go of what is held, and of what was made so far."""


# -- names -----------------------------------------------------------------------------------------------------------
def publish(path: Path, final: Path, is_synced: bool = True) -> None:
    """Give a finished file a second, final name, once it is on disk; FileExistsError where the name is taken.

    Not `is_synced`: without waiting for the disk.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if is_synced:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.link(path, final, follow_symlinks=False)


def has_links(folder: Path) -> bool:
    """Return True if files in a folder can be hard-linked.

    Also True if that cannot be tried (a full disk).
    """
    first, second = _temporary_path(os.path.join(folder, "a")), _temporary_path(os.path.join(folder, "b"))
    try:
        os.close(os.open(first, os.O_RDWR | _NEW, OWN))
        os.link(first, second, follow_symlinks=False)
    except OSError as exc:
        return exc.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
    finally:
        remove(first)
        remove(second)
    return True


def finish(path: Path, final: Path) -> None:
    """Give a finished file its final name, over what has it: after a crash there is the old one or the new one."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    os.replace(path, final)
    sync_folder(os.path.dirname(os.path.abspath(final)))


def move(path: Path, final: Path) -> None:
    """Give a file another name; FileExistsError where that is taken.

    Where there are no hard links, a small race remains.
    """
    try:
        os.link(path, final, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(final):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(final)) from None
        os.rename(path, final)
        return
    os.unlink(path)


def move_folder(path: Path, final: Path) -> None:
    """Give a folder its final name; an error where something exists there (but for an empty folder)."""
    os.rename(path, final)


def of_package(package: str, name: str) -> str | None:
    """Return the path of a file of this name in an installed package; None if there is none.

    Nothing of the package is imported.
    """
    from importlib import metadata

    try:
        installed = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (os.fspath(file.locate()) for file in installed if file.name == name)
    return next(filter(os.path.isfile, paths), None)


def tail(path: Path, n_bytes: int = 4000) -> str:
    """Return the end of a log, for a message; an empty string if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - n_bytes))
            return file.read(n_bytes).decode(errors="replace")  # no more, though another process may append meanwhile
    except OSError:
        return ""


def set_aside(path: Path, suffix: str) -> None:
    """Rename a file that is no longer wanted, over what was renamed so before."""
    os.replace(path, os.fspath(path) + suffix)


def remove(path: Path) -> None:
    """Remove a file (of a link: the link) if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- locks -----------------------------------------------------------------------------------------------------------
def take_lock(path: Path, wait: bool = False) -> int:
    """Hold a file, made if need be; the lock goes with the file descriptor.

    BlockingIOError when another process holds it.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, OWN)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # who held it before removed it meanwhile: what we hold now has no name


def open_shared(path: Path) -> BinaryIO | None:
    """Open a file for reading so that `take_lock` cannot lock it while it is open.

    Return None if the file does not exist or was removed meanwhile.
    """
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115
    except FileNotFoundError:
        return None
    fcntl.flock(file, fcntl.LOCK_SH)
    if os.fstat(file.fileno()).st_nlink:
        return cast("BinaryIO", file)
    file.close()
    return None


def is_held(path: Path) -> bool:
    """Return True if a process of this machine holds the lock at this moment.

    For callers that only look: creates nothing.
    """
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def lock(path: Path, busy: str) -> int:
    """Take a lock like `take_lock`; raise RunConflict(busy) if another process keeps holding it."""
    for _ in range(_TRIES):
        try:
            return take_lock(path)
        except BlockingIOError:
            time.sleep(_TRY_S)
        except OSError as exc:
            raise RunConflict(f"cannot write to {os.path.dirname(path)}: {_reason(exc)}") from exc
    raise RunConflict(busy)


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    fd = lock(path, busy)
    try:
        yield
    finally:
        os.close(fd)


# -- folders ---------------------------------------------------------------------------------------------------------
def own_folder(path: Path, what_to_do: str, mode: int = 0o700) -> None:
    """Make a folder, or see that the one there is ours alone: this user's, no link, and not writable by others.

    `what_to_do` ends the message of the RunConflict otherwise. `mode` says who else may look into it; one that lets
    others look where 0700 is asked for is closed.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        try:
            os.mkdir(path, mode)
            return  # whatever owner the file system reports: we made it
        except FileExistsError:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.lexists(path):
            what = "a link" if os.path.islink(path) else "no folder"
            raise RunConflict(
                f"{os.fspath(path)} is {what}: Tamis works in folders it made itself; {what_to_do}"
            ) from None
        raise RunConflict(f"cannot write to {os.fspath(path)}: {_reason(exc)}") from exc
    try:
        info = os.fstat(fd)
        why = not_ours(info, os.geteuid())
        if why and not_ours(info, *_owner_on(fd)):
            raise RunConflict(
                f"{os.fspath(path)} {why}: what others put there would be taken for this run's own; {what_to_do}"
            )
        if not mode & 0o077 and info.st_mode & 0o077 and not why:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def check_own_folder(path: Path, what_to_do: str) -> bool:
    """Check a folder like `own_folder`, but create nothing; return False if it does not exist."""
    if not os.path.lexists(path):
        return False
    own_folder(path, what_to_do, 0o755)
    return True


def not_ours(info: os.stat_result, uid: int, has_modes: bool = True) -> str:
    """Explain, as a part of a sentence, why a folder is not this user's alone; return "" if it is."""
    if info.st_uid != uid:
        return f"belongs to {user_name(info.st_uid)} (you are {user_name(uid)})"
    if has_modes and info.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(info.st_mode):04o})"
    return ""


def _owner_on(fd: int) -> tuple[int, bool]:
    """Return the user who owns what we create on a file system, and whether its folders have modes at all.

    Root is mapped to the user "nobody" on many network file systems, and some file systems (vfat, 9p) assign
    everything to one user with mode 0777: on these, the owner of a folder identifies its creator only by comparison
    with what we create ourselves.
    """
    name = f".{os.urandom(8).hex()}{_SUFFIX}"
    try:
        os.mkdir(name, 0o700, dir_fd=fd)
    except OSError:
        return os.geteuid(), True
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    finally:
        os.rmdir(name, dir_fd=fd)
    return info.st_uid, not info.st_mode & _OTHERS_WRITE


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def unguessable(parent: Path, prefix: str) -> str:
    """Return a path in `parent` that no other process can have created beforehand."""
    return os.path.join(os.path.abspath(parent), f"{prefix}{os.urandom(8).hex()}")


def check_scratch_parent(path: Path) -> None:
    """Make the folder of the user's in which scratch folders are made.

    RunConflict where anybody could swap them for others.
    """
    try:
        os.makedirs(path, exist_ok=True)
        mode = os.stat(path).st_mode
    except OSError as exc:
        raise RunConflict(f"cannot use {os.fspath(path)} for scratch: {_reason(exc)}") from exc
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise RunConflict(
            f"{os.fspath(path)} can be written by everybody, who could swap the scratch files for others (mode "
            f"{stat.S_IMODE(mode):04o}); give another --scratch, or: chmod +t {os.fspath(path)}"
        )


def _reason(exc: OSError) -> str:
    return exc.strerror or str(exc)
