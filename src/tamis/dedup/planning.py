"""The plan of a deduplication, before it starts: documents, scratch, memory, passes. Arithmetic over a small sample.

Formulas. Scratch of the keys: 76 bytes per document (position, hash, length, rank, the sorted hash 12, and of its
record length and hash 20) and 12 per band. Memory of the solver: 4 bytes per document for the union-find, and the keys
of one part of one band. The original keeps whole sketches on GPUs: 8 bytes x hashes x documents x bands_per_iteration
/ bands; it is shown for comparison. Of substring deduplication: 24 bytes for two of w + 1 positions (w: half a window),
and a quarter more.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from tamis._dataclasses import dataclass
from tamis.errors import BudgetError, TamisError
from tamis.forecast.shipped_table import PACKED, decoded_bytes
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader
from tamis.formats.input_files.skipped import SkippedEntry
from tamis.formats.registry import record_name
from tamis.sizes import format_size
from tamis.stores.run_locations import free_space

if TYPE_CHECKING:
    from tamis.formats.input_files.listing import FileList

STORE_BYTES = 70_000_000  # the library for stores, connections, and the ranges that are under way
SOLVER_BASE_BYTES = 130_000_000  # Python, numpy, Arrow and the kernels before the first key
_SOLVER_SHARE = 0.6  # of what is left then: the rest is for what the estimate does not see
_LEAST_ROOM_BYTES = 16_000_000
META_BYTES = 76  # per document and pass; a later pass has only the position (12)
KEY_BYTES = 12
# In memory, while the keys of one part are sorted: a key and a number (12), the room to sort them (20), and ...
BYTES_PER_HASH = 120  # ... what is gathered where all are duplicates
BYTES_PER_KEY = 48  # ... edges (8) and slack (bands.py)
_SAMPLE_BYTES = 1 << 18
_RECORDS_SAMPLE_BYTES = 1 << 20  # pages are larger than lines
_DOCUMENT_RECORD = re.compile(rb"^WARC-Type:[ \t]*(?:response|resource|conversion)\s", re.I | re.M)
_SAMPLED_FILES = 8
_WITHOUT_BOUND = 1 << 62  # bytes free in a bucket
SELECTION_BYTES = 24  # on the disk, of substring deduplication
BYTES_PER_SELECTION = 240  # in memory, while those of one part of the key space are grouped
_CANDIDATE_SHARE = 1.25  # of the selections, with what is written while they are there
USUAL_DOCUMENT_BYTES = 2000  # where a sample says nothing without decoding
_DISK_SHARE = 0.5  # of the free disk, for the keys: output and texts need the rest


@dataclass(frozen=True)
class DedupPlan:
    """Estimates, sizes in bytes."""

    n_files: int
    input_bytes: int
    n_documents: int
    n_bands: int
    bands_per_pass: int
    n_key_passes: int
    scratch_bytes: int
    free_bytes: int
    decision_bytes: int
    n_parts_per_band: int
    budget_bytes: int
    original_formula_bytes: int
    skipped_files: list[SkippedEntry] = field(default_factory=list)  # found and not read: reason, n, examples
    n_other_passes: int = 1  # over the input: what collects texts, and the removal


def make_plan(
    files: FileList, bands: int, rows: int, per_pass: int | None, budget_bytes: int, scratch: str
) -> DedupPlan:
    """Plan a deduplication. `bands` is 0 for exact deduplication."""
    n_documents, free = estimate_documents(files), free_space(scratch)
    free = _WITHOUT_BOUND if free is None else free
    chosen = per_pass or choose_bands(n_documents, bands, free)
    room = solver_room(budget_bytes)
    key_bytes = BYTES_PER_KEY if bands else BYTES_PER_HASH
    return DedupPlan(
        n_files=len(files),
        input_bytes=files.total_bytes,
        n_documents=n_documents,
        n_bands=bands,
        bands_per_pass=chosen,
        n_key_passes=max(1, -(-bands // chosen)) if bands else 1,
        scratch_bytes=n_documents * (META_BYTES + KEY_BYTES * chosen),
        free_bytes=free,
        decision_bytes=min(4 * n_documents, room // 2) * (bands > 0) + min(n_documents * key_bytes, room),
        n_parts_per_band=max(1, -(-n_documents * key_bytes // room)),
        budget_bytes=budget_bytes,
        original_formula_bytes=8 * bands * rows * n_documents * chosen // bands if bands else 0,
        skipped_files=files.skipped.entries(),
        n_other_passes=2 if bands else 1,
    )


def make_passage_plan(
    files: FileList,
    min_bytes: int,
    budget_bytes: int,
    scratch: str,
    entries: Sequence[tuple[str, int]] = (),
    adds_to_index: bool = False,
) -> DedupPlan:
    """Plan a substring deduplication. `entries`: files of an index with their sizes, which are read like input."""
    decoded, free = decoded_bytes(files.paths, files.sizes), free_space(scratch)
    decoded += decoded_bytes([path for path, _ in entries], [size for _, size in entries])
    n_selections, room = selections_of(decoded, min_bytes), solver_room(budget_bytes)
    return DedupPlan(
        n_files=len(files),
        input_bytes=files.total_bytes,
        n_documents=estimate_documents(files),
        n_bands=0,
        bands_per_pass=0,
        n_key_passes=1,
        scratch_bytes=passage_scratch_bytes(decoded, min_bytes),
        free_bytes=_WITHOUT_BOUND if free is None else free,
        decision_bytes=min(n_selections * BYTES_PER_SELECTION, room),
        n_parts_per_band=max(1, -(-n_selections * BYTES_PER_SELECTION // room)),
        budget_bytes=budget_bytes,
        original_formula_bytes=0,
        skipped_files=files.skipped.entries(),
        n_other_passes=2 + adds_to_index,
    )


def selections_of(n_bytes: int, min_bytes: int) -> int:
    """Return about how many selections there are: of the w k-grams of a window, two in w + 1 positions.

    >>> selections_of(1_000_000_000, 500)
    7936508
    """
    return round(2 * n_bytes / (min_bytes - min_bytes // 2 + 2))


def passage_scratch_bytes(n_bytes: int, min_bytes: int) -> int:
    """Return about what a substring deduplication writes between passes.

    That is its selections, and while they are there candidates and what is decided.
    """
    return round(selections_of(n_bytes, min_bytes) * SELECTION_BYTES * _CANDIDATE_SHARE)


def choose_bands(n_documents: int, bands: int, free_bytes: int) -> int:
    """Return all bands in one pass over the input, or as many as half of the free disk can hold.

    >>> choose_bands(1_000_000, 20, 10_000_000_000), choose_bands(100_000_000, 20, 20_000_000_000)
    (20, 2)
    """
    if not bands:
        return 0
    room = free_bytes * _DISK_SHARE / max(1, n_documents) - META_BYTES
    chosen = min(bands, int(room // KEY_BYTES))
    if chosen < 1:
        needed = n_documents * (META_BYTES + KEY_BYTES) / _DISK_SHARE
        raise BudgetError(
            f"deduplication: keys of about {n_documents:,} documents need {format_size(needed)} of free disk at "
            f"least, there are {format_size(free_bytes)}; give a larger scratch folder (--scratch)"
        )
    return chosen


def estimate_documents(files: FileList, n_decoded: int | None = None) -> int:
    """Estimate the number of documents from the beginnings of a few files of lines or records, decoded.

    Other files count as documents of the usual size. `n_decoded`: decoded bytes of all files, if they were measured.
    """
    if n_decoded is None:
        n_decoded = decoded_bytes(files.paths, files.sizes)
    n_bytes = n = 0
    step = max(1, len(files) // _SAMPLED_FILES)
    for path in files.paths[::step][:_SAMPLED_FILES]:
        if record_name(path):
            data = _beginning(path, _RECORDS_SAMPLE_BYTES)
            n_bytes, n = n_bytes + len(data), n + len(_DOCUMENT_RECORD.findall(data))
        elif codec_of(path) is not None or not path.lower().endswith(tuple(PACKED)):
            data = _beginning(path, _SAMPLE_BYTES)
            n_bytes, n = n_bytes + len(data), n + data.count(b"\n")
    per_document = n_bytes / n if n else USUAL_DOCUMENT_BYTES
    return max(1, round(n_decoded / per_document))


def _beginning(path: str, n_bytes: int) -> bytes:
    """Return the first decoded bytes of a file; as far as it can be read."""
    data = bytearray()
    with contextlib.suppress(OSError, StreamFault, TamisError), StreamReader.open(path) as reader:
        while len(data) < n_bytes and (piece := reader.read(n_bytes - len(data))):
            data += piece
    return bytes(data)


def solver_room(budget_bytes: int, is_far: bool = False) -> int:
    """Return the bytes for keys in the deciding process; `is_far`: it reads and writes them in a bucket.

    Budgets that do not leave so much are refused by the passes, which need more.
    """
    return max(_LEAST_ROOM_BYTES, int((budget_bytes - _base_bytes(is_far)) * _SOLVER_SHARE))


def _base_bytes(is_far: bool) -> int:
    return SOLVER_BASE_BYTES + STORE_BYTES * is_far


def check_room(budget_bytes: int, is_far: bool = False) -> None:
    """Check the memory for deciding, which may follow passes that ran with another budget."""
    if budget_bytes < _base_bytes(is_far) + _LEAST_ROOM_BYTES / _SOLVER_SHARE:
        named = least_budget(is_far)
        raise BudgetError(
            f"deduplication: a budget of {format_size(budget_bytes)} leaves nothing to sort keys in; the smallest "
            f"that works here is {named // 10**6}MB",
            named,
        )


def least_budget(is_far: bool = False) -> int:
    """Return the smallest budget in which the deciding process can work, in steps of 5 MB.

    Its passes may need more.

    >>> least_budget() // 10**6
    160
    """
    return math.ceil((_base_bytes(is_far) + _LEAST_ROOM_BYTES / _SOLVER_SHARE) / 5e6) * 5_000_000
