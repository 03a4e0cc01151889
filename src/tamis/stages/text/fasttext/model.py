"""fastText classifiers without the fastText library: the same labels, the same scores, several times faster.

`FastTextModel.load(path)` takes any supervised model, dense (.bin) or quantised (.ftz). Texts are one line each: a
newline counts as a space, and the text ends with fastText's end-of-line word, as in the library's `predict`. Does not
train.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tamis._lazy import np, pa
from tamis.errors import FormatError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.text.fasttext_file import FastTextFile

CACHE_BYTES = 8 << 20


class FastTextModel:
    """A loaded model. Calls from several threads take turns, since they share the table of word vectors."""

    def __init__(self, path: str, file: FastTextFile, cache_bytes: int = CACHE_BYTES) -> None:
        from tamis.kernels.text._blocks import PAD
        from tamis.kernels.text._fasttext_ngrams import HASHED_ITEMS, WAITING_ITEMS
        from tamis.kernels.text._fasttext_words import AHEAD, AHEAD_ITEMS, SLOT
        from tamis.kernels.text.fasttext_tables import DIM, N_LABELS, WORD_NGRAMS

        self.path = path
        self.labels = file.labels
        self._file = file
        self._lock = threading.Lock()
        dim, n_labels = int(file.shape[DIM]), int(file.shape[N_LABELS])
        stride = -(-dim // 8) * 8
        n_slots = 1 << max(0, (cache_bytes // (8 * SLOT + 4 * stride)).bit_length() - 1)
        # One place more than slots, for the words too long to keep. An all-zero key is no word's.
        self._scratch = (
            _aligned((n_slots + 1) * SLOT, np.uint64),
            _aligned((n_slots + 1) * stride, np.float32),
            np.zeros(stride, np.float64),
            np.zeros(dim, np.float32),
            np.zeros(int(file.shape[WORD_NGRAMS]), np.uint64),
            np.zeros(AHEAD * AHEAD_ITEMS, np.uint64),
            np.zeros(PAD, np.uint8),
            np.zeros(WAITING_ITEMS, np.int64),
            np.zeros(HASHED_ITEMS, np.uint32),
            np.zeros(n_labels + 2, np.int32),
            np.zeros(n_labels + 2, np.float32),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FastTextModel:
        """Map a .bin or .ftz file. FormatError when it is damaged or no supervised model."""
        from tamis.kernels.text.fasttext_file import read_fasttext

        return cls(os.fspath(path), read_fasttext(path))

    def __reduce__(self) -> tuple[Callable[[str], FastTextModel], tuple[str]]:
        """Pickle only the path: the file is mapped again, never sent."""
        return FastTextModel.load, (self.path,)

    def predict(
        self, texts: Sequence[str | None] | pa.Array | pa.ChunkedArray, k: int = 1, threshold: float = 0.0
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return the k best labels of each text that score at least `threshold`, best first, and their scores.

        k = -1 means all. A null, or a text of which the model knows nothing, has no labels.
        """
        ids, scores = self.predict_ids(texts, k, threshold)
        labels = [[self.labels[label] for label in row if label >= 0] for row in ids.tolist()]
        return labels, [row[: len(row_labels)] for row, row_labels in zip(scores.tolist(), labels, strict=True)]

    def predict_ids(
        self, texts: Sequence[str | None] | pa.Array | pa.ChunkedArray, k: int = 1, threshold: float = 0.0
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return predictions like `predict`, as arrays of shape (texts, k).

        The arrays hold indices into `labels` or -1, and scores or 0.
        """
        from tamis.kernels.buffers import chunk_buffers

        if k == 0 or k < -1:
            raise UsageError(f"FastTextModel.predict: expected k of 1 or more, or -1 for all labels, got {k}")
        k = len(self.labels) if k == -1 else min(k, len(self.labels))
        parts = [self.predict_spans(part, *part.spans(), k, threshold) for part in chunk_buffers(arrow_texts(texts))]
        if not parts:
            return np.empty((0, k), np.int32), np.empty((0, k), np.float32)
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts])

    def predict_spans(
        self,
        part: StringBuffers,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        k: int = 1,
        threshold: float = 0.0,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Compute `predict_ids` for the bytes starts[i]:ends[i] of each row instead of whole rows."""
        from tamis.kernels.text.fasttext_kernels import END_OF_LINE, predict

        file = self._file
        ids, scores = np.empty(starts.size * k, np.int32), np.empty(starts.size * k, np.float32)
        model = (file.data, file.vectors, file.shape, file.inputs, file.outputs, file.begins, file.lengths, file.hashes)
        tables = (file.slots, file.pruned, file.kept, file.tree)
        with self._lock:
            predict(part.data, starts, ends, END_OF_LINE, k, threshold, *model, *tables, *self._scratch, ids, scores)
        if np.isnan(scores).any():
            raise FormatError(f"{self.path}: the matrices of this fastText model hold numbers that are not finite")
        if part.validity is not None:
            ids.reshape(-1, k)[~part.validity], scores.reshape(-1, k)[~part.validity] = -1, 0.0
        return ids.reshape(-1, k), scores.reshape(-1, k)


def _aligned(n_items: int, dtype: type[np.generic]) -> NDArray[np.generic]:
    """Return zeros aligned with a line of the cache, so that a slot of 64 bytes is in one."""
    item = np.dtype(dtype).itemsize
    whole = np.zeros(n_items * item + 64, np.uint8)
    begin = -whole.ctypes.data % 64
    return whole[begin : begin + n_items * item].view(dtype)


def arrow_texts(texts: Iterable[str | None] | pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return an Arrow column of any kind unchanged; convert Python strings to a large_string array."""
    return texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.large_string())
