r"""The files that Megatron trains from: `.bin` has the tokens of all sequences, `.idx` the offset of each.

.idx: `MMIDIDX\\0\\0`, version 1 (8 bytes), code of the token type (1), number of sequences (8), number of document
marks (8); then lengths in tokens (4 bytes each), offsets in bytes (8 each), marks: the sequence with which each
document begins, and the end (8 each). All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from tamis._lazy import np
from tamis.errors import FormatError

_HEADER = b"MMIDIDX\x00\x00"
_FIXED = struct.Struct("<9sQBQQ")
CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}


def token_type(vocabulary_size: int | None) -> str:
    """Return the type of token ids: two bytes if all of them fit, else four.

    >>> token_type(50_257), token_type(65_536), token_type(65_537), token_type(None)
    ('uint16', 'uint16', 'int32', 'int32')
    """
    return "uint16" if vocabulary_size is not None and vocabulary_size <= 65_536 else "int32"


def write_index(file: BinaryIO, lengths: Sequence[int] | Any, dtype: str, documents: Any = None) -> None:
    """Write an index. `documents`: marks, by default one document per sequence."""
    code = next(code for code, name in CODES.items() if name == dtype)
    lengths = np.asarray(lengths, "<i4")
    documents = np.arange(len(lengths) + 1, dtype="<i8") if documents is None else np.asarray(documents, "<i8")
    offsets = np.zeros(len(lengths), "<i8")
    np.cumsum(lengths[:-1].astype("<i8") * np.dtype(dtype).itemsize, out=offsets[1:])
    file.write(_FIXED.pack(_HEADER, 1, code, len(lengths), len(documents)))
    for part in (lengths, offsets, documents):
        file.write(part.tobytes())


def read_index(path: str | os.PathLike[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], str]:
    """Return (lengths, document marks, token type); raise FormatError for a file that is no index, or truncated."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(_FIXED.size)
        if len(head) < _FIXED.size or not head.startswith(_HEADER):
            raise FormatError(f"{os.fspath(path)}: no index of Megatron (it begins with {head[:9]!r})")
        _, version, code, n_sequences, n_documents = _FIXED.unpack(head)
        if version != 1 or code not in CODES:
            raise FormatError(f"{os.fspath(path)}: version {version} with tokens of type {code}; known: 1, and {CODES}")
        expected_bytes = _FIXED.size + 12 * n_sequences + 8 * n_documents
        if expected_bytes != size:
            raise FormatError(
                f"{os.fspath(path)}: it has {size:,} bytes, its header implies {expected_bytes:,}; it is damaged"
            )
        lengths = np.fromfile(file, "<i4", n_sequences)
        file.seek(8 * n_sequences, os.SEEK_CUR)  # offsets follow from the lengths
        documents = np.fromfile(file, "<i8", n_documents)
    return lengths, documents, CODES[code]
