"""The kinds of deduplication and of choosing documents, one entry each.

Commands, plans, recipes and curations take their lists from here.

To add a kind: a folder `dedup/NAME/` with its workflow and stages, its entry in `KINDS`, its command in
`cli/dedup/NAME.py` and its step in `curation/steps.py`. A kind that decides in its own way also adds a step of the
solver. Does not cover how a kind works: see its folder, whose workflow `DedupKind.load_workflow` imports.
"""

from __future__ import annotations

from dataclasses import field
from importlib import import_module
from typing import Any

from tamis._dataclasses import dataclass


@dataclass(frozen=True)
class ShippedFigures:
    """Speed assumed of a kind that has never run on this machine, all passes together."""

    mb_per_s: float = 130.0  # decoded MB per second of one core
    start_s: float = 2.5  # for the processes, however little there is to read


@dataclass(frozen=True, eq=False)
class DedupKind:
    """A way of deciding which documents stay: duplicates go, or those with the lowest scores, or all beyond a share.

    `workflow`: the class in `dedup/NAME/workflow.py` with the parameters of commands and curations. `keys`: what the
    first pass writes for each document, in plans. `step`: the name of its step in recipes, a class of
    `curation/steps.py` (`exact_duplicates`: ExactDuplicates). `has_plan`: `tamis plan` can estimate it. `has_index`: it
    can be compared with an index. `changes_text`: duplicates are cut out of documents. `collects_texts`: a pass of its
    own always writes down the texts that are compared. `decided_with`: a kind that the same keys decide, too, where its
    step comes just before. `is_deduplication`: documents are compared with each other, by a command of `tamis dedup`.
    """

    name: str  # of the command; begins the names of the files that it writes
    title: str  # of its runs, in messages and reports
    summary: str  # one sentence, in docs/guides/dedup.md
    workflow: str
    keys: str
    step: str = ""
    has_plan: bool = False
    has_index: bool = False
    changes_text: bool = False
    collects_texts: bool = False
    decided_with: str = ""
    is_deduplication: bool = True
    figures: ShippedFigures = field(default_factory=ShippedFigures)

    def load_workflow(self) -> type[Any]:
        """Import the workflow, with the parameters that commands and curations have."""
        workflow: type[Any] = getattr(import_module(f"tamis.dedup.{self.name}.workflow"), self.workflow)
        return workflow


EXACT = DedupKind(
    name="exact",
    title="exact deduplication",
    summary="Of documents with equal texts, or images with equal pixels, one stays.",
    workflow="RemoveExactDuplicates",
    step="exact_duplicates",
    keys="a hash",
    has_plan=True,
    has_index=True,
)
FUZZY = DedupKind(
    name="fuzzy",
    title="fuzzy deduplication",
    summary="Of documents that share most of their shingles one stays.",
    workflow="RemoveFuzzyDuplicates",
    step="fuzzy_duplicates",
    keys="a hash and the bands of a sketch",
    has_plan=True,
    has_index=True,
    decided_with="exact",
    figures=ShippedFigures(mb_per_s=70.0, start_s=3.5),
)
LINES = DedupKind(
    name="lines",
    title="line deduplication",
    summary="Lines or paragraphs that occurred before are cut out of documents.",
    workflow="LineDeduplicationWorkflow",
    step="duplicate_lines",
    keys="a hash per line",
    changes_text=True,
)
SUBSTRINGS = DedupKind(
    name="substrings",
    title="substring deduplication",
    summary="Passages that occur more than once, anywhere in a text, are cut out of documents.",
    workflow="SubstringDeduplicationWorkflow",
    step="repeated_passages",
    keys="hashes of some of its k-grams",
    has_plan=True,
    has_index=True,
    changes_text=True,
    collects_texts=True,
    figures=ShippedFigures(mb_per_s=45.0, start_s=4.0),
)
SEMANTIC = DedupKind(
    name="semantic",
    title="semantic deduplication",
    summary="Of documents or images whose embeddings nearly agree one stays.",
    workflow="SemanticDeduplicationWorkflow",
    keys="a vector",
)
CONTAMINATION = DedupKind(
    name="contamination",
    title="decontamination",
    summary="Documents that share runs of words with evaluation sets are dropped, or these runs are cut.",
    workflow="DecontaminationWorkflow",
    step="decontaminate",
    keys="its overlaps with evaluation sets",
    changes_text=True,
    is_deduplication=False,
    figures=ShippedFigures(mb_per_s=70.0, start_s=3.5),
)
SCORES = DedupKind(
    name="scores",
    title="scores",
    summary="Scores of documents are kept for later runs, or taken from an earlier one.",
    workflow="ScoresWorkflow",
    step="scores",
    keys="its scores",
    changes_text=True,
    is_deduplication=False,
)
BUCKETS = DedupKind(
    name="buckets",
    title="buckets by score",
    summary="Documents get the number of the bucket that their score falls into.",
    workflow="BucketsWorkflow",
    step="buckets",
    keys="its scores",
    changes_text=True,
    is_deduplication=False,
)
TOP = DedupKind(
    name="keep_top",
    title="the best documents",
    summary="The documents with the highest scores are kept, up to a limit.",
    workflow="TopWorkflow",
    step="keep_top",
    keys="its scores",
    is_deduplication=False,
)
MIX = DedupKind(
    name="mix",
    title="a mix by fields",
    summary="Documents are written as often as their group should have tokens in the mix.",
    workflow="MixWorkflow",
    step="mix",
    keys="its tokens and its group",
    changes_text=True,
    is_deduplication=False,
)

KINDS = {
    kind.name: kind for kind in (EXACT, FUZZY, LINES, SUBSTRINGS, SEMANTIC, CONTAMINATION, SCORES, BUCKETS, TOP, MIX)
}
