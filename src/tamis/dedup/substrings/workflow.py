"""SubstringDeduplicationWorkflow: cut passages that occur more than once out of documents, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tamis.dedup.index.index import read_index
from tamis.dedup.kinds import SUBSTRINGS, DedupKind
from tamis.dedup.nemo_compat.finding import index_options
from tamis.dedup.options import UserWorkflow, WriterFactory, absolute
from tamis.dedup.planning import make_passage_plan
from tamis.dedup.substrings.normalization import NORMALIZATION_VERSION
from tamis.dedup.substrings.stages import (
    EDGES,
    KEEP,
    KEYS_VERSION,
    CutPassages,
    KeptTexts,
    WindowSelections,
    parse_remove,
)
from tamis.errors import UsageError, check_choice
from tamis.memory.budget import find_budget
from tamis.sizes import check_integer, parse_fraction

if TYPE_CHECKING:
    from tamis.dedup.passes import Passes
    from tamis.dedup.planning import DedupPlan
    from tamis.formats.input_files.listing import FileList
    from tamis.stages.base import ProcessingStage


@dataclass
class SubstringDeduplicationWorkflow(UserWorkflow):
    """Passages of at least `min_bytes` bytes that occur more than once, anywhere, are cut out of documents.

    A window of `min_bytes` bytes inside one document is repeated if equal bytes begin at any other position of the
    input, in the same document and overlaps included; repeated passages are unions of such windows, exactly those that
    a suffix array finds. `run()` does all passes, and resumes where it stopped.

    `keep`: the "first" copy of every window stays (a byte goes if a repeated window covers it, and none that is the
    first of its kind), or "none". `remove`: "span" (passages are cut out), "document-above SHARE" (documents of which
    more than this share is repeated are dropped, texts do not change) or "nothing" (repeated passages are counted).
    `normalize_text`: "none", "whitespace" (runs of it are one space) or "case" (nor does the case of ASCII letters
    count); `min_bytes` then counts bytes of the text as it is compared. Cuts shrink to whole `edges`: "characters",
    "words" or "lines". A document of which fewer than `min_left_chars` characters are left is dropped. `cut_field`: a
    field with what was cut, as [start, end, ...] in bytes of the text as it was. `max_source_loss`: stop before
    anything is removed when a folder (or file, if there is one folder) would lose more than this share of its text.
    `index_path`: keep an index of the texts that stay in this folder. `against`: an index that earlier runs kept; the
    same passages go as if its texts were the first of the input. `append`: add the texts that stay to it.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    min_bytes: int = 500
    keep: str = "first"
    remove: str = "span"
    normalize_text: str = "none"
    edges: str = "characters"
    min_left_chars: int = 1
    cut_field: str | None = None
    perform_removal: bool = True
    output_filetype: str | None = None
    max_source_loss: float | str = 0.95
    index_path: str | None = None
    against: str | None = None
    append: bool = False

    def __post_init__(self) -> None:
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = None if self.input_path is None else absolute(self.input_path, "input_path") or None
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        title = SUBSTRINGS.title
        check_choice(f"{title}: keep", self.keep, KEEP)
        check_choice(f"{title}: edges", self.edges, EDGES)
        check_integer(self.min_left_chars, f"{title}: min_left_chars", 1)
        _, share = parse_remove(title, self.remove)
        if self.cut_field is not None and self.cut_field in ("", self.text_field):
            raise UsageError(f"{title}: cut_field must be another field than the text, got {self.cut_field!r}")
        if self.cut_field is not None and share is not None:
            raise UsageError(f"{title}: cut_field goes with remove='span'; {self.remove!r} cuts nothing")
        self._keys()
        self._input()
        self._index_options()

    def _keys(self) -> WindowSelections:
        return WindowSelections(self.text_field, self.min_bytes, self.normalize_text)

    def _index_options(self) -> dict[str, Any]:
        return index_options(self.owner, self.index_path, self.against, self.append)

    def _writer(self) -> WriterFactory | None:
        return super()._writer() if parse_remove(self.owner, self.remove)[0] else None

    kind: ClassVar[DedupKind] = SUBSTRINGS

    def profile_parameters(self) -> dict[str, Any]:
        """Return the parameters of a run, as far as the machine profile distinguishes runs by them (expected.py)."""
        return {"perform_removal": self.perform_removal, "min_bytes": self.min_bytes}

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """Estimate what a run would take, without writing anything. `work`: its scratch folder."""
        budget_bytes = find_budget(memory, os.environ).bytes
        return self.plan_of(self._input().files(), budget_bytes, work or self.output_path)

    def plan_of(self, files: FileList, budget_bytes: int, work: str, with_all_bands: bool = False) -> DedupPlan:
        """Estimate what a run over these files would take. `with_all_bands` has no effect: there are no bands."""
        against, index = (self._index_options()[name] for name in ("against", "index"))
        entries = []
        if against is not None:
            contents = read_index(against)
            entries = [(contents.data(e), e.n_bytes) for e in contents.entries if not e.is_of(self.output_path)]
        return make_passage_plan(files, self.min_bytes, budget_bytes, work, entries, adds_to_index=index is not None)

    def passes(self) -> Passes:
        from tamis.dedup.passes import Passes
        from tamis.dedup.solver_task import CompareWindows
        from tamis.dedup.substrings.procedure import SubstringComparison

        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "text_field": self.text_field,
            "min_bytes": self.min_bytes,
            "keep": self.keep,
            "remove": self.remove,
            "normalize_text": self.normalize_text,
            "keys_version": KEYS_VERSION,
            "edges": self.edges,
            "min_left_chars": self.min_left_chars,
            "cut_field": self.cut_field,
            "perform_removal": self.perform_removal,
        }
        index = self._index_options()
        identity |= {k: v for k, v in index.items() if v is not None}
        how = {
            "min_bytes": self.min_bytes,
            "normalize_text": self.normalize_text,
            "normalization_version": NORMALIZATION_VERSION,
        }
        return Passes(
            SUBSTRINGS.title,
            self._input().reader,
            [(self._keys(), [])],
            self.output_path,
            CompareWindows(self.min_bytes, self.keep == "first"),
            self._writer(),
            SUBSTRINGS,
            identity=identity,
            max_source_loss=float(self.max_source_loss),
            counted="bytes",
            remove=self.removal,
            procedure=SubstringComparison(),
            plan=self.plan_of,
            index_parameters=how,
            kept=self.kept,
            **index,
        )

    def kept(self, table: str, paths: str) -> list[ProcessingStage[Any, Any]]:
        """Return the stages whose records an index gets: what is left of each text, all of it if nothing is removed."""
        cut = [self.removal(table, paths)] if parse_remove(self.owner, self.remove)[0] else []
        return [*cut, KeptTexts(self.text_field, self.normalize_text)]

    def removal(self, table: str, paths: str, name: str = "cut_passages") -> CutPassages:
        """Return the stage that removes what a table lists. `paths`: JSON with the input files by number."""
        _, share = parse_remove(self.owner, self.remove)
        return CutPassages(
            table,
            paths,
            self.text_field,
            self.normalize_text,
            self.edges,
            self.min_left_chars,
            share,
            self.cut_field,
            name=name,
        )
