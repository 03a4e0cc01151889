"""Describe a corpus by the samples of a run: examples of rules, documents to read, groups with their kept share.

Reads samples.jsonl of a run directory, whose texts are hostile.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.samples import FILE, DocumentSample, SampleOutcome, SampleSelection, describe, read_samples, select

_MAX_GROUPS = 12
_MAX_NAMED = 0.2  # of the documents, with a source that no other has
_LENGTHS = (
    (500, "up to 500 B"),
    (2_000, "to 2 kB"),
    (10_000, "to 10 kB"),
    (50_000, "to 50 kB"),
    (math.inf, "above 50 kB"),
)
_MIN_HIT_GROUP, _FAR_MORE, _MAX_HIT = 10, 1.5, 3  # documents of a source; times the share of all; sources named
_Z = 1.96  # of a 95 % interval


@dataclass
class Corpus:
    """The samples of a run. `paths`: of the input files that they come from, by number."""

    selection: SampleSelection = field(default_factory=SampleSelection)
    paths: dict[int, str] = field(default_factory=dict)

    @property
    def documents(self) -> list[DocumentSample]:
        """The documents to read: kept, changed and dropped ones."""
        return [s for outcome in SampleOutcome for s in self.selection.of_role(outcome)]

    @property
    def everywhere(self) -> list[DocumentSample]:
        """A fair sample of all documents, without texts."""
        return self.selection.of_role("all")


class CorpusGroup(NamedTuple):
    """Documents of the sample with something in common: how many came in, and how many of them were kept."""

    name: str
    n: int
    n_kept: int

    @property
    def kept_share(self) -> float:
        return self.n_kept / self.n

    def interval(self, is_all: bool) -> tuple[float, float]:
        """Return the kept share of all such documents, with 95 % confidence (Wilson). `is_all`: these are all."""
        if is_all:
            return self.kept_share, self.kept_share
        return wilson(self.n_kept, self.n)


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of which k in n were seen.

    >>> [round(x, 3) for x in wilson(5, 10)]
    [0.237, 0.763]
    """
    if not n:
        return 0.0, 1.0
    share = k / n
    middle, spread = share + _Z**2 / (2 * n), _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = (middle - spread) / (1 + _Z**2 / n), (middle + spread) / (1 + _Z**2 / n)
    return max(low, 0.0), min(high, 1.0)


def read_corpus(folder: Path, input_paths: Callable[[], Sequence[str]]) -> Corpus:
    """Read the samples of a run directory; empty if there are none. `input_paths` is called only if it is needed."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return Corpus()
    with open(descriptor, "rb") as file:
        selection = select(read_samples(file))
    for sample in selection.samples():
        if sample.record is not None:  # the run is not through
            selection.replace(describe(sample))
    numbers = {s.file for s in selection.samples() if s.file >= 0}
    paths = input_paths() if numbers else []
    return Corpus(selection, {n: paths[n] for n in sorted(numbers) if n < len(paths)})


def groups_of(corpus: Corpus) -> dict[str, list[CorpusGroup]]:
    """Return the groups of the documents by source, language, domain and length, those with one group left out."""
    samples = corpus.everywhere
    found: dict[str, list[CorpusGroup]] = {}
    for title, name_of in (
        ("source", _source_of(corpus)),
        ("language", lambda s: s.groups.get("language", "")),
        ("domain", lambda s: s.groups.get("domain", "")),
        ("length", lambda s: next(name for most, name in _LENGTHS if s.n_bytes <= most)),
    ):
        groups = _counted(samples, name_of, in_order=[n for _, n in _LENGTHS] if title == "length" else None)
        if len(groups) > 1:
            found[title] = groups
    return found


def hit_by(corpus: Corpus, stage: str, rule: str) -> tuple[float, list[tuple[str, float]]]:
    """Return the share of all documents that a rule dropped, and of which sources it dropped far more."""
    samples, source_of = corpus.everywhere, _source_of(corpus)
    n, hit = Counter[str](), Counter[str]()
    for sample in samples:
        name = source_of(sample)
        n[name] += 1
        hit[name] += (sample.stage, sample.rule) == (stage, rule)
    overall = hit.total() / len(samples) if samples else 0.0
    named = [name for name in n if name and n[name] >= _MIN_HIT_GROUP and hit[name] / n[name] > _FAR_MORE * overall]
    sure = [name for name in named if wilson(hit[name], n[name])[0] > overall > 0]
    sure.sort(key=lambda name: (-hit[name] / n[name], name))
    return overall, [(name, hit[name] / n[name]) for name in sure[:_MAX_HIT]]


def _source_of(corpus: Corpus) -> Callable[[DocumentSample], str]:
    """Return the function that names the source of a document: by its field, else by its file; "" without."""
    samples, sources = corpus.everywhere, _sources(corpus.paths)
    named = {name for s in samples if (name := s.groups.get("source"))}
    has_names = bool(named) and len(named) <= max(_MAX_GROUPS, len(samples) * _MAX_NAMED)  # else names of documents
    return lambda s: (has_names and s.groups.get("source")) or sources.get(s.file, "")


def _counted(
    samples: Sequence[DocumentSample], name_of: Callable[[DocumentSample], str], in_order: Sequence[str] | None
) -> list[CorpusGroup]:
    n, kept = Counter[str](), Counter[str]()
    for sample in samples:
        name = name_of(sample)
        if name:
            n[name] += 1
            kept[name] += sample.outcome is not SampleOutcome.DROPPED
    if in_order is not None:
        return [CorpusGroup(name, n[name], kept[name]) for name in in_order if n[name]]
    ranked = sorted(n, key=lambda name: (-n[name], name))
    groups = [CorpusGroup(name, n[name], kept[name]) for name in ranked[:_MAX_GROUPS]]
    if others := ranked[_MAX_GROUPS:]:
        rest = CorpusGroup(f"{len(others):,} others", sum(n[o] for o in others), sum(kept[o] for o in others))
        groups.append(rest)
    return groups


def _sources(paths: Mapping[int, str]) -> dict[int, str]:
    """Return the source of each input file: the first part of its path in which files differ.

    >>> _sources({0: "/in/web/0.jsonl", 1: "/in/web/1.jsonl", 2: "/in/books/0.jsonl"})
    {0: 'web', 1: 'web', 2: 'books'}
    """
    if len(paths) < 2:
        return {}
    parts = {n: path.split("/") for n, path in paths.items()}
    shared = 0
    while len({tuple(p[: shared + 1]) for p in parts.values()}) == 1:
        shared += 1
    return {n: p[shared] if shared < len(p) else p[-1] for n, p in parts.items()}
