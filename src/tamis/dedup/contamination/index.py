"""The index of evaluation sets: a filter in memory that all workers of a node share, and an exact table on the disk.

hashes.npy      hashes of the n-grams of all items, ascending; equal ones by their place
postings.npy    of each hash, the place in texts.bin where the n-gram begins, the number of its first token in the item,
                and whether it is the whole of a short item (pack_postings)
directory.npy   by the upper bits of a hash: the first row of the table; a part of about ROWS_PER_PART rows is read at
                once, with pread, so that nothing of the table counts as memory
filter.npy      the filter (kernels/overlap/ngrams.py), at most 2 bytes for each different n-gram; mapped
texts.bin       the texts of all items; starts.npy: where each begins, and where the last one ends
items.npy       set, file and row of each item, how it is looked for, and its number of n-grams (ITEM)
folding.npz     how texts are normalised
index.json      the parameters, and the counts of each set (IndexFacts). Written last

A window that passes the filter and is in the table is compared with the text of the item, so that no collision of
hashes counts. See also: build.py, which writes these files.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.dedup import state
from tamis.dedup.contamination.tasks import IndexFacts
from tamis.errors import FormatError
from tamis.files import read_json
from tamis.formats.scratch.stored_arrays import StoredArray, open_npy
from tamis.kernels.overlap.folding import WEIGHT_OF_WORD, Folding, restored, tokens_of
from tamis.kernels.overlap.ngrams import SHORT, Scanner, Windows, match_all

Array = NDArray[Any]
ROWS_PER_PART = 256
ITEM = np.dtype(
    [("set", "<u4"), ("file", "<u4"), ("row", "<u8"), ("n_ngrams", "<u4"), ("n_tokens", "<u4"), ("kind", "<u8")]
)
CHECKED, AS_A_WHOLE, UNCHECKED = 0, 1, 2
"""The search for an item: by its n-grams, as a whole, or not at all because it is too short."""
PLACE_SHIFT, TOKEN_MASK = 23, (1 << 22) - 1
MOST_TEXT_BYTES = 1 << 40
MOST_POSTINGS = 64  # items that are named for one n-gram
_GAP = 4096  # bytes of texts that are read and not needed, rather than reading once more
_NEAR_BYTES = 8192  # the same of the table: copying so much takes as long as a system call
_FEW_BYTES = 160
_BYTES_PER_LETTER = 12  # at most that an item takes where a text takes one: accents, ligatures, other widths
_INDEX = "index.json"


class Posting(NamedTuple):
    """An n-gram of an item: where it begins in the texts, and the number of its first token in the item."""

    item: int
    place: int
    token: int


class Hits(NamedTuple):
    """Verified overlaps, in the order of the text: windows with the row of their n-gram in the table."""

    row: NDArray[np.int64]
    start: NDArray[np.int64]  # bytes of the data
    end: NDArray[np.int64]
    token: NDArray[np.int64]
    token_end: NDArray[np.int64]
    ngram: NDArray[np.int64]


def pack_postings(place: Array, token: Array, is_whole: Array) -> NDArray[np.int64]:
    """Return postings as they are stored, in the order of places. Tokens of very long items begin again at 0."""
    packed: NDArray[np.int64] = place << PLACE_SHIFT | (token & TOKEN_MASK) << 1 | is_whole
    return packed


def read_facts(folder: str) -> IndexFacts | None:
    """Return the facts of an index, None where it is not finished."""
    data = read_json(os.path.join(folder, _INDEX))
    return None if data is None else state.from_dict(IndexFacts, data, os.path.join(folder, _INDEX))


class EvaluationIndex:
    """An index for looking texts up. Open it before workers are forked: they share the filter and the small tables."""

    def __init__(self, folder: str, with_filter: bool = True) -> None:
        facts = read_facts(folder)
        if facts is None:
            raise FormatError(f"{folder}: no index of evaluation sets; start over with fresh (--fresh)")
        self.folder, self.facts = folder, facts
        try:
            with np.load(os.path.join(folder, "folding.npz"), allow_pickle=False) as stored:
                self.folding: Folding = restored({name: stored[name] for name in Folding._fields})
        except (OSError, ValueError, KeyError) as exc:
            raise FormatError(f"{folder}: the tables of an index are damaged ({exc}); start over (--fresh)") from None
        self._directory = self._load("directory.npy")
        self._starts = self._load("starts.npy")
        self._hashes, self._postings = (_OpenArray(self._stored(name)) for name in ("hashes.npy", "postings.npy"))
        self._items = _OpenArray(self._stored("items.npy"), ITEM)
        texts = StoredArray(os.path.join(folder, "texts.bin"), 0, np.dtype(np.uint8), int(self._starts[-1]))
        self._texts = _OpenArray(texts)
        known = None
        if with_filter:
            known = np.asarray(np.load(os.path.join(folder, "filter.npy"), mmap_mode="r", allow_pickle=False))
            int(known[::512].sum(dtype=np.uint64))  # every page, now: so that it is counted before workers start
        short_words = facts.short_words if any(one.n_short for one in facts.sets) else 0
        self._scanner = Scanner(self.folding, facts.words, short_words, known)

    def _load(self, name: str) -> Array:
        stored = self._stored(name)
        return stored.read(0, len(stored))

    def _stored(self, name: str) -> StoredArray:
        return open_npy(os.path.join(self.folder, name))

    # -- looking texts up ----------------------------------------------------------------------------------------------
    def hits(self, data: Array, starts: Array, ends: Array) -> tuple[Hits, NDArray[np.int64]]:
        """Return the verified overlaps of the rows data[starts[i]:ends[i]), and the number of tokens of each row."""
        totals = np.zeros((len(starts), 2), np.int64)
        if not self.facts.n_entries:
            return _no_hits(), totals[:, 0]
        parts = [self._verified(data, ends, w) for w in self._scanner.scan(data, starts, ends, totals)]
        hits = Hits(*(np.concatenate(c) for c in zip(_no_hits(), *parts, strict=True)))
        order = np.lexsort((hits.token_end, hits.token, hits.row))
        return Hits(*(column[order] for column in hits)), totals[:, 0]

    def _verified(self, data: Array, ends: Array, windows: Windows) -> Hits:
        rows = self._find(windows.hashes)
        indices = np.flatnonzero(rows >= 0)
        if not len(indices):
            return _no_hits()
        fields, entry = windows.fields[indices], rows[indices]
        is_short = windows.field("kind")[indices] == SHORT
        # A short item shares its first words with others: each of these is compared.
        candidates = [(k, int(e)) for k, e in zip(np.flatnonzero(~is_short).tolist(), entry[~is_short], strict=True)]
        for k in np.flatnonzero(is_short).tolist():
            candidates += [(k, e) for e in self.entries_of(int(entry[k]))]
        which = np.array([k for k, _ in candidates], np.int64)
        ngram = np.array([e for _, e in candidates], np.int64)
        whole = is_short[which]
        row, start = fields[which, 0], fields[which, 1]
        end = np.where(whole, ends[row], fields[which, 2])
        place = self._read_rows(self._postings, ngram) >> PLACE_SHIFT
        items = np.searchsorted(self._starts, place, side="right") - 1
        last = self._starts[items + 1]
        reach = np.where(whole, last, np.minimum(last, place + (end - start) * _BYTES_PER_LETTER + _FEW_BYTES))
        texts, base = self._passages(place, reach)
        same = match_all(self.folding, data, start, end, texts, base, base + (reach - place), whole)
        good = np.flatnonzero(same >= 0)
        found_end, token_end = np.where(whole, same, end), fields[which, 4].copy()
        token_end[whole] = fields[which[whole], 3] + self._read_rows(self._items, items[whole])["n_tokens"]
        return Hits(*(column[good] for column in (row, start, found_end, fields[which, 3], token_end, ngram)))

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the first row of each hash in the table, -1 for those that it does not have."""
        order = np.argsort(hashes, kind="stable")
        asked = hashes[order]
        part = (asked >> np.uint64(64 - self.facts.directory_bits)).astype(np.int64)
        known, rows = self._hashes.read_ranges(self._directory[part], self._directory[part + 1])
        out = np.full(len(hashes), -1, np.int64)
        if len(known):  # parts in ascending order: together they ascend, too
            positions = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            out[order] = np.where(known[positions] == asked, rows[positions], -1)
        return out

    def _read_rows(self, stored: _OpenArray, rows: NDArray[np.int64]) -> Array:
        """Return the values of rows in any order."""
        ordered, back = np.unique(rows, return_inverse=True)
        values, numbers = stored.read_ranges(ordered, ordered + 1)
        found: Array = values[np.searchsorted(numbers, ordered)][back]
        return found

    def _passages(self, first: Array, end: Array) -> tuple[Array, NDArray[np.int64]]:
        """Return (bytes of texts, where each passage begins in them)."""
        order = np.argsort(first, kind="stable")
        parts: list[Array] = []
        base, size = np.empty(len(first), np.int64), 0
        position, stop = 0, 0  # of the part that is being extended
        open_part: list[int] = []

        def finish() -> None:
            nonlocal size
            if open_part:
                part = self._texts.read(position, stop)
                base[open_part] = size + first[open_part] - position
                parts.append(part)
                size += len(part)
                open_part.clear()

        for k in order.tolist():
            if open_part and int(first[k]) > stop + _GAP:
                finish()
            if not open_part:
                position, stop = int(first[k]), int(end[k])
            stop = max(stop, int(end[k]))
            open_part.append(k)
        finish()
        return np.concatenate([np.empty(0, np.uint8), *parts]), base

    # -- items ---------------------------------------------------------------------------------------------------------
    def entries_of(self, row: int) -> list[int]:
        """Return the rows of the table with the hash of `row`, which is the first of them; at most MOST_POSTINGS."""
        known = self._hashes.read(row, row + MOST_POSTINGS)
        return list(range(row, row + int(np.count_nonzero(known == known[0]))))

    def postings(self, row: int) -> list[Posting]:
        """Return the items with the n-gram of a row."""
        first = int(self._postings.read(row, row + 1)[0])
        rows = [row] if first & 1 else self.entries_of(row)
        packed = self._postings.read(rows[0], rows[-1] + 1)
        places = packed >> PLACE_SHIFT
        items = np.searchsorted(self._starts, places, side="right") - 1
        tokens = packed >> 1 & TOKEN_MASK
        return [Posting(*facts) for facts in zip(items.tolist(), places.tolist(), tokens.tolist(), strict=True)]

    def item(self, number: int) -> Any:
        """Return an item (ITEM)."""
        return self._items.read(number, number + 1)[0]

    @property
    def n_items(self) -> int:
        return len(self._starts) - 1

    def name_of(self, number: int) -> tuple[str, str]:
        """Return the set of an item, and its file and row in that as FILE:ROW."""
        item = self.item(number)
        one = self.facts.sets[int(item["set"])]
        path = str(one.files[int(item["file"])]["path"])
        return one.name, f"{os.path.relpath(path, _folder_of(one.path))}:{int(item['row'])}"

    def words_at(self, number: int, place: int) -> str:
        """Return the normalised words of the n-gram that begins there, or of all of a short item."""
        is_whole = int(self.item(number)["kind"]) == AS_A_WHOLE
        words, weight = [], 0
        for token, size in tokens_of(self.text(number, place, 1 << 16)):
            if weight >= self.facts.words * WEIGHT_OF_WORD and not is_whole:
                break
            words.append(token)
            weight += size
        return " ".join(words)

    def text(self, number: int, first: int | None = None, most: int = 1 << 20) -> str:
        """Return the text of an item, or of a part of it from place `first` on."""
        begin = int(self._starts[number]) if first is None else first
        data = self._texts.read(begin, min(int(self._starts[number + 1]), begin + most))
        return data.tobytes().decode("utf-8", "ignore")


