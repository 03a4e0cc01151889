"""Records that one pass read from a file of records (WARC), kept for later passes without a field that was replaced.

A pass in which a stage makes something else of a large field (pages: texts), and stores that by itself, keeps the
remaining fields here, one Arrow file for each range of positions that a worker read. Later passes read these ranges
instead of the file, and of the file only what is between them (where results were not stored). Records that are no
documents are listed with them, and hashes and sizes are those of the whole records, so that later passes account for
the same input.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tamis import files
from tamis._dataclasses import dataclass
from tamis.errors import TamisError
from tamis.formats.record_frames import FrameKind, RecordFrame
from tamis.formats.table_block import Array, TableBlock, Words

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)-(\d+)-[0-9a-f]+\.records")
_END = "end"
_ADVICE = "start over with fresh (--fresh)"
_OTHERS = b"others"
_OWN = ("position", "offset", "hi", "lo", "bytes")
_PREFIX = "_tamis_"


@dataclass
class KeptRange:
    """The records of a file at positions from `start` up to `end`.

    `table`: of those that are documents. `offsets`: where they are stored; `n_bytes`: their sizes when they were read.
    `bad`: those for quarantine; `skipped`: positions of the others, by reason.
    """

    start: int
    end: int
    table: pa.Table
    positions: Array
    offsets: Array
    n_bytes: Array
    bad: list[tuple[int, RecordFrame]] = field(default_factory=list)
    skipped: dict[str, list[int]] = field(default_factory=dict)
    identity: tuple[Words, Words] | None = None

    @property
    def stored_end(self) -> int:
        """Approximate end of this range in the file as stored."""
        at = [frame.offset for _, frame in self.bad]
        return max([int(self.offsets.max()) if len(self.offsets) else 0, *at])

    def cut(self, start: int, end: int) -> KeptRange:
        """Return the part at positions from `start` up to `end`."""
        if start <= self.start and self.end <= end:
            return self
        low, high = (int(np.searchsorted(self.positions, at)) for at in (start, end))
        rows = slice(low, high)
        assert self.identity is not None
        return KeptRange(
            max(start, self.start),
            min(end, self.end),
            self.table.slice(low, high - low),
            self.positions[rows],
            self.offsets[rows],
            self.n_bytes[rows],
            [(at, frame) for at, frame in self.bad if start <= at < end],
            {reason: [at for at in found if start <= at < end] for reason, found in self.skipped.items()},
            (self.identity[0][rows], self.identity[1][rows]),
        )


class KeptSpan(NamedTuple):
    """A part of a file that is kept: `load` the range at `path` and cut it. `n_bytes`: in memory, with its texts.

    Without a path, it is not kept, and has to be read from the file.
    """

    start: int
    end: int
    path: str
    n_bytes: int
    stored_end: int

    def load(self) -> KeptRange:
        return _load(self.path).cut(self.start, self.end)


class KeptRecords:
    """The records of one file, as it was planned (`state`: its size and version), in a folder below `folder`."""

    def __init__(self, folder: str, path: str, state: tuple[int, int] | None, max_record_bytes: int) -> None:
        about = f"{path}\0{state}\0{max_record_bytes}".encode("utf-8", "surrogateescape")
        self._folder = os.path.join(folder, hashlib.blake2b(about, digest_size=16).hexdigest())
        self._is_known = state is not None  # what may be another file by now is not kept

    def store(self, kept: KeptRange, result_bytes: int) -> None:
        """Store a range. `result_bytes`: of what took the place of the field that it lacks."""
        if not self._is_known:
            return
        files.own_folder(self._folder, _ADVICE)
        assert kept.identity is not None
        own = (kept.positions, kept.offsets, *kept.identity, kept.n_bytes)
        bad = [[at, frame.kind, frame.offset, frame.length, frame.reason] for at, frame in kept.bad]
        others = json.dumps({"bad": bad, "skipped": kept.skipped}, ensure_ascii=False).encode("utf-8", "surrogatepass")
        table = kept.table
        for name, values in zip(_OWN, own, strict=True):
            table = table.append_column(_PREFIX + name, pa.array(values))
        table = table.replace_schema_metadata({_OTHERS: others})
        part = files.unguessable(self._folder, ".new-")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with files.create(part) as out, pa.ipc.new_file(out, table.schema, options=options) as writer:
            writer.write_table(table)
        mark = os.path.basename(part).rpartition("-")[2]
        n_bytes = table.nbytes + result_bytes
        name = f"{kept.start:020d}-{kept.end:020d}-{n_bytes}-{kept.stored_end}-{mark}.records"
        files.finish(part, os.path.join(self._folder, name))

    def end_at(self, position: int) -> None:
        """Note where the file ends."""
        if self._is_known:
            files.own_folder(self._folder, _ADVICE)
            files.write_text(os.path.join(self._folder, _END), str(position), files.OWN, sync=False)

    def spans(self) -> Sequence[KeptSpan]:
        """Return all of the file in parts, of which some may not be kept; none at all if its end is not known."""
        with contextlib.suppress(OSError):
            return _spans(self._folder, os.stat(self._folder).st_mtime_ns)
        return ()


@functools.lru_cache(maxsize=8)
def _spans(folder: str, changed_ns: int) -> Sequence[KeptSpan]:
    with open(os.path.join(folder, _END)) as file:
        text = file.read(20)
    end = int(text) if text.isdecimal() else 0
    found = sorted(
        KeptSpan(int(m[1]), int(m[2]), os.path.join(folder, name), int(m[3]), int(m[4]))
        for name in os.listdir(folder)
        if (m := _NAME.fullmatch(name))
    )
    spans: list[KeptSpan] = []
    position = 0
    while position < end:
        # Units that were cut, and runs with other sizes of partitions, leave ranges that overlap.
        found = [span for span in found if span.end > position]
        best = max((span for span in found if span.start <= position), key=lambda span: span.end, default=None)
        if best is None:
            best = KeptSpan(position, min((span.start for span in found), default=end), "", 0, 0)
        spans.append(best._replace(start=position))
        position = best.end
    return tuple(spans) if any(span.path for span in spans) else ()


def _load(path: str) -> KeptRange:
    try:
        with pa.OSFile(path) as source:
            table = pa.ipc.open_file(source).read_all().combine_chunks()
        others = json.loads(table.schema.metadata[_OTHERS])
    except (OSError, ValueError, KeyError, pa.ArrowException) as exc:
        raise TamisError(f"records kept by an earlier pass cannot be read: {path}: {exc}; {_ADVICE}") from exc
    start, end = (int(part) for part in os.path.basename(path).split("-")[:2])
    positions, offsets, hi, lo, n_bytes = (table.column(_PREFIX + name).to_numpy() for name in _OWN)
    bad = [
        (at, RecordFrame(FrameKind(kind), offset, length, reason.encode("utf-8", "replace")))
        for at, kind, offset, length, reason in others["bad"]
    ]
    documents = table.drop_columns([_PREFIX + name for name in _OWN]).replace_schema_metadata(None)
    return KeptRange(start, end, documents, positions, offsets, n_bytes, bad, others["skipped"], (hi, lo))


class KeptBlock(TableBlock):
    """Documents of kept ranges, with the hashes and sizes that their records had.

    The field that was replaced is null in all of them but those that an earlier pass quarantined.
    """

    def __init__(self, ranges: Iterable[KeptRange]) -> None:
        parts = list(ranges)
        super().__init__(pa.concat_tables([part.table for part in parts]).combine_chunks())
        pairs = [part.identity for part in parts if part.identity is not None]
        self._identity = (np.concatenate([hi for hi, _ in pairs]), np.concatenate([lo for _, lo in pairs]))
        self.record_bytes = np.concatenate([part.n_bytes for part in parts])
        self.stored_offsets = np.concatenate([part.offsets for part in parts])

    def identity(self) -> tuple[Words, Words]:
        return self._identity
