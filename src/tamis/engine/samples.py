"""Samples of the documents of a run: which ones are chosen, and what is stored of each. `samples.jsonl`.

A report shows what was kept, changed and dropped. Documents are chosen by a hash of their identity and position, the
smallest first, so that the choice depends on the documents alone: not on how the input was cut, on workers, or on
interruptions. Of each rule, three documents are chosen that way and three whose score is nearest to the limit.

all        outcome, length and group of 400 documents, without texts: what the report says about groups
kept, changed, dropped    with an excerpt of the text
rule, near                of each rule that drops documents: any, and the nearest to its limit

Every part of the work chooses for itself (engine/worker/sampling.py), among the documents that are still within the
limits of what was chosen before (`SampleLimits`); the run joins the choices (run/output/sample_store.py). Choosing is
idempotent: a partition that is done again adds nothing.

Nothing is computed of documents that others may yet displace: of those with a text, the record is stored as it is, a
line after that of the sample. What is shown of it is found at the end of the run, for the few that are left: with what
its rule counted by a worker (engine/worker/sampling.py), without by `describe`. Until then lines are copied, and
read for the roles that their documents may have (`read_lines`).

A small part of the input chooses fewer documents than the whole run shows, as few of the final ones can be in it. A
part whose documents are far smaller than all others may then have too few in `all`. It says up to which key it has
them (`CompleteTo`), and further documents of other parts are left out, so that the sample stays a fair one.

Only plain Python here: the supervisor reads and joins samples, and has no numpy.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine import wire
from tamis.engine.schema import ID_FIELD

FILE = "samples.jsonl"
MAX_FILE_BYTES = 32 << 20
_MAX_LINE_BYTES = 1 << 17
MAX_RECORD_BYTES = _MAX_LINE_BYTES - 1  # of a record that is stored as it is
EXCERPT_CHARS = 1500
MAX_MARKS = 40
_BEFORE_MARK = 200  # characters of an excerpt before the first mark
_ALL = "all"
_N_RULE, _N_NEAR = 3, 3
_N_OF_ROLE = {_ALL: 400, "kept": 80, "changed": 40, "dropped": 80}
MAX_REMEMBERED = 4 * sum(
    _N_OF_ROLE.values()
)  # samples in memory, before those that are not chosen any more are removed
_MAX_ROLES = 500  # rules that name their values may be any number
_MAX_NAME = 200
_Order = tuple[float, int]


class SampleOutcome(StrEnum):
    KEPT = "kept"
    CHANGED = "changed"  # kept, with another text
    DROPPED = "dropped"


class Excerpt(NamedTuple):
    """A part of a text. `start`: characters before it; `marks`: ranges in it that a rule counted."""

    text: str = ""
    start: int = 0
    n_chars: int = 0  # of the whole text
    marks: tuple[tuple[int, int], ...] = ()


class DocumentSample(NamedTuple):
    """One document. `file`: the number of its input file, -1 if it has none; `offset`: its position there.

    `value` and `threshold`: as in verdicts; `distance`: of the value from the limit. `before`: the text as it was read,
    of changed documents. `groups`: what it belongs to (source, language, domain), where its fields say so. `record`: a
    line of JSON with the text in `text_field`, until the excerpt is made of it, and the groups if `groups_in_record`.
    """

    key: int
    outcome: SampleOutcome
    file: int = -1
    offset: int = -1
    id: str = ""
    n_bytes: int = 0
    stage: str = ""
    rule: str = ""
    value: str = ""
    threshold: str = ""
    distance: float | None = None
    excerpt: Excerpt | None = None
    before: Excerpt | None = None
    groups: Mapping[str, str] = MappingProxyType({})
    record: bytes | None = None
    text_field: str = ""
    groups_in_record: bool = False

    @property
    def has_text(self) -> bool:
        return self.excerpt is not None or self.record is not None

    @property
    def rule_roles(self) -> tuple[str, str]:
        """The roles that a dropped document may have for its rule: any one, and one near the limit."""
        return rule_roles(self.stage, self.rule)


def rule_roles(stage: str, rule: str) -> tuple[str, str]:
    return f"rule\n{stage}\n{rule}", f"near\n{stage}\n{rule}"


def size_of_role(role: str, share: float = 1.0) -> int:
    """Return how many documents are chosen for a role, of the whole input or of a share of it.

    Of a share, so many that it hardly ever has more of those that are chosen of the whole.

    >>> size_of_role("all"), size_of_role("all", 0.01), size_of_role("rule", 0.01)
    (400, 17, 3)
    """
    size = _N_OF_ROLE.get(role) or (_N_NEAR if role.startswith("near\n") else _N_RULE)
    return _size_of_share(size, share)


@functools.lru_cache(64)
def _size_of_share(size: int, share: float) -> int:
    mean = size * share
    return min(size, math.ceil(1.5 * mean + 4 * math.sqrt(mean)) + 3)


class CompleteTo(NamedTuple):
    """A part of the run has chosen its documents for `all` up to this key only."""

    key: int


@dataclass(frozen=True)
class SampleLimits:
    """The largest key with which a further document is chosen, by role; a role that is not full has no limit.

    `keys`: the largest key; `distances`: the largest distance from the limit of a rule; `share`: of the input that is
    in the part of the work that these limits are for, rather too large than too small.
    """

    keys: dict[str, int] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)
    share: float = 1.0


class RoleSelection:
    """The documents chosen so far for each role, by key.

    `add` in any order, any number of times: the result is the same. `share`: of the input that they are of.
    """

    def __init__(self, share: float = 1.0) -> None:
        self._roles: dict[str, list[_Order]] = {}
        self._share = share
        self._sizes: dict[str, int] = {}
        self._complete_to: int | None = None

    def size_of(self, role: str) -> int:
        """Return how many documents are chosen for a role."""
        size = self._sizes.get(role)
        if size is None:
            size = self._sizes[role] = size_of_role(role, self._share)
        return size

    def narrow(self, complete_to: CompleteTo) -> None:
        """Leave out documents that are chosen for `all` alone and have a larger key."""
        if self._complete_to is None or complete_to.key < self._complete_to:
            self._complete_to = complete_to.key
            chosen = self._roles.get(_ALL, [])
            del chosen[bisect_right(chosen, (0.0, complete_to.key)) :]

    @property
    def complete_to(self) -> CompleteTo | None:
        """Up to which key all documents are considered for `all`; None: all of them are."""
        last = self.last_of(_ALL) if self.size_of(_ALL) < _N_OF_ROLE[_ALL] else None
        keys = [key for key in (self._complete_to, last[1] if last is not None else None) if key is not None]
        return CompleteTo(min(keys)) if keys else None

    def add(self, key: int, orders: Iterable[tuple[str, _Order]]) -> bool:
        """Consider a document for its roles; return True if it was chosen for one that it did not have."""
        is_chosen = False
        for role, order in orders:
            if role == _ALL and self._complete_to is not None and key > self._complete_to:
                continue
            chosen = self._roles.get(role)
            if chosen is None:
                if len(self._roles) >= _MAX_ROLES:
                    continue
                chosen = self._roles[role] = []
            position = bisect_left(chosen, order)
            if position < len(chosen) and chosen[position] == order:
                continue
            if position < (size := self.size_of(role)):
                chosen.insert(position, order)
                del chosen[size:]
                is_chosen = True
        return is_chosen

    def members(self) -> dict[int, bool]:
        """Return the keys of the chosen documents in order; False for those chosen for `all` only."""
        shown = {key for role, chosen in self._roles.items() if role != _ALL for _, key in chosen}
        return {key: key in shown for key in sorted(shown.union(key for _, key in self._roles.get(_ALL, ())))}

    def keys_of(self, role: str) -> list[int]:
        """Return the keys of the documents chosen for a role, the first one first."""
        return [key for _, key in self._roles.get(role, ())]

    @property
    def rules(self) -> list[tuple[str, str]]:
        """Stage and name of the rules that have samples."""
        names = (role.split("\n", 2)[1:] for role in self._roles if role.startswith("rule\n"))
        return [(stage, rule) for stage, rule in names]

    def last_of(self, role: str) -> _Order | None:
        """Return distance and key of the last document that is chosen for a role; None while there is room."""
        chosen = self._roles.get(role) or []
        return chosen[-1] if len(chosen) >= self.size_of(role) else None

    def limits(self) -> SampleLimits:
        """Return what further documents must not exceed."""
        full = {role: chosen[-1] for role, chosen in self._roles.items() if len(chosen) >= self.size_of(role)}
        keys = {role: key for role, (_, key) in full.items() if not role.startswith("near\n")}
        if self._complete_to is not None:
            keys[_ALL] = min(keys.get(_ALL, self._complete_to), self._complete_to)
        return SampleLimits(keys, {role: distance for role, (distance, _) in full.items() if role.startswith("near\n")})


class SampleSelection:
    """The samples chosen so far, as what is stored of them; `chosen` says for which roles."""

    def __init__(self) -> None:
        self.chosen = RoleSelection()
        self._samples: dict[int, DocumentSample] = {}

    def add(self, sample: DocumentSample) -> bool:
        """Consider a document; return True if it was chosen for a role that it did not have."""
        about = sample.stage, sample.rule, sample.distance
        is_chosen = self.chosen.add(sample.key, orders_of(sample.key, sample.outcome, sample.has_text, *about))
        if is_chosen:
            known = self._samples.get(sample.key)
            if known is None or not known.has_text:
                self._samples[sample.key] = sample
            if len(self._samples) > MAX_REMEMBERED:
                self._samples = {s.key: s for s in self.samples()}
        return is_chosen

    def samples(self) -> list[DocumentSample]:
        """Return the chosen documents by key, those chosen for `all` only without texts."""
        shown = self.chosen.members()
        return [
            self._samples[key] if is_shown else _without_text(self._samples[key]) for key, is_shown in shown.items()
        ]

    def replace(self, sample: DocumentSample) -> None:
        """Take another description of a document that was considered before."""
        if sample.key in self._samples:
            self._samples[sample.key] = sample

    def of_role(self, role: str) -> list[DocumentSample]:
        """Return the documents chosen for a role, the first one first."""
        return [self._samples[key] for key in self.chosen.keys_of(role)]


def _without_text(sample: DocumentSample) -> DocumentSample:
    """Return a sample without its text; one whose record is still needed for its groups keeps it until then."""
    if sample.groups_in_record or not (sample.has_text or sample.id):
        return sample
    return sample._replace(id="", excerpt=None, before=None, record=None, text_field="")


def orders_of(
    key: int, outcome: str, has_text: bool, stage: str = "", rule: str = "", distance: float | None = None
) -> list[tuple[str, _Order]]:
    """Return the roles that a document may have, with its order in each."""
    order = 0.0, key
    if not has_text:
        return [(_ALL, order)]
    if outcome != SampleOutcome.DROPPED:
        return [(_ALL, order), (outcome, order)]
    any_of_rule, near = rule_roles(stage, rule)
    orders = [(_ALL, order), (outcome, order), (any_of_rule, order)]
    return orders if distance is None else [*orders, (near, (distance, key))]


# -- what is shown ----------------------------------------------------------------------------------------------------
def excerpt_of(text: str, marks: Sequence[tuple[int, int]] = ()) -> Excerpt:
    """Return the part of a text around its first mark, or its beginning.

    >>> excerpt_of("one two", [(4, 7)])
    Excerpt(text='one two', start=0, n_chars=7, marks=((4, 7),))
    """
    start = 0
    if marks and marks[0][1] > EXCERPT_CHARS:
        start = max(0, min(marks[0][0] - _BEFORE_MARK, len(text) - EXCERPT_CHARS))
    shown = text[start : start + EXCERPT_CHARS].encode("utf-8", "replace").decode()  # no half of a surrogate pair
    inside = [(max(a - start, 0), min(b - start, len(shown))) for a, b in marks if b > start]
    return Excerpt(shown, start, len(text), tuple((a, b) for a, b in inside if a < b)[:MAX_MARKS])


def describe(
    sample: DocumentSample, find_marks: Callable[[str], Sequence[tuple[int, int]]] = lambda text: ()
) -> DocumentSample:
    """Return a sample with the excerpt and the id that its record has. `find_marks`: what to mark in a text."""
    if not sample.record:
        return sample
    values = _record_of(sample)
    text = values.get(sample.text_field)
    text = text if isinstance(text, str) else ""
    excerpt = excerpt_of(text, find_marks(text))
    groups = groups_of_record(values) if sample.groups_in_record else sample.groups
    return sample._replace(
        record=None,
        text_field="",
        groups_in_record=False,
        excerpt=excerpt,
        id=as_name(values.get(ID_FIELD)),
        groups=groups,
    )


def describe_file(
    source: IO[bytes], target: IO[bytes], find_marks: Callable[[DocumentSample, str], Sequence[tuple[int, int]]]
) -> None:
    """Write the samples of a file with excerpts instead of records, by key."""
    selection = select(read_samples(source))
    members = selection.chosen.members()
    for sample in selection.samples():
        if sample.record is not None and members[sample.key]:
            selection.replace(describe(sample, functools.partial(find_marks, sample)))
        elif sample.record is not None:
            selection.replace(_with_groups(sample))
    target.write(encode_complete_to(selection.chosen.complete_to))
    target.writelines(encode_sample(sample) for sample in selection.samples())


def _with_groups(sample: DocumentSample) -> DocumentSample:
    """Return a sample without a text, but with the groups of its record."""
    values = _record_of(sample)
    return sample._replace(record=None, text_field="", groups_in_record=False, groups=groups_of_record(values))


def _record_of(sample: DocumentSample) -> Mapping[str, Any]:
    try:
        record = json.loads(sample.record or b"{}")
    except (ValueError, RecursionError):  # what only the readers of files understand
        return {}
    return record if isinstance(record, dict) else {}


_GROUPS = {"source": ("source",), "language": ("language", "lang"), "domain": ("url",)}
GROUP_FIELDS = [name for names in _GROUPS.values() for name in names]


def groups_of_record(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what a document belongs to, by its fields.

    >>> groups_of_record({"lang": "de", "url": "https://www.example.org/a", "source": None})
    {'language': 'de', 'domain': 'example.org'}
    """
    groups = {}
    for group, names in _GROUPS.items():
        value = next((name for name in map(as_name, map(values.get, names)) if name), "")
        if value := _domain(value) if group == "domain" else value:
            groups[group] = value
    return groups


