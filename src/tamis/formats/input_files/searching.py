"""Search folders for input files: every folder once, whatever links lead to it, and no file dropped silently.

Files that are not read are counted (skipped.py). What cannot be read (a folder or file without permission, a broken
link with an accepted name) is collected in `unreadable`, which ends the run. The output of a run is skipped unless it
is named itself; a run directory always is.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Sequence

from tamis.formats.input_files import skipped
from tamis.formats.input_files.skipped import SkippedFiles, ends_in
from tamis.stores.listing import SCRATCH_EXAMPLE, refuse_scratch
from tamis.stores.run_locations import RUN_DIRECTORY, RUN_SUFFIX, has_run, is_run_dir, run_dir_of

_EFFECTIVE_IDS = os.access in os.supports_effective_ids


class Search:
    """The search for the files of one input entry: `walk` a folder, or `expand` a pattern into `paths` (unordered)."""

    def __init__(
        self,
        suffixes: tuple[str, ...],
        leave_out: Sequence[str],
        skipped_files: SkippedFiles,
        sidecar_suffixes: tuple[str, ...] = (),
        scratch: str | None = None,
    ) -> None:
        self.paths: list[str] = []
        self._sidecar_suffixes, self._companions = (
            sidecar_suffixes,
            list[str](),
        )  # read with the file of the same name, if there is one
        self.unreadable: list[tuple[str, str]] = []
        self._suffixes, self._skipped = suffixes, skipped_files
        self._left_out = {os.path.abspath(p) for p in leave_out}
        self._own_run_dirs = {os.path.abspath(run_dir_of(p)) for p in leave_out}
        self._left_out_ids = {identity for p in leave_out if (identity := _identity(p)) is not None}
        self._scratch, self._scratch_id = scratch, None if scratch is None else _identity(scratch)
        self._visited: set[tuple[int, int]] = set()
        self.n_matches = 0  # of a pattern

    def walk(self, root: str) -> None:
        """Collect all readable files below `root`, skipping names that begin with . or _."""
        for folder, entries in self._folders(root, hidden=(".", "_")):
            for entry in entries:
                self._take(os.path.join(folder, entry.name), entry.is_symlink())

    def expand(self, pattern: str) -> None:
        """Collect all files that `pattern` matches, and those in the folders that it matches.

        `**` means folders at any depth.
        """
        for path in sorted(set(self._matches("/" if pattern.startswith("/") else "", pattern.strip("/").split("/")))):
            full = os.path.abspath(path)
            self.n_matches += 1
            if not os.path.isdir(full):
                self._take(full, os.path.islink(full))
            elif not self._is_left_out(full):
                self.walk(full)

    def is_output(self, folder: str) -> bool:
        """Return True if files directly in `folder` are output of this run (or would be)."""
        return os.path.abspath(folder) in self._left_out or _identity(folder) in self._left_out_ids

    # -- folders ------------------------------------------------------------------------------------------------------
    def _folders(self, root: str, hidden: tuple[str, ...]) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
        """Yield `root` and every folder below with its files, each folder once: real ones first, then linked ones."""
        links = [root]
        while links:
            todo, links = sorted(links, reverse=True), []
            while todo:
                folder = todo.pop()
                if (entries := self._scan(folder, is_root=folder == root)) is None:
                    continue
                files, below = [], []
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.name == RUN_DIRECTORY:
                        continue
                    if entry.name.startswith(hidden):
                        self._skipped.add(skipped.HIDDEN, path)
                    elif entry.is_dir(follow_symlinks=False):
                        below.append(path)
                    elif entry.is_symlink() and os.path.isdir(path):
                        links.append(path)
                    else:
                        files.append(entry)
                todo += reversed(below)
                yield folder, files

    def _scan(self, folder: str, is_root: bool) -> list[os.DirEntry[str]] | None:
        """Return the entries of a folder sorted by name, or None if it must not be read (again) or cannot be."""
        if not is_root and self._is_left_out(folder):
            return None
        try:
            info = os.stat(folder)
            if (info.st_dev, info.st_ino) == self._scratch_id:
                refuse_scratch(self._scratch)
            with os.scandir(folder) as entries_iterator:
                entries = sorted(entries_iterator, key=lambda e: e.name)
        except OSError as exc:
            self.unreadable.append((folder, exc.strerror or str(exc)))
            return None
        if (info.st_dev, info.st_ino) in self._visited:
            if os.path.islink(folder):
                self._skipped.add(skipped.SEEN_FOLDER, folder)
            return None
        if not is_root and self._belongs_to_a_run(folder, entries):
            return None
        self._visited.add((info.st_dev, info.st_ino))
        return entries

    def _belongs_to_a_run(self, folder: str, entries: list[os.DirEntry[str]]) -> bool:
        """Return True if a folder is a run directory, or the output of another run, which is noted as skipped."""
        if is_run_dir(folder) or os.path.abspath(folder) in self._own_run_dirs:
            return True
        is_output = has_run(folder) or any(e.name == RUN_DIRECTORY and e.is_dir() for e in entries)
        if is_output:
            self._skipped.add(skipped.OTHER_OUTPUT, folder)
        return is_output

    def _is_left_out(self, folder: str) -> bool:
        if not self.is_output(folder):
            return False
        self._skipped.add(skipped.OWN_OUTPUT, folder)
        return True

    # -- files --------------------------------------------------------------------------------------------------------
    def _take(self, path: str, is_link: bool) -> None:
        """Classify a listed file as one to read, skipped or unreadable."""
        if ends_in(path, self._suffixes):
            self.paths.append(path)
        elif is_link and (reason := _why_not(path)):
            if os.path.splitext(path)[1]:
                self._skipped.add(skipped.DEAD_LINK, path)
            else:  # what it leads to may well be a folder
                self.unreadable.append((path, reason))
        elif self._sidecar_suffixes and ends_in(path, self._sidecar_suffixes):
            self._companions.append(path)
        else:
            self._skipped.add_ending(path, self._suffixes)

    def drop_lonely_sidecars(self) -> None:
        """Skip files that would belong to another of the same name (a caption) where that does not exist."""
        stems = {os.path.splitext(path)[0] for path in self.paths} if self._companions else set()
        for path in self._companions:
            if os.path.splitext(path)[0] not in stems:
                self._skipped.add_ending(path, self._suffixes)
        self._companions.clear()

    def look_at(self, path: str) -> os.stat_result | None:
        """Return the stat result of a file that is to be read; None if it cannot be read, which is recorded."""
        try:
            info = os.stat(path)
        except OSError:
            self.unreadable.append((path, _why_not(path)))
            return None
        if not stat.S_ISREG(info.st_mode):
            self._skipped.add(skipped.NOT_REGULAR, path)
        elif not os.access(path, os.R_OK, effective_ids=_EFFECTIVE_IDS):
            self.unreadable.append((path, "Permission denied"))
        else:
            return info
        return None

    # -- patterns -----------------------------------------------------------------------------------------------------
    def _matches(self, base: str, parts: list[str]) -> Iterator[str]:
        """Yield the paths below `base` that the parts of a pattern match.

        Works as glob, but reports unreadable folders.
        """
        if not parts:
            yield base
            return
        head, remaining = parts[0], parts[1:]
        folder = base or "."
        if head == "**" and not remaining:
            yield folder
        elif head == "**":
            below = Search(self._suffixes, tuple(self._left_out), self._skipped, scratch=self._scratch)
            for inner, _ in below._folders(folder, hidden=(".",)):
                yield from self._matches(inner, remaining)
            self.unreadable += below.unreadable
        elif not glob.has_magic(head):
            path = os.path.join(base, head)
            if os.path.lexists(path):
                yield from self._matches(path, remaining)
        else:
            if not remaining:
                self._check_scratch(folder, head)
            for name in self._names(folder, head):
                path = os.path.join(base, name)
                if not remaining or os.path.isdir(path):
                    yield from self._matches(path, remaining)

    def _check_scratch(self, folder: str, pattern: str) -> None:
        """Raise UsageError if `folder` is the scratch folder and `pattern` matches temporary files in it."""
        would_be_read = self._scratch_id is not None and fnmatch.fnmatchcase(SCRATCH_EXAMPLE, pattern)
        if would_be_read and _identity(folder) == self._scratch_id:
            refuse_scratch(self._scratch)

    def _names(self, folder: str, pattern: str) -> list[str]:
        """Return the sorted names in a folder that a part of a pattern matches; hidden ones only if it begins so."""
        try:
            names = sorted(os.listdir(folder))
        except NotADirectoryError:
            return []
        except OSError as exc:
            self.unreadable.append((os.path.abspath(folder), exc.strerror or str(exc)))
            return []
        shows_hidden = pattern.startswith(".")
        visible = names if shows_hidden else [name for name in names if not name.startswith(".")]
        names = [name for name in visible if fnmatch.fnmatchcase(name, pattern)]
        return names if pattern.endswith((RUN_DIRECTORY, RUN_SUFFIX)) else self._without_run_dirs(folder, names)

    def _without_run_dirs(self, folder: str, names: list[str]) -> list[str]:
        """Return the names without those of run directories, which a pattern for data matches by chance."""
        paths = {name: os.path.abspath(os.path.join(folder, name)) for name in names}
        return [name for name, path in paths.items() if path not in self._own_run_dirs and not is_run_dir(path)]


def _why_not(path: str) -> str:
    """Return why the system cannot resolve `path`, or "" if it can."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return skipped.DEAD_LINK if os.path.islink(path) else "it vanished while files were listed"
    except OSError as exc:
        return exc.strerror or str(exc)
    return ""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino
