"""Score files: for each kept document its location, its size and the codes of its scores.

A line of JSON, then four blocks compressed by zstd: number of the input file (4 bytes a document), step from the offset
before (8), bytes of the record (8), and the codes (2 a rule), all of one rule together. So a document takes at most 20
bytes and two for every rule before compression, and a file some hundred more. (Arrow and Parquet files take 30 kB and
milliseconds for as many columns.) Other processes may write to a run directory: files are checked when they are read,
never trusted.

A score is stored as the code of a small interval that holds it: zero by itself, else its sign, its power of two (from
2**-24 up to 2**40) and the first nine bits of the fraction. So an interval is 0.2 % wide at most, a whole number up to
1,024 has one to itself, and codes are in the order of the scores. A limit that falls inside an interval leaves the
documents in it undecided, and only those.

code 0         exactly 0                                    codes 2-32763   2**-24 up to just below 2**40, 512 a power
code 1         above 0, below 2**-24                        code 32764      larger values
code -k        mirrors code k                               code 32767      no number (NaN); -32768: not measured
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tamis._dataclasses import dataclass
from tamis.errors import FormatError

BYTES_PER_DOCUMENT, BYTES_PER_RULE = 20, 2
_FORMAT = "tamis scores 1"
_KINDS: tuple[np.dtype[Any], ...] = (np.dtype("<i4"), np.dtype("<i8"), np.dtype("<i8"), np.dtype("<i2"))
_MAX_HEAD, _MAX_BYTES = 1 << 20, 1 << 31
Array = np.ndarray[Any, Any]
NO_NUMBER, MISSING = 32767, -32768
BEYOND = 32764
RELATIVE_WIDTH = 2.0**-9
_MANTISSA = 9
_SMALLEST = -24
_SHIFT = np.uint64(52 - _MANTISSA)
_SIGNLESS = np.uint64((1 << 63) - 1)
_BASE = np.int64(((1023 + _SMALLEST) << _MANTISSA) - 2)


class ScoreKey(NamedTuple):
    """Scores of one rule: the stage, its name for the score, and whether all of this file are whole numbers."""

    stage: str
    score: str
    is_whole: bool = False


@dataclass
class ScoreTable:
    """`is_last`: its documents were written; else they left a segment, and a later one may have dropped them."""

    file: Array  # number of the input file, -1 for documents that a stage made
    offset: Array
    n_bytes: Array  # of the input record
    codes: dict[ScoreKey, Array] = field(default_factory=dict)
    is_last: bool = True

    def __len__(self) -> int:
        return len(self.file)


def encode_scores(table: ScoreTable) -> bytes:
    """Encode the table as the contents of a whole score file."""
    keys = list(table.codes)
    steps = np.diff(table.offset, prepend=0)  # neighbours are close: small numbers compress well
    codes = np.concatenate([table.codes[k] for k in keys]) if keys else np.empty(0, np.int16)
    codec = pa.Codec("zstd", 1)
    columns = zip((table.file, steps, table.n_bytes, codes), _KINDS, strict=True)
    blocks = [codec.compress(np.ascontiguousarray(c, kind).data, asbytes=True) for c, kind in columns]
    about = {
        "format": _FORMAT,
        "n": len(table),
        "last": table.is_last,
        "blocks": [len(b) for b in blocks],
        "scores": [[k.stage, k.score, k.is_whole] for k in keys],
    }
    return b"".join([json.dumps(about).encode(), b"\n", *blocks])


def read_scores(path: str, selection: Collection[tuple[str, str]] | None = None) -> ScoreTable:
    """Read the scores named (stage, score), or all; raise FormatError if the file is not a score file."""
    try:
        with open(path, "rb") as file:
            about = json.loads(file.readline(_MAX_HEAD))
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']!r:.40}")
            keys = [ScoreKey(str(s), str(n), bool(w)) for s, n, w in about["scores"]]
            n, sizes = int(about["n"]), [int(s) for s in about["blocks"]]
            counts = (n, n, n, n * len(keys))
            if n < 0 or min(sizes) < 0 or sum(sizes) > _MAX_BYTES or 8 * sum(counts) > _MAX_BYTES:
                raise ValueError(f"{n} documents, blocks of {sizes!r:.80} bytes")
            parts = [_block(file.read(s), c, k) for s, c, k in zip(sizes, counts, _KINDS, strict=True)]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as exc:
        raise FormatError(f"{path} is no score file, or a damaged one ({type(exc).__name__}: {exc})") from None
    codes = parts[3].reshape(len(keys), n)
    chosen = {k: codes[i] for i, k in enumerate(keys) if selection is None or (k.stage, k.score) in selection}
    return ScoreTable(parts[0], np.cumsum(parts[1]), parts[2], chosen, bool(about["last"]))


def _block(data: bytes, n: int, kind: np.dtype[Any]) -> Array:
    size = n * kind.itemsize
    plain = pa.decompress(data, decompressed_size=size, codec="zstd", asbytes=True) if n else b""
    if len(plain) != size:
        raise ValueError(f"a block holds {len(plain)} bytes, expected {size}")
    return np.frombuffer(plain, kind)


# -- codes -------------------------------------------------------------------------------------------------------------
def codes_of(numbers: Array) -> Array:
    """Return the code of each number (64-bit floats), as 16-bit integers."""
    bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64) & _SIGNLESS
    codes = (bits >> _SHIFT).view(np.int64)
    codes -= _BASE
    np.clip(codes, 1, BEYOND, out=codes)
    codes -= bits == 0
    narrow = codes.astype(np.int16)
    if len(numbers) and not numbers.min() >= 0.0:
        np.negative(narrow, out=narrow, where=numbers < 0.0)
        narrow[np.isnan(numbers)] = NO_NUMBER
    return narrow


def ends_of(codes: Array) -> tuple[Array, Array]:
    """Return the least and the greatest score that each code may represent, both inclusive; NaN if there is none."""
    size = np.abs(codes.astype(np.int64))
    low, high = _edge(size), np.nextafter(_edge(size + 1), -np.inf)
    low[size == 1] = np.nextafter(0.0, 1.0)
    low[size == 0] = high[size == 0] = 0.0
    high[size == BEYOND] = np.inf
    low[size > BEYOND] = high[size > BEYOND] = np.nan
    return np.where(codes < 0, -high, low), np.where(codes < 0, -low, high)


def _edge(index: Array) -> Array:
    """Return the lower end of each code from 2 on."""
    position = np.clip(index, 2, BEYOND) - 2
    power, part = position >> _MANTISSA, position & ((1 << _MANTISSA) - 1)
    edges: Array = np.ldexp(1.0 + part * RELATIVE_WIDTH, power + _SMALLEST)
    return edges
