"""Score, Filter and ScoreFilter: the stages that apply filters, one or a chain of them.

A chain is applied in order, and the first filter that rejects a document drops it: later filters do not see it. The
statistics that the filters compare are computed once per batch for the whole chain, in passes over the texts; a pass
runs when the first filter needs one of its numbers, over the documents that are left by then.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pd
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.fingerprints import joined
from tamis.stages.text.filters.doc_filter import DocumentFilter
from tamis.stages.text.filters.statistics import ColumnStatistics, measure, pass_of
from tamis.stages.traits import StageTraits
from tamis.tasks import SCORES, DocumentBatch

_log = logging.getLogger("tamis.filters")
_FilterOrFunction = DocumentFilter | Callable[[Any], Any]


class _FilterStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """The common part of the three stages: the life cycle of their filters, and the settings that identify them."""

    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)

    def _adopt(self, filters: list[Any], default_name: str, kind: str) -> None:
        if self.name == default_name:
            names = [_name_of(f) for f in filters]
            self.name = names[0] if len(names) == 1 else f"{kind}_chain_of_" + "_".join(names)
        # The engine compares public settings when a run is resumed; filters often keep theirs in private attributes.
        self.filter_settings = [_settings_of(f) for f in filters if isinstance(f, DocumentFilter)]

    @abstractmethod
    def _objects(self) -> list[DocumentFilter]:
        """Return the DocumentFilters, without functions, which have no life cycle."""

    def _readers(self) -> list[tuple[DocumentFilter, str]]:
        """Return the filters that score texts, with the field that each reads."""
        return []

    def look_ahead(self, later: Sequence[ProcessingStage[Any, Any]]) -> None:
        """Measure the statistics of neighbouring filters together, as if they were one chain."""
        self._ahead: list[tuple[DocumentFilter, str]] = []
        for stage in later:
            if not isinstance(stage, _FilterStage):
                return
            self._ahead += stage._readers()

    def _reading(self, field: str, first: int = 0) -> list[DocumentFilter]:
        """Return the filters from index `first`, and those of the following stages, that read this field."""
        return [f for f, name in [*self._readers()[first:], *getattr(self, "_ahead", [])] if name == field]

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        for one in self._objects():
            _call(one, "model_check_or_download")
        _warm_up({name for one in self._objects() for name in one.statistics})

    def model_files(self) -> str:
        return joined([one.model_fingerprint() or "" for one in self._objects()])

    def setup(self, worker_metadata: Any = None) -> None:
        for one in self._objects():
            _call(one, "load_model")
            _call(one, "load_tokenizer")

    def _mask(self, df: Any) -> Any:
        """Return which rows of a frame are kept, as a series of bools with the frame's index."""
        batch = _batch_of(df)
        result: Any = self.process(batch)
        self._take_notes()  # there is no run to count drops in
        return pd.Series(np.isin(np.arange(batch.num_items), result.serial), index=df.index)

    def ray_stage_spec(self) -> dict[str, Any]:
        loads = [o for o in self._objects() if hasattr(o, "load_model") or hasattr(o, "load_tokenizer")]
        return {"is_actor_stage": bool(loads)}


def _batch_of(df: Any) -> DocumentBatch:
    from tamis.formats.table_block import TableBlock
    from tamis.tasks.frames import table_of

    block = TableBlock(table_of(df))
    return DocumentBatch.over(block, np.arange(block.n_rows))


@dataclass(repr=False)
class Score(_FilterStage):
    """Add scores as columns; nothing is dropped.

    `score_fn` is a function of the text, a DocumentFilter, or a list of these.

    With a list, `score_field` is a list of as many names; `text_field` is one name for all, or a list. A function gets
    the value as in JSON, "" for null and a missing field; a DocumentFilter gets texts, "" for a value that is not a
    string.
    """

    score_fn: _FilterOrFunction | list[_FilterOrFunction]
    score_field: str | list[str]
    text_field: str | list[str] = "text"
    name: str = "score_fn"

    def __post_init__(self) -> None:
        self.score_fn = _as_list(self.score_fn, "score_fn", "Score")
        n = len(self.score_fn)
        self.score_field = _per_filter(self.score_field, n, str, "score_field", "Score", repeat=False)
        self.text_field = _per_filter(self.text_field, n, str, "text_field", "Score")
        self._adopt(self.score_fn, "score_fn", "score")

    def inputs(self) -> Any:
        return ["data"], _distinct(self.text_field)

    def outputs(self) -> Any:
        return ["data"], _distinct(self.score_field)

    def _objects(self) -> list[DocumentFilter]:
        return [f for f in self.score_fn if isinstance(f, DocumentFilter)]  # type: ignore[union-attr]

    def _readers(self) -> list[tuple[DocumentFilter, str]]:
        pairs = zip(self.score_fn, self.text_field, strict=True)  # type: ignore[arg-type]
        return [(f, field) for f, field in pairs if isinstance(f, DocumentFilter)]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        batch, all_rows = task, np.arange(task.num_items)
        for fn, text_field, score_field in zip(self.score_fn, self.text_field, self.score_field, strict=True):  # type: ignore[arg-type]
            column = ColumnStatistics(batch, text_field)
            scores = _scores(fn, column, all_rows, self._reading(text_field))
            self._note_scores(score_field, _numbers(fn, scores))
            batch = batch.with_column(score_field, scores)
        return batch


