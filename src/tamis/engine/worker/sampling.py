"""Choosing samples of the documents of one unit (engine/samples.py), and what is stored of each.

Keys of all documents are computed at once (some nanoseconds each); a field is read only of documents that are within
the limits, which are few once a run has seen some thousand documents. A text is cut to an excerpt around what its rule
counted. Where a stage removes values that must not be stored, such as personal data, it also removes them from the
excerpts of texts as they were before it.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tamis import files
from tamis.engine.job import ID_FIELD, Job
from tamis.engine.messages import StagedFile
from tamis.engine.samples import (
    EXCERPT_CHARS,
    MAX_MARKS,
    DocumentSample,
    Excerpt,
    SampleLimits,
    SampleOutcome,
    SampleSelection,
    encode_sample,
    rule_roles,
    size_of_role,
)
from tamis.engine.schema import FileKind, RecordedRule
from tamis.engine.worker.dropped import record_bytes
from tamis.failures import is_memory_failure
from tamis.kernels.records import hash128
from tamis.stages.base import ProcessingStage
from tamis.stages.notes import DropNote
from tamis.tasks import DocumentBatch

_SALT = 0x73616D706C6573  # keys of samples have nothing to do with those by which documents are chosen otherwise
_GROUPS = {"source": ("source",), "language": ("language", "lang"), "domain": ("url",)}
_FIELDS = [name for names in _GROUPS.values() for name in names]
_MAX_READ = 50_000  # characters of a text that are looked at
_BEFORE_MARK = 200  # characters of an excerpt before the first mark
_NO_LIMIT = 1 << 63
_COMPARED, _MAX_COMPARED = 256, 4096  # written documents whose texts are compared at once, and in all, in a batch
Array = np.ndarray[Any, Any]


class SamplePlan:
    """Settings of sampling that hold for a whole run: the field that is shown, rules with their limits, redactions."""

    def __init__(self, job: Job) -> None:
        self.text_field = job.text_field
        self.stages = dict(zip(job.labels, job.stages, strict=True))
        self.redactions = [_redaction(s) for s in job.stages if s.redacts_samples]
        limits = {(r.stage, r.name): _compared(r) for r in job.rules()}
        self.limits = {key: values for key, values in limits.items() if values}


class SampleCollector:
    """Samples of one unit."""

    def __init__(self, plan: SamplePlan, limits: SampleLimits) -> None:
        self._plan, self._limits, self._selection = plan, limits, SampleSelection()
        self._field = plan.text_field
        self._is_off = False
        self._keyed: tuple[tuple[Array, Array], Array] | None = None  # keys of the documents of a call, by identity

    def note_dropped(
        self,
        batches: Sequence[DocumentBatch],
        identity: tuple[Array, Array],
        serials: Array,
        stage: str,
        note: DropNote,
    ) -> None:
        """Choose among documents that a rule dropped. `identity`: of all documents of the call, by serial."""
        if self._is_off:
            return
        with self._harmless():
            self._note_dropped(batches, identity, serials, stage, note)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        """Take no more samples of this unit after an error, which must not cost documents; a lack of memory passes."""
        try:
            yield
        except Exception as exc:
            if is_memory_failure(exc):
                raise
            self._is_off = True

    def _note_dropped(
        self,
        batches: Sequence[DocumentBatch],
        identity: tuple[Array, Array],
        serials: Array,
        stage: str,
        note: DropNote,
    ) -> None:
        if not all(type(batch) is DocumentBatch for batch in batches):
            return
        keys = self._keys_of_call(batches, identity)[serials]
        rule, near = rule_roles(stage, note.reason)
        with_text = self._within(SampleOutcome.DROPPED, keys) | self._within(rule, keys)
        distances = self._distances(stage, note)
        if distances is not None:
            with_text |= self._is_near(near, distances, keys)
        chosen = np.flatnonzero(with_text | self._within("all", keys))
        for batch in batches if len(chosen) else ():
            if not batch.num_items:
                continue
            first = int(batch.serial[0])
            here = chosen[(serials[chosen] >= first) & (serials[chosen] < first + batch.num_items)]
            rows = serials[here] - first
            texts, facts = _column(batch, self._field, rows, with_text[here]), _facts_of(batch, rows)
            for text, fact, k in zip(texts, facts, here.tolist(), strict=True):
                shown = None if text is None else self._without_secrets(text)
                value = None if note.values is None else note.values[k]
                distance = None if distances is None or distances[k] == np.inf else float(distances[k])
                about = _About(stage, note.reason, _shown(value), _shown(note.threshold), distance)
                marks = self._evidence(stage, note.reason, shown) if shown is not None else []
                self._add(fact, int(keys[k]), SampleOutcome.DROPPED, shown, None, about, marks)

    def _keys_of_call(self, batches: Sequence[DocumentBatch], identity: tuple[Array, Array]) -> Array:
        """Return the keys of all documents of a call, by serial: computed once for all rules of a stage."""
        if self._keyed is None or self._keyed[0] is not identity:
            places = [b.places() for b in batches if b.num_items]
            file, offset = (np.concatenate([p[i] for p in places]) for i in (0, 1))
            self._keyed = identity, _keys(*identity, file, offset)
        return self._keyed[1]

    def note_written(self, batches: Sequence[DocumentBatch]) -> None:
        """Choose among documents that are written."""
        if self._is_off:
            return
        with self._harmless():
            for batch in batches:
                if type(batch) is DocumentBatch and batch.num_items and batch.lineage is not None:
                    self._note_written_batch(batch)

    def _note_written_batch(self, batch: DocumentBatch) -> None:
        """Choose documents of a batch, in order of their keys.

        Which ones were changed is known when their texts are compared: they are compared until enough are found.
        """
        places = batch.places()
        keys = _keys(*batch.identity, *places)
        may_differ, in_all = _may_differ(batch, self._field), self._within("all", keys)
        limits = {outcome: self._limit_of(outcome) for outcome in (SampleOutcome.KEPT, SampleOutcome.CHANGED)}
        room = {outcome: size_of_role(outcome) for outcome in limits}
        is_open = (keys <= limits[SampleOutcome.KEPT]) | (may_differ & (keys <= limits[SampleOutcome.CHANGED]))
        order = np.argsort(keys, kind="stable")
        order = order[(is_open | in_all)[order]]
        for first in range(0, min(len(order), _MAX_COMPARED), _COMPARED):
            rest = order[first:]
            needs_text = bool(room[SampleOutcome.KEPT] and keys[rest[0]] <= limits[SampleOutcome.KEPT])
            if not (needs_text or in_all[rest].any() or (room[SampleOutcome.CHANGED] and may_differ[rest].any())):
                return
            rows = rest[:_COMPARED]
            differ = may_differ[rows]
            texts = _column(batch, self._field, rows, differ | needs_text)
            texts_before = _texts_before(batch, self._field, rows, differ)
            chosen: list[tuple[int, SampleOutcome, bool]] = []
            for i, (row, text, before) in enumerate(zip(rows.tolist(), texts, texts_before, strict=True)):
                outcome = SampleOutcome.CHANGED if before is not None and before != text else SampleOutcome.KEPT
                if has_text := text is not None and room[outcome] > 0 and int(keys[row]) <= limits[outcome]:
                    room[outcome] -= 1
                if has_text or in_all[row]:
                    chosen.append((i, outcome, has_text))
            facts = _facts_of(batch, rows[[i for i, _, _ in chosen]])
            for fact, (i, outcome, has_text) in zip(facts, chosen, strict=True):
                is_shown = has_text and outcome is SampleOutcome.CHANGED
                before = self._without_secrets(texts_before[i] or "") if is_shown else None
                self._add(fact, int(keys[rows[i]]), outcome, texts[i] if has_text else None, before, _NOTHING, [])

    def write(self, base: str) -> list[StagedFile]:
        """Write the staged file of what was chosen; nothing if that is nothing."""
        lines = b"".join(map(encode_sample, self._selection.samples()))
        if not lines:
            return []
        with files.create(base + ".samples", files.OWN) as file:
            file.write(lines)
        return [StagedFile(base + ".samples", FileKind.SAMPLES, extension="jsonl")]

    # -- choosing -----------------------------------------------------------------------------------------------------
    def _limit_of(self, role: str) -> int:
        """Return the key that a further document of a role must not exceed."""
        last = self._selection.last_of(role)
        limit = self._limits.keys.get(role, _NO_LIMIT)
        return limit if last is None else min(limit, last[1])

    def _within(self, role: str, keys: Array) -> Array:
        """Return a mask of the keys that may be chosen for a role."""
        limit, size = self._limit_of(role), size_of_role(role)
        if len(keys) > size:
            limit = min(limit, int(np.partition(keys, size - 1)[size - 1]))
        return keys <= np.uint64(limit)

    def _is_near(self, role: str, distances: Array, keys: Array) -> Array:
        limit, size = self._limits.distances.get(role, np.inf), size_of_role(role)
        if (last := self._selection.last_of(role)) is not None:
            limit = min(limit, last[0])
        if len(distances) > size:
            limit = min(limit, float(np.partition(distances, size - 1)[size - 1]))
        near = np.flatnonzero((distances <= limit) & np.isfinite(distances))
        nearest = near[np.lexsort((keys[near], distances[near]))[:size]]
        chosen = np.zeros(len(keys), bool)
        chosen[nearest] = True
        return chosen

    def _distances(self, stage: str, note: DropNote) -> Array | None:
        """Return how far each value is from the limit of its rule; infinite where that is no number; None: no limit."""
        limits = self._plan.limits.get((stage, note.reason))
        if limits is None or note.values is None:
            return None
        values = np.fromiter(map(_number, note.values), np.float64, len(note.values))
        distances = np.min([np.abs(values - limit) for limit in limits], axis=0)
        nearest: Array = np.where(np.isfinite(distances), distances, np.inf)
        return nearest

    # -- reading ------------------------------------------------------------------------------------------------------
    def _evidence(self, stage: str, rule: str, text: str) -> list[tuple[int, int]]:
        """Return the ranges of a text that its rule counted."""
        try:
            return self._plan.stages[stage].find_evidence(rule, text[:_MAX_READ])
        except Exception:  # of a filter of the user's: the run does not depend on it
            return []

    def _without_secrets(self, text: str) -> str:
        for redact in self._plan.redactions:
            text = redact(text)
        return text

    def _add(
        self,
        fact: _Facts,
        key: int,
        outcome: SampleOutcome,
        text: str | None,
        before: str | None,
        about: _About,
        marks: Sequence[tuple[int, int]],
    ) -> None:
        self._selection.add(
            DocumentSample(
                key,
                outcome,
                fact.file,
                fact.offset,
                fact.id,
                fact.n_bytes,
                about.stage,
                about.rule,
                about.value,
                about.threshold,
                about.distance,
                None if text is None else excerpt_of(text, marks),
                None if before is None else excerpt_of(before, []),
                fact.groups,
            )
        )


@dataclass(frozen=True)
class _Facts:
    """Facts that are stored of a document besides its text."""

    file: int
    offset: int
    id: str
    n_bytes: int
    groups: dict[str, str]


def _facts_of(batch: DocumentBatch, rows: Array) -> list[_Facts]:
    """Return the facts of some documents; a field is read of all of them at once."""
    if not len(rows):
        return []
    places = batch.places()
    columns = _columns_of(batch, rows)
    facts = []
    for i, n_bytes in enumerate(record_bytes(batch.take(rows)).tolist()):
        groups = {}
        for group, names in _GROUPS.items():
            value = next((columns[name][i] for name in names if columns[name][i]), "")
            if value := _domain(value) if group == "domain" else value:
                groups[group] = value
        file, offset = int(places[0][rows[i]]), int(places[1][rows[i]])
        facts.append(_Facts(file, offset, columns[ID_FIELD][i], n_bytes, groups))
    return facts


def _columns_of(batch: DocumentBatch, rows: Array) -> dict[str, list[str]]:
    """Return the fields that are stored of some documents.

    Lines that have been parsed are decoded here once more: a column of their block would be decoded for all of them.
    """
    names, lineage = (ID_FIELD, *_FIELDS), batch.lineage
    assert lineage is not None
    raw = lineage.origin.is_parsed and lineage.origin.keeps_bytes and bool((lineage.rows[rows] >= 0).all())
    own = [name for name in names if not raw or name in lineage.columns or name in lineage.hidden]
    columns = {name: _plain(batch.column_of(name, rows)) for name in own}
    if raw:
        records = [_record(lineage.raw(row)) for row in rows.tolist()]
        columns |= {name: [_name(record.get(name)) for record in records] for name in names if name not in columns}
    return columns


def _record(line: bytes | None) -> dict[str, Any]:
    try:
        record = json.loads(line or b"{}")
    except (ValueError, RecursionError):  # what only the readers of files understand
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True)
class _About:
    """Why a document was dropped."""

    stage: str = ""
    rule: str = ""
    value: str = ""
    threshold: str = ""
    distance: float | None = None


_NOTHING = _About()


def excerpt_of(text: str, marks: Sequence[tuple[int, int]]) -> Excerpt:
    """Return the part of a text around its first mark, or its beginning.

    >>> excerpt_of("one two", [(4, 7)])
    Excerpt(text='one two', start=0, n_chars=7, marks=[(4, 7)])
    """
    start = 0
    if marks and marks[0][1] > EXCERPT_CHARS:
        start = max(0, min(marks[0][0] - _BEFORE_MARK, len(text) - EXCERPT_CHARS))
    shown = text[start : start + EXCERPT_CHARS].encode("utf-8", "replace").decode()  # no half of a surrogate pair
    inside = [(max(a - start, 0), min(b - start, len(shown))) for a, b in marks if b > start]
    return Excerpt(shown, start, len(text), [(a, b) for a, b in inside if a < b][:MAX_MARKS])


def _redaction(stage: ProcessingStage[Any, Any]) -> Callable[[str], str]:
    return copy.deepcopy(stage).redact_sample  # what it counts of this is not of the run


def _keys(hi: Array, lo: Array, file: Array, offset: Array) -> Array:
    """Return a key of 63 bits for each document, from its identity and position."""
    mixed, _ = hash128.combine(hi, lo, file.astype(np.uint64), offset.astype(np.uint64), salt=_SALT)
    return mixed >> np.uint64(1)


def _may_differ(batch: DocumentBatch, field: str) -> Array:
    """Return a mask of the documents whose field may differ from that of their record."""
    lineage = batch.lineage
    assert lineage is not None
    if field not in lineage.columns:
        return np.zeros(batch.num_items, bool)
    changed = lineage.changed.get(field)
    has_record = lineage.rows >= 0
    return has_record if changed is None else has_record & changed


def _texts_before(batch: DocumentBatch, field: str, rows: Array, wanted: Array) -> list[str | None]:
    lineage = batch.lineage
    assert lineage is not None
    texts: list[str | None] = [None] * len(rows)
    at = np.flatnonzero(wanted)
    if len(at):
        values = lineage.origin.column_of(field, lineage.rows[rows[at]]).to_pylist()
        for i, value in zip(at.tolist(), values, strict=True):
            texts[i] = value if isinstance(value, str) else None
    return texts


def _column(batch: DocumentBatch, name: str, rows: Array, wanted: Array) -> list[str | None]:
    """Return a text of the wanted rows, "" where there is none, and None for the others."""
    texts: list[str | None] = [None] * len(rows)
    at = np.flatnonzero(wanted)
    if len(at):
        values = batch.column_of(name, rows[at]).to_pylist()
        for i, value in zip(at.tolist(), values, strict=True):
            texts[i] = value if isinstance(value, str) else ""
    return texts


def _compared(rule: RecordedRule) -> list[float]:
    return [
        float(x) for x in rule.compared if isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e300
    ]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _shown(value: Any) -> str:
    """Return a value or limits as verdicts have them, cut to a bound."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = dict(value)
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:1000]


def _plain(column: Any) -> list[str]:
    """Return the values of a column as texts: "" where they are neither a text nor a number."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # one that Python does not have
        return [""] * len(column)
    return [_name(value) for value in values]


def _name(value: Any) -> str:
    is_name = isinstance(value, (str, int)) and not isinstance(value, bool)
    return str(value)[:200].encode("utf-8", "replace").decode() if is_name else ""


def _domain(url: str) -> str:
    """Return the host of a URL.

    >>> _domain("https://www.example.org:80/a?b"), _domain("no url")
    ('example.org', '')
    """
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2].partition(":")[0].partition("?")[0]
    return host.lower().removeprefix("www.") if scheme and rest else ""
