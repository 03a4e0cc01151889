"""Ranges of keys as the documents of a pass: one small file and thus one partition for each.

Imports neither numpy nor Arrow.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from tamis import files
from tamis._dataclasses import dataclass

_LEAST_ROOM_BYTES = 48_000_000  # in a worker, while the keys of one range are sorted and compared
# Of a node's budget, for that; the rest is for opening the records, and for errors of the estimate.
_SHARE = 0.4
MIN_DOCUMENTS = 20_000_000  # below it one process decides in less time than a pass takes to start


@dataclass(frozen=True)
class KeyRange:
    """Keys of column `key_K` from `low` (included) to `high`. `order` is its position among all ranges of a pass."""

    order: int
    k: int
    low: int
    high: int

    @property
    def name(self) -> str:
        return f"{self.order:07d}"

    def to_text(self) -> str:
        return json.dumps(asdict(self) | {"low": hex(self.low), "high": hex(self.high)})

    @staticmethod
    def from_text(text: str) -> KeyRange:
        values = json.loads(text)
        return KeyRange(int(values["order"]), int(values["k"]), int(values["low"], 16), int(values["high"], 16))


def worker_room(budget_bytes: int, n_workers: int) -> int:
    """Return the bytes for the keys of one range, where `n_workers` share a node's budget.

    >>> worker_room(64_000_000_000, 16), worker_room(1_000_000_000, 16)
    (1600000000, 48000000)
    """
    return max(_LEAST_ROOM_BYTES, int(budget_bytes * _SHARE) // max(1, n_workers))


def ranges_of(
    n_documents: int, columns: list[int], bytes_per_key: int, room_bytes: int, least: int = 1
) -> list[KeyRange]:
    """Cut every column of keys into as many ranges as it takes for each to fit into a worker.

    Keys are hashes, so they are evenly distributed.

    >>> [(r.k, r.high - r.low == 1 << 63) for r in ranges_of(10, [0, 2], 100, 500)]
    [(0, True), (0, True), (2, True), (2, True)]
    """
    n = max(least, -(-n_documents * bytes_per_key // room_bytes))
    cuts = [i * (1 << 64) // n for i in range(n + 1)]
    return [KeyRange(j * n + i, k, cuts[i], cuts[i + 1]) for j, k in enumerate(columns) for i in range(n)]


def write_ranges(folder: str, ranges: list[KeyRange]) -> None:
    """Write the input of the pass; the same ranges give the same files."""
    os.makedirs(folder, exist_ok=True)
    for key_range in ranges:
        path = os.path.join(folder, f"{key_range.name}.jsonl")
        if not os.path.exists(path):
            document = {"id": key_range.name, "text": key_range.to_text()}
            files.write_text(path, json.dumps(document) + "\n", sync=False)


def n_missing(folder: str, results: str) -> int:
    """Count the ranges of the folder that have no result; 1 if there is no such folder."""
    if not os.path.isdir(folder) or not os.path.isdir(results):
        return 1
    done = {os.path.splitext(name)[0] for name in os.listdir(results) if name.endswith(".npy")}
    return len({os.path.splitext(name)[0] for name in os.listdir(folder) if name.endswith(".jsonl")} - done)