def _domain(url: str) -> str:
    """Return the host of a URL.

    >>> _domain("https://www.example.org:80/a?b"), _domain("no url")
    ('example.org', '')
    """
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2].partition(":")[0].partition("?")[0]
    return host.lower().removeprefix("www.") if scheme and rest else ""


def as_name(value: Any) -> str:
    """Return a value as a name, "" if it is neither a text nor a number."""
    is_name = isinstance(value, (str, int)) and not isinstance(value, bool)
    return str(value)[:_MAX_NAME].encode("utf-8", "replace").decode() if is_name else ""


# -- the file -------------------------------------------------------------------------------------------------------
def encode_sample(sample: DocumentSample) -> bytes:
    """Return a sample as one line, without the fields that are empty; its record is a second one."""
    return b"".join(encoded_parts(sample))


def encoded_parts(sample: DocumentSample) -> list[bytes]:
    """Return the parts of `encode_sample`, without a copy of the record."""
    parts = [f'{{"key":{sample.key},"outcome":"{sample.outcome}","file":{sample.file},"offset":{sample.offset}']
    for name, text in zip(_TEXTS, (sample.id, sample.stage, sample.rule, sample.value, sample.threshold), strict=True):
        if text:
            parts.append(f'"{name}":{_quoted(text)}')
    if sample.n_bytes:
        parts.append(f'"n_bytes":{sample.n_bytes}')
    if sample.groups:
        groups = (f"{_quoted(name)}:{_quoted(text)}" for name, text in sample.groups.items())
        parts.append(f'"groups":{{{",".join(groups)}}}')
    if sample.distance is not None:
        parts.append(f'"distance":{sample.distance!r}')
    for name, excerpt in zip(_EXCERPTS, (sample.excerpt, sample.before), strict=True):
        if excerpt is not None:
            parts.append(f'"{name}":{_encode(excerpt)}')
    if sample.record is None:
        return [f"{','.join(parts)}}}\n".encode()]
    parts.append(f'"text_field":{_quoted(sample.text_field)}')
    if sample.groups_in_record:
        parts.append('"groups_in_record":true')
    return [f"{','.join(parts)}}}\n".encode(), sample.record, b"\n"]


