"""LineDeduplicationWorkflow: cut lines or paragraphs that occurred before out of documents, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.kinds import LINES
from tamis.dedup.lines.stages import KEYS_VERSION, CutUnits, UnitHashes, check_count
from tamis.dedup.options import UserWorkflow, absolute
from tamis.errors import UsageError
from tamis.sizes import parse_fraction

if TYPE_CHECKING:
    from tamis.dedup.passes import Passes


@dataclass
class LineDeduplicationWorkflow(UserWorkflow):
    """Lines (or paragraphs) are equal when the 64-bit hash of what is left of them after normalisation is.

    Of equal ones the first in the input stays, in the same or another document; the others are cut out. `run()` does
    all passes, and resumes where it stopped. `unit`: "line" (at every line feed) or "paragraph" (at blank lines).
    `normalize_text`: none, strip, nfc, casefold (default: case, width and whitespace do not count), alphanumeric, or
    ccnet (only letters count, and where there are digits, not which). Units with fewer than `min_chars` characters
    after that are never cut. `min_count`: only what occurs at least so often is cut; `keep_first=False` cuts the first
    one, too. A document of which fewer than `min_left_chars` characters are left is dropped. `cut_field`: a field that
    gets the numbers of the units cut. `perform_removal=False` counts only. `max_source_loss`: stop before anything is
    cut when a folder (or file, if there is one folder) would lose more than this share of its units that are long
    enough.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    unit: str = "line"
    normalize_text: str = "casefold"
    min_chars: int = 20
    min_count: int = 2
    keep_first: bool = True
    min_left_chars: int = 1
    cut_field: str | None = None
    perform_removal: bool = True
    output_filetype: str | None = None
    max_source_loss: float | str = 0.95

    def __post_init__(self) -> None:
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = None if self.input_path is None else absolute(self.input_path, "input_path") or None
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        check_count(LINES.title, "min_count", self.min_count, 2)
        check_count(LINES.title, "min_left_chars", self.min_left_chars, 1)
        if self.cut_field is not None and self.cut_field in ("", self.text_field):
            raise UsageError(f"{LINES.title}: cut_field must be another field than the text, got {self.cut_field!r}")
        self._keys()
        self._input()

    def _keys(self) -> UnitHashes:
        return UnitHashes(self.text_field, self.unit, self.normalize_text, self.min_chars)

    def passes(self) -> Passes:
        from tamis.dedup.passes import Passes
        from tamis.dedup.solver_task import CutLines

        rule = {"min_count": self.min_count, "keep_first": self.keep_first}
        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "text_field": self.text_field,
            "unit": self.unit,
            "normalize_text": self.normalize_text,
            "keys_version": KEYS_VERSION,
            "min_chars": self.min_chars,
            **rule,
            "min_left_chars": self.min_left_chars,
            "cut_field": self.cut_field,
            "perform_removal": self.perform_removal,
        }
        return Passes(
            LINES.title,
            self._input().reader,
            [(self._keys(), [])],
            self.output_path,
            CutLines(self.min_count, self.keep_first),
            self._writer(),
            LINES,
            identity=identity,
            max_source_loss=float(self.max_source_loss),
            counted=f"{self.unit}s",
            remove=self._cut,
        )

    def _cut(self, table: str, paths: str) -> CutUnits:
        return CutUnits(table, self.text_field, self.unit, self.min_left_chars, self.cut_field)
