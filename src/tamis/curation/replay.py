"""Stages of later passes in place of the steps that earlier passes ran: tables of drops, changes made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis.curation.facts import kind_of
from tamis.curation.planner import DROPS
from tamis.curation.steps import Step
from tamis.dedup.replay_tables.stages import OnlyListed, ReplayDrops, ReplayQuarantine
from tamis.engine import job
from tamis.stages.base import ProcessingStage

if TYPE_CHECKING:
    from tamis.curation.group import Group

Stages = list[ProcessingStage[Any, Any]]


class Replay:
    """The stages from the input to the documents that all decided groups leave.

    Groups are added as they are decided.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        # What the engine calls each step in a pass that begins with all of those before it.
        self._labels = job.labels_of(step.name for step in self._steps)
        self._groups: list[Group] = []

    def add(self, group: Group) -> None:
        self._groups.append(group)

    def labels_of(self, before: Sequence[int]) -> list[str]:
        """Return the labels of all steps before a group; what any of them quarantined is recorded, too."""
        return [self._labels[i] for i in before]

    def stages(self, deciding: Group | None = None) -> Stages:
        """Return the stages that replay all decided groups.

        `deciding`: a group whose first pass is done, for its further passes: its own steps before it are replayed,
        too.
        """
        replayed: Stages = []
        position = 0
        for group in [*self._groups, *([deciding] if deciding is not None else [])]:
            group.locate()
            if (table := group.quarantine_table()) is not None:
                replayed.append(ReplayQuarantine(table))
            for _ in group.labels:
                replayed += self._again(position, group)
                position += 1
            if group is not deciding:
                replayed += group.removals()
                position += len(group.steps)
        return replayed

    def _again(self, i: int, group: Group) -> Stages:
        step = self._steps[i]
        assert isinstance(step, ProcessingStage)
        if kind_of(step) != DROPS:
            return [step]
        return [ReplayDrops(group.replay_table(self._labels[i]), name=step.name, judge=step)]

    def text_stages(self, candidates: str, text_makers: Sequence[int]) -> Stages:
        """Return the stages of the pass that collects the texts of candidates.

        It reads these documents alone, and applies the steps that produced their texts (`DecisionGroup.text_makers`).
        """
        cuts: dict[int, ProcessingStage[Any, Any]] = {}  # what a deduplication did, by the number of its step
        position = 0
        for group in self._groups:
            position += len(group.labels)
            cuts |= dict(enumerate(group.removals(), position))
            position += len(group.steps)
        stages: Stages = [OnlyListed(candidates)]
        for i in text_makers:
            step = self._steps[i]
            stages.append(step if isinstance(step, ProcessingStage) else cuts[i])
        return stages
