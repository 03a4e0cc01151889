"""The steps of a curation that need to see all documents: deduplications. All other steps are ordinary stages.

Parameters and defaults are those of the workflows that run by themselves (tamis.stages.deduplication).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.dedup.kinds import BUCKETS, CONTAMINATION, EXACT, FUZZY, LINES, MIX, SCORES, SUBSTRINGS, TOP, DedupKind
from tamis.dedup.normalization import check_mode
from tamis.dedup.planning import KEY_BYTES, META_BYTES, passage_scratch_bytes
from tamis.dedup.stages import RemoveDuplicates
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage


@dataclass(frozen=True)
class LeftOut:
    """A step that a recipe marks as optional, and that needs a package which is not installed."""

    name: str
    install: str

    def __str__(self) -> str:
        return f"step {self.name!r} is left out: it needs a package that is not installed ({self.install})"


class CorpusStep:
    """A step that decides over all documents that the steps before it keep, in passes of its own (dedup/kinds.py)."""

    kind: ClassVar[DedupKind]
    name: str
    text_field: str

    def __post_init__(self) -> None:
        self.workflow(os.curdir)  # a wrong parameter is said now

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the step's workflow."""
        return {k: v for k, v in asdict(self).items() if k != "name"}  # type: ignore[call-overload]

    def workflow(self, output: str) -> Any:
        return self.kind.load_workflow()(output_path=output, perform_removal=False, **self.parameters())

    @property
    def compares_texts(self) -> bool:
        """True if the texts of candidates are read to decide."""
        return False

    def is_decided_with(self, earlier: CorpusStep) -> bool:
        """Return True if the keys of this step also decide `earlier`, the step just before it."""
        return False

    def key_bytes(self, n_documents: int, n_bytes: int) -> int:
        """Return the most disk space that its keys take, of so many documents and bytes of input."""
        bands = getattr(self, "bands_per_iteration", None) or getattr(self, "num_bands", 0)
        return n_documents * (META_BYTES + KEY_BYTES * int(bands or 0))

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        """Return the removal stage of the last pass.

        `table`: what was decided; `paths`: JSON with the input files by number.
        """
        return RemoveDuplicates(table, paths, threshold=self.workflow(os.curdir).passes().threshold, name=self.name)


@dataclass
class ExactDuplicates(CorpusStep):
    """Of documents with equal texts one stays. See ExactDeduplicationWorkflow."""

    text_field: str = "text"
    normalize_text: bool | str = False
    keep: str = "first"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    name: str = "remove_exact_duplicates"

    kind = EXACT


@dataclass
class FuzzyDuplicates(CorpusStep):
    """Of documents that are nearly the same one stays. See FuzzyDeduplicationWorkflow."""

    text_field: str = "text"
    seed: int = 42
    char_ngrams: int = 24
    word_ngrams: int | None = None
    num_bands: int = 20
    minhashes_per_band: int = 13
    use_64_bit_hash: bool = False
    normalize_text: bool | str = False
    bands_per_iteration: int | None = None
    threshold: float | str | None = "midpoint"
    min_shingles: int = 10
    keep: str = "longest"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    name: str = "remove_fuzzy_duplicates"

    kind = FUZZY

    @property
    def compares_texts(self) -> bool:
        return self.threshold is not None

    def is_decided_with(self, earlier: CorpusStep) -> bool:
        """Return True for an exact deduplication that defines equal documents as the keys do.

        The choice of the document that stays among equal ones must not differ: with unnormalized texts, the first
        and the longest of them are the same one.
        """
        if not isinstance(earlier, ExactDuplicates):
            return False
        exact = earlier
        same = exact.text_field == self.text_field and _mode(exact.normalize_text) == _mode(self.normalize_text)
        alike = (exact.keep, exact.keep_by) == (self.keep, self.keep_by)
        return same and (alike or (_mode(self.normalize_text) == "none" and "best" not in (exact.keep, self.keep)))


@dataclass
class DuplicateLines(CorpusStep):
    """Lines or paragraphs that occurred before are cut out. See LineDeduplicationWorkflow."""

    text_field: str = "text"
    unit: str = "line"
    normalize_text: str = "casefold"
    min_chars: int = 20
    min_count: int = 2
    keep_first: bool = True
    min_left_chars: int = 1
    cut_field: str | None = None
    max_source_loss: float | str = 0.95
    name: str = "cut_duplicate_lines"

    kind = LINES

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        from tamis.dedup.lines.stages import CutUnits

        return CutUnits(table, self.text_field, self.unit, self.min_left_chars, self.cut_field, name=self.name)


@dataclass
class Decontaminate(CorpusStep):
    """Drop or cut what documents share with evaluation sets. See DecontaminationWorkflow."""

    against: Any = None
    text_field: str = "text"
    fields: Sequence[str] = ()
    words: int = 13
    short_words: int = 8
    min_words: int | None = None
    min_share: float | str = 0.0
    common: float | int | str | None = "0.01%"
    action: str = "drop"
    min_left_chars: int = 1
    max_source_loss: float | str = 0.95
    name: str = "decontaminate"

    kind = CONTAMINATION

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        return _named(self.workflow(os.curdir).removal(table, paths), self.name)


