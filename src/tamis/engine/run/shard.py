"""A machine's part of a run: `3/16` is the fourth of sixteen stretches of the input, by its bytes. Pure.

The input files, in their order, are one long line of bytes; shard i of n is the part from i/n to (i+1)/n of it. Plain
files are cut exactly there (a record belongs to the stretch that holds its first byte, as with partitions); a file that
cannot be cut belongs to the shard that contains its middle. This depends on the files alone: not on workers, budgets or
machines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from tamis._dataclasses import dataclass
from tamis.engine.units import PieceKind
from tamis.errors import UsageError
from tamis.stores.urls import is_bucket

_TYPED = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")
OF_PASS = re.compile(r"shard-keys-[0-9]+")


@dataclass(frozen=True)
class Shard:
    index: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard as the user writes it.

        >>> Shard.parse("3/16")
        Shard(index=3, n=16)
        """
        match = _TYPED.fullmatch(str(text))
        if match is None or not 0 <= int(match[1]) < int(match[2]):
            n = match[2] if match is not None and int(match[2]) else "N"
            last = f" ({', '.join(f'{i}/{n}' for i in (0, 1))} up to {int(n) - 1}/{n})" if n != "N" else ""
            raise UsageError(f"shard: expected INDEX/N with INDEX from 0 to N-1{last}, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.n}"

    @property
    def name(self) -> str:
        return f"shard-{self.index:05d}-of-{self.n:05d}"

    def output_in(self, output: str) -> str:
        """Return the output of this shard: a folder in the output of all shards."""
        return f"{output.rstrip('/')}/{self.name}" if is_bucket(output) else os.path.join(output, self.name)

    def elsewhere(self, sizes: Sequence[int], kinds: Sequence[PieceKind]) -> list[tuple[int, int, int, bool]]:
        """Return the parts of the input that other shards process.

        Each is (file, start, end, whether that is the whole rest of the file), the form in which commits report
        coverage.

        >>> Shard(0, 2).elsewhere([10, 30], [PieceKind.BYTES, PieceKind.BYTES])
        [(1, 10, 30, False)]
        """
        total = sum(max(0, s) for s in sizes)
        low, high = total * self.index // self.n, total * (self.index + 1) // self.n
        ranges: list[tuple[int, int, int, bool]] = []
        at = 0
        for file, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
            size = max(0, size)
            if kind is PieceKind.BYTES and size:
                first, last = min(max(low - at, 0), size), min(max(high - at, 0), size)
                stretches = [(0, first), (last, size)] if first < last else [(0, size)]
                ranges += [(file, a, b, False) for a, b in stretches if a < b]
            elif not low <= min(at + size // 2, max(0, total - 1)) < high:
                ranges.append((file, 0, 0, True))
            at += size
        return ranges
