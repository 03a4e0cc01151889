"""The stages of substring deduplication: selections of all documents, texts of candidates, and cutting."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.dedup.stages import PositionTableStage, without
from tamis.dedup.substrings.normalization import MODES, NORMALIZATION_VERSION
from tamis.errors import PipelineError, UsageError, check_choice
from tamis.sizes import check_integer, parse_fraction
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.dedup.substrings.table import Passages

    Array = np.ndarray[Any, Any]

KEYS_VERSION = 1000 + NORMALIZATION_VERSION
MIN_BYTES, MAX_BYTES = 16, 60_000
KEEP = ("first", "none")
EDGES = ("characters", "words", "lines")
_WHOLE_BATCH = 1 << 32  # bytes of text of a batch, which places in it must not exceed


def check_min_bytes(caller: str, min_bytes: Any) -> None:
    check_integer(min_bytes, f"{caller}: min_bytes", MIN_BYTES, MAX_BYTES)


def check_normalization(caller: str, normalize_text: Any) -> None:
    if normalize_text not in MODES:
        known = "; ".join(f"{name}: {meaning}" for name, meaning in MODES.items())
        raise UsageError(f"{caller}: normalize_text must be one of {known}; got {normalize_text!r}")


@dataclass(repr=False)
class WindowSelections(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `length`, and what the windows of their texts select.

    `length`: bytes of the text as it is compared, -1 for none. The selections of the whole batch, sorted by key, are
    in the first row of `keys`, `contexts`, `at` and `reaches` (24 bytes each), those that are runs also in `run_rows`
    and `run_spans`. `at`: the place of the k-gram in the texts of the batch, one after the other.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("substrings",)

    text_field: str = "text"
    min_bytes: int = 500
    normalize_text: str = "none"
    name: str = "window_selections"
    version: int = KEYS_VERSION
    columns_in = ("text_field",)

    def __post_init__(self) -> None:
        check_min_bytes(self.name, self.min_bytes)
        check_normalization(self.name, self.normalize_text)

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Load the compiled code before any memory cap is set."""
        from tamis.kernels.substrings.selections import select

        select(np.zeros(64, np.uint8), np.array([0]), np.array([64]), 16)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.dedup.sorting import sort_pairs
        from tamis.dedup.substrings.normalization import compared
        from tamis.kernels.substrings.selections import select

        texts = batch.texts(self.text_field)
        data, starts, ends = compared(texts, self.normalize_text)
        sizes = ends - starts
        length = np.where(np.asarray(texts.is_null()), -1, sizes)
        begins = np.cumsum(sizes) - sizes
        if int(sizes.sum()) >= _WHOLE_BATCH:
            raise PipelineError(f"{self.name}: a batch with {int(sizes.sum()):,} bytes of text; at most 4 GiB work")
        selected = select(data, starts, ends, self.min_bytes)
        keys, order = selected.key.copy(), np.arange(len(selected), dtype=np.uint32)
        sort_pairs(keys, order)
        runs = np.flatnonzero(selected.span[order])
        packed = {
            "keys": keys,
            "contexts": selected.context[order],
            "at": (begins[selected.row] + selected.position)[order].astype(np.uint32),
            "reaches": selected.reach[order],
            "run_rows": runs.astype(np.uint32),
            "run_spans": selected.span[order][runs],
        }
        columns = position_columns(batch) | {"length": length.astype(np.int64)}
        records = record_batch(batch, columns)
        for name, values in packed.items():
            records = records.with_column(name, _in_first_row(values, batch.num_items))
        return records.select([*columns, *packed])


def _in_first_row(values: Array, n_rows: int) -> pa.Array:
    """Return a column of bytes with all values in its first row."""
    offsets = np.full(n_rows + 1, values.nbytes, np.int64)
    offsets[0] = 0
    return _binary(offsets, values)


def _binary(offsets: Array, values: Array) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


