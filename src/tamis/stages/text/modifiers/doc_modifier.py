"""Base classes of modifiers: one method from a text to a text, and two optional ones that make it fast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from tamis._lazy import np, pa, pc


class DocumentModifier(ABC):
    """Changes texts. Subclasses implement `modify_document`; `modify_batch` and `candidates` have working defaults.

    A modifier never gets a null. Its public attributes are its parameters, which a resumed run compares.
    """

    removes_values: ClassVar[bool] = False
    """It removes values that must not be stored: no sample of a text shows them (engine/worker/sampling.py)."""
    kernel_groups: ClassVar[tuple[str, ...]] = ()  # folders of tamis.kernels, loaded before any memory cap

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def modify_document(self, text: str) -> Any:
        """Return the new text, or None to make it null."""

    def candidates(self, texts: pa.Array) -> pa.Array | None:
        """Return a mask of the texts that may change, or None for all.

        The others are never decoded to Python strings.
        """
        return None

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        """Modify all texts of a batch at once.

        Return a new array of the same length, or the same array if nothing changed.
        """
        from tamis.tasks.columns.exact import exact_array

        candidates = self.candidates(texts)
        mask = texts.is_valid() if candidates is None else pc.fill_null(candidates, False)
        rows, results = [], []
        for i in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
            before = texts[i].as_py()  # one by one: a list of all texts would double the memory of the batch
            after = self.modify_document(before)
            if after is not before and after != before:
                rows.append(i)
                results.append(after)
        if any(r is not None and not isinstance(r, str) for r in results):
            changed = dict(zip(rows, results, strict=True))
            return exact_array([changed.get(i, t.as_py()) for i, t in enumerate(texts)])
        return with_texts(texts, rows, results)

    def take_metrics(self) -> dict[str, float]:
        """Return counts of changes since the last call, which `Modify` logs as its own."""
        return {}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({parameters})"


class ColumnModifier(DocumentModifier):
    """A modifier that works on whole columns (`modify_batch`); one document is a column of one."""

    def modify_document(self, text: str) -> Any:
        return self.modify_batch(pa.array([text], pa.large_string()))[0].as_py()

    @abstractmethod
    def modify_batch(self, texts: pa.Array) -> pa.Array: ...


def with_texts(
    texts: pa.Array, rows: Sequence[int] | np.ndarray[Any, Any], values: Sequence[str | None] | pa.Array
) -> pa.Array:
    """Return the texts with those of some rows (ascending) replaced."""
    from tamis.kernels import text_rows

    if not len(rows):
        return texts
    changed = np.zeros(len(texts), bool)
    changed[rows] = True
    new = values if isinstance(values, pa.Array) else pa.array(values, texts.type)
    return text_rows.replace(texts, changed, new)


def replace_regex(texts: pa.Array, pattern: str, replacement: str, needs: str | None = None) -> pa.Array:
    """Apply RE2's global replacement to the texts in which the pattern, or the string that it `needs`, occurs.

    Searching first is 5 times as fast.
    """
    from tamis.kernels import text_rows

    # RE2 finds plain strings, too, many times as fast as Arrow's own search.
    matches = pc.match_substring_regex(texts, pattern=pattern if needs is None else rf"\Q{needs}\E")
    rows = np.flatnonzero(pc.fill_null(matches, False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return texts
    replaced = pc.replace_substring_regex(text_rows.take(texts, rows), pattern=pattern, replacement=replacement)
    return with_texts(texts, rows, replaced)
