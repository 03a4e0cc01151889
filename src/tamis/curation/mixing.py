"""Mixing: several inputs, each with a weight or with a number of documents.

How often a document is written follows from these and the hash of its text. A weight needs no knowledge of other
documents. A number (`max_documents`) does: a pass before the last writes a number drawn from the text of each
remaining document (`Draw`), source_limits.py finds the number up to which there are as many as requested, and the
last pass writes those.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

_SEED = 0x6D6978
_MOST = 100.0
_LEFT, _WRITTEN = "tokens left of source", "tokens written of source"  # metrics, followed by the number of the source


@dataclass(frozen=True)
class Source:
    """A folder, glob or file, and how often its documents are written.

    `weight`: 0.5 half of them, 2 each twice, 1.5 each once and half of them twice. Or `max_documents`: exactly so many
    of those that all steps keep (all, where there are fewer). `upsample`: each document that is chosen in one of these
    ways is written so many times.
    """

    path: str
    weight: float = 1.0
    max_documents: int | None = None
    upsample: int = 1

    def __post_init__(self) -> None:
        most, each = self.max_documents, self.upsample
        if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= _MOST:
            raise UsageError(f"sources: upsample must be a whole number from 1 to {_MOST:g}, got {each!r}")
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise UsageError(f"sources: max_documents must be a whole number above 0, got {most!r}")
        if most is not None and self.weight != 1:
            raise UsageError(f"sources: {self.path!r} has a weight and max_documents; give one of them")
        number = isinstance(self.weight, (int, float)) and not isinstance(self.weight, bool)
        if not number or not 0 < self.weight <= _MOST or not isinstance(self.path, str) or not self.path:
            raise UsageError(
                f"sources: expected a path and a weight above 0, at most {_MOST:g}, got {self.path!r} and "
                f"{self.weight!r}"
            )


def sources_of(value: Any) -> list[Source]:
    """Parse sources as users give them: Source objects, or mappings with `path` and `weight`."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise UsageError(
            f"sources: expected a list, e.g. [{{path: web/, weight: 1}}, {{path: books/, weight: 2}}], got {value!r}"
        )
    sources = []
    for entry in value:
        if isinstance(entry, Mapping):
            unknown = sorted(set(entry) - {"path", "weight", "max_documents", "upsample"})
            if unknown or "path" not in entry:
                raise UsageError(f"sources: expected path and weight, max_documents or upsample, got {sorted(entry)}")
            entry = Source(**entry)
        if not isinstance(entry, Source):
            raise UsageError(f"sources: expected a mapping with path and weight, got {entry!r}")
        sources.append(entry)
    return sources


