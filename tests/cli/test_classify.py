"""`tamis classify`: a whole run with a small model, and the recipe that it writes for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.cli.models.classify import known, make_recipe
from tamis.errors import UsageError
from tests.stages.text.models import small_models as small


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tamis.cli.start", *args]
    env = {
        **os.environ,
        "TOKENIZERS_PARALLELISM": "true",
    }  # as some users have it: threads in the process that workers are forked from
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, env=env)


def test_every_classifier_has_a_name() -> None:
    assert list(known()) == [
        "aegis", "content-type", "domain", "fineweb-edu", "fineweb-mixtral-edu", "fineweb-nemotron-edu", "instruction-data-guard",
        "multilingual-domain", "prompt-task-complexity", "quality",
    ]  # fmt: skip


def test_the_recipe_names_the_stage_and_what_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    recipe = make_recipe("quality", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), {"filter_by": ["High"]})
    assert "tamis.stages.text.classifiers.QualityClassifier" in recipe
    assert 'filter_by: ["High"]' in recipe
    other = make_recipe("owner/name", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), {})
    assert 'model_identifier: "owner/name"' in other
    assert 'label_field: "label"' in other


def test_blanks_around_labels_are_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.cli.jobs import written_recipes
    from tamis.cli.models import classify

    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    told: list[str] = []
    monkeypatch.setattr(written_recipes, "perform_text", lambda recipe, *_: told.append(recipe))
    with pytest.raises(classify.Exit):
        classify.classify("quality", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), keep="High, Low", work=None)  # type: ignore[arg-type]
    assert 'filter_by: ["High", "Low"]' in told[0]


@pytest.mark.parametrize(
    ("model", "chosen", "words"),
    [
        ("fineweb-edu", {"score_field": "p"}, "--score-field is nothing that 'fineweb-edu' has"),
        ("owner/name", {"model_folder": "/models/x"}, "give the folder itself as MODEL"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, model: str, chosen: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_recipe(model, str(tmp_path), str(tmp_path / "out"), dict(chosen))


def test_a_run_labels_every_document_and_leaves_the_texts(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    model = small.headed_deberta(tmp_path / "model", ["High", "Medium", "Low"])
    texts = [*small.texts(30), None, ""]
    lines = [json.dumps({"id": i, "text": t}) for i, t in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    made = tamis(
        "classify",
        "quality",
        "in.jsonl",
        "out",
        "--model-folder",
        str(model),
        "--memory",
        "2GB",
        "--json",
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    rows = [json.loads(line) for p in sorted((tmp_path / "out").glob("*.jsonl")) for line in p.read_text().splitlines()]
    assert [row.get("text") for row in rows] == texts
    assert [row.get("quality_pred") is None for row in rows] == [t is None for t in texts]
    assert {row["quality_pred"] for row in rows if row.get("text") is not None} <= {"High", "Medium", "Low"}
    again = tamis(
        "classify",
        "quality",
        "in.jsonl",
        "out",
        "--model-folder",
        str(model),
        "--memory",
        "2GB",
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(again.stdout)["status"] == "already"
    small_budget = tamis("classify", str(model), "in.jsonl", "other", "--memory", "200MB", cwd=tmp_path)
    assert small_budget.returncode == 4
    assert "the smallest that may work is" in small_budget.stderr
