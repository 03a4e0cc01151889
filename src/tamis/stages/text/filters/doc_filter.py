"""Base classes of filters: a score, and a rule that keeps or drops a document by it.

A custom filter needs two methods in plain Python, `score_document(text)` and `keep_document(score)`; an optional third,
`score_batch(texts)`, scores a whole Arrow array at once. Most built-in filters are a `KernelFilter`: they declare the
text statistics that they compare, and a stage computes these once per batch for all of its filters, in compiled code.

    DocumentFilter          any score, any rule
      BoundedFilter         keeps scores between two of its parameters
        KernelFilter        its score is a text statistic, a ratio of two, or a formula
          StatisticFilter   the same, configured instead of subclassed
          WordsFilter       counts words, of segmented languages too (words.py)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError

if TYPE_CHECKING:
    Stats = Mapping[str, np.ndarray[Any, Any]]


class RecipeTexts(NamedTuple):
    """Recipe lines that set the limits of a filter of a rule set: texts with {} for the value, by limit."""

    by_limit: Mapping[str, str]


class DocumentFilter(ABC):
    """Scores a text, and keeps or drops the document by its score.

    A null text, or a value that is not a string, is passed as "" unless the filter sets `accepts_null = True`. Both
    methods must depend on nothing but their argument and the filter's settings. Optional hooks, called if they exist:
    `model_check_or_download()` once per machine, `load_model()` and `load_tokenizer()` once per worker.
    """

    accepts_null: ClassVar[bool] = False
    _name: str | None = None
    _in_recipe: RecipeTexts | None = None  # no plain value: how a limit is written is no setting of the filter
    # Callers of NeMo Curator's filters may set these; the built-in ones do not use them.
    sentences: Any = None
    paragraphs: Any = None
    ngrams: Any = None

    @abstractmethod
    def score_document(self, text: str) -> Any:
        """Return a number or string that `keep_document` decides by."""

    @abstractmethod
    def keep_document(self, score: Any) -> bool:
        """Return True if a document with this score stays."""

    @property
    def name(self) -> str:
        """The name in reports; set `_name` to change it."""
        return self._name or type(self).__name__

    @property
    def meaning(self) -> str:
        """The meaning of the score, in words: the first sentence of the docstring."""
        own = type(self).__doc__ or ""
        return "" if own.startswith(f"{type(self).__name__}(") else own.strip().partition("\n")[0][:300]

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the text statistics that `score_from` needs; empty for filters that read the text."""
        return ()

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        """Compute one score per document from its statistics."""
        raise UsageError(f"{self.name}: a filter that names statistics must define score_from(stats)")

    def score_batch(self, texts: pa.Array) -> Any:
        """Return one score per text: an array or a list.

        Override it when scoring many texts together is cheaper than one by one.
        """
        if self.accepts_null:
            return [self.score_document(text) for text in texts.to_pylist()]
        return [self.score_document(text or "") for text in texts.to_pylist()]

    def keep_scores(self, scores: Any) -> np.ndarray[Any, Any]:
        """Return `keep_document` of every score."""
        # Python values, because scalars of numpy and Arrow do not compare like them in every case
        values = getattr(scores, "to_pylist", getattr(scores, "tolist", lambda: list(scores)))()
        return np.fromiter((bool(self.keep_document(s)) for s in values), bool, len(values))

    def keep_texts(self, texts: pa.Array, scores: Any) -> np.ndarray[Any, Any]:
        """Return a mask of the documents to keep.

        Override it when the choice depends on more than the score, e.g. on a random draw per document.
        """
        return self.keep_scores(scores)

    def score_numbers(self, scores: Any) -> Any:
        """Return the numbers that histograms of the scores count.

        Override it when a score is not a number but contains one.
        """
        return scores

    def thresholds(self) -> Mapping[str, Any]:
        """Return the deciding parameters by name; reports show them next to the score of a dropped document."""
        return {}

    def model_fingerprint(self) -> str | None:
        """Return a fingerprint of the files that the scores depend on.

        A run is not resumed after they changed. Return "" if there are none, None if they cannot be read yet.
        """
        return ""

    def bounds(self) -> tuple[str | None, str | None]:
        """Return the names of the lower and the upper limit, if a document is kept exactly between them."""
        return None, None

    def set_by(self, **texts: str) -> Self:
        """Note how a recipe sets limits of this filter, such as minimum="line_punct_thr: {}"; return the filter."""
        self._in_recipe = RecipeTexts(texts)
        return self

    @property
    def in_recipe(self) -> Mapping[str, str]:
        """Recipe lines for the limits that a recipe does not set under their own names."""
        return self._in_recipe.by_limit if self._in_recipe is not None else {}

    def find_evidence(self, text: str) -> list[tuple[int, int]]:
        """Return the ranges of a text that the score counts, in order: reports highlight them in examples."""
        from tamis.stages.text.filters.evidence import find_ranges

        return next((ranges for s in self.statistics if (ranges := find_ranges(s, text))), [])


