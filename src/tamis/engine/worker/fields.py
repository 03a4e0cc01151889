"""Fields that stages read and no document has: a slip of the pen that would drop, or leave untouched, every document.

Asked of every partition until each field was seen once, which costs a look at what the scan found anyway. Where a
partition has not one document with the field, other places of the input are looked at before the run is refused: a
field may be rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tamis.engine.job import Job
from tamis.errors import PipelineError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamReader
from tamis.formats.registry import holds_rows, line_format, table_format
from tamis.stages.file_partitioning import JSONL_SUFFIXES
from tamis.stores.opening import open_buffered
from tamis.tasks import DocumentBatch

_N_LOOKS = 64
_LOOK_BYTES = 256 << 10
_MAX_NAMES = 20


class FieldCheck:
    """`check` every partition of the first segment, before its stages run."""

    def __init__(self, job: Job) -> None:
        self._unseen = needed_fields(job) if job.reader is not None else {}

    def check(self, batches: Sequence[DocumentBatch], inputs: Mapping[str, tuple[int, int]]) -> None:
        """PipelineError for a field that no document has. `inputs`: sizes (and times) of the input files."""
        if not self._unseen or not any(b.num_items for b in batches):
            return
        self._unseen = {f: who for f, who in self._unseen.items() if not any(b.has_field(f) for b in batches)}
        if self._unseen:
            found = fields_elsewhere(list(self._unseen), [(path, size) for path, (size, _) in inputs.items()])
            self._unseen = {f: who for f, who in self._unseen.items() if f not in found}
        for field, who in self._unseen.items():
            there = list(dict.fromkeys(name for b in batches for name in b.get_columns()))
            more = f" and {len(there) - _MAX_NAMES} more" if len(there) > _MAX_NAMES else ""
            raise PipelineError(
                f"stage {who!r} reads the field {field!r}, which no document has; they have "
                f"{there[:_MAX_NAMES]}{more}. Name one of these, "
                "or put a stage that makes it before"
            )


def needed_fields(job: Job) -> dict[str, str]:
    """Fields of the input that stages name, with the label of the first.

    Up to a user's stage, which may add any field.
    """
    needed: dict[str, str] = {}
    made: set[str] = set()
    for label, stage in zip(job.labels, job.stages, strict=True):
        for name in stage.input_columns():
            if name not in made:
                needed.setdefault(name, label)
        if not type(stage).__module__.startswith("tamis."):
            break
        made.update(stage.output_columns())
    return needed


def fields_elsewhere(fields: Sequence[str], files: Sequence[tuple[str, int]]) -> set[str]:
    """Return which of these fields some record has, at up to 64 positions spread over the input.

    Files that cannot be read have none.
    """
    found: set[str] = set()
    for path, start in _places(files):
        try:
            found |= {f for f in fields if f in _fields_at(path, start, fields)}
        except Exception:  # damaged files are reported by the reader
            continue
        if len(found) == len(fields):
            break
    return found


def _places(files: Sequence[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    """Files, evenly chosen, each at its start; few plain files at several places, small ones all over."""
    chosen = files if len(files) <= _N_LOOKS else [files[i * len(files) // _N_LOOKS] for i in range(_N_LOOKS)]
    each = _N_LOOKS // max(1, len(chosen))
    for k in range(each):
        for path, size in chosen:
            start = k * max(_LOOK_BYTES, size // each)
            if k == 0 or (start < size and _is_plain(path)):
                yield path, start


def _is_plain(path: str) -> bool:
    return codec_of(path) is None and path.lower().endswith(JSONL_SUFFIXES)


def _fields_at(path: str, start: int, fields: Sequence[str]) -> set[str]:
    if holds_rows(path):
        return set(table_format(path).read_schema(path).names)
    if _is_plain(path):
        data = _records_from(path, start)
    else:
        with StreamReader.open(path) as stream:
            data = stream.read(_LOOK_BYTES)
        if len(data) >= _LOOK_BYTES - 1:
            data = data[: data.rfind(b"\n") + 1]
    block = line_format(path).parse(np.frombuffer(data.removeprefix(b"\xef\xbb\xbf"), np.uint8), list(fields))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    return {f for f in fields if batch.has_field(f)}


def _records_from(path: str, start: int) -> bytes:
    """Return the records that begin in the `_LOOK_BYTES` from `start` on; the last may be as long again."""
    before = min(1, start)  # a record begins at `start` where a line ends before it
    with open_buffered(path) as file:
        file.seek(start - before)
        data = file.read(before + 2 * _LOOK_BYTES)
    end = data.find(b"\n", before + _LOOK_BYTES - 1) + 1 or len(data)
    return data[:end].partition(b"\n")[2] if start else data[:end]
