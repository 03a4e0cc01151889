"""Text statistics of a batch: computed once, kept beside the batch, shared by all filters. The only importer of the kernels.

What one pass over the text gives at no extra cost is kept too, so that neighbouring stages find it (`DocumentBatch.measured`
follows the rows through filters and forgets a column that is changed).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Numbers = dict[str, np.ndarray[Any, Any]]

# Counted together in the fastest pass over the text: whoever needs one may have all.
TOGETHER = (
    "chars", "words", "whitespace_chars", "basic_whitespace_chars", "digits", "alpha_chars", "alnum_punct_chars",
    "bracket_chars", "newlines", "words_with_alpha",
)  # fmt: skip


@lru_cache(maxsize=1000)
def pass_of(statistic: str) -> str:
    """Return the pass over the text that computes a statistic.

    Passes run one by one, each only over documents that no filter dropped before.
    """
    from tamis.kernels.text import line_stats, paragraph_stats, split_lines, url_stats, word_stats

    if statistic.endswith("_gram_fraction"):
        return "n-grams"
    name = statistic.replace("unique_", "duplicate_", 1)
    passes = {
        "lines": line_stats.COUNTS,
        "paragraphs": paragraph_stats.COUNTS,
        "phrases": paragraph_stats.PHRASE_COUNTS,
        "urls": url_stats.COUNTS,
        "split lines": split_lines.COUNTS,
        "words": word_stats.COUNTS,
    }
    for label, names in passes.items():
        for prefix in ("", "gopher_", "wide_"):
            if name.startswith(prefix) and name[len(prefix) :] in names:
                return prefix + label
    return "characters"


def measure(
    texts: pa.Array, wanted: Collection[str], rows: np.ndarray[Any, Any] | None = None, known: Numbers | None = None
) -> Numbers:
    """Return one array per statistic, for all texts or the chosen rows. A null counts as the empty text."""
    from tamis.kernels.buffers import string_buffers
    from tamis.kernels.text.text_stats import statistics

    return dict(statistics(string_buffers(texts), sorted(wanted), rows, known))


def known_statistics() -> dict[str, str]:
    """Return every statistic with the sentence that explains it."""
    from tamis.kernels.text.text_stats import STATISTICS

    return dict(STATISTICS)


class Measured:
    """The statistics of one text column of a batch, measured when asked for and remembered with the batch."""

    def __init__(self, batch: DocumentBatch, field: str) -> None:
        self.batch, self.field = batch, field
        self._column, self._at = batch.texts_in_place(field)
        self._partly: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}

    @property
    def texts(self) -> pa.Array:
        """Those of the batch alone, for filters that look at texts themselves."""
        return self.batch.texts(self.field)

    def get(self, wanted: Iterable[str], rows: np.ndarray[Any, Any], also: Iterable[str] = ()) -> Numbers:
        """Return the wanted statistics of `rows` (ascending).

        `also`: statistics that later filters will request for the same rows or fewer.
        """
        wanted = list(wanted)
        missing = {name for name in wanted if not self._has(name, rows)}
        if missing:
            missing |= {name for name in also if not self._has(name, rows)}
            if missing & set(TOGETHER):
                missing |= {name for name in TOGETHER if not self._has(name, rows)}
            whole = len(rows) == self.batch.num_items
            known = {name: self._of(name, rows) for name in TOGETHER if self._has(name, rows)}
            at = (None if whole else rows) if self._at is None else self._at[rows]
            for name, values in measure(self._column, missing, at, known).items():
                if whole:
                    self.batch.measured[self.field, name] = values
                else:
                    self._partly[name] = rows, values
        return {name: self._of(name, rows) for name in wanted}

    def _of(self, name: str, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if (self.field, name) in self.batch.measured:
            shared: np.ndarray[Any, Any] = self.batch.measured[self.field, name]
            return np.asarray(shared[rows])
        known, values = self._partly[name]
        return values if len(known) == len(rows) else np.asarray(values[np.searchsorted(known, rows)])

    def hand_on(self, child: DocumentBatch, rows: np.ndarray[Any, Any]) -> None:
        """Pass statistics that were measured for some rows only on to the batch of the remaining rows."""
        for name, (known, values) in self._partly.items():
            child.measured[self.field, name] = values[np.searchsorted(known, rows)]

    def _has(self, name: str, rows: np.ndarray[Any, Any]) -> bool:
        """Rows are all, or those that a chain has left by now: of two such sets the larger one holds the other."""
        if (self.field, name) in self.batch.measured:
            return True
        return name in self._partly and len(self._partly[name][0]) >= len(rows)
