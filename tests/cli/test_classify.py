"""`tamis classify`: the stage of a job, and a whole run with a small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.jobs.jobs import ClassifyJob, Consent, known_classifiers
from tamis.cli.jobs.request import Request
from tamis.cli.models import classify
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
    assert list(known_classifiers()) == [
        "aegis",
        "content-type",
        "domain",
        "fineweb-edu",
        "fineweb-mixtral-edu",
        "fineweb-nemotron-edu",
        "instruction-data-guard",
        "multilingual-domain",
        "prompt-task-complexity",
        "quality",
    ]


def test_a_job_builds_the_stage_with_what_was_chosen() -> None:
    stage = ClassifyJob("quality", "in", "out", labels=("High",)).stage()
    assert (type(stage).__name__, stage.filter_by) == ("QualityClassifier", ["High"])
    other = ClassifyJob("owner/name", "in", "out").stage()
    assert (other.model_identifier, other.label_field) == ("owner/name", "label")


def test_blanks_around_labels_are_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.cli.jobs import run
    from tamis.cli.parsing.options import JobOptions

    requests: list[Request] = []
    monkeypatch.setattr(run, "perform", requests.append)
    with pytest.raises(classify.CommandExit):
        classify.classify("quality", "a.jsonl", "out", keep="High, Low", work=JobOptions())
    job: Any = requests[0].job
    assert job.labels == ("High", "Low")


def test_an_output_takes_every_format_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.cli.jobs import run
    from tamis.cli.parsing.options import JobOptions

    requests: list[Request] = []
    monkeypatch.setattr(run, "perform", requests.append)
    with pytest.raises(classify.CommandExit):
        classify.classify("quality", "a.jsonl", "out", format_="jsonl.xz", work=JobOptions())
    assert len(requests) == 1
    with pytest.raises(UsageError, match=r"^--format must be one of .*parquet.*, got 'csv'$"):
        classify.classify("quality", "a.jsonl", "out", format_="csv", work=JobOptions())


def test_code_of_a_model_needs_consent_at_each_call() -> None:
    with pytest.raises(UsageError, match="add --trust-remote-code"):
        ClassifyJob("owner/name", "in", "out", uses_remote_code=True).load(Consent())


@pytest.mark.parametrize(
    ("model", "chosen", "words"),
    [
        ("fineweb-edu", {"score_field": "p"}, "--score-field is not an option of 'fineweb-edu'"),
        ("owner/name", {"model_folder": "/models/x"}, "give the folder itself as MODEL"),
    ],
)
def test_options_that_mean_nothing_are_refused(model: str, chosen: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ClassifyJob(model, "in", "out", **chosen).stage()  # type: ignore[arg-type]


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
