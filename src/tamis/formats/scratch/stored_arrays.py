"""Arrays in files, read by range: never mapped, because mapped pages count as memory, and a mapping as its full size.

Files may be in a bucket, as scratch is with `--scratch s3://...` (stores/scratch_files.py). `StoredArray` is a range of
a file that holds numbers (or rows of a structured type); `open_npy` finds it in an .npy file, and
formats/arrow/column_places.py in an Arrow file. `NpyWriter` writes an .npy file in pieces, its length at the end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, SupportsIndex

from tamis._lazy import np
from tamis.errors import FormatError
from tamis.files import Closing
from tamis.stores.opening import open_buffered, open_input, read_at
from tamis.stores.scratch_files import BucketFile, open_to_write
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

_HEADER_BYTES = 128
# As numpy and NpyWriter write it. Read as Python's literal, which numpy does, it takes longer than reading the rest of
# the file.
_PLAIN_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '(\|b1|\|[iu]1|<[iuf][248])', 'fortran_order': False, "
    rb"'shape': \(([0-9]+),\), \} *\n",
    re.DOTALL,
)
_BLOCK_BYTES = 1 << 14  # read at once where single values are looked at
_MAX_BLOCKS = 32  # cached: those in the middle of a search are read again and again


def read_into(path: str, offset: int, out: Array) -> None:
    """Fill an array with the bytes from place `at` of a file."""
    if not out.nbytes:
        return
    view: memoryview = memoryview(out.view(np.uint8))  # type: ignore[arg-type]
    done = 0
    with open_input(path) as file:
        while done < len(view):
            n_read = read_at(file, view[done:], offset + done)
            if n_read <= 0:
                raise FormatError(f"{path}: ends early; start over with fresh (--fresh)")
            done += n_read


class StoredArray:
    """`n` values of a type (`kind`), from place `at` of a file. Single values by index, ranges with `read`."""

    def __init__(self, path: str, offset: int, kind: np.dtype[Any], n: int) -> None:
        self.path, self.offset, self.kind, self._n = path, offset, kind, n
        self._per_block = max(1, _BLOCK_BYTES // kind.itemsize)
        self._blocks: dict[int, Array] = {}

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: SupportsIndex) -> Any:
        i = int(i)
        if not 0 <= i < self._n:
            raise IndexError(f"{self.path}: value {i} of {self._n}")
        block, row = divmod(i, self._per_block)
        if block not in self._blocks:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
            self._blocks[block] = self.read(block * self._per_block, (block + 1) * self._per_block)
        return self._blocks[block][row]

    def read(self, first: int, end: int) -> Array:
        """Return values first to end as a new array; fewer at the end of the file."""
        first = min(first, self._n)
        out = np.empty(max(0, min(end, self._n) - first), self.kind)
        read_into(self.path, self.offset + first * self.kind.itemsize, out)
        return out

    def search(
        self,
        value: Any,
        first: int = 0,
        end: int | None = None,
        right: bool = False,
        key: Callable[[Any], Any] | None = None,
    ) -> int:
        """Return the index at which a value belongs in [first, end), which must be in ascending order.

        The index is before entries that equal the value or, if `right`, after them.
        """
        find = bisect_right if right else bisect_left
        return find(self, value, first, self._n if end is None else end, key=key)


def open_npy(path: str) -> StoredArray:
    """Return the array of a one-dimensional .npy file.

    For a file in a bucket, what was read before is cached, because every access there is a request.
    """
    if not is_bucket(path):
        return _found_npy(path)
    if path not in _in_buckets:
        if len(_in_buckets) >= _MAX_BLOCKS:
            _in_buckets.clear()
        _in_buckets[path] = _found_npy(path)
    return _in_buckets[path]


_in_buckets: dict[str, StoredArray] = {}


def _found_npy(path: str) -> StoredArray:
    from numpy.lib import format as npy_format

    try:
        with open_buffered(path) as file:
            plain = _PLAIN_HEAD.match(file.read(_HEADER_BYTES))
            if plain is not None and 10 + int.from_bytes(plain[1], "little") == plain.end():
                return StoredArray(path, plain.end(), np.dtype(plain[2].decode()), int(plain[3]))
        with open_buffered(path) as file:
            npy_format.read_magic(file)
            shape, _, kind = npy_format.read_array_header_1_0(file)
            offset = file.tell()
    except ValueError as exc:
        raise FormatError(f"{path}: not a column of a table ({exc}); start over with fresh (--fresh)") from None
    if len(shape) != 1 or kind.hasobject:
        raise FormatError(f"{path}: not a column of a table; start over with fresh (--fresh)")
    return StoredArray(path, offset, kind, shape[0])


class NpyWriter(Closing):
    """Writes an .npy file in pieces. `kind`: as numpy names it in such files ("<i8")."""

    def __init__(self, path: str, kind: str) -> None:
        self._file = open_to_write(path)
        self._file.write(bytes(_HEADER_BYTES))
        self._kind, self.n = kind, 0

    def append(self, values: Array) -> None:
        if len(values):
            view: memoryview = memoryview(np.ascontiguousarray(values, self._kind))  # type: ignore[arg-type]
            self._file.write(view.cast("B"))
        self.n += len(values)

    def close(self) -> None:
        about = f"{{'descr': '{self._kind}', 'fortran_order': False, 'shape': ({self.n},), }}".encode()
        head = b"\x93NUMPY\x01\x00" + (_HEADER_BYTES - 10).to_bytes(2, "little")
        head = (head + about).ljust(_HEADER_BYTES - 1) + b"\n"
        if isinstance(self._file, BucketFile):
            self._file.patch(head)
        else:
            self._file.seek(0)
            self._file.write(head)
        self._file.close()
