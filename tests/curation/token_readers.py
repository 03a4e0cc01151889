"""Readers of token files, as trainers have them: written from the formats' documentation, without Tamis."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}


class MegatronDataset:
    """An IndexedDataset of Megatron-LM: x.idx says where the sequences of x.bin are, and which begin documents."""

    def __init__(self, prefix: Path) -> None:
        with open(f"{prefix}.idx", "rb") as file:
            index = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert index[:9] == b"MMIDIDX\x00\x00"
        assert struct.unpack_from("<Q", index, 9) == (1,)
        (code,) = struct.unpack_from("<B", index, 17)
        n_sequences, n_marks = struct.unpack_from("<QQ", index, 18)
        self.dtype = np.dtype(_TYPES[code])
        self.lengths = np.frombuffer(index, np.int32, n_sequences, 34)
        self.pointers = np.frombuffer(index, np.int64, n_sequences, 34 + 4 * n_sequences)
        self.documents = np.frombuffer(index, np.int64, n_marks, 34 + 12 * n_sequences)
        assert len(index) == 34 + 12 * n_sequences + 8 * n_marks
        self.tokens = np.memmap(f"{prefix}.bin", np.uint8, "r")

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Any:
        return np.frombuffer(self.tokens, self.dtype, int(self.lengths[i]), int(self.pointers[i]))


class MemmapLoader:
    """Batches of token windows from flat arrays: the inputs and, shifted by one, the targets."""

    def __init__(self, folder: Path, window: int, dtype: Any = np.uint16) -> None:
        self.window = window
        self.arrays = [
            np.load(path, mmap_mode="r").reshape(-1) if path.suffix == ".npy" else np.memmap(path, dtype, "r")
            for path in sorted([*folder.glob("*.npy"), *folder.glob("*.bin")])
        ]
        self.windows = [(a, i) for a in self.arrays for i in range(0, len(a) - window, window)]

    def batches(self, size: int, seed: int) -> Any:
        order = np.random.default_rng(seed).permutation(len(self.windows))
        for k in range(0, len(order) - size + 1, size):
            some = [self.windows[i] for i in order[k : k + size]]
            yield (
                np.stack([a[i : i + self.window] for a, i in some]).astype(np.int64),
                np.stack([a[i + 1 : i + 1 + self.window] for a, i in some]).astype(np.int64),
            )