class _OpenArray:
    """A stored array whose file stays open, also in forked workers: a table is read some hundred times for a megabyte.

    `kind`: the type of its values, if other than the stored one.
    """

    def __init__(self, stored: StoredArray, kind: Any = None) -> None:
        self._path, self._offset, self.kind = stored.path, stored.offset, kind or stored.kind
        self._n = len(stored) * stored.kind.itemsize // self.kind.itemsize
        self._fd = os.open(stored.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def read(self, first: int, end: int) -> Array:
        """Return values first to end; fewer at the end of the array."""
        end = min(end, self._n)
        n_bytes = max(0, end - first) * self.kind.itemsize
        data = os.pread(self._fd, n_bytes, self._offset + first * self.kind.itemsize)
        while len(data) < n_bytes:
            more = os.pread(self._fd, n_bytes - len(data), self._offset + first * self.kind.itemsize + len(data))
            if not more:
                raise FormatError(f"{self._path}: ends early; start over with fresh (--fresh)")
            data += more
        return np.frombuffer(data, self.kind)

    def read_ranges(self, firsts: Array, ends: Array) -> tuple[Array, NDArray[np.int64]]:
        """Return (values, indexes) of ascending ranges; close ranges are read at once, with the gap between them."""
        if not len(firsts):
            return np.empty(0, self.kind), np.empty(0, np.int64)
        far = np.flatnonzero(firsts[1:] - np.maximum.accumulate(ends)[:-1] > _NEAR_BYTES // self.kind.itemsize) + 1
        begin, end = firsts[np.concatenate([[0], far])], np.append(ends[far - 1], ends[-1])
        parts = [self.read(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        size = end - begin
        return np.concatenate(parts), np.repeat(begin - np.cumsum(size) + size, size) + np.arange(int(size.sum()))


def _folder_of(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _no_hits() -> Hits:
    return Hits(*(np.empty(0, np.int64) for _ in Hits._fields))