@dataclass
class Scores(CorpusStep):
    """Keep the scores of documents for later runs, or take them from an earlier one: a model need not run again.

    `score`: a field with numbers, or several. They are listed by file and offset in NAME-scores.parquet, among the
    duplicates of the run directory, about 4 bytes each. With `scores_from`, the output of an earlier run over the same
    input, documents get these fields from there instead, as 32-bit floats, null where that run had none.
    """

    score: str | Sequence[str] = ()
    scores_from: str | None = None
    text_field: str = "text"
    name: str = "scores"

    kind = SCORES

    def workflow(self, output: str) -> Any:
        from tamis.dedup.quantiles.workflow import ScoresWorkflow

        return ScoresWorkflow(output, **self.parameters())

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        return _named(self.workflow(os.curdir).removal(table), self.name)


@dataclass
class Buckets(CorpusStep):
    """Number documents by the weighted quantiles of a score: a step that adds a field.

    `score`: a field with numbers, or several, of which `ensemble` makes one: max, mean, rank_max or rank_mean (ranks in
    thousandths). `n` buckets of about equal weight (documents, bytes or tokens: `tokens_field`, or a quarter of the
    bytes), 0 for the lowest scores; equal scores share a bucket. `by`: a field whose values have buckets of their own.
    The edges are written to OUT.tamis/duplicates/NAME-edges.json, from where another run takes them with `edges`.
    `bucket_field` gets the number, null where a score is missing. `scores_from`: the output of an earlier run with
    buckets over the same input, whose scores are used instead of fields: a model need not run again.
    """

    score: str | Sequence[str] = ()
    n: int = 20
    weight: str = "documents"
    by: str | None = None
    ensemble: str = "max"
    edges: str | None = None
    bucket_field: str = "quality_bucket"
    scores_from: str | None = None
    tokens_field: str | None = None
    text_field: str = "text"
    name: str = "buckets"

    kind = BUCKETS

    def workflow(self, output: str) -> Any:
        from tamis.dedup.quantiles.workflow import BucketsWorkflow

        return BucketsWorkflow(output, **self.parameters())

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        return _named(self.workflow(os.curdir).removal(table), self.name)


@dataclass
class KeepTop(CorpusStep):
    """Keep the documents with the highest scores: a `fraction` of the `weight`, or so many documents, tokens or bytes.

    `score`, `ensemble`, `weight`, `scores_from`, `tokens_field`: as of Buckets. Of documents with the lowest score that
    is kept, those that come first in the input stay. Documents without a score are dropped.
    """

    score: str | Sequence[str] = ()
    fraction: float | str | None = None
    documents: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    weight: str | None = None
    ensemble: str = "max"
    scores_from: str | None = None
    tokens_field: str | None = None
    text_field: str = "text"
    name: str = "keep_top"

    kind = TOP

    def workflow(self, output: str) -> Any:
        from tamis.dedup.quantiles.workflow import TopWorkflow

        return TopWorkflow(output, **self.parameters())

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        return _named(self.workflow(os.curdir).removal(table), self.name)


@dataclass
class Mix(CorpusStep):
    """Write documents as often as it takes for a mix of groups, the values of a field (or of several: a/b).

    One of: `epochs`, how often each value is written ({"books": 2, "*": 1}); `shares` of the target ({"web": 0.7,
    "code": 0.3}); `curve`, epochs from the lowest to the highest value of a field with numbers, such as buckets ([0,
    7], bent by `power`); `temperature`, shares by tokens to this power; `unimax`, equal shares. `target`: tokens of the
    mix (20M, 9B), counted by `tokens_field`, or as a quarter of the bytes; without it, `epochs` and `curve` hold as
    they are. No value is written more than `max_epochs` times. `copy_field` gets the number of the copy, from 0.
    """

    by: str | Sequence[str] = ()
    target: int | str | None = None
    epochs: Mapping[Any, float] | None = None
    shares: Mapping[Any, float] | None = None
    curve: Sequence[float] | None = None
    power: float = 1.0
    temperature: float | None = None
    unimax: bool = False
    max_epochs: float = 7.0
    tokens_field: str | None = None
    copy_field: str | None = None
    text_field: str = "text"
    name: str = "mix_by_field"

    kind = MIX

    def workflow(self, output: str) -> Any:
        from tamis.dedup.quantiles.workflow import MixWorkflow

        return MixWorkflow(output, **self.parameters())

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        return _named(self.workflow(os.curdir).removal(table), self.name)


def _named(stage: ProcessingStage[Any, Any], name: str) -> ProcessingStage[Any, Any]:
    stage.name = name
    return stage


@dataclass
class RepeatedPassages(CorpusStep):
    """Passages that occur more than once are cut out. See SubstringDeduplicationWorkflow."""

    text_field: str = "text"
    min_bytes: int = 500
    keep: str = "first"
    remove: str = "span"
    normalize_text: str = "none"
    edges: str = "characters"
    min_left_chars: int = 1
    cut_field: str | None = None
    max_source_loss: float | str = 0.95
    name: str = "cut_repeated_passages"

    kind = SUBSTRINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.remove == "nothing":
            raise UsageError(
                f"{self.name}: a curation removes; leave the step out, or count passages with: "
                "tamis dedup substrings --remove nothing"
            )

    def key_bytes(self, n_documents: int, n_bytes: int) -> int:
        return passage_scratch_bytes(n_bytes, self.min_bytes)

    def removal(self, table: str, paths: str) -> ProcessingStage[Any, Any]:
        stage: ProcessingStage[Any, Any] = self.workflow(os.curdir).removal(table, paths, self.name)
        return stage


def _mode(normalize_text: bool | str) -> str:
    return check_mode("deduplication", normalize_text)


Step = ProcessingStage[Any, Any] | CorpusStep