class _OfSources(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Knows the source of each document. `first_files`: numbers of the first input file of each source, ascending."""

    first_files: list[int]
    text_field: str

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def _draws(self, batch: DocumentBatch) -> Any:
        """Return a number for each document, derived from its text alone."""
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.records.hash128 import hash_arrow_strings

        parts = string_buffers(batch.texts(self.text_field))
        return hash_arrow_strings(parts.offsets, parts.data, parts.validity, _SEED)[0]

    def _sources(self, batch: DocumentBatch) -> Any:
        numbers, inverse = np.unique(batch.places()[0], return_inverse=True)
        return np.array([max(0, bisect_right(self.first_files, n) - 1) for n in numbers.tolist()], np.int32)[inverse]


@dataclass(repr=False)
class Draw(_OfSources):
    """Replaces documents by records: their position, their source and the number that was drawn for them."""

    first_files: list[int]
    text_field: str = "text"
    name: str = "draw"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import record_batch

        file, offset = batch.places()
        if len(file) and int(file.min()) < 0:
            raise PipelineError(
                "sources: max_documents counts documents of the input, and a step makes new ones (a splitter, a "
                "joiner); run that step first with an output of its own"
            )
        columns = {"file": file, "offset": offset, "source": self._sources(batch), "draw": self._draws(batch)}
        return record_batch(batch, columns)


@dataclass(repr=False)
class SourceMix(_OfSources):
    """Writes each document as often as the weight of its source says, or once if it was chosen.

    `weights`: of each source. `each`: how many times a written document is written. `limits`: the file with the limit
    of each source (state.SourceLimits), for `most`, the requested numbers of documents. `tokens_field`: the field with
    the tokens of a document, None for a quarter of the bytes. Counts the tokens of each source in the metrics.
    """

    first_files: list[int]
    weights: list[float]
    text_field: str = "text"
    name: str = "mix"
    most: list[int | None] = field(default_factory=list)
    limits: str = ""
    each: list[int] = field(default_factory=list)
    tokens_field: str | None = None

    def setup(self, worker_metadata: Any = None) -> None:
        from tamis.curation.state import limits_file

        self._limits = limits_file(self.limits).read() if self.limits else None

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        draws, source = self._draws(batch), self._sources(batch)
        self._count(_LEFT, self._tokens(batch), source)
        if self.limits:
            batch, draws, source = self._chosen(batch, draws, source)
        uniform = (draws >> np.uint64(11)).astype(np.float64) / 2.0**53
        weight = np.array(self.weights)[source]
        times = np.floor(weight).astype(np.int64) + (uniform < weight - np.floor(weight))
        if self.each:
            times = times * np.array(self.each)[source]
        self._count(_WRITTEN, self._tokens(batch) * times, source)
        if bool((times == 1).all()):
            return batch
        dropped = np.flatnonzero(times == 0)
        values = [f"{w:g}" for w in weight[dropped].tolist()]
        self._note_drops(batch.serial[dropped], "not_in_the_mix", values, {"weight": "of its source"})
        return batch.take(np.repeat(np.arange(batch.num_items), times))

    def _tokens(self, batch: DocumentBatch) -> Any:
        from tamis.dedup.quantiles.stages import weights_of

        field = self.tokens_field if self.tokens_field in batch.get_columns() else None
        return weights_of(batch, "tokens", self.text_field, field)

    def _count(self, what: str, tokens: Any, source: Any) -> None:
        for k in np.unique(source).tolist():
            self._log_metric(f"{what} {k}", float(tokens[source == k].sum()))

    def _chosen(self, batch: DocumentBatch, draws: Any, source: Any) -> tuple[DocumentBatch, Any, Any]:
        """Remove the documents beyond the limit of their source.

        Documents are chosen by their number; those whose number equals the limit are chosen by position.
        """
        file, offset = batch.places()
        keep = np.ones(batch.num_items, bool)
        for k, limit in enumerate(self._limits.limits if self._limits is not None else ()):
            if limit is None:
                continue
            last, last_file, last_offset = np.uint64(int(limit.draw)), limit.file, limit.offset
            earlier = (file < last_file) | ((file == last_file) & (offset <= last_offset))
            mine = source == k
            keep &= ~mine | (draws < last) | ((draws == last) & earlier)
            dropped = np.flatnonzero(mine & ~keep)
            self._note_drops(batch.serial[dropped], "not_in_the_mix", None, {"max_documents": self.most[k]})
        return batch.filter(keep), draws[keep], source[keep]


def is_plain(sources: Sequence[Source]) -> bool:
    """Return True if every document is to be written once."""
    return all(math.isclose(s.weight, 1.0) and s.max_documents is None and s.upsample == 1 for s in sources)


def tokens_by_source(metrics: Iterable[Mapping[str, float]], n_sources: int) -> list[tuple[int, int]]:
    """Return for each source the tokens that the steps left and those that were written.

    `metrics`: of the stages of a run.
    """
    counts = {key: int(n) for of_stage in metrics for key, n in of_stage.items() if key.startswith((_LEFT, _WRITTEN))}
    return [(counts.get(f"{_LEFT} {k}", 0), counts.get(f"{_WRITTEN} {k}", 0)) for k in range(n_sources)]
