"""Ranges of keys as the documents of a pass: one small file for each, so that each is a partition of its own. Imports neither numpy nor Arrow."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from tamis import files

_LEAST_ROOM_BYTES = 48_000_000  # in a worker, while the keys of one range are sorted and compared
# Of a node's budget, for that; what it takes to open the records, and the estimate's own error, are the rest.
_SHARE = 0.4
SPREAD_DOCUMENTS = 20_000_000  # below it one process decides in less time than a pass takes to start


@dataclass(frozen=True)
class KeyRange:
    """Keys of column `key_K` from `low` (included) to `high`. `order` is its place among all ranges of a pass."""

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
        told = json.loads(text)
        return KeyRange(int(told["order"]), int(told["k"]), int(told["low"], 16), int(told["high"], 16))


def worker_room(budget_bytes: int, n_workers: int) -> int:
    """Bytes for the keys of one range, where so many workers share a node's budget.

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
    for one in ranges:
        path = os.path.join(folder, f"{one.name}.jsonl")
        if not os.path.exists(path):
            files.write_text(path, json.dumps({"id": one.name, "text": one.to_text()}) + "\n", sync=False)


def not_found(folder: str, found: str) -> int:
    """Count the ranges of the folder that have no result in `found`; 1 if there is no such folder."""
    if not os.path.isdir(folder) or not os.path.isdir(found):
        return 1
    there = {os.path.splitext(name)[0] for name in os.listdir(found) if name.endswith(".npy")}
    return len({os.path.splitext(name)[0] for name in os.listdir(folder) if name.endswith(".jsonl")} - there)
