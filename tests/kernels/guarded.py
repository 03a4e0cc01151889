"""Run kernels on buffers that end where readable memory ends: a read beyond the end kills this process.

A script for test_intrinsics.py, not a test: a segmentation fault must not take the test run down.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import json_fuzz

from tamis.kernels.hash128 import hash_spans
from tamis.kernels.json_scan import discover_keys, rescan, scan_records
from tamis.kernels.json_text import escape, unescape
from tamis.kernels.splice import assemble_plain

N_BYTES = 1 << 20


def guarded_memory() -> np.ndarray:
    """N_BYTES of memory followed by a page that cannot be read."""
    whole = mmap.mmap(-1, N_BYTES + mmap.PAGESIZE)
    memory = np.frombuffer(whole, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(memory.ctypes.data + N_BYTES), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[:N_BYTES]


def run(buf: np.ndarray) -> None:
    found = scan_records(buf, ["text", "id"], 1 << 20)
    rescan(buf, found, ["a", "meta"])
    discover_keys(buf, found)
    offsets, text, valid = unescape(buf, found.types[:, 0], found.val_start[:, 0], found.val_len[:, 0])
    escape(np.array([0, buf.size // 2, buf.size]), buf, None, 0, 2)
    escape(offsets, text, valid, 0, valid.size)
    hash_spans(buf, found.start, found.end - found.start)
    assemble_plain(buf, found.start, found.end, np.arange(found.n_records))


def main() -> None:
    memory = guarded_memory()
    for seed in range(1500):
        data = json_fuzz.mutated_lines(seed, random.Random(seed).randint(1, 4))
        data = data[: random.Random(-seed).randint(1, len(data))] if data else b"{"
        buf = memory[N_BYTES - len(data) :]
        buf[:] = np.frombuffer(data, np.uint8)
        run(buf)
    print("inside")


if __name__ == "__main__":
    main()
