"""From steps to passes. Pure: steps in, passes out; nothing is read, written or asked.

The rule. Per-document steps before a deduplication run once, fused with the pass that makes its keys. What they dropped is
remembered by place (the table of `dedup/remembered`), what they changed is done again where a later pass needs it: reading and changing a text again costs
less than writing and reading it. An exact deduplication just before a fuzzy one is decided from the same keys. The last pass
reads the input again, leaves out what was dropped, applies changes, runs the steps behind the last deduplication, and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

DROPS, COLUMNS, CHANGES = "drops", "adds columns", "changes"
EXACT, FUZZY, LINES, SEMANTIC = "exact", "fuzzy", "lines", "semantic"
_DEDUPS = (EXACT, FUZZY, LINES, SEMANTIC)


@dataclass(frozen=True)
class StepFacts:
    """What the planner must know of a step. `kind`: DROPS (drops documents and nothing else), COLUMNS (adds columns, may drop),
    CHANGES (anything else that is done document by document), or the kind of a deduplication.

    `joins`: for a fuzzy deduplication, whether its keys serve the exact one just before it. `compares_texts`: whether it
    looks at the texts of candidates. `is_dear`: doing it again costs more than storing its result would (a model). `keeps`: it stores its results between passes by
    itself, where making them again takes longer and the disk has room.
    """

    name: str
    kind: str
    joins: bool = False
    compares_texts: bool = False
    is_dear: bool = False
    keeps: bool = False


@dataclass(frozen=True)
class Group:
    """Deduplications that are decided together: numbers of the steps that run before them and were not run yet, and their own."""

    before: tuple[int, ...]
    decides: tuple[int, ...]
    is_as_read: bool  # whether the texts that are compared are those of the input


@dataclass(frozen=True)
class Pass:
    """One pass over the input. `runs`: steps done for the first time; `remembers`: from tables; `redoes`: done again."""

    name: str
    reads: str
    runs: tuple[str, ...] = ()
    remembers: tuple[str, ...] = ()
    redoes: tuple[str, ...] = ()
    writes: str = ""
    holds: str = ""
    why: str = ""


@dataclass(frozen=True)
class CurationPlan:
    """`groups`, then what is left for the last pass (`last`, numbers of steps). `passes` says the same in words."""

    groups: tuple[Group, ...]
    last: tuple[int, ...]
    passes: tuple[Pass, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def n_reads(self) -> int:
        return len(self.passes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(steps: Sequence[StepFacts], plain_texts: bool = True, counts_sources: bool = False) -> CurationPlan:
    """`plain_texts`: the input is JSONL without compression, where the text of a candidate can be read by its place. `counts_sources`: a
    source has max_documents.

    >>> plan = make_plan([StepFacts("gopher", DROPS), StepFacts("exact", EXACT), StepFacts("fuzzy", FUZZY, joins=True)])
    >>> plan.n_reads, plan.groups[0].decides
    (2, (1, 2))
    """
    groups: list[Group] = []
    before: list[int] = []
    as_read = True
    for i, step in enumerate(steps):
        if step.kind not in _DEDUPS:
            before.append(i)
            as_read = as_read and step.kind != CHANGES
            continue
        earlier = groups[-1] if groups else None
        if (
            step.joins and not before and earlier is not None
            and len(earlier.decides) == 1 and steps[earlier.decides[0]].kind == EXACT
        ):  # fmt: skip
            groups[-1] = Group(earlier.before, (*earlier.decides, i), earlier.is_as_read)
        else:
            groups.append(Group(tuple(before), (i,), as_read))
        before = []
        as_read = as_read and step.kind != LINES
    plan = CurationPlan(tuple(groups), tuple(before))
    return _Words(steps, plan, plain_texts, counts_sources).plan()


@dataclass
class _Words:
    """The plan as people read it."""

    steps: Sequence[StepFacts]
    made: CurationPlan
    plain_texts: bool
    counts_sources: bool
    passes: list[Pass] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def plan(self) -> CurationPlan:
        done: list[int] = []
        for group in self.made.groups:
            self._group(group, done)
            done += [*group.before, *group.decides]
        self._last(done)
        return CurationPlan(self.made.groups, self.made.last, tuple(self.passes), tuple(self.remarks))

    def _names(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.steps[i].name for i in numbers)

    def _replayed(self, done: Sequence[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of what is remembered, and of what is done again."""
        again = [i for i in done if self.steps[i].kind in (COLUMNS, CHANGES)]
        return self._names([i for i in done if i not in again]), self._names(again)

    def _group(self, group: Group, done: list[int]) -> None:
        names = self._names(group.decides)
        remembers, redoes = self._replayed(done)
        last = self.steps[group.decides[-1]]
        keys = {
            EXACT: "a hash",
            FUZZY: "a hash and the bands of a sketch",
            LINES: "a hash per line",
            SEMANTIC: "a vector",
        }[last.kind]
        why = f"{last.name} compares all documents that are left"
        if len(names) == 2:
            why += f"; {names[0]} is decided from the same keys"
        writes = f"{keys} of each document that is left, and the verdict on each that is not"
        holds = "keys of one part at a time, to decide"
        title = f"keys for {' and '.join(names)}"
        self.passes.append(Pass(title, "the input", self._names(group.before), remembers, redoes, writes, holds, why))
        if last.compares_texts and not (group.is_as_read and self.plain_texts):
            before = [i for i in [*done, *group.before] if self.steps[i].kind == CHANGES]
            why = (
                f"the texts that {last.name} compares are those that {', '.join(self._names(before))} made"
                if before
                else "compressed and Parquet input cannot be read by place"
            )
            self.passes.append(
                Pass(f"texts for {last.name}", "the input", (), (), self._names(before), "the texts of candidates, compressed", why=why)
            )  # fmt: skip

    def _last(self, done: list[int]) -> None:
        remembers, redoes = self._replayed(done)
        why = (
            "the only pass: no step compares documents"
            if not done
            else "documents that stay are read again, not kept on the disk"
        )
        if self.counts_sources:
            self.passes.append(
                Pass(
                    "numbers for sources", "the input", self._names(self.made.last), remembers, redoes, "a number of each document that is left",
                    "counts of one source, to choose", "which documents max_documents chooses depends on all that are left",
                )
            )  # fmt: skip
        self.passes.append(
            Pass("write", "the input", self._names(self.made.last), remembers, redoes, "the output", why=why)
        )
        for i in done:
            step = self.steps[i]
            if step.keeps and step.kind in (COLUMNS, CHANGES):
                self.remarks.append(
                    f"{step.name}: what its model gives is kept on the disk between passes, as far as there is room, so that later passes do not "
                    "ask it again"
                )
            if step.is_dear and step.kind in (COLUMNS, CHANGES):
                self.remarks.append(
                    f"{step.name} uses a model and is done again in {sum(step.name in p.redoes for p in self.passes)} later pass(es), on "
                    "the documents that are left: dearer than storing what it made. Put it behind the last deduplication, or run "
                    "it first with a writer of its own"
                )
