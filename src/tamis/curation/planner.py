"""From steps to passes. Pure: steps in, passes out.

The rule. Per-document steps before a deduplication run once, fused with the pass that makes its keys. What they
dropped is replayed from tables (`dedup/replay_tables`); what they changed is done again where a later pass needs it,
since reading and changing a text again costs less than writing and reading it. An exact deduplication just before a
fuzzy one is decided from the same keys. The last pass reads the input again, leaves out what was dropped, applies
changes, runs the steps after the last deduplication, and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.dedup.kinds import KINDS

DROPS, COLUMNS, CHANGES = "drops", "adds columns", "changes"
_DONE_AGAIN = (COLUMNS, CHANGES)  # by later passes; what the others did is replayed from tables


@dataclass(frozen=True)
class StepFacts:
    """The facts of a step that the planner needs.

    `kind`: DROPS (drops documents and nothing else), COLUMNS (adds columns, may drop), CHANGES (anything else that is
    done document by document), or the name of a kind of deduplication. `joins`: for a fuzzy deduplication, whether its
    keys serve the exact one just before it. `compares_texts`: whether it looks at the texts of candidates. `reads`: the
    columns it reads (a deduplication: that of its texts), None if unknown; `adds`: those it adds. `is_expensive`: doing
    it again costs more than storing its result would (a model). `keeps`: it stores its results between passes by
    itself, where making them again takes longer and the disk has room. `replaces`: a field that later passes do not
    need then.
    """

    name: str
    kind: str
    joins: bool = False
    compares_texts: bool = False
    reads: frozenset[str] | None = None
    adds: frozenset[str] = frozenset()
    is_expensive: bool = False
    keeps: bool = False
    replaces: str | None = None


@dataclass(frozen=True)
class DecisionGroup:
    """Deduplications that are decided together.

    `before`: numbers of the steps that run before them and were not run yet; `decides`: their own. `text_makers`:
    numbers of the earlier steps that made the texts they compare; none where these are the texts of the input.
    """

    before: tuple[int, ...]
    decides: tuple[int, ...]
    text_makers: tuple[int, ...] = ()

    @property
    def is_as_read(self) -> bool:
        """True if the texts that are compared are those of the input."""
        return not self.text_makers


@dataclass(frozen=True)
class PlannedPass:
    """One pass over the input.

    `runs`: steps done for the first time; `remembers`: replayed from tables; `redoes`: done again.
    """

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
    """The groups of a curation, the steps of its last pass (`last`, by number), and all passes in words.

    `text_keeper`: the number of a step whose results are kept together with the other fields of records, so that later
    passes need not read files of records again.
    """

    groups: tuple[DecisionGroup, ...]
    last: tuple[int, ...]
    passes: tuple[PlannedPass, ...] = ()
    remarks: tuple[str, ...] = ()
    text_keeper: int | None = None

    @property
    def n_reads(self) -> int:
        return len(self.passes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _PassList:
    """The passes of a curation while they are planned, and the steps that they have done (`done`, by number)."""

    steps: Sequence[StepFacts]
    keeper: int | None = None  # CurationPlan.text_keeper
    passes: list[PlannedPass] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def add(self, name: str, runs: Iterable[int], writes: str, holds: str, why: str) -> None:
        """Add a pass over the input.

        It relies on the recorded results of earlier steps, and runs those steps again that changed documents.
        """
        again = self.repeated()
        remembered = self._names(i for i in self.done if i not in again)
        self.passes.append(
            PlannedPass(name, self._reads(), self._names(runs), remembered, self._names(again), writes, holds, why)
        )

    def add_group(self, group: DecisionGroup, plain_texts: bool) -> None:
        """Add the passes before the decision of a group: keys, and texts where it compares them."""
        decided, dedup = self._names(group.decides), self.steps[group.decides[-1]]
        why = f"{dedup.name} compares all documents that are left"
        why += f"; {decided[0]} is decided from the same keys" if len(decided) == 2 else ""
        writes = f"{KINDS[dedup.kind].keys} of each document that is left, and the verdict on each that is not"
        holds = "keys of one part at a time, to decide"
        self.add(f"keys for {' and '.join(decided)}", group.before, writes, holds, why)
        self.done += group.before
        if KINDS[dedup.kind].collects_texts or (dedup.compares_texts and not (group.is_as_read and plain_texts)):
            self._add_texts(dedup, self._names(group.text_makers))
        self.done += group.decides

    def _add_texts(self, dedup: StepFacts, makers: tuple[str, ...]) -> None:
        """Add the pass that collects the texts of candidates. `makers`: the steps that change them."""
        writes = "the texts of candidates, compressed"
        why = f"the texts that {dedup.name} compares are those that {', '.join(makers)} made"
        if not makers:
            why = "compressed and Parquet input cannot be read by position"
        if KINDS[dedup.kind].collects_texts:
            writes = "what surrounds candidates in their texts"
            why = f"{dedup.name} compares the texts of candidates, which are known now"
        texts = PlannedPass(f"texts for {dedup.name}", self._reads(), redoes=makers, writes=writes, why=why)
        self.passes.append(texts)

    def _reads(self) -> str:
        is_kept = self.keeper in self.done
        return f"what {self.steps[self.keeper].name} kept" if self.keeper is not None and is_kept else "the input"

    def repeated(self) -> list[int]:
        """Return the steps that every later pass does again."""
        return [i for i in self.done if self.steps[i].kind in _DONE_AGAIN]

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.steps[i].name for i in numbers)


def make_plan(
    steps: Sequence[StepFacts], plain_texts: bool = True, counts_sources: bool = False, has_records: bool = False
) -> CurationPlan:
    """Return the passes that these steps take.

    `plain_texts`: the input is JSONL without compression, where the text of a candidate can be read by its position.
    `counts_sources`: a source has max_documents. `has_records`: there are files of records (WARC), which can only be
    read from their beginning.

    >>> plan = make_plan([StepFacts("gopher", DROPS), StepFacts("one", "exact"), StepFacts("two", "fuzzy", joins=True)])
    >>> plan.n_reads, plan.groups[0].decides
    (2, (1, 2))
    """
    groups, last = _grouped(steps)
    keeper = _text_keeper(steps, groups) if has_records else None
    planned = _PassList(steps, keeper)
    for group in groups:
        planned.add_group(group, plain_texts)
    if counts_sources:
        why = "which documents max_documents chooses depends on all that are left"
        holds = "counts of one source, to choose"
        planned.add("numbers for sources", last, "a number of each document that is left", holds, why)
    why = "the only pass: no step compares documents"
    if planned.done:
        why = "documents that stay are read again, not kept on the disk"
        why = why if keeper is None else "documents that stay are written in the order of the input"
    planned.add("write", last, "the output", "", why)
    remarks = tuple(remark for i in planned.repeated() for remark in _remarks(steps[i], planned.passes))
    return CurationPlan(groups, last, tuple(planned.passes), remarks, keeper)


def _grouped(steps: Sequence[StepFacts]) -> tuple[tuple[DecisionGroup, ...], tuple[int, ...]]:
    """Return the groups that are decided together, and the numbers of the steps after the last of them."""
    groups: list[DecisionGroup] = []
    before: list[int] = []
    for i, step in enumerate(steps):
        if step.kind not in KINDS:
            before.append(i)
            continue
        earlier = groups[-1] if groups else None
        if (
            step.joins
            and not before
            and earlier is not None
            and len(earlier.decides) == 1
            and steps[earlier.decides[0]].kind == KINDS[step.kind].decided_with
        ):
            groups[-1] = DecisionGroup(earlier.before, (*earlier.decides, i), earlier.text_makers)
        else:
            groups.append(DecisionGroup(tuple(before), (i,), _text_makers(steps, i)))
        before = []
    return tuple(groups), tuple(before)


def _text_keeper(steps: Sequence[StepFacts], groups: Sequence[DecisionGroup]) -> int | None:
    """Return the step before a decision that replaces a field which no other step needs in a later pass."""
    for i in (i for group in groups for i in group.before if steps[i].keeps and steps[i].replaces is not None):
        earlier = [step for step in steps[:i] if step.kind != DROPS]
        if all(step.reads is not None and steps[i].replaces not in step.reads for step in earlier):
            return i
    return None


def _text_makers(steps: Sequence[StepFacts], deciding: int) -> tuple[int, ...]:
    """Return the steps before deduplication number `deciding` that its text depends on.

    These are the steps that change documents, and those that add a column which one of these steps or the
    deduplication reads. A step that does not declare what it reads is taken to read any column.
    """
    columns = steps[deciding].reads or frozenset()
    reads_any = False
    makers: list[int] = []
    for i in range(deciding - 1, -1, -1):
        step = steps[i]
        if (
            step.kind == CHANGES
            or (step.kind in KINDS and KINDS[step.kind].changes_text)
            or (step.kind == COLUMNS and (reads_any or step.adds & columns))
        ):
            makers.append(i)
            columns |= step.reads or frozenset()
            reads_any = reads_any or step.reads is None
    return tuple(reversed(makers))


def _remarks(step: StepFacts, passes: Sequence[PlannedPass]) -> Iterator[str]:
    """Yield remarks on a step that later passes run again."""
    if step.keeps:
        yield (
            f"{step.name}: what it makes is kept on the disk between passes, as far as there is room, so that later "
            "passes do not make it again"
        )
    if step.is_expensive:
        yield (
            f"{step.name} uses a model and is done again in {sum(step.name in p.redoes for p in passes)} later "
            "pass(es), on the documents that are left: more expensive than storing what it made. Put it after the "
            "last deduplication, or run it first with a writer of its own"
        )
