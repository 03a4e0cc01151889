"""Training of fastText classifiers on CPUs: labelled texts in, a model file (.bin) out, with compiled loops.

The file is one that fastText itself reads, and that FastTextModel runs. The same texts, labels and options give the
same bytes. Held in memory: the texts, and (words + buckets) * dim * 4 bytes.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError

LABEL = "__label__"
_SPACES = re.compile(rb"[ \n\r\t\v\f\0]+")
_EOS = b"</s>"
_MAX_WORD_BYTES = 1000
_MAGIC, _VERSION, _SUPERVISED, _SOFTMAX = 793712314, 12, 3, 3
_MOST_BYTES = 8 << 30


def is_model(path: str) -> bool:
    """Return True if a file begins like a fastText model."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == struct.pack("<i", _MAGIC)


@dataclass(frozen=True)
class TrainingOptions:
    """`max_bytes`: of each text so much is looked at.

    Words with fewer than `min_count` occurrences count only in n-grams.
    """

    dim: int = 32
    epochs: int = 5
    rate: float = 0.5
    word_ngrams: int = 2
    buckets: int = 200_000
    min_count: int = 2
    seed: int = 1
    max_bytes: int = 100_000

    def __post_init__(self) -> None:
        for name, least, most in (
            ("dim", 1, 1000),
            ("epochs", 1, 1000),
            ("word_ngrams", 1, 10),
            ("buckets", 1, 1 << 28),
            ("min_count", 1, 1 << 40),
            ("max_bytes", 1, 1 << 40),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise UsageError(f"{name}: expected a whole number from {least} to {most}, got {value!r}")
        if not 0 < self.rate <= 100:
            raise UsageError(f"rate: expected a number above 0, got {self.rate!r}")


def train_classifier(
    texts: pa.Array, labels: Sequence[str], options: TrainingOptions, say: Callable[[int, float], None] | None = None
) -> bytes:
    """Train a classifier and return the contents of its model file.

    `texts`: one Arrow column of texts; `labels`: the name of each text's label. `say(epoch, mean loss)` is
    called to report progress.
    """
    from tamis.kernels.buffers import string_buffers
    from tamis.kernels.text.fasttext_kernels import END_OF_LINE, windows
    from tamis.kernels.text.fasttext_training import train

    names = _label_names(labels)
    part = string_buffers(texts)
    starts, ends = part.spans()
    windows(part.data, starts.copy(), ends.copy(), options.max_bytes, starts, ends)
    words = _words(part.data, starts, ends, options.min_count)
    counts = Counter(labels)
    table = _TrainingDictionary([*words, *((f"{LABEL}{n}".encode(), counts[n]) for n in names)], len(words))
    n_rows = len(words) + (options.buckets if options.word_ngrams > 1 else 0)
    if n_rows * options.dim * 4 > _MOST_BYTES:
        raise UsageError(
            f"{len(words):,} words and {options.buckets:,} buckets of {options.dim} numbers take more than 8 GB; "
            "raise min_count, or lower buckets or dim"
        )
    rng = np.random.default_rng(options.seed)
    inputs = rng.uniform(-1 / options.dim, 1 / options.dim, n_rows * options.dim).astype(np.float32)
    outputs = np.zeros(len(names) * options.dim, np.float32)
    number = {name: i for i, name in enumerate(names)}
    targets = np.array([number[label] for label in labels], np.int32)
    shape = np.array(
        [options.dim, len(words), len(names), options.buckets, 0, 0, options.word_ngrams, _SOFTMAX, -1], np.int64
    )
    longest = int((ends - starts).max(initial=0)) // 2 + 3
    loss = np.zeros(1)
    scratch = (
        np.zeros(longest * options.word_ngrams, np.int64),
        np.zeros(max(1, options.word_ngrams), np.uint64),
        np.zeros(options.dim),
        np.zeros(options.dim, np.float32),
        np.zeros(options.dim, np.float32),
        np.zeros(len(names)),
        loss,
    )
    for epoch in range(options.epochs):
        rates = [options.rate * (1 - e / options.epochs) for e in (epoch, epoch + 1)]
        order = rng.permutation(len(labels)).astype(np.int64)
        train(
            part.data,
            starts,
            ends,
            targets,
            order,
            END_OF_LINE,
            *rates,
            shape,
            *table.arrays,
            inputs,
            outputs,
            *scratch,
        )
        if not np.isfinite(loss[0]):
            raise UsageError(f"training does not settle at a rate of {options.rate:g}; try a lower one")
        if say is not None:
            say(epoch + 1, float(loss[0]) / max(1, len(labels)))
    return _file(table, len(words), len(names), options, inputs, outputs)


class _TrainingDictionary:
    """Entries (words, then labels) in the layout of the model file, with the hash table that finds them."""

    def __init__(self, entries: Sequence[tuple[bytes, int]], n_words: int) -> None:
        from tamis.kernels.text.fasttext_tables import fill_words, scan_dictionary

        self.n_entries, self.n_tokens = len(entries), sum(n for _, n in entries[:n_words])
        self.data = b"".join(
            name + b"\0" + struct.pack("<qb", n, int(i >= n_words)) for i, (name, n) in enumerate(entries)
        )
        n = len(entries)
        names = np.frombuffer(self.data, np.uint8)
        begins, counts = np.empty(n, np.int64), np.empty(n, np.int64)
        lengths, kinds, hashes = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint32)
        scan_dictionary(names, 0, n, begins, lengths, counts, kinds, hashes)
        slots = np.full(1 << max(1, 2 * n - 1).bit_length(), -1, np.int32)
        if not fill_words(names, begins, lengths, hashes, slots):
            raise UsageError("too many words of these texts share a hash; raise min_count")
        self.arrays = (names, begins, lengths, hashes, slots)


def _label_names(labels: Sequence[str]) -> list[str]:
    counts = Counter(labels)
    if len(counts) < 2:
        raise UsageError(f"training needs texts with at least two labels, got {sorted(counts)}")
    for name in counts:
        if not name or "\0" in name:
            raise UsageError(f"label {name!r}: a label is a text that is not empty, without the character NUL")
    return sorted(counts, key=lambda name: (-counts[name], name))


def _words(
    data: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], min_count: int
) -> list[tuple[bytes, int]]:
    """Return words and their counts, the most frequent first; and the one that ends every text."""
    counts: Counter[bytes] = Counter()
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        counts.update(_SPACES.split(data[a:b].tobytes()))
    for gone in (b"", _EOS):
        counts.pop(gone, None)
    frequent = [
        (w, n)
        for w, n in counts.items()
        if n >= min_count and len(w) <= _MAX_WORD_BYTES and not w.startswith(b"__label__")
    ]
    return [(_EOS, len(starts)), *sorted(frequent, key=lambda pair: (-pair[1], pair[0]))]


def _file(
    table: _TrainingDictionary, n_words: int, n_labels: int, options: TrainingOptions, inputs: Any, outputs: Any
) -> bytes:
    """Return the model file as fastText writes it (version 12, dense matrices)."""
    head = struct.pack("<2i", _MAGIC, _VERSION)
    head += struct.pack("<6i", options.dim, 5, options.epochs, options.min_count, 5, options.word_ngrams)
    head += struct.pack("<6id", _SOFTMAX, _SUPERVISED, options.buckets, 0, 0, 100, 1e-4)
    head += struct.pack("<3iqq", table.n_entries, n_words, n_labels, table.n_tokens, -1)
    matrices = b"".join(
        struct.pack("<?qq", False, m.size // options.dim, options.dim) + m.astype("<f4").tobytes()
        for m in (inputs, outputs)
    )
    return head + table.data + matrices
