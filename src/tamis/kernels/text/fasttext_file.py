"""Reads fastText's binary model files (.bin and .ftz, versions 11 and 12) and checks every size and id in them.

The file is mapped, not read: matrices stay where they are, so the processes of a machine share one copy. A model file
is untrusted: nothing is allocated before the file has shown to be long enough for it, and kernels get only offsets
and ids that were proven here. Anything wrong is a FormatError. Covers supervised models with hierarchical softmax,
softmax, negative sampling and one-vs-all; word vectors (cbow, skipgram) have no labels to predict and are refused.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.errors import FormatError, UsageError
from tamis.kernels.text._fasttext_rows import N_CENTROIDS
from tamis.kernels.text.fasttext_kernels import HIERARCHICAL, ONE_VS_ALL
from tamis.kernels.text.fasttext_tables import fill_kept, fill_pruned, fill_words, scan_dictionary

_MAGIC, _SUPERVISED = 793712314, 3
_MAX_NGRAM = 100  # characters or words; more would make the time per character a choice of the file
_MAX_UNPACKED_BYTES = 32 << 20
_UNREACHED = 10**15  # the count fastText gives tree nodes that are not built yet


@dataclass(frozen=True)
class FastTextFile:
    """A checked model: the mapped bytes, and where in them the kernels find what. See `fasttext_kernels` for places."""

    data: NDArray[np.uint8]
    vectors: NDArray[np.uint8]  # the location of `inputs`: `data`, or the unpacked copy of a small quantised matrix
    shape: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int32]
    hashes: NDArray[np.uint32]
    slots: NDArray[np.int32]
    pruned: NDArray[np.int32]
    kept: NDArray[np.uint64]
    tree: NDArray[np.int32]
    labels: tuple[str, ...]


@dataclass
class _Cursor:
    """Reads on from `at`; every read is checked against the end of the file."""

    path: str
    data: NDArray[np.uint8]
    at: int = 0

    def wrong(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: not a usable fastText model: {what}; fetch or train the file again")

    def check(self, good: bool, what: str, expected: str, got: object) -> None:
        if not good:
            raise self.wrong(f"{what}: expected {expected}, got {got}")

    def skip(self, n_bytes: int, what: str) -> int:
        """Move past the next `n_bytes` and return the offset at which they begin."""
        begin, left = self.at, self.data.size - self.at
        if n_bytes > left:
            raise self.wrong(f"{what} needs {n_bytes} bytes at byte {begin}, but the file has {left} left")
        self.at += n_bytes
        return begin

    def read(self, form: str, what: str) -> tuple[int, ...]:
        n_bytes = struct.calcsize("<" + form)
        begin = self.skip(n_bytes, what)
        return struct.unpack("<" + form, self.data[begin : begin + n_bytes].tobytes())

    def flag(self, what: str) -> bool:
        (value,) = self.read("B", what)
        self.check(value in (0, 1), what, "0 or 1", value)
        return value == 1


@dataclass(frozen=True)
class _Dictionary:
    n_words: int
    n_labels: int
    n_pruned: int
    begins: NDArray[np.int64]
    lengths: NDArray[np.int32]
    counts: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    pairs: NDArray[np.int32]


def read_fasttext(path: str | os.PathLike[str]) -> FastTextFile:
    """Map and check a model file."""
    cursor = _Cursor(os.fspath(path), _map(os.fspath(path)))
    magic, version = cursor.read("ii", "header")
    cursor.check(magic == _MAGIC, "first four bytes", f"the number {_MAGIC}", magic)
    cursor.check(version in (11, 12), "version", "11 or 12", version)
    names = ("dim", "ws", "epoch", "min_count", "neg", "word_ngrams", "loss", "model", "bucket", "minn", "maxn", "rate")
    args = dict(zip(names, cursor.read("12i8x", "arguments"), strict=True))
    cursor.check(args["model"] == _SUPERVISED, "kind of model", "3 (supervised, with labels)", args["model"])
    cursor.check(HIERARCHICAL <= args["loss"] <= ONE_VS_ALL, "loss", "1 to 4", args["loss"])
    cursor.check(args["dim"] > 0, "dim", "more than 0", args["dim"])
    if version == 11:  # supervised models of that version have no character n-grams, whatever they say
        args["maxn"] = 0
    cursor.check(1 <= args["word_ngrams"] <= _MAX_NGRAM, "wordNgrams", f"1 to {_MAX_NGRAM}", args["word_ngrams"])
    for name in ("minn", "maxn"):
        cursor.check(0 <= args[name] <= _MAX_NGRAM, name, f"0 to {_MAX_NGRAM}", args[name])
    hashed = args["maxn"] > 0 or args["word_ngrams"] > 1
    cursor.check(args["bucket"] >= int(hashed), "bucket", "a number of hash buckets", args["bucket"])

    words = _dictionary(cursor, args["bucket"])
    quantised = cursor.flag("input matrix: quantised")
    cursor.check(
        quantised or words.n_pruned < 0, "input matrix", "a quantised one, since words are pruned", "a dense one"
    )
    inputs = _matrix(cursor, quantised, args["dim"], "input matrix")
    outputs = _matrix(cursor, cursor.flag("output matrix: quantised") and quantised, args["dim"], "output matrix")
    cursor.check(cursor.at == cursor.data.size, "end of the file", f"byte {cursor.at}", f"{cursor.data.size} bytes")
    if words.n_pruned < 0:
        n_rows = words.n_words + (args["bucket"] if hashed else 0)
    else:
        n_rows = words.n_words + (int(words.pairs[1::2].max()) + 1 if words.n_pruned else 0)
    cursor.check(n_rows <= inputs[1], "rows of the input matrix", f"at least {n_rows}", inputs[1])
    cursor.check(outputs[1] == words.n_labels, "rows of the output matrix", f"{words.n_labels} (labels)", outputs[1])

    vectors, inputs = _unpacked(cursor.data, inputs, args["dim"])
    label_counts = words.counts[words.n_words :]
    tree = _huffman(cursor, label_counts) if args["loss"] == HIERARCHICAL else np.zeros(0, np.int32)
    order = ("bucket", "minn", "maxn", "word_ngrams", "loss")
    shape = [args["dim"], words.n_words, words.n_labels, *(args[name] for name in order), words.n_pruned]
    return FastTextFile(
        data=cursor.data,
        vectors=vectors,
        shape=np.array(shape, np.int64),
        inputs=np.array(inputs, np.int64),
        outputs=np.array(outputs, np.int64),
        begins=words.begins,
        lengths=words.lengths,
        hashes=words.hashes,
        slots=_word_table(cursor, words),
        pruned=_pruned_table(cursor, words.pairs),
        kept=_kept_bits(words.pairs),
        tree=tree,
        labels=_labels(cursor, words),
    )


def _map(path: str) -> NDArray[np.uint8]:
    try:
        info = os.stat(path)
        if stat.S_ISREG(info.st_mode) and info.st_size:
            return np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise UsageError(
            f"fastText model {path}: cannot be read ({error.strerror}); give the path of a .bin or .ftz"
        ) from None
    raise FormatError(f"{path}: not a usable fastText model: expected a file with content, got an empty or special one")


def _dictionary(cursor: _Cursor, bucket: int) -> _Dictionary:
    n_entries, n_words, n_labels, _, n_pruned = cursor.read("iiiqq", "dictionary header")
    sane = n_words >= 0 and n_labels > 0 and n_entries == n_words + n_labels
    cursor.check(sane, "dictionary", "words + labels, at least one label", f"{n_entries} = {n_words} + {n_labels}")
    room = (cursor.data.size - cursor.at) // 10  # an entry has 10 bytes and its name
    cursor.check(n_entries <= room, "dictionary entries", f"at most {room} in what is left of the file", n_entries)
    begins, counts = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
    lengths, kinds, hashes = (
        np.empty(n_entries, np.int32),
        np.empty(n_entries, np.int32),
        np.empty(n_entries, np.uint32),
    )
    end = scan_dictionary(cursor.data, cursor.at, n_entries, begins, lengths, counts, kinds, hashes)
    if end < 0:
        raise cursor.wrong(f"the dictionary of {n_entries} entries reaches past the end of the file")
    cursor.skip(end - cursor.at, "dictionary")
    ordered = bool((kinds[:n_words] == 0).all() and (kinds[n_words:] == 1).all())
    cursor.check(ordered, "dictionary", f"{n_words} words, then {n_labels} labels", "another order or kind")
    cursor.check(n_pruned >= -1, "pruned buckets", "-1 or more", n_pruned)
    begin = cursor.skip(8 * max(n_pruned, 0), "pruned buckets")
    pairs = cursor.data[begin : cursor.at].copy().view(np.int32)
    good = bool((pairs >= 0).all() and (pairs[::2] < bucket).all())
    cursor.check(good, "pruned buckets", f"buckets from 0 to {bucket - 1} and rows from 0", "others")
    return _Dictionary(n_words, n_labels, n_pruned, begins, lengths, counts, hashes, pairs)


def _matrix(cursor: _Cursor, quantised: bool, dim: int, what: str) -> list[int]:
    """Read the offsets of a matrix, in the order of `_fasttext_rows.QUANTISED` and those after it."""
    normed = cursor.flag(f"{what}: norms") if quantised else False
    n_rows, width = cursor.read("qq", what)
    cursor.check(n_rows > 0 and width == dim, what, f"rows of {dim} numbers", f"{n_rows} rows of {width}")
    if not quantised:
        return [0, n_rows, cursor.skip(4 * n_rows * dim, what), 0, 0, 0, 0, 0, 0, 0]
    (n_codes,) = cursor.read("i", f"{what}: number of codes")
    cursor.check(n_codes >= n_rows, f"{what}: number of codes", f"at least {n_rows}", n_codes)
    codes = cursor.skip(n_codes, f"{what}: codes")
    n_sub, sub_dim, last_dim, centroids = _quantiser(cursor, dim, what)
    cursor.check(n_codes == n_rows * n_sub, f"{what}: number of codes", str(n_rows * n_sub), n_codes)
    norm_codes = norm_centroids = 0
    if normed:
        norm_codes = cursor.skip(n_rows, f"{what}: norm codes")
        norm_centroids = _quantiser(cursor, 1, f"{what}: norms")[3]
    return [1, n_rows, codes, centroids, n_sub, sub_dim, last_dim, int(normed), norm_codes, norm_centroids]


def _quantiser(cursor: _Cursor, dim: int, what: str) -> tuple[int, int, int, int]:
    width, n_sub, sub_dim, last_dim = cursor.read("iiii", f"{what}: quantiser")
    good = (
        width == dim and 0 < sub_dim <= dim and n_sub == -(-dim // sub_dim) and last_dim == dim - (n_sub - 1) * sub_dim
    )
    cursor.check(good, f"{what}: quantiser", f"{dim} numbers in parts", f"{width} in {n_sub} of {sub_dim}, {last_dim}")
    return n_sub, sub_dim, last_dim, cursor.skip(4 * N_CENTROIDS * dim, f"{what}: centroids")


def _unpacked(data: NDArray[np.uint8], matrix: list[int], dim: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Convert a quantised matrix to a dense one if that is small; adding codes one by one took 1.7 times as long."""
    quantised, n_rows, codes, centroids, n_sub, sub_dim, last_dim, normed, norm_codes, norm_centroids = matrix
    if not quantised or 4 * n_rows * dim > _MAX_UNPACKED_BYTES:
        return data, matrix
    table = data[codes : codes + n_rows * n_sub].reshape(n_rows, n_sub)
    dense = np.empty((n_rows, dim), np.float32)
    for sub in range(n_sub):
        width = last_dim if sub == n_sub - 1 else sub_dim
        begin = centroids + 4 * N_CENTROIDS * sub_dim * sub
        parts = data[begin : begin + 4 * N_CENTROIDS * width].copy().view(np.float32).reshape(N_CENTROIDS, width)
        dense[:, sub * sub_dim : sub * sub_dim + width] = parts[table[:, sub]]
    if normed:
        norms = data[norm_centroids : norm_centroids + 4 * N_CENTROIDS].copy().view(np.float32)
        dense *= norms[data[norm_codes : norm_codes + n_rows]][:, None]
    return dense.reshape(-1).view(np.uint8), [0, n_rows, 0, 0, 0, 0, 0, 0, 0, 0]


