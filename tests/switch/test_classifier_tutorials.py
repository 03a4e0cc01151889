"""Classification as in the notebooks: Parquet in, one classifier, JSONL out; small models of the real kinds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor
from tamis.pipeline import Pipeline
from tamis.stages.text.classifiers import (
    AegisClassifier,
    ContentTypeClassifier,
    DomainClassifier,
    FineWebEduClassifier,
    FineWebMixtralEduClassifier,
    FineWebNemotronEduClassifier,
    InstructionDataGuardClassifier,
    MultilingualDomainClassifier,
    PromptTaskComplexityClassifier,
    QualityClassifier,
)
from tamis.stages.text.io.reader import JsonlReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.stages.text.models import small_models as small
from tests.support.optional import optional

optional("torch", reason="the extra `models` is not installed")
optional("transformers", reason="the extra `models` is not installed")

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
        "guard": str(small.llama(root / "guard")),
        "adapter": str(small.adapter(root / "adapter", root / "guard")),
        "poison": str(small.data_guard(root / "poison")),
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (FineWebEduClassifier, "fineweb-edu"),
        (FineWebMixtralEduClassifier, "fineweb-mixtral-edu"),
        (FineWebNemotronEduClassifier, "fineweb-nemotron-edu"),
    ],
)
def test_educational_value(kind: Any, name: str, source: Path, models: dict[str, str], tmp_path: Path) -> None:
    rows = classified(source, tmp_path / "out", kind(text_field="text", model_identifier=models["score"]))
    assert len(rows) == N
    for row in rows:
        score = row[f"{name}-score-float"]
        assert 0 <= score <= 5
        assert row[f"{name}-score-int"] == round(score)
        assert row[f"{name}-score-label"] == ("high_quality" if score >= 2.5 else "low_quality")


def guarded(tmp_path: Path, classifier: Any) -> pd.DataFrame:
    """Classify texts of a JSONL file, overwriting the results of an earlier call, and read the first file written."""
    (tmp_path / "input_data_dir").mkdir(exist_ok=True)
    pd.DataFrame({"text": small.texts(6)}).to_json(tmp_path / "input_data_dir/data.jsonl", orient="records", lines=True)
    pipeline = Pipeline(name="classifier_pipeline", description="Run a classifier pipeline")
    pipeline.add_stage(JsonlReader(str(tmp_path / "input_data_dir"), files_per_partition=1))
    pipeline.add_stage(classifier)
    pipeline.add_stage(JsonlWriter(str(tmp_path / "results"), mode="overwrite"))
    tasks = pipeline.run(InProcessExecutor(), progress=False)
    return pd.read_json(tasks[0].data[0], lines=True)


def test_safety_of_content(models: dict[str, str], tmp_path: Path) -> None:
    about: dict[str, Any] = {"aegis_variant": models["adapter"], "base_model": models["guard"], "hf_token": None}
    found = guarded(tmp_path, AegisClassifier(**about, keep_raw_output=True))
    assert set(found.columns) == {"text", "aegis_pred", "_aegis_raw_pred"}
    assert found["text"].tolist() == small.texts(6)
    assert set(found["aegis_pred"]) <= {"safe", "unknown", *(f"O{i}" for i in range(1, 14))}
    assert all(isinstance(answer, str) for answer in found["_aegis_raw_pred"])
    wanted = found["aegis_pred"][0]
    assert len(guarded(tmp_path, AegisClassifier(**about, filter_by=[wanted]))) == (found["aegis_pred"] == wanted).sum()


def test_poisoned_instructions(models: dict[str, str], tmp_path: Path) -> None:
    about: dict[str, Any] = {
        "aegis_variant": models["adapter"], "base_model": models["guard"], "model_identifier": models["poison"],
        "hf_token": None,
    }  # fmt: skip
    found = guarded(tmp_path, InstructionDataGuardClassifier(**about))
    scores = found["instruction_data_guard_poisoning_score"]
    assert found["is_poisoned"].tolist() == (scores >= 0.5).tolist()
    assert scores.nunique() > 1
    value = bool(found["is_poisoned"][0])
    kept = guarded(tmp_path, InstructionDataGuardClassifier(**about, filter_by=[value]))
    assert kept["text"].tolist() == found["text"][found["is_poisoned"] == value].tolist()


def test_tasks_and_complexity_of_prompts(source: Path, models: dict[str, str], tmp_path: Path) -> None:
    classifier = PromptTaskComplexityClassifier(text_field="text", model_identifier=models["prompt"])
    rows = classified(source, tmp_path / "out", classifier)
    assert len({row["task_type_1"] for row in rows}) > 1
    assert len({row["prompt_complexity_score"] for row in rows}) > 1
    assert {"creativity_scope", "reasoning", "domain_knowledge", "task_type_2", "text"} <= rows[0].keys()
