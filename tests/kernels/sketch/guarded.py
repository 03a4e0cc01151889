"""Run the kernels on documents that end where readable memory ends: a read beyond the end kills this process.

A script for test_band_keys.py, not a test: a segmentation fault must not take the test run down.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from tamis.kernels.buffers import StringBuffers
from tamis.kernels.sketch.band_keys import band_keys
from tamis.kernels.sketch.similarity import similarities

N_BYTES = 1 << 16
ALPHABETS = (b"ab ", "aé漢😀\u3000 ".encode(), bytes(range(256)))


def main() -> None:
    whole = mmap.mmap(-1, N_BYTES + mmap.PAGESIZE)
    memory = np.frombuffer(whole, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(memory.ctypes.data + N_BYTES), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    rng = np.random.default_rng(1)
    for turn in range(600):
        alphabet = np.frombuffer(ALPHABETS[turn % 3], np.uint8)
        data = memory[N_BYTES - int(rng.choice([1, 7, 63, 64, 65, 200, 5000])) : N_BYTES]
        data[:] = rng.choice(alphabet, data.size)  # cut anywhere, so not always UTF-8
        middle = int(rng.integers(0, data.size + 1))
        parts = StringBuffers(np.array([0, middle, data.size]), data, None)
        n = int(rng.integers(1, 30))
        for unit in ("char", "word"):
            band_keys(parts, n=n, unit=unit, bands=3, rows=2, seed=turn)
            similarities(parts, turn % 2, np.array([0, 1]), n=n, unit=unit, seed=turn)
    print("inside")


if __name__ == "__main__":
    main()