def _word_table(cursor: _Cursor, words: _Dictionary) -> NDArray[np.int32]:
    slots = np.full(_table_size(words.begins.size), -1, np.int32)
    if not fill_words(cursor.data, words.begins, words.lengths, words.hashes, slots):
        raise cursor.wrong("too many words of the dictionary share a hash")
    return slots


def _pruned_table(cursor: _Cursor, pairs: NDArray[np.int32]) -> NDArray[np.int32]:
    slots = np.full(2 * _table_size(pairs.size // 2), -1, np.int32)
    if not fill_pruned(pairs, slots):
        raise cursor.wrong("too many pruned buckets fall together")
    return slots


def _kept_bits(pairs: NDArray[np.int32]) -> NDArray[np.uint64]:
    bits = np.zeros(max(1, _table_size(pairs.size // 2) // 8), np.uint64)
    fill_kept(pairs, bits)
    return bits


def _table_size(n_keys: int) -> int:
    """Return a table size that is a power of two, so that the table is at most half full."""
    return 1 << max(1, 2 * n_keys - 1).bit_length()


def _labels(cursor: _Cursor, words: _Dictionary) -> tuple[str, ...]:
    spans = zip(words.begins[words.n_words :].tolist(), words.lengths[words.n_words :].tolist(), strict=True)
    try:
        return tuple(cursor.data[begin : begin + n_bytes].tobytes().decode() for begin, n_bytes in spans)
    except UnicodeDecodeError as error:
        raise cursor.wrong(f"a label is not UTF-8 ({error.reason})") from None


def _huffman(cursor: _Cursor, counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return (left, right) of the inner nodes, numbered after the labels, the root last, as fastText builds them."""
    # With counts like these the sums stay under _UNREACHED, which is what makes the loop below pick built nodes only.
    total = sum(counts.tolist())
    cursor.check(
        bool((counts >= 0).all()) and total < _UNREACHED, "label counts", "0 or more, under 1e15 in all", total
    )
    n_labels = counts.size
    weights = counts.tolist() + [_UNREACHED] * (n_labels - 1)
    leaf, node = n_labels - 1, n_labels
    tree = np.zeros(2 * (n_labels - 1), np.int32)
    for built in range(n_labels, 2 * n_labels - 1):
        weight = 0
        for side in range(2):
            if leaf >= 0 and weights[leaf] < weights[node]:
                child, leaf = leaf, leaf - 1
            else:
                child, node = node, node + 1
            tree[2 * (built - n_labels) + side] = child
            weight += weights[child]
        weights[built] = weight
    return tree
