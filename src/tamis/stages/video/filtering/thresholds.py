"""Dropping of clips by a column of scores, counted and reported, for all filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis._lazy import np
from tamis.stages.base import DropRule

if TYPE_CHECKING:
    from tamis.stages.video.video_stage import VideoStage
    from tamis.tasks import DocumentBatch


def at_least(name: str, column: str, limit: str, value: float) -> DropRule:
    """Return the rule that a clip's score in `column` must reach a limit."""
    return DropRule(name, column, {limit: value}, at_least=limit)


def keep_by(stage: VideoStage, batch: DocumentBatch, rules: list[DropRule]) -> DocumentBatch:
    """Return the clips whose scores reach the limits of all rules; a missing score reaches none."""
    for rule in rules:
        assert rule.at_least is not None
        scores = np.array([np.nan if v is None else v for v in batch.values(rule.score)], np.float64)
        stage._note_scores(rule.score, scores, batch.serial)
        with np.errstate(invalid="ignore"):
            keep = scores >= rule.limits[rule.at_least]
        gone = np.flatnonzero(~keep)
        stage._note_drops(
            batch.serial[gone], rule.name, [None if np.isnan(s) else float(s) for s in scores[gone]], dict(rule.limits)
        )
        batch = batch.filter(keep)
    return batch