def encode_complete_to(complete_to: CompleteTo | None) -> bytes:
    """Return the line that says up to which key samples are complete, if they are not."""
    return b"" if complete_to is None else f'{{"complete_to":{complete_to.key}}}\n'.encode()


_encode = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii


def decode_sample(line: bytes, record: bytes | None = None) -> DocumentSample:
    """Return the sample of a line; raise `wire.Garbled` if it is none. Names and texts are cut to their bounds."""
    values = _decoded(line)
    return _as_sample(values, record)


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(line.decode())  # faster than of bytes, whose encoding json guesses
        if type(values) is not dict:
            raise ValueError("no object")
    except (ValueError, RecursionError) as exc:
        raise wire.Garbled(str(exc)[:300]) from exc
    return values


def _as_sample(values: Mapping[str, Any], record: bytes | None) -> DocumentSample:
    try:
        key, outcome, distance = values["key"], SampleOutcome(values["outcome"]), values.get("distance")
        file, offset, n_bytes = numbers = values.get("file", -1), values.get("offset", -1), values.get("n_bytes", 0)
        texts = [values.get(name, "") for name in (*_TEXTS, "text_field")]
        groups = values.get("groups", {})
        is_right = {type(key), *map(type, numbers)} == {int} and {*map(type, texts)} == {str}
        is_right &= max(map(abs, (key, *numbers))) < 1 << 64
        is_right &= type(groups) is dict and {*map(type, groups.values())} <= {str}
        is_right &= distance is None or _is_finite(distance)
        if not is_right:
            raise ValueError("a field of another type")
        excerpt, before = (_excerpt(values.get(name)) for name in _EXCERPTS)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise wire.Garbled(str(exc)[:300]) from exc
    id_, stage, rule, value, threshold, text_field = (text[:_MAX_NAME] for text in texts)
    groups = {name[:40]: text[:_MAX_NAME] for name, text in list(groups.items())[:8]}
    return DocumentSample(
        key,
        outcome,
        file,
        offset,
        id_,
        max(n_bytes, 0),
        stage,
        rule,
        value,
        threshold,
        distance,
        excerpt,
        before,
        groups,
        record,
        text_field if record is not None else "",
        record is not None and values.get("groups_in_record") is True,
    )


