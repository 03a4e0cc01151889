"""The stages of decontamination: finding overlaps in the first pass, and dropping or cutting in the last."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.dedup.contamination.limits import CUT, REPORT, Limits
from tamis.dedup.stages import PositionTableStage, without
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.dedup.contamination.index import EvaluationIndex

    Array = np.ndarray[Any, Any]

RULE = "contaminated"
_SHOWN_BYTES = 400  # of the text that a document and an item share


@dataclass(repr=False)
class FindOverlaps(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `n_tokens`, and packed `hits` (records.HIT).

    `index`: the folder with the index of the evaluation sets (index.py), which all workers of a node share.
    """

    index: str
    text_field: str = "text"
    fingerprint: str = ""
    name: str = "find_overlaps"

    kernel_groups: ClassVar[tuple[str, ...]] = ("overlap",)
    _open: ClassVar[Any] = None
    columns_in = ("text_field",)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_open"}

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Open the index before workers are forked, so that they share its filter."""
        self._opened()

    def _opened(self) -> EvaluationIndex:
        from tamis.dedup.contamination.index import EvaluationIndex

        if self._open is None:
            self.__dict__["_open"] = EvaluationIndex(self.index)
        return self._open  # type: ignore[no-any-return]

    def model_files(self) -> str:
        return self.fingerprint

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.contamination.records import HIT
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.kernels.buffers import string_buffers

        parts = string_buffers(batch.texts(self.text_field))
        starts, ends = parts.spans()
        hits, n_tokens = self._opened().hits(parts.data, starts, ends)
        packed = np.empty(len(hits.row), HIT)
        packed["ngram"], packed["token"], packed["token_end"] = hits.ngram, hits.token, hits.token_end
        packed["start"], packed["end"] = hits.start - starts[hits.row], hits.end - starts[hits.row]
        columns = position_columns(batch) | {"n_tokens": n_tokens.astype(np.uint32)}
        offsets = np.concatenate([[0], np.cumsum(np.bincount(hits.row, minlength=batch.num_items))]) * HIT.itemsize
        data = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(packed)]
        records = record_batch(batch, columns)
        packed_column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), batch.num_items, data)
        return records.with_column("hits", packed_column).select([*columns, "hits"])


@dataclass(repr=False)
class RemoveContamination(PositionTableStage):
    """Drops the documents that a table (table.py) lists, or cuts out of them what they share with evaluation sets.

    `index`: the folder of the index, for names. `action`: drop, cut or report (documents pass unchanged). Of a
    document that is cut, no run of words of an evaluation item is left: where the parts before and after a cut form
    one, that is cut as well. A document of which fewer than `min_left_chars` characters are left is dropped.
    """

    table: str
    index: str
    limits: Limits
    text_field: str = "text"
    action: str = "drop"
    min_left_chars: int = 1
    fingerprint: str = ""
    name: str = "decontaminate"

    kernel_groups: ClassVar[tuple[str, ...]] = ("overlap",)
    columns_in = ("text_field",)
    _index: Any = field(default=None, init=False, compare=False)
    _excepted: Any = field(default=None, init=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None, "_excepted": None}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "limits": vars(self.limits)}

    def model_files(self) -> str:
        return self.fingerprint

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        from tamis.dedup.contamination.index import EvaluationIndex

        self._index = EvaluationIndex(self.index, with_filter=self.action == CUT)
        self._excepted = np.load(os.path.join(self.table, "excepted.npy"), allow_pickle=False)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        names = ("item", "share", "words", "start", "end", "n_items", "first", "last")
        rows, columns = self.listed(batch, *names)
        if not len(rows):
            return batch
        if self._index is None:
            self.setup_on_node()
        facts = dict(zip(names, columns, strict=True))
        texts = batch.texts(self.text_field).take(pa.array(rows))
        values = [self._value(text, facts, k) for k, text in enumerate(texts.to_pylist())]
        self._log_metrics({"contaminated_documents": len(rows)})
        if self.action == CUT:
            return self._cut(batch, rows, texts, facts, values)
        if self.action == REPORT:
            return batch
        self._note_drops(batch.serial[rows], RULE, values, vars(self.limits))
        return without(batch, rows)

    def _value(self, text: str | None, facts: dict[str, Any], k: int) -> str:
        """Describe the worst overlap of a document: the set and item, how much of it, and the words."""
        one, item = self._index.name_of(int(facts["item"][k]))
        start, end = int(facts["start"][k]), int(facts["end"][k])
        shared = (text or "").encode()[start : min(end, start + _SHOWN_BYTES)].decode("utf-8", "ignore")
        about = {"set": one, "item": item, "words": int(facts["words"][k]), "share": round(float(facts["share"][k]), 4)}
        if facts["n_items"][k] > 1:
            about["items"] = int(facts["n_items"][k])
        return json.dumps({**about, "text": shared + ("..." if end - start > _SHOWN_BYTES else "")}, ensure_ascii=False)

    def _cut(
        self, batch: DocumentBatch, rows: Array, texts: pa.Array, facts: dict[str, Any], values: list[str]
    ) -> DocumentBatch:
        from tamis.dedup.contamination.rules import cut_spans, spans_to_cut
        from tamis.dedup.contamination.table import spans_of

        spans = spans_of(self.table, facts["first"], facts["last"])
        new, n_spans = [], 0
        for text, text_spans in zip(texts.to_pylist(), spans, strict=True):
            data = cut_spans((text or "").encode(), text_spans)
            n_spans += len(text_spans)
            while len(again := spans_to_cut(self._index, data, self.limits, self._excepted)):
                data = cut_spans(data, again)
                n_spans += len(again)
            new.append(data.decode())
        after = pa.array(new, pa.large_string())
        n_bytes = int(pc.sum(pc.binary_length(texts)).as_py()) - int(pc.sum(pc.binary_length(after)).as_py())
        self._log_metrics({"spans_cut": n_spans, "bytes_cut": n_bytes})
        edited = batch.with_texts(self.text_field, after, rows)
        n_left = pc.utf8_length(pc.utf8_trim_whitespace(after)).to_numpy(zero_copy_only=False)
        little = np.flatnonzero(n_left < self.min_left_chars)
        limits = {**vars(self.limits), "min_left_chars": self.min_left_chars}
        self._note_drops(batch.serial[rows[little]], RULE, [values[k] for k in little], limits)
        return without(edited, rows[little])
