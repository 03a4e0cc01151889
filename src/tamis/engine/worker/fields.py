"""Fields that stages read and no document has: a slip of the pen that would drop, or leave untouched, every document.

Checked for every partition until each field was seen once, which costs little: the scan has found them. Where a
partition has not one document with the field, other places of the input are looked at before the run is refused: a
field may be rare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tamis.engine.job import Job
from tamis.errors import PipelineError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamReader
from tamis.formats.registry import holds_rows, line_format, record_format, table_format
from tamis.stages.file_partitioning import JSONL_SUFFIXES
from tamis.stores.opening import open_buffered
from tamis.tasks import DocumentBatch

_N_SAMPLES = 64
_SAMPLE_BYTES = 256 << 10
_MAX_NAMES = 20


class FieldCheck:
    """`check` every partition of the first segment, before its stages run."""

    def __init__(self, job: Job) -> None:
        self._missing = needed_fields(job) if job.reader is not None else {}

    def check(
        self,
        batches: Sequence[DocumentBatch],
        inputs: Mapping[str, tuple[int, int]],
        of_folders: Collection[str] = (),
    ) -> None:
        """Raise PipelineError for a field that no document has.

        `inputs`: sizes (and times) of the input files; `of_folders`: fields that folders of the input name.
        """
        self._missing = {field: stage for field, stage in self._missing.items() if field not in of_folders}
        if not self._missing or not any(b.num_items for b in batches):
            return
        self._missing = {f: stage for f, stage in self._missing.items() if not any(b.has_field(f) for b in batches)}
        if self._missing:
            present = sampled_fields(list(self._missing), [(path, size) for path, (size, _) in inputs.items()])
            self._missing = {f: stage for f, stage in self._missing.items() if f not in present}
        for field, stage in self._missing.items():
            names = list(dict.fromkeys(name for b in batches for name in b.get_columns()))
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            raise PipelineError(
                f"stage {stage!r} reads the field {field!r}, which no document has; they have "
                f"{names[:_MAX_NAMES]}{more}. Name one of these, "
                "or put a stage that makes it before"
            )


def needed_fields(job: Job) -> dict[str, str]:
    """Return the input fields that stages name, with the label of the first.

    Up to a user's stage, which may add any field.
    """
    needed: dict[str, str] = {}
    produced: set[str] = set()
    for label, stage in zip(job.labels, job.stages, strict=True):
        for name in stage.input_columns():
            if name not in produced:
                needed.setdefault(name, label)
        if not type(stage).__module__.startswith("tamis."):
            break
        produced.update(stage.output_columns())
    return needed


def sampled_fields(fields: Sequence[str], files: Sequence[tuple[str, int]]) -> set[str]:
    """Return which of these fields some record has, at up to 64 positions spread over the input.

    Files that cannot be read have none.
    """
    present: set[str] = set()
    for path, start in _sample_positions(files):
        try:
            present |= {f for f in fields if f in _fields_at(path, start, fields)}
        except Exception:  # damaged files are reported by the reader
            continue
        if len(present) == len(fields):
            break
    return present


def _sample_positions(files: Sequence[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    """Choose files evenly, each at its start; few plain files at several places, small ones all over."""
    sampled = files if len(files) <= _N_SAMPLES else [files[i * len(files) // _N_SAMPLES] for i in range(_N_SAMPLES)]
    each = _N_SAMPLES // max(1, len(sampled))
    for k in range(each):
        for path, size in sampled:
            start = k * max(_SAMPLE_BYTES, size // each)
            if k == 0 or (start < size and _is_plain(path)):
                yield path, start


def _is_plain(path: str) -> bool:
    return codec_of(path) is None and path.lower().endswith(JSONL_SUFFIXES)


def _fields_at(path: str, start: int, fields: Sequence[str]) -> set[str]:
    if holds_rows(path):
        return set(table_format(path).read_schema(path).names)
    if (records := record_format(path)) is not None:
        return set(records.read_schema(path).names)
    if _is_plain(path):
        data = _records_from(path, start)
    else:
        with StreamReader.open(path) as stream:
            data = stream.read(_SAMPLE_BYTES)
        if len(data) >= _SAMPLE_BYTES - 1:
            data = data[: data.rfind(b"\n") + 1]
    block = line_format(path).parse(np.frombuffer(data.removeprefix(b"\xef\xbb\xbf"), np.uint8), list(fields))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    return {f for f in fields if batch.has_field(f)}


def _records_from(path: str, start: int) -> bytes:
    """Return the records that begin in the `_SAMPLE_BYTES` from `start` on; the last may be as long again."""
    before = min(1, start)  # a record begins at `start` where a line ends before it
    with open_buffered(path) as file:
        file.seek(start - before)
        data = file.read(before + 2 * _SAMPLE_BYTES)
    end = data.find(b"\n", before + _SAMPLE_BYTES - 1) + 1 or len(data)
    return data[:end].partition(b"\n")[2] if start else data[:end]
