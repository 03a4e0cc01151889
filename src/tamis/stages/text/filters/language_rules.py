"""Rule sets with limits and stop words of their own for each language, from one table.

    default:                                        # languages that the table does not name
      gopher_quality: {min_stop_words: null}
    deu_Latn:
      stop_words: [der, die, das, und, ist, nicht]
      gopher_quality: {max_avg_word_length: 14}
      gopher_repetition: {dup_line_frac: 0.28}
      fineweb_quality: null                         # this language goes without the set

A language has the published limits of each set, changed by those of `default`, changed by its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.notes import CallNotes
from tamis.stages.text.filters.doc_filter import BoundedFilter, DocumentFilter, StatisticFilter
from tamis.stages.text.filters.fineweb import FineWebQuality
from tamis.stages.text.filters.gopher import GopherQuality, GopherRepetition
from tamis.stages.text.filters.rule_set import RuleSet
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.stages.text.language_scores import DEFAULT, parse_score
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

SETS: dict[str, type[RuleSet]] = {
    "gopher_repetition": GopherRepetition,
    "gopher_quality": GopherQuality,
    "fineweb_quality": FineWebQuality,
}
"""In the order in which FineWeb2 applies them."""
NOT_IN_TABLE = "language_not_in_table"
_MIN_STOP_WORDS = "min_stop_words"  # null in `default` is for languages that have none
_ROW = ("", "row of its language")
_STOP_WORDS, _SPACES = "stop_words", "spaces"
_STOP_WORD_RULE = "gopher_enough_stop_words"
_MAX_TABLE_BYTES = 16 << 20
_EXAMPLE = "such as {deu_Latn: {stop_words: [der, die, und], gopher_quality: {max_avg_word_length: 14}}}"


@dataclass
class StopWordsFilter(BoundedFilter):
    """How many of the given stop words occur, in exactly these letters; documents with fewer than a minimum go.

    Words are what white space separates. `spaces=False` is for languages that are written without: there a stop word
    counts wherever it stands.
    """

    stop_words: Sequence[str]
    min_stop_words: int = 2
    spaces: bool = True
    at_least = "min_stop_words"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._name = _STOP_WORD_RULE
        if isinstance(self.stop_words, str) or not all(isinstance(word, str) and word for word in self.stop_words):
            raise UsageError(f"StopWordsFilter: stop_words: expected a list of words, got {self.stop_words!r}")
        self._words = frozenset(self.stop_words)

    def score_document(self, text: str) -> int:
        if self.spaces:
            return len(self._words.intersection(text.split()))
        return sum(word in text for word in self._words)


@dataclass(repr=False)
class LanguageRules(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Apply the rules of Gopher and FineWeb with the limits and stop words of the language of each document.

    `table` has, for each language (labels as the model has them) and for `default`, the parameters of
    `gopher_repetition`, `gopher_quality` and `fineweb_quality` that differ from the published ones, null for a set
    that is left out, `stop_words` for the rule of Gopher, and `spaces: false` for languages that are written without
    them: a mapping, or a file of YAML or JSON. `default` may also be given here. Without one, documents in other
    languages go, by the rule `language_not_in_table`. `language_field` has the language, or score and language as
    LanguageFilter writes them.
    """

    table: Mapping[str, Any] | str | None = None
    default: Mapping[str, Any] | None = None
    language_field: str = "language"
    text_field: str = "text"
    name: str = "language_rules"
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)
    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)
    columns_in = ("language_field", "text_field")

    def __post_init__(self) -> None:
        entries = {} if self.default is None else _entries({DEFAULT: self.default}, self.name)
        if self.table is not None or not entries:
            entries |= _entries(self.table, self.name)
        self._fingerprint = hashlib.blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=16).hexdigest()
        default = entries.get(DEFAULT, {})
        self._chains = {label: self._chain(label, default, own) for label, own in entries.items()}

    def _chain(self, label: str, default: Mapping[str, Any], own: Mapping[str, Any]) -> ScoreFilter | None:
        """Return the rules of a language as one chain; None if it has none."""
        where = f"{self.name}: {label}"
        filters: list[DocumentFilter] = []
        for name, cls in SETS.items():
            if own.get(name, {}) is None or (name not in own and default.get(name, {}) is None):
                continue
            limits: dict[str, Any] = {**(default.get(name) or {}), **(own.get(name) or {})}
            if own.get(_STOP_WORDS) and limits.get(_MIN_STOP_WORDS, 0) is None:
                limits[_MIN_STOP_WORDS] = (own.get(name) or {}).get(_MIN_STOP_WORDS, GopherQuality.min_stop_words)
            try:
                filters += cls(**limits).filters()
            except TypeError:
                known = [f for f in cls.__dataclass_fields__ if f not in ("text_field", "name")]  # type: ignore[attr-defined]
                unknown = ", ".join(sorted(set(limits) - set(known)))
                raise UsageError(f"{where}: {name} has no parameter {unknown}; it has {', '.join(known)}") from None
        words = own.get(_STOP_WORDS, default.get(_STOP_WORDS))
        if words is not None:
            spaces = own.get(_SPACES, default.get(_SPACES, True))
            filters = [_with_stop_words(one, words, spaces, where) for one in filters]
        return ScoreFilter(filters, self.text_field, name=self.name) if filters else None

    def _known_chains(self) -> list[ScoreFilter]:
        return [chain for chain in self._chains.values() if chain is not None]

    def rules(self) -> list[DropRule]:
        """Return the rules of all languages; their limits depend on the language and are noted with each drop."""
        if (chain := self._one_for_all()) is not None:
            return chain.rules()
        names = dict.fromkeys(rule.name for chain in self._known_chains() for rule in chain.rules())
        absent = [] if DEFAULT in self._chains else [NOT_IN_TABLE]
        return [DropRule(name, name, {}) for name in [*absent, *names]]

    def find_evidence(self, rule: str, text: str) -> list[tuple[int, int]]:
        return next((ranges for c in self._known_chains() if (ranges := c.find_evidence(rule, text))), [])

    def model_files(self) -> str:
        return self._fingerprint

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        for chain in self._known_chains():
            chain.setup_on_node(node_info, worker_metadata)

    def _one_for_all(self) -> ScoreFilter | None:
        """Return the rules of all languages, if the table has only `default`: their scores are counted."""
        return self._chains[DEFAULT] if list(self._chains) == [DEFAULT] else None

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if (only := self._one_for_all()) is not None:
            only._open_notes(self._call_notes().count_scores)
            result = only.process(batch)
            self._call_notes().drops.extend(only._take_notes().drops)
            return result
        labels = np.array([_label(value) for value in batch.texts(self.language_field).to_pylist()], object)
        keep = np.ones(batch.num_items, bool)
        absent: list[int] = []
        for label in dict.fromkeys(labels.tolist()):
            rows = np.flatnonzero(labels == label)
            if label not in self._chains and DEFAULT not in self._chains:
                absent += rows.tolist()
                continue
            chain = self._chains.get(label, self._chains.get(DEFAULT))
            if chain is not None:
                keep[rows] = self._kept(chain, batch.take(rows))
        rows = np.array(sorted(absent), np.int64)
        keep[rows] = False
        self._note_drops(batch.serial[rows], NOT_IN_TABLE, labels[rows].tolist(), {})
        return batch if keep.all() else batch.filter(keep)

    def _kept(self, chain: ScoreFilter, batch: DocumentBatch) -> np.ndarray[Any, Any]:
        """Return which documents the rules of their language keep, and note the drops as those of this stage."""
        chain._open_notes()  # scores under other limits are not counted in one histogram
        batch.measured[_ROW] = np.arange(batch.num_items)  # follows the rows through the filters
        rows = chain.process(batch).measured[_ROW]
        notes: CallNotes = chain._take_notes()
        self._call_notes().drops.extend(notes.drops)
        return np.isin(np.arange(batch.num_items), rows)