@dataclass(repr=False)
class Filter(_FilterStage):
    """Keep documents by an existing column. `filter_fn`: a function of the value, a DocumentFilter, or a list.

    Each value is passed as in JSON, whatever the types of other rows, null and a missing field as None. With a list,
    `filter_field` is a list of as many names; `invert` is one value for all, or a list. `verbose` logs how many
    documents of each batch are kept.
    """

    filter_fn: _FilterOrFunction | list[_FilterOrFunction]
    filter_field: str | list[str]
    invert: bool | list[bool] = False
    name: str = "filter_fn"
    verbose: bool = False
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)

    def __post_init__(self) -> None:
        self.filter_fn = _as_list(self.filter_fn, "filter_fn", "Filter")
        n = len(self.filter_fn)
        self.filter_field = _per_filter(self.filter_field, n, str, "filter_field", "Filter", repeat=False)
        self.invert = _per_filter(self.invert, n, bool, "invert", "Filter")
        self._adopt(self.filter_fn, "filter_fn", "filter")

    def inputs(self) -> Any:
        return ["data"], _distinct(self.filter_field)

    def _objects(self) -> list[DocumentFilter]:
        return [f for f in self.filter_fn if isinstance(f, DocumentFilter)]  # type: ignore[union-attr]

    def compute_filter_mask(
        self, df: Any, filter_fn: _FilterOrFunction | None = None, filter_field: str = "", invert: bool = False
    ) -> Any:
        """Return which rows of a frame are kept, as a series of bools: by one function, or by all of this stage."""
        return (self if filter_fn is None else Filter(filter_fn, filter_field, invert))._mask(df)

    def rules(self) -> list[DropRule]:
        return _rules(self.filter_fn, self.invert)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        rows = np.arange(task.num_items)
        reasons = _reasons(self.filter_fn)  # type: ignore[arg-type]
        for fn, field, invert, reason in zip(self.filter_fn, self.filter_field, self.invert, reasons, strict=True):  # type: ignore[arg-type]
            values = task.values(field, rows)
            self._note_scores(reason, _numbers(fn, values), task.serial[rows])
            keep = fn.keep_document if isinstance(fn, DocumentFilter) else fn
            mask = np.fromiter((bool(keep(v)) for v in values), bool, len(values)) ^ invert
            limits = fn.thresholds() if isinstance(fn, DocumentFilter) else {}
            dropped = [v for v, is_kept in zip(values, mask, strict=True) if not is_kept]
            self._note_drops(task.serial[rows[~mask]], _inverted(reason, invert), dropped, limits)
            rows = rows[mask]
        return _select(self, task, rows)


