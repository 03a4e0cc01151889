"""The documents of an index among those of a run: numbered before the new ones, entry after entry.

A pass over the entries reads them like input: its file K is entry K, and offset N there is document N of the entry.
People know them by their place in the input of the run that added them; the paths of these follow those of this run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.dedup.decisions import position_ids
from tamis.dedup.index.texts import count_texts, text_places
from tamis.dedup.state import IndexPin
from tamis.errors import FormatError
from tamis.files import read_json

Array = NDArray[Any]


class IndexedDocuments:
    """The documents of the entries that a run with `n_files` input files is compared with; often none."""

    def __init__(self, pins: Sequence[IndexPin], n_files: int) -> None:
        self._pins, self._n_files = pins, n_files

    @cached_property
    def _paths(self) -> list[list[str]]:
        return [read_json(os.path.join(pin.folder, "paths.json")) or [] for pin in self._pins]

    @cached_property
    def _starts(self) -> Array:
        """The number of the first document of each entry, and how many there are."""
        return np.concatenate([[0], np.cumsum([count_texts(pin.data) for pin in self._pins])]).astype(np.int64)

    @cached_property
    def _path_starts(self) -> Array:
        """The number of the first path of each entry."""
        return self._n_files + np.concatenate([[0], np.cumsum([len(paths) for paths in self._paths])]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def paths(self) -> list[str]:
        return [path for paths in self._paths for path in paths]

    def places(self) -> Iterator[tuple[Array, Array]]:
        """Yield the places that people know, as (numbers of paths, offsets)."""
        for k, pin in enumerate(self._pins):
            for file, offset in text_places(pin.data):
                if len(file) and not 0 <= int(file.min()) <= int(file.max()) < len(self._paths[k]):
                    raise FormatError(f"{pin.data}: a document names no input file; the index is damaged")
                yield self._path_starts[k] + file, offset

    def check_order(self, first: int, files: Array, offsets: Array) -> None:
        """Raise FormatError unless documents of a pass, from number `first` on, are those of the entries."""
        expected = self.pass_places(np.arange(first, first + len(files)))
        if first + len(files) > len(self) or any(map(np.any, (files != expected[0], offsets != expected[1]))):
            raise FormatError(
                f"{', '.join(pin.folder for pin in self._pins)}: some documents could not be read; the index is "
                "damaged: make it anew"
            )

    def pass_places(self, docs: Array) -> tuple[Array, Array]:
        """Return entry and row of documents by number: their places in a pass over the index."""
        entry = np.searchsorted(self._starts, docs, side="right") - 1
        return entry, docs - self._starts[entry]

    # -- tables for people ----------------------------------------------------------------------------------------
    def ids(self, files: Array, offsets: Array) -> Any:
        """Return ids by place; documents of the index have those of their own run."""
        entry = self._entries(files)
        return position_ids(files - np.where(entry < 0, 0, self._path_starts[entry]), offsets)

    def folders(self, files: Array) -> Any:
        """Return the folder of the entry of each file number; null for files of this run."""
        entry = self._entries(files)
        names = pa.array([pin.folder for pin in self._pins], pa.large_string())
        return names.take(pa.array(entry, mask=entry < 0)).dictionary_encode()

    def _entries(self, files: Array) -> Array:
        return np.asarray(np.searchsorted(self._path_starts, files, side="right") - 1)
