"""The decoded size of input files: measured on the beginnings of some compressed ones, from the table for others."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.forecast import shipped_table
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.ratios import measure_ratio

_FILES_OF_CODEC = 3


def measured_bytes(paths: Sequence[str], sizes: Sequence[int]) -> int:
    """Estimate the decoded bytes of files; of each codec, a few files spread over the whole list are looked into."""
    codecs = [codec_of(path) for path in paths]
    total = 0
    for codec in set(codecs):
        some = [i for i, other in enumerate(codecs) if other == codec]
        stored = [sizes[i] for i in some]
        ratio = None if codec is None else _mean_ratio([paths[i] for i in some], stored)
        if ratio is None:
            total += shipped_table.decoded_bytes([paths[i] for i in some], stored)
        else:
            total += int(sum(max(size, 0) for size in stored) * ratio)
    return total


def _mean_ratio(paths: Sequence[str], sizes: Sequence[int]) -> float | None:
    step = max(1, len(paths) // _FILES_OF_CODEC)
    looked_at = list(zip(paths, sizes, strict=True))[::step][:_FILES_OF_CODEC]
    ratios = [ratio for path, size in looked_at if (ratio := measure_ratio(path, size)) is not None]
    return sum(ratios) / len(ratios) if ratios else None