@dataclass(repr=False)
class CandidateContexts(PositionTableStage):
    """Replaces documents with candidates by records: the bytes of the candidates' windows, and where each candidate is.

    `table`: the candidates by position (grouping.py). Bytes that windows of several candidates share are written once.
    """

    table: str
    text_field: str = "text"
    min_bytes: int = 500
    normalize_text: str = "none"
    name: str = "candidate_contexts"
    columns_in = ("text_field",)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.dedup.position_table import listed_rows
        from tamis.dedup.substrings.normalization import compared
        from tamis.kernels.records.json_text import copy_spans

        rows, (first, end) = listed_rows(self.table, *batch.places(), ("first", "end"))
        order = np.argsort(rows, kind="stable")
        batch, first, end = batch.take(rows[order]), first[order], end[order]
        data, starts, _ = compared(batch.texts(self.text_field), self.normalize_text)
        position, reach = self._candidates(first, end)
        document = np.repeat(np.arange(len(first)), end - first)
        place = starts[document] + position
        begin, stop = place - (reach >> np.uint32(16)), place - (reach & np.uint32(0xFFFF)) + self.min_bytes
        # Both ascend within a document: windows and what they select have the same order.
        new = np.ones(len(begin), bool)
        new[1:] = (document[1:] != document[:-1]) | (begin[1:] > stop[:-1])
        heads = np.flatnonzero(new)
        tails = np.append(heads[1:], len(begin)) - 1 if len(heads) else heads
        sizes = stop[tails] - begin[heads]
        target = np.cumsum(sizes) - sizes
        text = np.empty(int(sizes.sum()), np.uint8)
        copy_spans(data, begin[heads], sizes, text, target)
        ends = np.cumsum(np.bincount(document[heads], sizes, len(first)).astype(np.int64))
        part = np.cumsum(new) - 1
        at = (
            target[part] + place - begin[heads][part] - np.concatenate([[0], ends[:-1]])[document]
            if len(ends)
            else place
        )
        records = record_batch(batch, position_columns(batch))
        records = records.with_column("text", _binary(np.concatenate([[0], ends]).astype(np.int64), text))
        counts = np.concatenate([[0], np.cumsum(end - first)]).astype(np.int64)
        records = records.with_column("places", _binary(counts * 4, at.astype(np.uint32)))
        return records.select(["file", "offset", "text", "places"])

    def _candidates(self, first: Array, end: Array) -> tuple[Array, Array]:
        """Return position and reach of the candidates of these rows of the table, which follow each other by file."""
        from tamis.dedup.sorting import positions_in
        from tamis.formats.scratch.stored_arrays import open_npy

        if not len(first):
            return np.empty(0, np.int64), np.empty(0, np.uint32)
        low, high = int(first.min()), int(end.max())
        position, reach = (
            open_npy(os.path.join(self.table, f"{name}.npy")).read(low, high) for name in ("position", "reach")
        )
        indices = positions_in(first - low, end - low)
        return position[indices].astype(np.int64), reach[indices]


