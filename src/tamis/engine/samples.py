"""Samples of the documents of a run: which ones are chosen, and what is stored of each. `samples.jsonl`.

A report shows what was kept, changed and dropped. Documents are chosen by a hash of their identity and position, the
smallest first, so that the choice depends on the documents alone: not on how the input was cut, on workers, or on
interruptions. Of each rule, three documents are chosen that way and three whose score is nearest to the limit.

all        outcome, length and group of 600 documents, without texts: what the report says about groups
kept, changed, dropped    with an excerpt of the text
rule, near                of each rule that drops documents: any, and the nearest to its limit

Every part of the work chooses for itself (engine/worker/sampling.py), among the documents that are still within the
limits of what was chosen before (`SampleLimits`); the run joins the choices (run/output/sample_store.py). Choosing is
idempotent: a partition that is done again adds nothing.

Only plain Python here: the supervisor reads and joins samples, and has no numpy.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import IO, Any

from tamis.engine import wire

FILE = "samples.jsonl"
MAX_FILE_BYTES = 32 << 20
MAX_LINE_BYTES = 1 << 17
EXCERPT_CHARS = 1500
MAX_MARKS = 40
_ALL = "all"
_N_RULE, _N_NEAR = 3, 3
_N_OF_ROLE = {_ALL: 600, "kept": 80, "changed": 40, "dropped": 80}
_MAX_ROLES = 500  # rules that name their values may be any number
_MAX_NAME = 200
_Order = tuple[float, int]


class SampleOutcome(StrEnum):
    KEPT = "kept"
    CHANGED = "changed"  # kept, with another text
    DROPPED = "dropped"


@dataclass(frozen=True)
class Excerpt:
    """A part of a text. `start`: characters before it; `marks`: ranges in it that a rule counted."""

    text: str = ""
    start: int = 0
    n_chars: int = 0  # of the whole text
    marks: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class DocumentSample:
    """One document. `file`: the number of its input file, -1 if it has none; `offset`: its position there.

    `value` and `threshold`: as in verdicts; `distance`: of the value from the limit. `before`: the text as it was read,
    of changed documents. `groups`: what it belongs to (source, language, domain), where its fields say so.
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
    groups: dict[str, str] = field(default_factory=dict)

    @property
    def rule_roles(self) -> tuple[str, str]:
        """The roles that a dropped document may have for its rule: any one, and one near the limit."""
        return rule_roles(self.stage, self.rule)


def rule_roles(stage: str, rule: str) -> tuple[str, str]:
    return f"rule\n{stage}\n{rule}", f"near\n{stage}\n{rule}"


def size_of_role(role: str) -> int:
    """Return how many documents are chosen for a role."""
    return _N_OF_ROLE.get(role) or (_N_NEAR if role.startswith("near\n") else _N_RULE)


@dataclass(frozen=True)
class SampleLimits:
    """The largest key with which a further document is chosen, by role; a role that is not full has no limit.

    `keys`: the largest key; `distances`: the largest distance from the limit of a rule.
    """

    keys: dict[str, int] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)


class SampleSelection:
    """The samples chosen so far. `add` in any order, any number of times: the result is the same."""

    def __init__(self) -> None:
        self._roles: dict[str, list[_Order]] = {}
        self._samples: dict[int, DocumentSample] = {}

    def add(self, sample: DocumentSample) -> bool:
        """Consider a document; return True if it was chosen for a role that it did not have."""
        is_chosen = False
        for role, order in _orders(sample):
            chosen = self._roles.get(role)
            if chosen is None:
                if len(self._roles) >= _MAX_ROLES:
                    continue
                chosen = self._roles[role] = []
            position = bisect_left(chosen, order)
            if position < len(chosen) and chosen[position] == order:
                continue
            if position < (size := size_of_role(role)):
                chosen.insert(position, order)
                del chosen[size:]
                is_chosen = True
        if is_chosen:
            known = self._samples.get(sample.key)
            if known is None or known.excerpt is None:
                self._samples[sample.key] = sample
            if len(self._samples) > 4 * sum(_N_OF_ROLE.values()):
                self._samples = {s.key: s for s in self.samples()}
        return is_chosen

    def samples(self) -> list[DocumentSample]:
        """Return the chosen documents by key, those chosen for `all` only without texts."""
        with_text = {key for role, chosen in self._roles.items() if role != _ALL for _, key in chosen}
        without = {key for _, key in self._roles.get(_ALL, ())} - with_text
        texts = [self._samples[key] for key in with_text]
        plain = [_without_text(self._samples[key]) for key in without]
        return sorted([*texts, *plain], key=lambda s: s.key)

    def of_role(self, role: str) -> list[DocumentSample]:
        """Return the documents chosen for a role, the first one first."""
        return [self._samples[key] for _, key in self._roles.get(role, ())]

    @property
    def rules(self) -> list[tuple[str, str]]:
        """Stage and name of the rules that have samples."""
        names = (role.split("\n", 2)[1:] for role in self._roles if role.startswith("rule\n"))
        return [(stage, rule) for stage, rule in names]

    def last_of(self, role: str) -> _Order | None:
        """Return distance and key of the last document that is chosen for a role; None while there is room."""
        chosen = self._roles.get(role) or []
        return chosen[-1] if len(chosen) >= size_of_role(role) else None

    def limits(self) -> SampleLimits:
        """Return what further documents must not exceed."""
        full = {role: chosen[-1] for role, chosen in self._roles.items() if len(chosen) >= size_of_role(role)}
        return SampleLimits(
            {role: key for role, (_, key) in full.items() if not role.startswith("near\n")},
            {role: distance for role, (distance, _) in full.items() if role.startswith("near\n")},
        )


