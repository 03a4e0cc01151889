"""Documents that went, as they are kept: with the scores of the filters before, unless a later stage changed those."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tamis.engine.ledger import StageBook
from tamis.engine.schema import FileKind
from tamis.engine.worker.apply import UnitNotes, identify, run_stage
from tamis.engine.worker.rejections import Rejections
from tamis.formats.jsonl.block import JsonlBlock
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import DocumentFilter, ScoreFilter
from tamis.tasks import DocumentBatch


class Length(DocumentFilter):
    """Keeps texts of more than two characters."""

    def score_document(self, text: str) -> Any:
        return len(text)

    def keep_document(self, scores: Any) -> bool:
        return bool(scores > 2)


class Kind(Length):
    """A score that is a number for short texts and a text for others."""

    def score_document(self, text: str) -> Any:
        return len(text) if len(text) < 2 else text

    def keep_document(self, scores: Any) -> bool:
        return scores == "kept"


class Change(ProcessingStage[Any, Any]):
    def __init__(self, change: Callable[[DocumentBatch], DocumentBatch]) -> None:
        self.change = change

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return self.change(task)


def rejected(tmp_path: Path, stages: list[ProcessingStage[Any, Any]], *texts: str, **more: Any) -> list[Any]:
    """[(text, score or None where the field is absent)] of what went, in the order in which it went."""
    raw = "".join(json.dumps({"text": t, **more}) + "\n" for t in texts).encode()
    batch = DocumentBatch.over(JsonlBlock.parse(np.frombuffer(raw, np.uint8)), np.arange(len(texts)))
    identify(batch)
    tasks: list[Any] = [batch]
    rejections = Rejections(True)
    for number, stage in enumerate(stages):
        tasks = run_stage(stage, f"stage {number}", tasks, StageBook("stage"), UnitNotes(rejections))
    (path,) = (f.path for f in rejections.write(str(tmp_path / "base")) if f.kind is FileKind.REJECTED)
    documents = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [(d["text"], d.get("score")) for d in documents]


SCORED = ScoreFilter(Length(), score_field="score")
DROP_ALL = Change(lambda batch: batch.filter(np.zeros(batch.num_items, bool)))


def test_what_a_filter_drops_has_its_score_and_what_goes_later_too(tmp_path: Path) -> None:
    assert rejected(tmp_path, [SCORED, DROP_ALL], "ab", "abc") == [("ab", 2), ("abc", 3)]


def test_the_score_of_a_filter_wins_over_what_the_document_had(tmp_path: Path) -> None:
    assert rejected(tmp_path, [SCORED], "ab", score=99) == [("ab", 2)]
    before = Change(lambda batch: batch.with_column("score", [77] * batch.num_items))
    assert rejected(tmp_path, [before, SCORED], "ab") == [("ab", 2)]


def test_a_score_that_a_later_stage_changed_is_the_changed_one(tmp_path: Path) -> None:
    change = Change(lambda batch: batch.with_column("score", [10 * n for n in batch.column("score").to_pylist()]))
    assert rejected(tmp_path, [SCORED, change, DROP_ALL], "ab", "abc", "abcd") == [("ab", 2), ("abc", 30), ("abcd", 40)]


def test_a_score_that_a_later_stage_removed_is_gone(tmp_path: Path) -> None:
    remove = Change(lambda batch: batch.drop_columns(["score"]))
    assert rejected(tmp_path, [SCORED, remove, DROP_ALL], "ab", "abc") == [("ab", 2), ("abc", None)]


def test_scores_of_several_kinds_stay_what_they_are(tmp_path: Path) -> None:
    stage = ScoreFilter(Kind(), score_field="score")
    assert rejected(tmp_path, [stage], "a", "kept", "bc") == [("a", 1), ("bc", "bc")]