@dataclass(repr=False)
class ScoreFilter(_FilterStage):
    """Score documents and keep those that the filter keeps. `filter_obj`: a DocumentFilter, or a list applied in order.

    `score_field` adds scores as columns (a name per filter, or None), of all documents, because --keep-rejected writes
    those that are dropped, too. `invert` keeps what would be dropped. With a list each of these may be a list.
    `verbose` logs how many documents of each batch are kept.
    """

    filter_obj: DocumentFilter | list[DocumentFilter]
    text_field: str | list[str] = "text"
    score_field: str | list[str | None] | None = None
    invert: bool | list[bool] = False
    name: str = "score_filter"
    verbose: bool = False

    def __post_init__(self) -> None:
        self.filter_obj = _as_list(self.filter_obj, "filter_obj", "ScoreFilter")
        for one in self.filter_obj:
            if not isinstance(one, DocumentFilter):
                raise UsageError(
                    f"ScoreFilter: filter_obj must be a DocumentFilter, got {type(one).__name__}; "
                    "use Score and Filter for a function"
                )
        n = len(self.filter_obj)
        self.text_field = _per_filter(self.text_field, n, str, "text_field", "ScoreFilter")
        self.invert = _per_filter(self.invert, n, bool, "invert", "ScoreFilter")
        if self.score_field is None:
            self.score_field = [None] * n
        self.score_field = _per_filter(
            self.score_field, n, (str, type(None)), "score_field", "ScoreFilter", repeat=False
        )
        self._adopt(self.filter_obj, "score_filter", "score_filter")

    def inputs(self) -> Any:
        return ["data"], _distinct(self.text_field)

    def outputs(self) -> Any:
        return ["data"], _distinct(f for f in self.score_field if f is not None)  # type: ignore[union-attr]

    def _objects(self) -> list[DocumentFilter]:
        return self.filter_obj  # type: ignore[return-value]

    def _readers(self) -> list[tuple[DocumentFilter, str]]:
        return list(zip(self.filter_obj, self.text_field, strict=True))  # type: ignore[arg-type]

    def rules(self) -> list[DropRule]:
        return _rules(self.filter_obj, self.invert)

    def find_evidence(self, rule: str, text: str) -> list[tuple[int, int]]:
        inverts: Any = self.invert
        names = [_inverted(r, i) for r, i in zip(_reasons(self.filter_obj), inverts, strict=True)]  # type: ignore[arg-type]
        one: Any = self.filter_obj[names.index(rule)] if rule in names else None  # type: ignore[index]
        return one.find_evidence(text) if one is not None else []

    def compute_filter_mask(
        self,
        df: Any,
        filter_obj: DocumentFilter | None = None,
        text_field: str = "text",
        score_field: str | None = None,
        invert: bool = False,
    ) -> Any:
        """Return which rows of a frame are kept, as a series of bools: by one filter, or by all of this stage.

        `score_field`: the frame gets the scores of that filter as this column.
        """
        if filter_obj is None:
            return self._mask(df)
        mask = ScoreFilter(filter_obj, text_field, invert=invert)._mask(df)
        if score_field is not None:
            scores = Score(filter_obj, score_field, text_field)
            df[score_field] = scores.process(_batch_of(df)).column(score_field).to_pylist()
        return mask

    def process(self, task: DocumentBatch) -> DocumentBatch:
        filters: list[Any] = self.filter_obj  # type: ignore[assignment]
        chain = zip(filters, self.text_field, self.score_field, self.invert, _reasons(filters), strict=True)  # type: ignore[arg-type]
        columns: dict[str, ColumnStatistics] = {}
        all_rows = rows = np.arange(task.num_items)
        score_columns: list[tuple[str, Any]] = []
        for i, (one, text_field, score_field, invert, reason) in enumerate(chain):
            column = columns.setdefault(text_field, ColumnStatistics(task, text_field))
            if score_field is None:
                scores = _scores(one, column, rows, self._reading(text_field, i))
            else:  # of all documents, because those that are dropped may be written, too
                all_scores = _scores(one, column, all_rows, self._reading(text_field, i))
                scores = _take(all_scores, rows)
                score_columns.append((score_field, all_scores))
                task.measured[SCORES, score_field] = _array(all_scores)
            self._note_scores(reason, _numbers(one, scores), task.serial[rows])
            mask = np.asarray(_keep(one, column, rows, scores), bool) ^ invert
            dropped = np.flatnonzero(~mask)
            values = _take(scores, dropped)
            values = values.to_pylist() if hasattr(values, "to_pylist") else values
            self._note_drops(task.serial[rows[dropped]], _inverted(reason, invert), values, one.thresholds())
            rows = rows[mask]
        result = _select(self, task, rows)
        for column in columns.values():
            column.move_to(result, rows)
        for score_field, all_scores in score_columns:
            result = result.with_column(score_field, _take(all_scores, rows))
        return result


# -- scoring ----------------------------------------------------------------------------------------------------------
def _scores(fn: Any, column: ColumnStatistics, rows: np.ndarray[Any, Any], chain: Sequence[Any]) -> Any:
    """Return one score per row, from statistics if the filter names any.

    `chain`: filters that will examine the same texts.
    """
    if not isinstance(fn, DocumentFilter):
        return [fn("" if value is None else value) for value in column.batch.values(column.field, rows)]
    if fn.statistics:
        passes = set(map(pass_of, fn.statistics))
        ahead = {s for f in chain for s in f.statistics if pass_of(s) in passes}
        return fn.score_from(column.get(fn.statistics, rows, ahead))
    scores = fn.score_batch(_texts_of(column, rows))
    if len(scores) != len(rows):
        raise PipelineError(f"{fn.name}: score_batch returned {len(scores)} scores for {len(rows)} texts")
    return scores


def _numbers(fn: Any, scores: Any) -> Any:
    """Return the numbers for the histogram of the scores."""
    return fn.score_numbers(scores) if isinstance(fn, DocumentFilter) else scores


def _keep(one: DocumentFilter, column: ColumnStatistics, rows: np.ndarray[Any, Any], scores: Any) -> Any:
    if type(one).keep_texts is DocumentFilter.keep_texts:  # copy texts only for a filter that reads them
        return one.keep_scores(scores)
    return one.keep_texts(_texts_of(column, rows), scores)


