"""Text statistics of a batch: computed once, stored with the batch, shared by all filters.

What a pass over the text computes at no extra cost is stored too, for the stages that follow (`DocumentBatch.measured`
follows the rows through filters and forgets a column that changes). The statistics are declared in
`kernels/text/text_stats.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Numbers = dict[str, np.ndarray[Any, Any]]

# Counted together by the fastest pass over the text: where one is needed, all are counted and kept. The pass has more,
# which fewer filters need (kernels/text/char_counts.py).
TOGETHER = (
    "chars",
    "words",
    "whitespace_chars",
    "basic_whitespace_chars",
    "digits",
    "alpha_chars",
    "alnum_punct_chars",
    "bracket_chars",
    "newlines",
    "words_with_alpha",
)


def pass_of(statistic: str) -> str:
    """Return the pass over the text that computes a statistic.

    Passes run one by one, each only over the documents that no filter dropped before.
    """
    from tamis.kernels.text import text_stats

    return text_stats.pass_of(statistic)


def measure(
    texts: pa.Array, names: Collection[str], rows: np.ndarray[Any, Any] | None = None, known: Numbers | None = None
) -> Numbers:
    """Return one array per statistic, for all texts or the selected rows. A null counts as the empty text."""
    from tamis.kernels.buffers import string_buffers
    from tamis.kernels.text.text_stats import statistics

    return dict(statistics(string_buffers(texts), sorted(names), rows, known))


def list_statistics() -> dict[str, str]:
    """Return every statistic with its meaning."""
    from tamis.kernels.text.text_stats import STATISTICS

    return dict(STATISTICS)


class ColumnStatistics:
    """The statistics of one text column of a batch, measured on first use and stored with the batch.

    Statistics of all rows are in `DocumentBatch.measured`; those of the rows that a chain of filters had left are here.
    """

    def __init__(self, batch: DocumentBatch, field: str) -> None:
        self.batch, self.field = batch, field
        self._column, self._positions = batch.texts_in_place(field)
        self._partial: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}

    @property
    def texts(self) -> pa.Array:
        """The texts of the batch, for filters that read them."""
        return self.batch.texts(self.field)

    def get(self, names: Iterable[str], rows: np.ndarray[Any, Any], ahead: Iterable[str] = ()) -> Numbers:
        """Return the statistics of `rows` (ascending).

        `ahead`: statistics that later filters will request for the same rows or fewer.
        """
        names = list(names)
        missing = {name for name in names if not self._has(name, rows)}
        if missing:
            missing |= {name for name in ahead if not self._has(name, rows)}
            if missing & set(TOGETHER):
                missing |= {name for name in TOGETHER if not self._has(name, rows)}
            is_whole = len(rows) == self.batch.num_items
            numbers = {name: self._select(name, rows) for name in TOGETHER if self._has(name, rows)}
            selected = (None if is_whole else rows) if self._positions is None else self._positions[rows]
            for name, values in measure(self._column, missing, selected, numbers).items():
                if is_whole:
                    self.batch.measured[self.field, name] = values
                else:
                    self._partial[name] = rows, values
        return {name: self._select(name, rows) for name in names}

    def move_to(self, child: DocumentBatch, rows: np.ndarray[Any, Any]) -> None:
        """Store the statistics of some rows with the batch of the remaining `rows`."""
        for name, (measured_rows, values) in self._partial.items():
            child.measured[self.field, name] = values[np.searchsorted(measured_rows, rows)]

    def _select(self, name: str, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if (self.field, name) in self.batch.measured:
            shared: np.ndarray[Any, Any] = self.batch.measured[self.field, name]
            return np.asarray(shared[rows])
        measured_rows, values = self._partial[name]
        if len(measured_rows) == len(rows):
            return values
        return np.asarray(values[np.searchsorted(measured_rows, rows)])

    def _has(self, name: str, rows: np.ndarray[Any, Any]) -> bool:
        """Return True if a statistic is known for `rows`.

        Of two sets of rows that a chain had left, the larger one contains the other.
        """
        if (self.field, name) in self.batch.measured:
            return True
        return name in self._partial and len(self._partial[name][0]) >= len(rows)
