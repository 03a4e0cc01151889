"""Lists of domains, URLs and words: files of lines, plain or .gz, alone or in folders as UT1 and datatrove have them.

Domains and URLs become one sorted table of 64-bit hashes, 8 bytes an entry, in a file that workers map: memory holds it
once, however many workers there are. Two entries of ten million share a hash with a probability of 3 in a million,
and a URL that is not listed meets one with less than 1 in 10^12.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import xxhash

from tamis._lazy import np
from tamis.errors import UsageError

DOMAINS, URLS = "domains", "urls"
WORDS, SOFT_WORDS, SUBSTRINGS = "banned_words", "soft_banned_words", "banned_subwords"
KINDS = (DOMAINS, URLS, WORDS, SOFT_WORDS, SUBSTRINGS)
BYTES_PER_ENTRY = 8
_BATCH = 1 << 16
_MAX_LINE = 16_384
_MAX_WORDS = 100_000
_NOT_A_LETTER = re.compile(r"[^a-zA-Z0-9]+")


def normalized(text: str) -> str:
    """Return the letters and digits of a text in lower case, nothing between them.

    >>> normalized("Free-Stuff.html")
    'freestuffhtml'
    """
    return _NOT_A_LETTER.sub("", text).lower()


@dataclass
class ListFiles:
    """The files of each kind of list below a folder, or named one by one."""

    paths: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    @classmethod
    def below(cls, folder: str, categories: Sequence[str] | None, owner: str) -> ListFiles:
        """Find lists by their names, `domains`, `urls`, `banned_words.txt` and so on, in a folder and those in it.

        `categories`: only folders of these names (UT1 has one folder for each).
        """
        if not os.path.isdir(folder):
            raise UsageError(
                f"{owner}: blocklists: {folder} is no folder; give one with files named {', '.join(KINDS)}"
            )
        files, unseen = cls(), set(categories or ())
        for path, folders, names in os.walk(folder, followlinks=True):
            folders.sort()
            if categories is not None and os.path.basename(path) not in categories:
                continue
            unseen.discard(os.path.basename(path))
            for name in sorted(names):
                kind = name.lower().removesuffix(".gz").removesuffix(".txt")
                if kind in KINDS:
                    files.paths[kind].append(os.path.join(path, name))
        if unseen:
            raise UsageError(f"{owner}: categories: {folder} has no folder named {sorted(unseen)[0]!r}")
        if not any(files.paths.values()):
            raise UsageError(
                f"{owner}: blocklists: {folder} has no list; expected files named {', '.join(KINDS)}, plain or .gz, "
                "in it or in its folders"
            )
        return files

    def add(self, kind: str, entries: str | Iterable[str] | None, owner: str) -> list[str]:
        """Add a file of entries; return entries that were given as they are."""
        if entries is None:
            return []
        if isinstance(entries, (str, os.PathLike)):
            if not os.path.isfile(entries):
                raise UsageError(
                    f"{owner}: {entries} is no file; give a file with one entry a line, or a list of entries"
                )
            self.paths[kind].append(os.fspath(entries))
            return []
        return [str(entry) for entry in entries]

    @property
    def all(self) -> list[str]:
        return [path for kind in KINDS for path in self.paths[kind]]

    def lines(self, kind: str) -> Iterator[str]:
        """Yield the entries of a kind; lines that begin with # are comments."""
        for path in self.paths[kind]:
            yield from read_lines(path)

    def words(self, kind: str, more: Iterable[str], owner: str) -> frozenset[str]:
        """Return words in the form in which they are compared."""
        words: set[str] = set()
        for line in (*self.lines(kind), *more):
            words.add(normalized(line))
            if len(words) > _MAX_WORDS:
                raise UsageError(
                    f"{owner}: more than {_MAX_WORDS:,} {kind}: these lists are for words; see domains, urls"
                )
        return frozenset(words - {""})

    def n_entries(self) -> int:
        """Count the domains and URLs, in bounded memory: what the table takes is known before it is built."""
        return sum(1 for kind in (DOMAINS, URLS) for _ in self.lines(kind))


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a list that are no comments; raise UsageError for a file that cannot be read."""
    try:
        with _open(path) as file:
            while line := file.readline(_MAX_LINE):
                entry = line.decode("utf-8", "replace").strip()
                if entry and not entry.startswith("#"):
                    yield entry
    except (OSError, EOFError, zlib.error) as exc:
        raise UsageError(f"{path} cannot be read as a list: {exc}") from exc


def _open(path: str) -> IO[bytes]:
    return gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


class HashTable:
    """A sorted table of hashes in a file without a name, mapped into memory."""

    def __init__(self, entries: Iterable[str], key: Callable[[str], str]) -> None:
        parts: list[Any] = []
        batch: list[int] = []
        for entry in entries:
            batch.append(hash_of(key(entry)))
            if len(batch) == _BATCH:
                parts.append(np.unique(np.array(batch, np.uint64)))
                batch = []
        parts.append(np.array(batch, np.uint64))
        hashes = np.unique(np.concatenate(parts))
        del parts
        self.n = len(hashes)
        self._hashes = hashes
        if self.n:
            with tempfile.TemporaryFile() as file:
                hashes.tofile(file)
                file.flush()
                self._hashes = np.memmap(file, np.uint64, "r", shape=(self.n,))

    def has(self, keys: Any) -> Any:
        """Return which of these hashes are in the table."""
        if not self.n:
            return np.zeros(len(keys), bool)
        at = np.minimum(np.searchsorted(self._hashes, keys), self.n - 1)
        return np.asarray(self._hashes[at] == keys)


def hash_of(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
