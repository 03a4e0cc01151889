"""Classification as in the notebooks: Parquet in, one classifier, JSONL out; small models of the real kinds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("torch", reason="the extra `models` is not installed")
pytest.importorskip("transformers", reason="the extra `models` is not installed")

from tamis import InProcessExecutor
from tamis.pipeline import Pipeline
from tamis.stages.text.classifiers import (
    ContentTypeClassifier,
    DomainClassifier,
    FineWebEduClassifier,
    MultilingualDomainClassifier,
    PromptTaskComplexityClassifier,
    QualityClassifier,
)
from tamis.stages.text.io.reader import ParquetReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.stages.text.models import small_models as small

N = 12
LABELS = ["High", "Medium", "Low"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, texts = tmp_path_factory.mktemp("classify") / "input_data_dir", small.texts(N)
    folder.mkdir()
    for i in range(2):
        part = texts[i * N // 2 : (i + 1) * N // 2]
        pd.DataFrame({"text": part, "unused": range(len(part))}).to_parquet(folder / f"{i}.parquet")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    return {
        "labels": str(small.headed_deberta(root / "labels", LABELS)),
        "score": str(small.sequence_classifier(root / "score", n_labels=1)),
        "prompt": str(small.prompt_deberta(root / "prompt")),
    }


def classified(source: Path, output: Path, classifier: Any) -> list[dict[str, Any]]:
    pipeline = Pipeline(name="classifier_pipeline", description="Run a classifier pipeline")
    pipeline.add_stage(ParquetReader(str(source), files_per_partition=1, fields=["text"]))
    pipeline.add_stage(classifier)
    pipeline.add_stage(JsonlWriter(str(output)))
    tasks = pipeline.run(InProcessExecutor(), progress=False)
    return [json.loads(line) for task in tasks for path in task.data for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (DomainClassifier, "domain_pred"),
        (MultilingualDomainClassifier, "multilingual_domain_pred"),
        (QualityClassifier, "quality_pred"),
        (ContentTypeClassifier, "content_pred"),
    ],
)
def test_a_label_for_each_document_and_those_of_some_labels(
    kind: Any, column: str, source: Path, models: dict[str, str], tmp_path: Path
) -> None:
    rows = classified(source, tmp_path / "all", kind(text_field="text", model_identifier=models["labels"]))
    assert [sorted(row) for row in rows] == [sorted(["text", column])] * N
    assert [row["text"] for row in rows] == small.texts(N)
    counts = Counter(row[column] for row in rows)
    assert set(counts) <= set(LABELS)
    assert len(counts) > 1
    wanted = counts.most_common()[-1][0]
    kept = classified(source, tmp_path / "some", kind(filter_by=[wanted], model_identifier=models["labels"]))
    assert kept == [row for row in rows if row[column] == wanted]


def test_educational_value(source: Path, models: dict[str, str], tmp_path: Path) -> None:
    classifier = FineWebEduClassifier(text_field="text", model_identifier=models["score"])
    rows = classified(source, tmp_path / "out", classifier)
    assert len(rows) == N
    for row in rows:
        score = row["fineweb-edu-score-float"]
        assert 0 <= score <= 5
        assert row["fineweb-edu-score-int"] == round(score)
        assert row["fineweb-edu-score-label"] == ("high_quality" if score >= 2.5 else "low_quality")


def test_tasks_and_complexity_of_prompts(source: Path, models: dict[str, str], tmp_path: Path) -> None:
    classifier = PromptTaskComplexityClassifier(text_field="text", model_identifier=models["prompt"])
    rows = classified(source, tmp_path / "out", classifier)
    assert len({row["task_type_1"] for row in rows}) > 1
    assert len({row["prompt_complexity_score"] for row in rows}) > 1
    assert {"creativity_scope", "reasoning", "domain_knowledge", "task_type_2", "text"} <= rows[0].keys()
