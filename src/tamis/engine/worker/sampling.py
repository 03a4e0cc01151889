"""Choosing samples of the documents of one unit (engine/samples.py), and what is stored of each.

Keys of all documents are computed at once (some nanoseconds each); a document is looked at only if it is within the
limits, as few are once a run has seen some thousand documents. Of those that are chosen when the unit is through, the
record is stored as it is, where it is a line that no stage changed; else a line is made of the field that is shown.
Where a stage removes values that must not be stored, such as personal data, it also removes them from texts as they
were before it.

`describe_samples` makes excerpts of what is left at the end of the run, around what its rule counted.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tamis import files
from tamis.engine.job import Job
from tamis.engine.messages import StagedFile
from tamis.engine.samples import (
    GROUP_FIELDS,
    MAX_RECORD_BYTES,
    MAX_REMEMBERED,
    CompleteTo,
    DocumentSample,
    Excerpt,
    RoleSelection,
    SampleLimits,
    SampleOutcome,
    as_name,
    describe_file,
    encode_complete_to,
    encoded_parts,
    excerpt_of,
    groups_of_record,
    orders_of,
    rule_roles,
    size_of_role,
)
from tamis.engine.schema import ID_FIELD, FileKind, RecordedRule
from tamis.failures import is_memory_failure
from tamis.kernels.records import hash128
from tamis.memory.release import without_collector
from tamis.stages.base import ProcessingStage
from tamis.stages.notes import DropNote
from tamis.tasks import DocumentBatch, Lineage, Origin

_SALT = 0x73616D706C6573  # keys of samples have nothing to do with those by which documents are chosen otherwise
_MAX_READ = 20_000  # characters of a text in which the ranges that a rule counted are looked for
_MAX_SHOWN = 30_000  # characters of a text that are stored until its excerpt is made
_SMALL_BYTES = 2_000  # of documents: a part of the input with smaller ones has a larger share of them than of bytes
_NO_LIMIT = 1 << 63
_COMPARED, _MAX_COMPARED = 256, 4096  # written documents whose texts are compared at once, and in all, in a batch
Array = np.ndarray[Any, Any]
_log = logging.getLogger("tamis.samples")


class SamplePlan:
    """Settings of sampling that hold for a whole run: the field that is shown, rules with their limits, redactions."""

    def __init__(self, job: Job) -> None:
        self.text_field = job.text_field
        self.stages = dict(zip(job.labels, job.stages, strict=True))
        self.redactions = [_redaction(s) for s in job.stages if s.redacts_samples]
        limits = {(r.stage, r.name): _compared(r) for r in job.rules()}
        self.limits = {key: values for key, values in limits.items() if values}

    def without_secrets(self, text: str) -> str:
        for redact in self.redactions:
            text = redact(text)
        return text

    def find_evidence(self, sample: DocumentSample, text: str) -> list[tuple[int, int]]:
        """Return the ranges of a text that the rule which dropped it counted."""
        if sample.outcome is not SampleOutcome.DROPPED:
            return []
        try:
            return self.stages[sample.stage].find_evidence(sample.rule, text[:_MAX_READ])
        except Exception:  # of a filter of the user's: the run does not depend on it
            return []


def describe_samples(plan: SamplePlan, path: str, base: str) -> list[StagedFile]:
    """Write the staged file of samples with excerpts, made of the records in a file.

    Return none if that cannot be done, as where the file is on another machine: a run does not depend on it.
    """
    try:
        with (
            open(path, "rb") as source,
            files.create(base + ".samples", files.OWN) as target,
            without_collector(),
        ):
            describe_file(source, target, plan.find_evidence)
    except Exception as exc:
        if not isinstance(exc, FileNotFoundError):
            _log.warning("the report shows samples without excerpts: making them failed", exc_info=True)
        files.remove(base + ".samples")
        return []
    return [StagedFile(base + ".samples", FileKind.SAMPLES, extension="jsonl")]


class _About(NamedTuple):
    """Why a document was dropped; empty for others. `before`: the text as it was read, if it was changed."""

    outcome: SampleOutcome
    stage: str = ""
    rule: str = ""
    value: str = ""
    threshold: str = ""
    distance: float | None = None
    before: Excerpt | None = None


class _Document(NamedTuple):
    """A document of a batch that may be chosen."""

    key: int
    row: int
    about: _About
    has_text: bool


class _Dropped(NamedTuple):
    """Documents that the rules of a stage dropped in one call, rule after rule.

    `rules`: the number of the note of each; `starts`: where the documents of each note begin.
    """

    notes: list[DropNote]
    starts: Array
    rules: Array
    serials: Array
    keys: Array

    @classmethod
    def of(cls, drops: Sequence[tuple[Array, DropNote]], columns: Sequence[Array]) -> _Dropped:
        """Return the documents of all rules. `columns`: what keys are made of, for all documents of the call."""
        notes, sizes = [note for _, note in drops], [len(serials) for serials, _ in drops]
        serials = np.concatenate([serials for serials, _ in drops])
        keys = _keys(*(column[serials] for column in columns))
        return cls(notes, np.cumsum([0, *sizes[:-1]]), np.repeat(np.arange(len(drops)), sizes), serials, keys)

    def first_of_rules(self, mask: Array, n: int, order: Array) -> Array:
        """Return the first n documents of each rule that are in a mask, in an order, then by their keys."""
        at = np.flatnonzero(mask)
        if not len(at):
            return at
        at = at[np.lexsort((self.keys[at], order[at], self.rules[at]))]
        rules = self.rules[at]
        return at[np.arange(len(at)) - np.searchsorted(rules, rules) < n]


class _Line(NamedTuple):
    """A document whose record is a line that shows it as it is. `groups`: None if they are those of the line."""

    document: _Document
    origin: Origin
    row: int
    groups: dict[str, str] | None

    @property
    def has_text(self) -> bool:
        return self.document.has_text


class SampleCollector:
    """Samples of one unit."""

    def __init__(self, plan: SamplePlan, limits: SampleLimits, n_documents: int = 0, n_bytes: int = 0) -> None:
        """Create a collector. `n_documents` and `n_bytes`: what the unit has, 0 where that is not known."""
        density = max(1.0, n_documents * _SMALL_BYTES / n_bytes) if n_bytes else 1.0
        self._plan, self._limits = plan, limits
        self._chosen = RoleSelection(min(1.0, limits.share * density))
        if n_documents > self._chosen.size_of("all") < size_of_role("all"):
            # About so many documents have a smaller key: nothing is read of others.
            self._chosen.narrow(CompleteTo(int(_NO_LIMIT / n_documents * self._chosen.size_of("all"))))
        self._field = plan.text_field
        self._is_off = False
        self._samples: dict[int, _Line | DocumentSample] = {}
        self._lines: list[bytes] = []

    def note_dropped(
        self,
        batches: Sequence[DocumentBatch],
        identity: tuple[Array, Array],
        stage: str,
        drops: Sequence[tuple[Array, DropNote]],
    ) -> None:
        """Choose among documents that the rules of a stage dropped in one call.

        `identity`: of all documents of the call, by serial; `drops`: for each rule, serials and what was noted.
        """
        if self._is_off or not drops:
            return
        with self._harmless():
            self._note_dropped(batches, identity, stage, drops)

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
        stage: str,
        drops: Sequence[tuple[Array, DropNote]],
    ) -> None:
        """Choose among the documents of all rules at once: a choice for each rule would take several times as long."""
        if not all(type(batch) is DocumentBatch for batch in batches):
            return
        places = [b.places() for b in batches if b.num_items]
        file, offset = places[0] if len(places) == 1 else map(np.concatenate, zip(*places, strict=True))
        dropped = _Dropped.of(drops, (*identity, file, offset))
        distances = self._distances(stage, dropped)
        shown = np.zeros(len(dropped.keys), bool)
        shown[self._lowest(SampleOutcome.DROPPED, dropped.keys)] = True
        shown[self._of_rules(stage, dropped, distances)] = True
        chosen = shown.copy()
        chosen[self._lowest("all", dropped.keys)] = True
        documents = []
        thresholds = [""] * len(dropped.notes)
        for k in np.flatnonzero(chosen).tolist():
            rule = int(dropped.rules[k])
            note, position = dropped.notes[rule], k - int(dropped.starts[rule])
            value = None if note.values is None else note.values[position]
            distance = None if distances[k] == np.inf else float(distances[k])
            threshold = thresholds[rule] = thresholds[rule] or _shown(note.threshold)
            about = _About(SampleOutcome.DROPPED, stage, note.reason, _shown(value), threshold, distance)
            documents.append(_Document(int(dropped.keys[k]), int(dropped.serials[k]), about, bool(shown[k])))
        first = 0
        for batch in batches:
            end = first + batch.num_items
            self._add(batch, [d._replace(row=d.row - first) for d in documents if first <= d.row < end])
            first = end

    def _of_rules(self, stage: str, dropped: _Dropped, distances: Array) -> Array:
        """Return the positions of documents that may be chosen for their rule: any, and the nearest to its limit."""
        keys, nearest = [], []
        for note in dropped.notes:
            rule, near = rule_roles(stage, note.reason)
            keys.append(self._limit_of(rule))
            last, limit = self._chosen.last_of(near), self._limits.distances.get(near, np.inf)
            nearest.append(limit if last is None else min(limit, last[0]))
        is_low = dropped.keys <= np.array(keys, np.uint64)[dropped.rules]
        is_near = (distances <= np.array(nearest)[dropped.rules]) & (distances < np.inf)
        any_of_rule, near = rule_roles(stage, "")
        low = dropped.first_of_rules(is_low, self._chosen.size_of(any_of_rule), dropped.keys)
        return np.concatenate([low, dropped.first_of_rules(is_near, self._chosen.size_of(near), distances)])

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
        keys, may_differ = _keys(*batch.identity, *batch.places()), _may_differ(batch, self._field)
        limits = {outcome: self._limit_of(outcome) for outcome in (SampleOutcome.KEPT, SampleOutcome.CHANGED)}
        room = {outcome: self._chosen.size_of(outcome) for outcome in limits}
        in_all = np.zeros(len(keys), bool)
        in_all[self._lowest("all", keys)] = True
        is_open = (keys <= limits[SampleOutcome.KEPT]) | (may_differ & (keys <= limits[SampleOutcome.CHANGED]))
        candidates = np.flatnonzero(is_open | in_all)
        order = candidates[np.argsort(keys[candidates], kind="stable")]
        for first in range(0, min(len(order), _MAX_COMPARED), _COMPARED):
            rest = order[first:]
            needs_text = bool(room[SampleOutcome.KEPT] and keys[rest[0]] <= limits[SampleOutcome.KEPT])
            if not (needs_text or in_all[rest].any() or (room[SampleOutcome.CHANGED] and may_differ[rest].any())):
                return
            rows = rest[:_COMPARED]
            texts = _column(batch, self._field, rows, may_differ[rows])
            texts_before = _texts_before(batch, self._field, rows, may_differ[rows])
            chosen: list[tuple[int, SampleOutcome]] = []
            has_text: list[bool] = []
            for i, row in enumerate(rows.tolist()):
                is_changed = texts_before[i] is not None and texts_before[i] != texts[i]
                outcome = SampleOutcome.CHANGED if is_changed else SampleOutcome.KEPT
                if is_shown := bool(room[outcome] > 0 and keys[row] <= limits[outcome]):
                    room[outcome] -= 1
                if is_shown or in_all[row]:
                    chosen.append((i, outcome))
                    has_text.append(is_shown)
            documents = []
            for (i, outcome), is_shown in zip(chosen, has_text, strict=True):
                before = None
                if is_shown and outcome is SampleOutcome.CHANGED:
                    before = excerpt_of(self._plan.without_secrets(texts_before[i] or ""))
                about = _About(outcome, before=before)
                documents.append(_Document(int(keys[rows[i]]), int(rows[i]), about, is_shown))
            self._add(batch, documents)

    def write(self, base: str) -> list[StagedFile]:
        """Write the staged file of what was chosen; nothing if that is nothing."""
        if not self._lines:
            return []
        with files.create(base + ".samples", files.OWN) as file:
            file.writelines(self._lines)
        return [StagedFile(base + ".samples", FileKind.SAMPLES, extension="jsonl")]

    # -- choosing -----------------------------------------------------------------------------------------------------
    def _limit_of(self, role: str) -> int:
        """Return the key that a further document of a role must not exceed."""
        last = self._chosen.last_of(role)
        limit = self._limits.keys.get(role, _NO_LIMIT)
        if role == "all" and (complete_to := self._chosen.complete_to) is not None:
            limit = min(limit, complete_to.key)
        return limit if last is None else min(limit, last[1])

    def _lowest(self, role: str, keys: Array) -> Array:
        """Return the positions of keys that may be chosen for a role."""
        size = self._chosen.size_of(role)
        lowest = np.flatnonzero(keys <= np.uint64(self._limit_of(role)))
        if len(lowest) > size:
            lowest = lowest[np.argpartition(keys[lowest], size - 1)[:size]]
        return lowest

    def _distances(self, stage: str, dropped: _Dropped) -> Array:
        """Return how far each value is from the limit of its rule; infinite where one of them is no number."""
        distances = np.full(len(dropped.keys), np.inf)
        for note, start in zip(dropped.notes, dropped.starts.tolist(), strict=True):
            limits = self._plan.limits.get((stage, note.reason))
            if limits is None or note.values is None:
                continue
            values = _numbers(note.values)
            of_rule = distances[start : start + len(values)]
            for limit in limits:
                np.fmin(of_rule, np.abs(values - limit), out=of_rule)  # not of NaN
        return distances

    # -- storing ------------------------------------------------------------------------------------------------------
    def _add(self, batch: DocumentBatch, documents: Sequence[_Document]) -> None:
        """Take documents of a batch, as far as they are chosen.

        Of those whose record is a line that shows them as they are, nothing is read until `finish`.
        """
        chosen = [document for document in documents if self._is_needed(document)]
        lineage = batch.lineage
        if not chosen or lineage is None:
            return
        rows = np.array([document.row for document in chosen])
        origin_rows = lineage.rows[rows]
        has_lines = lineage.origin.keeps_bytes and bool((origin_rows >= 0).all())
        groups: list[dict[str, str]] | None = None
        if not has_lines or any(_is_own(lineage, name) for name in GROUP_FIELDS):
            columns = {name: _plain(batch.column_of(name, rows)) for name in GROUP_FIELDS}
            groups = [groups_of_record({name: columns[name][i] for name in columns}) for i in range(len(rows))]
        is_own = _is_own(lineage, self._field) or _is_own(lineage, ID_FIELD)
        if has_lines and not self._plan.redactions and not is_own:
            for i, document in enumerate(chosen):
                own_groups = groups[i] if groups is not None else None
                self._samples[document.key] = _Line(document, lineage.origin, int(origin_rows[i]), own_groups)
        else:
            self._add_made(batch, lineage, chosen, groups)
        if len(self._samples) > MAX_REMEMBERED:
            self._samples = {key: self._samples[key] for key in self._chosen.members()}

    def _is_needed(self, document: _Document) -> bool:
        about = document.about
        roles = about.outcome, document.has_text, about.stage, about.rule, about.distance
        if not self._chosen.add(document.key, orders_of(document.key, *roles)):
            return False
        known = self._samples.get(document.key)
        return known is None or not known.has_text

    def _add_made(
        self,
        batch: DocumentBatch,
        lineage: Lineage,
        documents: Sequence[_Document],
        groups: Sequence[dict[str, str]] | None,
    ) -> None:
        """Take documents with lines that are made of the field that is shown, as it is now."""
        rows = np.array([document.row for document in documents])
        sizes = lineage.origin.sizes(lineage.rows[rows]).tolist()
        shown = rows[[document.has_text for document in documents]]
        texts = iter(_column(batch, self._field, shown, np.ones(len(shown), bool)))
        ids = iter(_plain(batch.column_of(ID_FIELD, shown)) if len(shown) else [])
        for i, document in enumerate(documents):
            record, n_chars = None, 0
            if document.has_text:
                record, n_chars = self._made_record(next(ids), self._plan.without_secrets(next(texts) or ""))
            own = groups[i] if groups is not None else _groups_in_line(lineage.raw(document.row) or b"")
            place = lineage.place(document.row)
            self._samples[document.key] = self._sample(document, place, sizes[i], own, record, n_chars)

    def _made_record(self, name: str, text: str) -> tuple[bytes, int]:
        return json.dumps({ID_FIELD: name, self._field: text[:_MAX_SHOWN]}).encode(), len(text)

    def _sample(
        self,
        document: _Document,
        place: tuple[int, int],
        n_bytes: int,
        groups: dict[str, str] | None,
        record: bytes | None,
        n_chars: int = 0,
    ) -> DocumentSample:
        """Return a sample. `groups`: None if they are in the record; `n_chars`: of the text, if the record is made."""
        about = document.about
        return DocumentSample(
            document.key,
            about.outcome,
            *place,
            n_bytes=n_bytes,
            stage=about.stage,
            rule=about.rule,
            value=about.value,
            threshold=about.threshold,
            distance=about.distance,
            excerpt=Excerpt(n_chars=n_chars) if n_chars else None,
            before=about.before,
            groups=groups or {},
            record=record,
            text_field=self._field if record is not None else "",
            groups_in_record=groups is None,
        )

    def finish(self) -> None:
        """Take from lines what is stored of the documents that are chosen, before the unit lets go of them."""
        with self._harmless():
            lines: list[bytes] = []
            for key, is_shown in self._chosen.members().items():
                sample = self._samples[key]
                lines += encoded_parts(self._read(sample, is_shown) if isinstance(sample, _Line) else sample)
            self._lines = [encode_complete_to(self._chosen.complete_to), *lines] if lines else []
        self._samples.clear()

    def _read(self, sample: _Line, is_shown: bool) -> DocumentSample:
        """Return what is stored of a document whose record is a line. `is_shown`: with its text."""
        line, places = sample.origin.raw(sample.row) or b"", sample.origin.places
        place = (-1, -1) if places is None else (int(places[0][sample.row]), int(places[1][sample.row]))
        record, n_chars, groups = None, 0, sample.groups
        if sample.has_text and is_shown and _is_plain_object(line):
            record = line
        elif sample.has_text and is_shown:
            name, text = names_in_line(line, [ID_FIELD])[ID_FIELD], text_in_line(line, self._field)
            record, n_chars = self._made_record(name, text)
        if groups is None and record is not line:
            groups = _groups_in_line(line)
        return self._sample(sample.document, place, len(line), groups, record, n_chars)


def _is_own(lineage: Lineage, name: str) -> bool:
    """Return True if stages may have changed a field of the documents."""
    return name in lineage.columns or name in lineage.hidden


def _is_plain_object(line: bytes) -> bool:
    """Return True if a record can be stored as it is: one line of JSON that is not too large."""
    return len(line) <= MAX_RECORD_BYTES and line.startswith(b"{") and b"\n" not in line


def _groups_in_line(line: bytes) -> dict[str, str]:
    return groups_of_record(names_in_line(line, GROUP_FIELDS))


_BACKSLASH = ord("\\")


@cache
def _fields_pattern(fields: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(b'"(%s)"' % b"|".join(re.escape(field.encode()) for field in fields))


_OPENING = re.compile(rb'\s*:\s*"')
_VALUE = re.compile(rb'\s*:\s*(?:"([^"\\]*)"|null)')


def names_in_line(line: bytes, fields: Sequence[str]) -> dict[str, str]:
    """Return some fields of a record as names, "" where one is missing.

    A plain text that is not within another object is read by itself: there is no other brace before or after it.
    Else the line is parsed.

    >>> names_in_line(b'{"text": "a {", "url": "x.org"}', ["url", "source"])
    {'url': 'x.org', 'source': ''}
    >>> names_in_line(b'{"of": {"url": "y.org"}, "text": "}", "url": 5}', ["url"])
    {'url': '5'}
    """
    found = {m[1]: m.span() for m in _fields_pattern(tuple(fields)).finditer(line)}  # of equal ones the last counts
    names = {}
    for field in fields:
        start, end = found.get(field.encode(), (-1, 0))
        if start < 0:
            names[field] = ""
            continue
        value = _VALUE.match(line, end)
        is_outside = line.count(b"}", end) == 1 or line.count(b"{", 0, start) == 1
        if value is None or not is_outside or line[start - 1] == _BACKSLASH:
            record = _record(line)
            return {name: as_name(record.get(name)) for name in fields}
        names[field] = as_name((value[1] or b"").decode("utf-8", "replace"))
    return names


def text_in_line(line: bytes, field: str) -> str:
    """Return a text of a record, "" where it has none: of a long one the beginning, without parsing all of the line.

    >>> text_in_line(b'{"id": 5, "text": "one two"}', "text")
    'one two'
    >>> text_in_line(b'{"text": "%s"}' % (b"word " * 100_000), "text").count("word")
    12000
    """
    quoted = f'"{field}"'.encode()
    start = line.find(quoted)
    opening = _OPENING.match(line, start + len(quoted)) if start >= 0 and line.count(b"{", 0, start) == 1 else None
    if opening is not None and len(line) > opening.end() + 2 * _MAX_SHOWN:
        part = line[opening.end() : opening.end() + 2 * _MAX_SHOWN]
        part = part[: part.rfind(b" ") + 1]  # a space is not within an escape
        with contextlib.suppress(ValueError):  # the text ends before
            text = json.loads(b'"%s"' % part)
            if part and isinstance(text, str):
                return text
    value = _record(line).get(field)
    return value if isinstance(value, str) else ""


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # what only the readers of files understand
        return {}
    return record if isinstance(record, dict) else {}


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


def _numbers(values: Sequence[Any]) -> Array:
    """Return values as numbers; those that are none as NaN."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_number, values), np.float64, len(values))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _shown(value: Any) -> str:
    """Return a value or limits as verdicts have them, cut to a bound."""
    if value is None:
        return ""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    if isinstance(value, Mapping):
        value = dict(value)
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:1000]


def _plain(column: Any) -> list[str]:
    """Return the values of a column as names, "" where they are none."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # one that Python does not have
        return [""] * len(column)
    return [as_name(value) for value in values]