def _without_text(sample: DocumentSample) -> DocumentSample:
    return sample if sample.excerpt is None and sample.before is None else replace(sample, excerpt=None, before=None)


def _orders(sample: DocumentSample) -> Iterator[tuple[str, _Order]]:
    """Yield the roles that a document may have, with its order in each."""
    yield _ALL, (0.0, sample.key)
    if sample.excerpt is None:
        return
    yield sample.outcome, (0.0, sample.key)
    if sample.outcome is SampleOutcome.DROPPED:
        rule, near = sample.rule_roles
        yield rule, (0.0, sample.key)
        if sample.distance is not None:
            yield near, (sample.distance, sample.key)


# -- the file -------------------------------------------------------------------------------------------------------
def encode_sample(sample: DocumentSample) -> bytes:
    """Return a sample as one line, without the fields that are empty."""
    values: dict[str, Any] = {"key": sample.key, "outcome": sample.outcome}
    for name in _PLAIN:
        if (value := getattr(sample, name)) not in ("", None) and value != {}:
            values[name] = value
    for name in _EXCERPTS:
        if (excerpt := getattr(sample, name)) is not None:
            values[name] = [excerpt.text, excerpt.start, excerpt.n_chars, excerpt.marks]
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def decode_sample(line: bytes) -> DocumentSample:
    """Return the sample of a line; raise `wire.Garbled` if it is none. Names and texts are cut to their bounds."""
    try:
        values = json.loads(line)
        key, outcome, distance = values["key"], SampleOutcome(values["outcome"]), values.get("distance")
        file, offset, n_bytes = numbers = values.get("file", -1), values.get("offset", -1), values.get("n_bytes", 0)
        texts = [values.get(name, "") for name in _TEXTS]
        groups = values.get("groups", {})
        is_right = {type(key), *map(type, numbers)} == {int} and {*map(type, texts)} == {str}
        is_right &= max(map(abs, (key, *numbers))) < 1 << 64
        is_right &= type(groups) is dict and {*map(type, groups.values())} <= {str}
        is_right &= distance is None or (type(distance) in (int, float) and math.isfinite(distance))
        if not is_right:
            raise ValueError("a field of another type")
        excerpt, before = (_excerpt(values.get(name)) for name in _EXCERPTS)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise wire.Garbled(str(exc)[:300]) from exc
    id_, stage, rule, value, threshold = (text[:_MAX_NAME] for text in texts)
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
    )


_TEXTS = ("id", "stage", "rule", "value", "threshold")
_PLAIN = ("file", "offset", *_TEXTS, "n_bytes", "distance", "groups")
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
    return Excerpt(text, max(start, 0), max(n_chars, len(text)), sorted(ranges))


def read_samples(file: IO[bytes]) -> Iterator[DocumentSample]:
    """Yield the samples of a file, up to a size.

    Lines that are none, such as the last one of a killed run, are left out.
    """
    return (sample for sample, _ in read_lines(file))


def read_lines(file: IO[bytes]) -> Iterator[tuple[DocumentSample, bytes]]:
    """Yield the samples of a file like `read_samples`, each with its line."""
    n_read = 0
    while n_read < MAX_FILE_BYTES and (line := file.readline(MAX_LINE_BYTES)):
        n_read += len(line)
        try:
            yield decode_sample(line), line.rstrip(b"\n") + b"\n"
        except wire.Garbled:
            continue


def select(samples: Iterable[DocumentSample]) -> SampleSelection:
    """Return the choice among these samples."""
    selection = SampleSelection()
    for sample in samples:
        selection.add(sample)
    return selection
