"""fastText models written and evaluated the slow way: a writer of the file format, and prediction in plain Python."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HS, NS, SOFTMAX, OVA = 1, 2, 3, 4
LOSSES = {"hs": HS, "ns": NS, "softmax": SOFTMAX, "ova": OVA}


def fnv(data: bytes) -> int:
    h = 2166136261
    for byte in data:
        h = (h ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return h


@dataclass
class Quantised:
    """A product-quantised matrix of random centroids."""

    codes: NDArray[np.uint8]  # rows x parts
    centroids: list[NDArray[np.float32]]  # per part: 256 x width
    norm_codes: NDArray[np.uint8] | None
    norm_centroids: NDArray[np.float32]

    @classmethod
    def random(cls, rng: np.random.Generator, n_rows: int, dim: int, part: int, normed: bool) -> Quantised:
        widths = [min(part, dim - first) for first in range(0, dim, part)]
        return cls(
            rng.integers(0, 256, (n_rows, len(widths)), np.uint8),
            [rng.normal(size=(256, width)).astype(np.float32) for width in widths],
            rng.integers(0, 256, n_rows, np.uint8) if normed else None,
            rng.uniform(0.5, 2, 256).astype(np.float32),
        )

    def dense(self) -> NDArray[np.float32]:
        rows = np.hstack([table[self.codes[:, part]] for part, table in enumerate(self.centroids)])
        return rows if self.norm_codes is None else rows * self.norm_centroids[self.norm_codes][:, None]

    def to_bytes(self) -> bytes:
        n_rows, n_parts = self.codes.shape
        widths = [table.shape[1] for table in self.centroids]
        out = struct.pack("<?qqi", self.norm_codes is not None, n_rows, sum(widths), n_rows * n_parts)
        out += self.codes.tobytes() + struct.pack("<iiii", sum(widths), n_parts, widths[0], widths[-1])
        out += b"".join(table.tobytes() for table in self.centroids)
        if self.norm_codes is not None:
            out += self.norm_codes.tobytes() + struct.pack("<iiii", 1, 1, 1, 1) + self.norm_centroids.tobytes()
        return out


@dataclass
class Twin:
    """A supervised model. `words` and `labels` are (name, count); `pruned` maps kept buckets to rows."""

    words: list[tuple[str, int]]
    labels: list[tuple[str, int]]
    inputs: NDArray[np.float32] | Quantised
    outputs: NDArray[np.float32] | Quantised
    loss: int = HS
    bucket: int = 50
    minn: int = 2
    maxn: int = 4
    word_ngrams: int = 1
    pruned: dict[int, int] | None = None
    changed: dict[str, int] = field(default_factory=dict)  # header fields to write wrongly

    def to_bytes(self) -> bytes:
        value = {
            "magic": 793712314,
            "version": 12,
            "dim": _dense(self.inputs).shape[1],
            "word_ngrams": self.word_ngrams,
            "loss": self.loss,
            "model": 3,
            "bucket": self.bucket,
            "minn": self.minn,
            "maxn": self.maxn,
            "n_entries": len(self.words) + len(self.labels),
            "n_words": len(self.words),
            "n_labels": len(self.labels),
            "n_pruned": -1 if self.pruned is None else len(self.pruned),
        } | self.changed
        out = struct.pack("<2i", value["magic"], value["version"])
        out += struct.pack("<6i", value["dim"], 5, 5, 1, 5, value["word_ngrams"])
        out += struct.pack("<6id", *(value[n] for n in ("loss", "model", "bucket", "minn", "maxn")), 100, 1e-4)
        out += struct.pack("<3iqq", *(value[n] for n in ("n_entries", "n_words", "n_labels")), 99, value["n_pruned"])
        for kind, entries in enumerate((self.words, self.labels)):
            for name, count in entries:
                out += name.encode() + b"\0" + struct.pack("<qb", count, kind)
        for key, row in (self.pruned or {}).items():
            out += struct.pack("<ii", key, row)
        quantised = isinstance(self.inputs, Quantised)
        out += struct.pack("<?", quantised) + _matrix_bytes(self.inputs)
        return out + struct.pack("<?", isinstance(self.outputs, Quantised)) + _matrix_bytes(self.outputs)

    def save(self, path: Path) -> Path:
        path.write_bytes(self.to_bytes())
        return path

    def rows_of(self, text: str) -> list[int]:
        """Input rows of a text, newlines being spaces."""
        names = {name.encode(): number for number, (name, _) in enumerate(self.words + self.labels)}
        rows: list[int] = []
        hashes: list[int] = []
        for token in [*(t for t in re.split(rb"[ \n\r\t\v\f\0]", text.encode()) if t), b"</s>"]:
            number = names.get(token, -1)
            if number >= len(self.words) or (number < 0 and token.startswith(b"__label__")):
                continue
            hashes.append((fnv(token) ^ 0x80000000) - 0x80000000)
            if number >= 0:
                rows.append(number)
            if token == b"</s>":
                break
            if self.maxn > 0:
                rows += self._kept(fnv(part) % self.bucket for part in self._parts(b"<" + token + b">"))
        for i in range(len(hashes)):
            h = hashes[i] & (2**64 - 1)
            for j in range(i + 1, min(len(hashes), i + self.word_ngrams)):
                h = (h * 116049371 + hashes[j]) & (2**64 - 1)
                rows += self._kept([h % self.bucket])
        return rows

    def _parts(self, word: bytes) -> list[bytes]:
        chars = re.findall(rb"[^\x80-\xbf][\x80-\xbf]*", word)
        found = []
        for i in range(len(chars)):
            for n in range(max(1, self.minn), self.maxn + 1):
                alone = n == 1 and (i == 0 or i == len(chars) - 1)
                if i + n <= len(chars) and not alone:
                    found.append(b"".join(chars[i : i + n]))
        return found

    def _kept(self, buckets: Iterable[int]) -> list[int]:
        if self.pruned is None:
            return [len(self.words) + number for number in buckets]
        return [len(self.words) + self.pruned[number] for number in buckets if number in self.pruned]

    def predict(self, text: str, k: int = 1, threshold: float = 0.0) -> list[tuple[str, float]]:
        rows = self.rows_of(text)
        if not rows:
            return []
        hidden = _dense(self.inputs)[rows].astype(np.float64).mean(axis=0)
        logits = _dense(self.outputs).astype(np.float64) @ hidden
        scores = self._tree_scores(logits) if self.loss == HS else self._flat_scores(logits)
        scores = [(name, score) for name, score in scores if score >= (threshold + 1e-5)]
        return sorted(scores, key=lambda pair: -pair[1])[:k]

    def _flat_scores(self, logits: NDArray[np.float64]) -> list[tuple[str, float]]:
        if self.loss == SOFTMAX:
            values = np.exp(logits - logits.max())
            values /= values.sum()
        else:
            cells = np.floor((np.clip(logits, -8, 8) + 8) * 32)
            values = 1 / (1 + np.exp(-(cells / 32 - 8)))
            values = np.where(logits > 8, 1.0, np.where(logits < -8, 0.0, values))
        return [(name, float(value) + 1e-5) for (name, _), value in zip(self.labels, values, strict=True)]

    def _tree_scores(self, logits: NDArray[np.float64]) -> list[tuple[str, float]]:
        n = len(self.labels)
        counts = [count for _, count in self.labels]
        leaf = n - 1
        built: list[tuple[int, int]] = []
        children: dict[int, tuple[int, int]] = {}
        for node in range(n, 2 * n - 1):
            pair = []
            for _ in range(2):
                if leaf >= 0 and (not built or counts[leaf] < built[0][0]):
                    pair.append((counts[leaf], leaf))
                    leaf -= 1
                else:
                    pair.append(built.pop(0))
            children[node] = (pair[0][1], pair[1][1])
            built.append((pair[0][0] + pair[1][0], node))
        scores = [0.0] * n
        waiting = [(2 * n - 2, 0.0)]
        while waiting:
            node, log = waiting.pop()
            if node < n:
                scores[node] = math.exp(log)
                continue
            f = 1 / (1 + math.exp(-logits[node - n]))
            left, right = children[node]
            waiting += [(left, log + math.log(1 - f + 1e-5)), (right, log + math.log(f + 1e-5))]
        return [(name, score) for (name, _), score in zip(self.labels, scores, strict=True)]


def _dense(matrix: NDArray[np.float32] | Quantised) -> NDArray[np.float32]:
    return matrix.dense() if isinstance(matrix, Quantised) else matrix


def _matrix_bytes(matrix: NDArray[np.float32] | Quantised) -> bytes:
    if isinstance(matrix, Quantised):
        return matrix.to_bytes()
    return struct.pack("<qq", *matrix.shape) + matrix.astype(np.float32).tobytes()


WORDS = [("</s>", 90), ("the", 50), ("être", 20), ("naïve", 9), ("日本", 4)]
LABELS = [("__label__en", 30), ("__label__fr", 20), ("__label__ja", 7), ("__label__de", 7), ("__label__nl", 1)]


def random_twin(
    seed: int = 0,
    loss: int = HS,
    minn: int = 2,
    maxn: int = 4,
    word_ngrams: int = 1,
    quantised: bool = False,
    quantised_outputs: bool = False,
    normed: bool = True,
    pruned: int | None = None,
    dim: int = 5,
    bucket: int = 50,
) -> Twin:
    """Build a model of random numbers; `pruned` is the number of buckets that remain."""
    rng = np.random.default_rng(seed)
    hashed = maxn > 0 or word_ngrams > 1
    n_rows = len(WORDS) + ((bucket if hashed else 0) if pruned is None else pruned)
    kept = None
    if pruned is not None:
        kept = {int(key): row for row, key in enumerate(rng.permutation(bucket)[:pruned])}

    def matrix(n: int, packed: bool) -> NDArray[np.float32] | Quantised:
        return Quantised.random(rng, n, dim, 2, normed) if packed else rng.normal(size=(n, dim)).astype(np.float32)

    inputs, outputs = matrix(n_rows, quantised), matrix(len(LABELS), quantised_outputs)
    return Twin(WORDS, LABELS, inputs, outputs, loss, bucket, minn, maxn, word_ngrams, kept)