_TEXTS = ("id", "stage", "rule", "value", "threshold")
_EXCERPTS = ("excerpt", "before")


def _excerpt(values: Any) -> Excerpt | None:
    if values is None:
        return None
    text, start, n_chars, marks = values
    if type(text) is not str or type(start) is not int or type(n_chars) is not int:
        raise ValueError("an excerpt of other types")
    text = text[:EXCERPT_CHARS]
    ranges = [(int(a), int(b)) for a, b in marks[:MAX_MARKS]]
    ranges = [(a, min(b, len(text))) for a, b in ranges if 0 <= a < b and a < len(text)]
    return Excerpt(text, max(start, 0), max(n_chars, len(text)), tuple(sorted(ranges)))


class SampleLine(NamedTuple):
    """A sample of a file as far as the choice needs it, and where its lines are."""

    key: int
    orders: list[tuple[str, _Order]]
    has_text: bool
    has_record: bool
    start: int
    end: int


def read_lines(data: bytes) -> Iterator[SampleLine | CompleteTo]:
    """Yield what a file contains that can be chosen. What is no sample is left out, such as half a line at its end."""
    for values, record_start, start, end in _entries(data):
        key, complete_to = values.get("key"), values.get("complete_to")
        outcome, distance = values.get("outcome"), values.get("distance")
        stage, rule = values.get("stage", ""), values.get("rule", "")
        if type(complete_to) is int:
            yield CompleteTo(complete_to)
            continue
        if type(key) is not int or not 0 <= key < 1 << 64 or type(outcome) is not str or outcome not in _OUTCOMES:
            continue
        if not (type(stage) is type(rule) is str and (distance is None or _is_finite(distance))):
            continue
        has_text = record_start > 0 or "excerpt" in values
        orders = orders_of(key, outcome, has_text, stage[:_MAX_NAME], rule[:_MAX_NAME], distance)
        yield SampleLine(key, orders, has_text, record_start > 0, start, end)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


