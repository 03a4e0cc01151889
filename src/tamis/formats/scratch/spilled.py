"""Bytes that are appended to numbered buckets in any order and read back bucket by bucket, too many for memory.

A bucket is a local file. If scratch is in an object store (stores/scratch_files.py), at most a window of them stays on
this disk: then all buckets go together into one object, and a small local index maps its ranges to buckets. So there
are few objects however many buckets there are, and what a killed process left half done is not in the index.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis import files
from tamis.errors import FormatError
from tamis.formats.scratch.stored_arrays import read_into
from tamis.stores.scratch_files import BucketFile, resolve
from tamis.stores.urls import is_bucket

WINDOW_BYTES = 64 << 20
_INDEX = "index.json"
_COPY_BYTES = 1 << 20
Piece = tuple[str, int, int]  # name of the object, first byte of the range in it, number of bytes


class Spilled:
    """Buckets below `folder`, which is local and exclusive. `fresh`: begin empty; otherwise resume from the index."""

    def __init__(self, folder: str, fresh: bool = True, window_bytes: int = WINDOW_BYTES) -> None:
        self._folder, self._window_bytes = folder, window_bytes
        far = resolve(folder)
        self._far = far if is_bucket(far) else ""
        self._sent_pieces: dict[int, list[Piece]] = {}
        self._generation = 0
        self._n_local_bytes = 0
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, exist_ok=True)
        if not fresh:
            self._load_index()

    def _load_index(self) -> None:
        about: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self._folder, _INDEX), encoding="utf-8") as file:
            about = json.load(file)
        self._generation = int(about.get("generation", 0))
        self._sent_pieces = {
            int(k): [(str(n), int(a), int(s)) for n, a, s in p] for k, p in about.get("sent", {}).items()
        }
        for name in os.listdir(self._folder):
            if self._is_mine(name):
                self._n_local_bytes += os.path.getsize(os.path.join(self._folder, name))
            elif name.endswith(".bin"):
                os.unlink(os.path.join(self._folder, name))  # sent, and not removed any more

    def add(self, bucket: int, values: NDArray[Any]) -> None:
        """Append values to a bucket."""
        view: memoryview = memoryview(np.ascontiguousarray(values).view(np.uint8))  # type: ignore[arg-type]
        with open(self._path(bucket), "ab") as file:
            file.write(view)
        self._n_local_bytes += values.nbytes
        if self._far and self._n_local_bytes > self._window_bytes:
            self._send()

    def n_bytes(self, bucket: int) -> int:
        return sum(size for _, _, size in self._sent_pieces.get(bucket, ())) + self._n_local(bucket)

    def read(self, bucket: int, kind: Any, first: int = 0, max_values: int | None = None) -> NDArray[Any]:
        """Return values `first` to `first + max_values` of a bucket, fewer if it ends before."""
        kind = np.dtype(kind)
        n = max(0, self.n_bytes(bucket) // kind.itemsize - first)
        out = np.empty(n if max_values is None else min(n, max_values), kind)
        raw, offset, done = out.view(np.uint8), first * kind.itemsize, 0
        local = (self._path(bucket), 0, self._n_local(bucket))
        for path, start, size in [
            *((f"{self._far}/{n}", a, s) for n, a, s in self._sent_pieces.get(bucket, ())),
            local,
        ]:
            if offset < size and done < len(raw):
                take = min(size - offset, len(raw) - done)
                read_into(path, start + offset, raw[done : done + take])
                done, offset = done + take, 0
            else:
                offset = max(0, offset - size)
        if done < len(raw):
            raise FormatError(f"{self._folder}: ends early; start over with fresh (--fresh)")
        return out

    def as_file(self, bucket: int) -> str:
        """Return a local file with all of a bucket, for random access.

        A bucket in a store is downloaded, replacing the one downloaded before.
        """
        if not self._sent_pieces.get(bucket):
            with open(self._path(bucket), "ab"):
                return self._path(bucket)
        path, n = os.path.join(self._folder, "brought"), self.n_bytes(bucket)
        with open(path, "wb") as file:
            for first in range(0, n, _COPY_BYTES):
                file.write(self.read(bucket, np.uint8, first, _COPY_BYTES).data)
        return path

    def truncate(self, bucket: int, n_bytes: int) -> None:
        """Drop everything after the first bytes of a bucket."""
        pieces: list[Piece] = []
        for name, start, size in self._sent_pieces.get(bucket, ()):
            if n_bytes:
                pieces.append((name, start, min(size, n_bytes)))
                n_bytes -= min(size, n_bytes)
        self._sent_pieces[bucket] = pieces
        if os.path.exists(self._path(bucket)):
            self._n_local_bytes -= max(0, self._n_local(bucket) - n_bytes)
            os.truncate(self._path(bucket), min(n_bytes, self._n_local(bucket)))
        if self._far:
            self._write_index()

    def remove(self) -> None:
        """Delete everything on this disk; what is in the object store is deleted with the scratch of the run."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self) -> None:
        name = f"{self._generation:06d}-{os.urandom(4).hex()}"
        mine = [int(n.partition(".")[0]) for n in os.listdir(self._folder) if self._is_mine(n)]
        sent = {bucket: list(pieces) for bucket, pieces in self._sent_pieces.items()}
        with BucketFile(f"{self._far}/{name}") as out:
            for bucket in sorted(mine):
                sent.setdefault(bucket, []).append((name, out.tell(), self._n_local(bucket)))
                with open(self._path(bucket), "rb", buffering=0) as file:
                    while data := file.read(_COPY_BYTES):
                        out.write(data)
        old = [self._path(bucket) for bucket in mine]
        self._sent_pieces, self._generation, self._n_local_bytes = sent, self._generation + 1, 0
        self._write_index()
        for path in old:
            os.unlink(path)

    def _write_index(self) -> None:
        about = {"generation": self._generation, "sent": {str(k): v for k, v in self._sent_pieces.items()}}
        files.write_json(os.path.join(self._folder, _INDEX), about)

    def _path(self, bucket: int) -> str:
        return os.path.join(self._folder, f"{bucket:05d}.{self._generation}.bin")

    def _is_mine(self, name: str) -> bool:
        return name.endswith(f".{self._generation}.bin")

    def _n_local(self, bucket: int) -> int:
        try:
            return os.path.getsize(self._path(bucket))
        except FileNotFoundError:
            return 0