@dataclass(repr=False)
class KeptTexts(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by what an index keeps of them: `file`, `offset`, and `text` as it is compared.

    Documents without text are left out.
    """

    text_field: str = "text"
    normalize_text: str = "none"
    name: str = "kept_texts"
    columns_in = ("text_field",)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.dedup.substrings.normalization import compared

        batch = batch.filter(np.asarray(batch.texts(self.text_field).is_valid()))
        data, starts, ends = compared(batch.texts(self.text_field), self.normalize_text)
        first = int(starts[0]) if len(starts) else 0
        offsets = np.append(starts, ends[-1:] if len(ends) else 0) - first
        records = record_batch(batch, position_columns(batch))
        text = _binary(offsets.astype(np.int64), data[first : first + int(offsets[-1])])
        return records.with_column("text", text).select(["file", "offset", "text"])


@dataclass(repr=False)
class CutPassages(PositionTableStage):
    """Cuts the passages of a table (table.py) out of the texts. What is not cut stays as it is, byte for byte.

    Cuts begin and end between characters, words or lines (`edges`), inside of the passage. A document of which fewer
    than `min_left_chars` characters are left (whitespace at the ends not counted) is dropped. With `drop_above`, no
    text changes: documents are dropped of which more than this share of bytes is repeated. `cut_field` gets the
    passages cut out of a document as [start, end, ...] in bytes of the text as it was, null where nothing was.
    `paths`: JSON with the input files by number.
    """

    table: str
    paths: str
    text_field: str = "text"
    normalize_text: str = "none"
    edges: str = "characters"
    min_left_chars: int = 1
    drop_above: float | None = None
    cut_field: str | None = None
    name: str = "cut_passages"
    traits: ClassVar[StageTraits] = StageTraits(removes_duplicates=True)
    columns_in = ("text_field",)
    columns_out = ("cut_field",)
    _names: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: edges", self.edges, EDGES)
        check_normalization(self.name, self.normalize_text)
        check_integer(self.min_left_chars, f"{self.name}: min_left_chars", 1)
        super().__post_init__()

    def setup(self, worker_metadata: Any = None) -> None:
        with open(self.paths, encoding="utf-8") as file:
            self._names = json.load(file)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.substrings.table import passages_of

        rows, passages = passages_of(self.table, *batch.places())
        if self.drop_above is not None:
            return self._without_repeated(batch, rows, passages)
        if not len(rows):
            return batch if self.cut_field is None else self._with_cuts(batch, rows, [])
        return self._cut(batch, rows, passages)

    def _without_repeated(self, batch: DocumentBatch, rows: Array, passages: list[Passages]) -> DocumentBatch:
        """Drop the documents of which too much is repeated."""
        from tamis.dedup.substrings.normalization import compared

        assert self.drop_above is not None
        _, starts, ends = compared(batch.texts(self.text_field).take(pa.array(rows)), self.normalize_text)
        shares = [p.n_bytes / n for p, n in zip(passages, (ends - starts).tolist(), strict=True)]
        gone = [k for k, share in enumerate(shares) if share > self.drop_above]
        values = [json.dumps({"share": round(shares[k], 4), **self._first_copy(passages[k])}) for k in gone]
        self._note_drops(batch.serial[rows[gone]], "repeated_share", values, {"max_share": self.drop_above})
        return without(batch, rows[gone])

    def _cut(self, batch: DocumentBatch, rows: Array, passages: list[Passages]) -> DocumentBatch:
        from tamis.dedup.substrings.cutting import cut_out, cuts_in

        before = batch.texts(self.text_field).take(pa.array(rows))
        cuts = cuts_in(before, passages, self.normalize_text, self.edges)
        is_cut = np.array([len(starts) > 0 for starts, _ in cuts], bool)
        rows, before = rows[is_cut], before.filter(pa.array(is_cut))
        cuts = [cut for cut in cuts if len(cut[0])]
        passages = [p for p, has_cut in zip(passages, is_cut.tolist(), strict=True) if has_cut]
        if not len(rows):
            return batch if self.cut_field is None else self._with_cuts(batch, rows, [])
        after = cut_out(before, cuts)
        edited = batch.with_texts(self.text_field, after, rows)
        if self.cut_field is not None:
            edited = self._with_cuts(edited, rows, cuts)
        n_left = pc.utf8_length(pc.utf8_trim_whitespace(after)).to_numpy(zero_copy_only=False)
        n_bytes = np.array([int((ends - starts).sum()) for starts, ends in cuts])
        n_cuts = sum(len(starts) for starts, _ in cuts)
        self._log_metrics({"passages_cut": n_cuts, "bytes_cut": int(n_bytes.sum()), "documents_cut": len(rows)})
        little = np.flatnonzero(n_left < self.min_left_chars)
        values = [
            json.dumps({"bytes_cut": int(n_bytes[k]), "chars_left": int(n_left[k]), **self._first_copy(passages[k])})
            for k in little.tolist()
        ]
        limits = {"min_left_chars": self.min_left_chars}
        self._note_drops(batch.serial[rows[little]], "repeated_passages", values, limits)
        return without(edited, rows[little])

    def _first_copy(self, passages: Passages) -> dict[str, str]:
        """Describe where the first copy of the longest passage of a document is."""
        k = int(np.argmax(passages.stop.astype(np.int64) - passages.start))
        name = self._names[int(passages.kept_file[k])]
        return {"first_copy": f"{name}:{int(passages.kept_offset[k])}"}

    def _with_cuts(self, batch: DocumentBatch, rows: Array, cuts: list[tuple[Array, Array]]) -> DocumentBatch:
        """Add the column with what was cut."""
        sizes = np.zeros(batch.num_items, np.int64)
        sizes[rows] = [2 * len(starts) for starts, _ in cuts]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
        pairs = [np.stack([starts, ends], axis=1).ravel() for starts, ends in cuts]
        values = pa.array(np.concatenate([np.empty(0, np.int64), *pairs]).astype(np.int64))
        column = pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(sizes == 0))
        return batch.with_column(str(self.cut_field), column)


def parse_remove(caller: str, remove: Any) -> tuple[bool, float | None]:
    """Return (whether anything is removed, the share above which documents are dropped or None: passages are cut)."""
    word, _, share = str(remove).partition(" ")
    if word == "document-above" and share:
        return True, parse_fraction(share.strip(), f"{caller}: remove document-above")
    if remove not in ("span", "nothing"):
        raise UsageError(f"{caller}: remove must be span, nothing, or document-above SHARE; got {remove!r}")
    return remove == "span", None