_OUTCOMES = frozenset(str(outcome) for outcome in SampleOutcome)


def read_samples(file: IO[bytes]) -> Iterator[DocumentSample | CompleteTo]:
    """Yield the samples of a file, up to a size, with the records that they still have.

    Lines that are none, such as the last one of a killed run, are left out.
    """
    data = file.read(MAX_FILE_BYTES)
    for values, record_start, _, end in _entries(data):
        if type(key := values.get("complete_to")) is int:
            yield CompleteTo(key)
            continue
        with contextlib.suppress(wire.Garbled):
            yield _as_sample(values, data[record_start : end - 1] if record_start else None)


def _entries(data: bytes) -> Iterator[tuple[Mapping[str, Any], int, int, int]]:
    """Yield the values of each line, where the record that follows it begins (0: none does), and where both are."""
    start = 0
    while (end := data.find(b"\n", start) + 1) > 0:
        first, start = start, end
        try:
            values = _decoded(data[first : min(end, first + _MAX_LINE_BYTES)])
        except wire.Garbled:
            continue
        if "text_field" not in values:
            yield values, 0, first, end
        elif (start := data.find(b"\n", end) + 1) > 0:
            yield values, end, first, start
        else:
            return


def select(samples: Iterable[DocumentSample | CompleteTo]) -> SampleSelection:
    """Return the choice among these samples."""
    selection = SampleSelection()
    for sample in samples:
        if isinstance(sample, CompleteTo):
            selection.chosen.narrow(sample)
        else:
            selection.add(sample)
    return selection
