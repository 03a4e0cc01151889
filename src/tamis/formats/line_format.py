"""What a format of lines is: files of records with a line feed behind each, which can be entered anywhere and cut anywhere (JSONL).

A format is a module with the names of `LineFormat`; registry.py lists them. Finding lines, decompressing and feeding are the same for
all of them (formats/ranges.py, formats/compression.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tamis.tasks import DocumentBatch, Origin

if TYPE_CHECKING:
    from tamis.formats.stretches import Stretches

Array = np.ndarray[Any, Any]


class LineBlock(Origin, Protocol):
    """The valid records of some bytes. `bad`: the others, as (start, end, reason) in these bytes."""

    start: Array
    end: Array
    n_blank: int
    bad: list[tuple[int, int, str]]
    is_open: bool
    """Whether the bytes lie in the input as they are, not compressed."""


@dataclass
class Written:
    """Lines as pieces to be written one after the other; of every line its hash and its bytes without the line feed."""

    pieces: Iterable[Array | memoryview]
    hashes: tuple[Array, Array]
    lengths: Array


class LineFormat(Protocol):
    """The module of a format."""

    def parse(self, buf: Array, keys: Sequence[str] = (), max_record_bytes: int = 1 << 62) -> LineBlock:
        """The records of some bytes; `keys`: fields that will be asked for."""
        ...

    def checked(self, buf: Array, max_record_bytes: int = 1 << 62) -> LineBlock:
        """The same of bytes in which an earlier pass found valid records only: what lies inside is found when it is asked for."""
        ...

    def known(self, lying: Stretches, start: Array, end: Array, identity: tuple[Array, Array]) -> LineBlock:
        """Records whose places and hashes an earlier pass told, each followed by a line feed. Read when somebody looks inside."""
        ...

    def written_lines(self, batch: DocumentBatch) -> Written:
        """The documents of a batch as lines; what nobody touched byte for byte."""
        ...
