"""List the files of an input: folders, globs, files, lists of these; in a stable order, in little memory.

Nothing is left out silently: files that are not read are counted with their reason (`FileList.skipped`), and what
cannot be read is named in the error that ends the run. See also: searching.py (how folders are searched).
"""

from __future__ import annotations

import glob
import os
import stat
from array import array
from collections.abc import Sequence
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.errors import RunConflict, UsageError
from tamis.formats.input_files.searching import Search
from tamis.formats.input_files.skipped import HIDDEN, OTHER_OUTPUT, OWN_OUTPUT, SkippedFiles, ends_in, skipped_lines
from tamis.formats.registry import sidecars
from tamis.stores.listing import list_input
from tamis.stores.urls import is_remote, path_of

_MAX_NAMED = 5


@dataclass
class FileList:
    """Paths with sizes and times, and the files that were skipped.

    Takes about 200 bytes per file: a supervisor may hold 100,000.
    """

    paths: list[str] = field(default_factory=list)
    sizes: array[int] = field(default_factory=lambda: array("q"))
    mtimes_ns: array[int] = field(default_factory=lambda: array("q"))
    inodes: array[int] = field(default_factory=lambda: array("Q"))  # 0 where there is none (remote files)
    skipped: SkippedFiles = field(default_factory=SkippedFiles)

    def __len__(self) -> int:
        return len(self.paths)

    def append(self, path: str, size: int, mtime_ns: int, inode: int = 0) -> None:
        self.paths.append(path)
        self.sizes.append(size)
        self.mtimes_ns.append(mtime_ns)
        self.inodes.append(inode)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)


def list_files(
    paths: str | Sequence[str],
    suffixes: tuple[str, ...],
    limit: int | None = None,
    leave_out: Sequence[str] = (),
    scratch: str | None = None,
) -> FileList:
    """List regular files whose names end in one of the suffixes (in any case), folders recursively, following links.

    In folders, names that begin with . or _ and outputs of Tamis are skipped. `leave_out`: folders that this run writes
    to, which are never input. `scratch`: the folder for temporary files of the run. Raises UsageError if something
    cannot be read, if there is nothing to read, or if the scratch folder would be read; RunConflict if the input is in
    one of the folders of `leave_out`.
    """
    files, seen = FileList(), set[str]()
    entries = [path_of(os.fspath(p)) for p in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    accepted = tuple(s.lower() for s in suffixes)
    unreadable: list[tuple[str, str]] = []
    for entry in entries:
        if "://" in entry:
            _add_remote(entry, accepted, limit, leave_out, files, seen, scratch)
            continue
        search = Search(accepted, leave_out, files.skipped, sidecars(accepted), scratch)
        _search(search, os.path.expanduser(entry), accepted)
        search.drop_lonely_sidecars()
        _add_local(search, limit, files, seen)
        unreadable += search.unreadable
        if limit is not None and len(files) >= limit:
            break
    if unreadable:
        raise _unreadable_error(unreadable)
    if not files:
        skipped_text = "".join(f"\n{line}" for line in skipped_lines(files.skipped.entries()))
        raise UsageError(
            f"no input files: {', '.join(entries)} holds nothing that ends in "
            f"{', '.join(sorted(set(suffixes)))}{skipped_text}"
        )
    return files


def _unreadable_error(unreadable: list[tuple[str, str]]) -> UsageError:
    named = "; ".join(f"{path}: {reason}" for path, reason in sorted(unreadable)[:_MAX_NAMED])
    more = f"; and {len(unreadable) - _MAX_NAMED:,} more" if len(unreadable) > _MAX_NAMED else ""
    return UsageError(
        f"part of the input cannot be read: {named}{more}. Make it readable, move it away, or name the rest as input"
    )


def _add_local(search: Search, limit: int | None, files: FileList, seen: set[str]) -> None:
    """Add the files that a search collected to `files`, sorted, each path once."""
    outputs = {folder for folder in {os.path.dirname(path) for path in search.paths} if search.is_output(folder)}
    for path in sorted(search.paths):
        if os.path.dirname(path) in outputs:
            raise RunConflict(f"{path} is in the output folder itself; give another folder for the output")
        if path not in seen and (limit is None or len(files) < limit):
            seen.add(path)
            if (info := search.look_at(path)) is not None:
                files.append(path, info.st_size, info.st_mtime_ns, info.st_ino)


def _add_remote(
    entry: str,
    accepted: tuple[str, ...],
    limit: int | None,
    leave_out: Sequence[str],
    files: FileList,
    seen: set[str],
    scratch: str | None,
) -> None:
    """Resolve a URL and add its files to `files`."""
    if not is_remote(entry):
        scheme = entry.partition("://")[0]
        raise UsageError(f"{entry}: {scheme}:// is not read; expected a local path, s3:// or https://")
    listing = list_input(entry, lambda name: ends_in(name, accepted), leave_out, scratch)
    for reason, urls in ((HIDDEN, listing.hidden), (OWN_OUTPUT, listing.own), (OTHER_OUTPUT, listing.outputs)):
        for url in urls:
            files.skipped.add(reason, url)
    companions = sidecars(accepted)
    stems = {os.path.splitext(url)[0] for url, _, _ in listing.files} if companions else set()
    for url in listing.others:
        if not (ends_in(url, companions) and os.path.splitext(url)[0] in stems):  # a caption is read with its image
            files.skipped.add_ending(url, accepted)
    for url, size, version in listing.files:
        if url not in seen and (limit is None or len(files) < limit):
            seen.add(url)
            files.append(url, size, version)


def check_named(path: str) -> os.stat_result:
    """Return the stat result of a file that was named explicitly.

    Raises UsageError if it cannot be read as a file.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        what = "a link to nothing" if os.path.islink(path) else "no such file or folder"
        raise UsageError(f"{what}: {path}") from None
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}") from None
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a regular file (a pipe or device cannot be split or read twice)")
    return info


def _search(search: Search, entry: str, suffixes: tuple[str, ...]) -> None:
    if os.path.isdir(entry):
        if search.is_output(entry):
            raise RunConflict(f"{entry} is the output folder too; give another folder for the output")
        search.walk(os.path.abspath(entry))
    elif glob.has_magic(entry) and not os.path.lexists(entry):
        search.expand(entry)
        if not search.n_matches and not search.unreadable:
            raise UsageError(f"no input files: nothing matches {entry}")
    else:
        check_named(entry)
        if not ends_in(entry, suffixes):
            raise UsageError(f"{entry}: cannot tell its format; expected a name that ends in {', '.join(suffixes)}")
        search.paths.append(os.path.abspath(entry))