class BoundedFilter(DocumentFilter):
    """Keeps scores between two of its parameters, both included.

    Subclasses are dataclasses; `at_least` and `at_most` name the parameters.
    """

    at_least: ClassVar[str | None] = None
    at_most: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for parameter, value in self._limits().items():
            if not is_number(value):
                raise UsageError(f"{type(self).__name__}: {parameter} must be a number, got {value!r}")
        low, high = (
            (name, getattr(self, name)) if name is not None else None for name in (self.at_least, self.at_most)
        )
        if low is not None and high is not None and low[1] > high[1]:
            raise UsageError(
                f"{type(self).__name__}: {low[0]}={low[1]} is above {high[0]}={high[1]}: no document would stay"
            )

    def _limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (self.at_least, self.at_most) if name is not None}

    def thresholds(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._limits().items() if not math.isinf(value)}

    def bounds(self) -> tuple[str | None, str | None]:
        rules = ("keep_document", "keep_scores", "keep_texts")
        is_overridden = any(getattr(type(self), name) is not getattr(BoundedFilter, name) for name in rules)
        return (None, None) if is_overridden else (self.at_least, self.at_most)

    def keep_document(self, score: Any) -> bool:
        low_enough = self.at_most is None or score <= getattr(self, self.at_most)
        return bool(low_enough and (self.at_least is None or score >= getattr(self, self.at_least)))

    def keep_scores(self, scores: Any) -> np.ndarray[Any, Any]:
        values = np.asarray(scores)
        keep = np.ones(len(values), bool)
        if self.at_most is not None:
            keep &= values <= getattr(self, self.at_most)
        if self.at_least is not None:
            keep &= values >= getattr(self, self.at_least)
        return keep


class KernelFilter(BoundedFilter):
    """Scores by text statistics of the kernels: a name, the statistics it needs and a limit.

    `compares` names one statistic, or two whose ratio is the score; `when_nothing` is the score if the second is 0.
    Subclasses with another formula override `score_from`. docs/reference/filters.md lists the statistics.
    """

    compares: ClassVar[tuple[str, ...]] = ()
    when_nothing: ClassVar[float] = 1.0

    @property
    def statistics(self) -> tuple[str, ...]:
        return self.compares

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        return quotient(stats, self.statistics, self.when_nothing)

    def score_document(self, text: str | None) -> Any:
        from tamis.stages.text.filters.statistics import measure

        texts = pa.array([text], pa.large_string())
        if not self.statistics:
            return self.score_batch(texts)[0]
        return self.score_from(measure(texts, self.statistics))[0].item()


@dataclass
class StatisticFilter(KernelFilter):
    """Any text statistic, or the ratio of two, within bounds (included): a custom rule without code.

    `statistic` and `per` are names of statistics (docs/reference/filters.md lists them); `when_nothing` is the score
    of documents for which `per` is 0.
    """

    label: str
    statistic: str
    per: str | None = None
    minimum: float = -math.inf
    maximum: float = math.inf
    when_nothing: float = 0.0  # type: ignore[misc]  # a setting here, fixed in the filters that have a formula
    at_least = "minimum"
    at_most = "maximum"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._name = self.label

    @property
    def meaning(self) -> str:
        names = [name.replace("_", " ") for name in self.statistics]
        return names[0] if len(names) == 1 else f"a ratio of {names[0]} to {names[1]}"

    @property
    def statistics(self) -> tuple[str, ...]:
        return (self.statistic,) if self.per is None else (self.statistic, self.per)


def is_number(value: Any) -> bool:
    """Return True if scores can be compared with a value: an int or float, but not a bool or NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def quotient(stats: Stats, names: Sequence[str], when_nothing: float) -> np.ndarray[Any, Any]:
    """Return the only statistic, or the first divided by the second."""
    if len(names) == 1:
        return np.asarray(stats[names[0]])
    dividend, divisor = (np.asarray(stats[name], np.float64) for name in names)
    return np.divide(dividend, divisor, out=np.full(len(dividend), when_nothing, np.float64), where=divisor != 0)