def _texts_of(column: ColumnStatistics, rows: np.ndarray[Any, Any]) -> pa.Array:
    texts = column.texts
    return texts if len(rows) == len(texts) else texts.take(rows)


def _take(scores: Any, indices: np.ndarray[Any, Any]) -> Any:
    """Select some of the scores, which are an array of numpy or Arrow, or a list."""
    if isinstance(scores, np.ndarray):
        return scores[indices]
    if isinstance(scores, (pa.Array, pa.ChunkedArray)):
        return scores.take(indices)
    return [scores[i] for i in indices]


def _array(scores: Any) -> np.ndarray[Any, Any]:
    """Return scores as a numpy array, of Python objects unless they are one already."""
    if isinstance(scores, np.ndarray):
        return scores
    values = scores.to_pylist() if hasattr(scores, "to_pylist") else list(scores)
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _select(stage: Filter | ScoreFilter, task: DocumentBatch, rows: np.ndarray[Any, Any]) -> DocumentBatch:
    if stage.verbose and task.num_items:
        _log.info("%s: kept %d of %d documents", stage.name, len(rows), task.num_items)
    return task if len(rows) == task.num_items else task.take(rows)


def _warm_up(statistics: set[str]) -> None:
    """Load the compiled code before any memory cap is set."""
    if statistics:
        measure(pa.array(["one two three", None], pa.large_string()), statistics)


# -- settings ---------------------------------------------------------------------------------------------------------
def _call(one: DocumentFilter, hook: str) -> None:
    method = getattr(one, hook, None)
    if method is not None:
        method()


def _settings_of(one: DocumentFilter) -> dict[str, Any]:
    """Return the plain values of a filter, private ones too, and collections of plain values as hashes."""
    plain = (bool, int, float, str, type(None))
    settings: dict[str, Any] = {}
    for name, value in vars(one).items():
        if isinstance(value, re.Pattern):
            value = (value.pattern, value.flags)
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, plain):
            settings[name] = value
            continue
        items: list[tuple[Any, Any]] | None = None
        if isinstance(value, dict):
            items = list(value.items())
        elif isinstance(value, (list, tuple, set, frozenset)):
            items = [(0, v) for v in value]
        if items is not None and all(isinstance(k, plain) and isinstance(v, plain) for k, v in items):
            ordered = sorted(map(repr, items)) if isinstance(value, (set, frozenset)) else list(map(repr, items))
            settings[name] = hashlib.blake2b("\0".join(ordered).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return settings


def _name_of(one: Any) -> str:
    if isinstance(one, DocumentFilter):
        return one.name
    return str(getattr(one, "__name__", type(one).__name__))


def _reasons(filters: Sequence[Any]) -> list[str]:
    """Return the names of the filters, numbered if one appears twice."""
    counts: dict[str, int] = {}
    reasons = []
    for name in map(_name_of, filters):
        counts[name] = counts.get(name, 0) + 1
        reasons.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return reasons


def _rules(filters: Any, inverts: Any) -> list[DropRule]:
    rules = []
    for one, invert, reason in zip(filters, inverts, _reasons(filters), strict=True):
        name = _inverted(reason, invert)
        if isinstance(one, DocumentFilter):
            rules.append(DropRule(name, reason, one.thresholds(), *one.bounds(), invert, one.in_recipe, one.meaning))
        else:
            rules.append(DropRule(name, reason, {}, inverted=invert))
    return rules


def _inverted(reason: str, invert: bool) -> str:
    return f"{reason} (inverted)" if invert else reason


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(names))


def _as_list(value: Any, parameter: str, stage: str) -> list[Any]:
    filters = list(value) if isinstance(value, (list, tuple)) else [value]
    if not filters:
        raise UsageError(f"{stage}: {parameter} is an empty list; give at least one filter")
    for one in filters:
        if not isinstance(one, DocumentFilter) and not callable(one):
            raise UsageError(
                f"{stage}: {parameter} must be a DocumentFilter or a function, got {type(one).__name__} ({one!r})"
            )
        if isinstance(one, type):
            raise UsageError(
                f"{stage}: {parameter} must be a filter, not the class {one.__name__}; write {one.__name__}(...)"
            )
    return filters


def _per_filter(value: Any, n: int, kind: Any, parameter: str, stage: str, repeat: bool = True) -> list[Any]:
    """Return one value per filter: from a list of that length, or (with `repeat`) one value for all."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * (n if repeat else 1)
    if len(values) != n or not all(isinstance(v, kind) for v in values):
        raise UsageError(
            f"{stage}: {parameter} must be {'one value or ' if repeat else ''}a list of one per filter ({n}), "
            f"got {value!r}"
        )
    return values