def _with_stop_words(one: DocumentFilter, words: Any, spaces: Any, where: str) -> DocumentFilter:
    """Return the rule, or for Gopher's rule on English stop words that with the words of a language."""
    if one.name != _STOP_WORD_RULE or not isinstance(one, StatisticFilter):
        return one
    if not isinstance(words, list) or not isinstance(spaces, bool):
        raise UsageError(f"{where}: stop_words: expected a list of words, and for spaces true or false")
    return StopWordsFilter(words, int(one.minimum), spaces)


def _label(value: str | None) -> str:
    """Return the language in a value such as "[0.97, 'deu_Latn']" or "deu_Latn"."""
    if not value or not value.startswith(("[", "(")):
        return value or ""
    return parse_score(value)[1]


def _entries(table: Mapping[str, Any] | str | None, owner: str) -> dict[str, dict[str, Any]]:
    """Return the table as plain values, checked as far as that needs no knowledge of the sets."""
    if isinstance(table, (str, os.PathLike)):
        from tamis.yaml_text import parse, read_text

        path = os.fspath(table)
        try:
            table = _plain(parse(read_text(path, what="table", most=_MAX_TABLE_BYTES), path).value)
        except OSError as exc:
            raise UsageError(f"{owner}: table: {path} cannot be read: {exc.strerror or exc}") from exc
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{owner}: table: expected limits by language, {_EXAMPLE}")
    entries = {str(label): dict(own) if isinstance(own, Mapping) else own for label, own in table.items()}
    known = (*SETS, _STOP_WORDS, _SPACES)
    for label, own in entries.items():
        if own is None:
            entries[label] = {}
            continue
        if not isinstance(own, dict):
            raise UsageError(f"{owner}: table: {label}: expected parameters by rule set, {_EXAMPLE}, got {own!r}")
        for name, value in own.items():
            if name not in known:
                raise UsageError(f"{owner}: table: {label}: {name!r} is none of {', '.join(known)}")
            if name in SETS and not isinstance(value, (Mapping, type(None))):
                raise UsageError(f"{owner}: table: {label}: {name}: expected parameters or null, got {value!r}")
    return entries


def _plain(value: Any) -> Any:
    """Return what a node of a YAML file holds."""
    if isinstance(value, dict):
        return {name: _plain(node.value) for name, node in value.items()}
    if isinstance(value, list):
        return [_plain(node.value) for node in value]
    return value
