"""Filters that use a fastText model: quality and language."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis import _deep_paths
from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.fingerprints import of_file
from tamis.stages.text.filters.doc_filter import DocumentFilter, is_number
from tamis.stages.text.filters.rule_set import RuleSet
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.stages.text.langid import MAX_BYTES, LanguageId
from tamis.stages.text.language_scores import DEFAULT, parse_score, read_thresholds

if TYPE_CHECKING:
    from tamis.stages.text.fasttext.model import FastTextModel


_MAX_SHOWN = 20  # thresholds that a report shows one by one


class _ModelFilter(DocumentFilter):
    """A filter with a fastText model, loaded once per machine, or at the first score outside of a run."""

    model_path: str | None
    _model: FastTextModel | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model_path, (str, os.PathLike)) or not self.model_path:
            raise UsageError(
                f"{type(self).__name__}: model_path must be the path of a fastText model (.bin or .ftz), "
                f"got {self.model_path!r}"
            )

    def model_file(self) -> str:
        return str(self.model_path)

    def model_fingerprint(self) -> str | None:
        return of_file(self.model_file())

    def model_check_or_download(self) -> None:
        """Load the model before any memory cap is set and before workers are forked, so that they share it."""
        if not os.path.isfile(self.model_file()):
            raise UsageError(
                f"{type(self).__name__}: model_path {self.model_file()} is not a file; nothing is downloaded"
            )
        self.load_model()

    @abstractmethod
    def load_model(self) -> None:
        """Load the model into memory, unless it is loaded already."""

    def score_document(self, text: str) -> Any:
        return self.score_batch(pa.array([text], pa.large_string()))[0]


@dataclass
class FastTextQualityFilter(_ModelFilter):
    """Probability of `label`. A document is kept at random, more often the higher its score (Brown et al., 2020).

    The draw is a function of the text and `seed`: kept if it is above 1 - score, where draws follow a Pareto (Lomax)
    distribution with shape `alpha`. `keep_document(score)` alone does not know the text and draws by the score.
    """

    model_path: str | None = None
    label: str = "__label__hq"
    alpha: float = 3
    seed: int = 42
    _name = "fasttext_quality_filter"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.alpha) or not self.alpha > 0:
            raise UsageError(f"FastTextQualityFilter: alpha must be above 0, got {self.alpha!r}")

    def load_model(self) -> None:
        if self._model is None:
            from tamis.stages.text.fasttext.model import FastTextModel

            model = FastTextModel.load(self.model_file())
            if self.label not in model.labels:  # the score of every document would be that of another label
                raise UsageError(
                    f"FastTextQualityFilter: the model has no label {self.label!r}; it has: {_some(model.labels)}"
                )
            self._model = model

    def best(self, texts: pa.Array) -> list[tuple[str, float]]:
        """Return the best label of each text and its score; ("", 0) for a text without known words.

        A line feed, which would end the text for fastText, counts as a space.
        """
        self.load_model()
        assert self._model is not None
        labels, scores = self._model.predict(pc.replace_substring(pc.coalesce(texts, ""), "\n", " "), k=1)
        return [(row[0], min(float(s[0]), 1.0)) if row else ("", 0.0) for row, s in zip(labels, scores, strict=True)]

    def score_batch(self, texts: pa.Array) -> list[float]:
        best = self.best(texts)
        return [score if label == self.label else 1 - score if label else 0.0 for label, score in best]

    def keep_document(self, score: Any) -> bool:
        return bool(self.keep_texts(pa.array([repr(float(score))], pa.large_string()), [score])[0])

    def keep_texts(self, texts: pa.Array, scores: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self.draws(texts) > 1 - np.asarray(scores, np.float64))

    def draws(self, texts: pa.Array) -> np.ndarray[Any, Any]:
        """Return one Pareto draw per text, from the hash of its content."""
        import hashlib

        key = str(self.seed).encode()
        raw = b"".join(hashlib.blake2b((t or "").encode(), digest_size=8, key=key).digest() for t in texts.to_pylist())
        uniform = (np.frombuffer(raw, "<u8") >> np.uint64(11)).astype(np.float64) / 2.0**53
        return np.asarray((1.0 - uniform) ** (-1.0 / self.alpha) - 1.0)

    def thresholds(self) -> Mapping[str, Any]:
        return {"alpha": self.alpha, "seed": self.seed}


@dataclass
class FastTextLangId(_ModelFilter):
    """Language and its probability, as a text such as "[0.97, 'en']". Keeps scores of at least `min_langid_score`.

    Without `model_path` the installed language model is used; of each text the first `max_bytes` are read (see
    docs/guides/language-id.md). `lang` keeps one language only: "en" matches the labels en and en_Latn, "eng_Latn"
    that label alone, in any case. `min_scores`: a threshold for each language (of labels as the model has them, and
    "default"), instead of one for all: a mapping, or a file of YAML or JSON. A text without words that the model knows
    has "[0.0, 'unknown']".
    """

    model_path: str | None = None
    min_langid_score: float = 0.3
    lang: str | None = None
    max_bytes: int = MAX_BYTES
    min_scores: Mapping[str, float] | str | None = None
    _name = "lang_id"

    def __post_init__(self) -> None:
        if self.model_path is not None:
            super().__post_init__()
        if not is_number(self.min_langid_score):
            raise UsageError(f"FastTextLangId: min_langid_score must be a number, got {self.min_langid_score!r}")
        self._table = None if self.min_scores is None else read_thresholds(self.min_scores, type(self).__name__)
        self._detector = LanguageId(self.model_path, self.max_bytes)

    def model_file(self) -> str:
        return self._detector.path()

    def load_model(self) -> None:
        languages = [label.removeprefix("__label__") for label in self._detector.load().labels]
        if not any(map(self._matches, languages)):  # every document would be dropped
            raise UsageError(f"FastTextLangId: the model has no language {self.lang!r}; it has: {_some(languages)}")

    def score_batch(self, texts: pa.Array) -> list[str]:
        codes, scores = self._detector.detect(texts)
        # fastText's scores may be a rounding above 1
        pairs = zip(codes.to_pylist(), scores.tolist(), strict=True)
        return [str([min(score, 1.0), code or "unknown"]) for code, score in pairs]

    def keep_document(self, score: Any) -> bool:
        value, label = self.parsed(score)
        return self._matches(label) and value >= self._threshold(label)

    def _threshold(self, label: str) -> float:
        """Return the score that a document of this language needs; more than any has for one that is not wanted."""
        if self._table is None:
            return self.min_langid_score
        return self._table.get(label, self._table.get(DEFAULT, 2.0))

    def _matches(self, label: str) -> bool:
        if not self.lang:
            return True
        lang, label = self.lang.casefold(), label.casefold()
        return label == lang or ("_" not in lang and label.partition("_")[0] == lang)

    @staticmethod
    def parsed(score: Any) -> tuple[float, str]:
        """Parse a score, which may come from a file, into (probability, language), without evaluating it as code."""
        return parse_score(score)

    def score_numbers(self, scores: Any) -> Any:
        return list(map(_probability, scores))

    def thresholds(self) -> Mapping[str, Any]:
        if self._table is not None:
            return {"min_scores": self._table if len(self._table) <= _MAX_SHOWN else f"{len(self._table)} languages"}
        return {"min_langid_score": self.min_langid_score, "lang": self.lang}

    def bounds(self) -> tuple[str | None, str | None]:
        """Return the lower bound of documents in the requested language; only those are kept."""
        return ("min_langid_score", None) if self._table is None else (None, None)


@dataclass(repr=False)
class LanguageFilter(RuleSet):
    """Documents of one language, or those whose language is clear: a stage with one FastTextLangId.

    `lang=None` keeps any language with a probability of at least `min_score`, or of that in the table `min_scores`
    (by label, with "default" for the others). `language_field` is a column for the score and the language, as
    "[0.97, 'en']". See docs/guides/language-id.md for the model.
    """

    lang: str | None = None
    min_score: float = 0.65
    model_path: str | None = None
    max_bytes: int = MAX_BYTES
    language_field: str | None = None
    text_field: str = "text"
    name: str = "language"
    min_scores: Mapping[str, float] | str | None = None

    def filters(self) -> list[DocumentFilter]:
        one = FastTextLangId(self.model_path, self.min_score, self.lang, self.max_bytes, self.min_scores)
        return [one.set_by(min_langid_score="min_score: {}")]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [ScoreFilter(self.filters()[0], self.text_field, score_field=self.language_field, name=self.name)]


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")


def _probability(score: Any) -> float | None:
    """Return the number in a score such as "[0.97, 'en']".

    This takes 0.3 us; parsing it as a Python literal would take 7.
    """
    try:
        return float(str(score)[1:40].partition(",")[0])
    except ValueError:
        return None


_deep_paths.register(__name__, "fasttext_filters")
