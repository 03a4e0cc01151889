"""`tamis filter`: sets by name, formats, the list."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.jobs.jobs import Consent, FilterJob
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"
GOOD = " ".join(f"Sentence {i} of the text says that it has to be of some use with words." for i in range(8))
BAD = "too short"


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return run_python("-m", "tamis.cli.start", *args, env=env, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "a.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"n": i, "text": GOOD if i % 2 else BAD}) + "\n" for i in range(10))
    return tmp_path


def test_a_field_that_no_document_has_is_named_without_a_traceback(place: Path) -> None:
    done = tamis("filter", "c4", "in", "out", "--text-field", "body", "--memory", "600MB", cwd=place)
    assert (done.returncode, done.stderr.count("reads the field 'body', which no document has")) == (2, 1)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_refusal_of_a_stage_is_one_line(place: Path) -> None:
    (place / "recipe.yaml").write_text("input: in\noutput: out\nsteps:\n  - add_id: {id_field: n}\n")
    done = tamis("run", "recipe.yaml", "--memory", "600MB", cwd=place)
    assert (done.returncode, done.stderr.count("choose another id_field, or replace it with overwrite=True")) == (2, 1)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_set_over_compressed_files_and_resuming(place: Path) -> None:
    arguments = ["c4+fineweb", "in", "out", "--memory", "600MB"]
    done = tamis("filter", *arguments, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert (about["n_records"], about["n_written"], about["n_dropped"]) == (10, 5, 5)
    assert [s["dropped"] for s in about["stages"]] == [{}, {"too_few_sentences": 5}, {}]
    (drops,) = about["drops"]
    line = len(json.dumps({"n": 0, "text": BAD}))
    assert (drops["reason"], drops["documents"], drops["bytes"]) == ("too_few_sentences", 5, 5 * line)
    assert drops["examples"][0] == "a.jsonl.gz:0"
    (written,) = (place / "out").glob("*.jsonl.gz")
    with gzip.open(written, "rt") as file:
        assert [json.loads(line)["n"] for line in file] == [1, 3, 5, 7, 9]
    assert "finished earlier" in tamis("filter", *arguments, "--quiet", cwd=place).stdout
    again = tamis("resume", "out", "--quiet", cwd=place)
    assert (again.returncode, "finished earlier" in again.stdout) == (0, True), again.stderr


def test_parquet_in_parquet_out_with_another_text_field(place: Path) -> None:
    pq.write_table(pa.table({"n": [0, 1], "body": [BAD, GOOD]}), place / "p.parquet")
    done = tamis("filter", "c4", "p.parquet", "out", "--text-field", "body", "--memory", "600MB", "--quiet", cwd=place)
    assert done.returncode == 0, done.stderr
    (written,) = (place / "out").glob("*.parquet")
    assert pq.read_table(written).to_pydict() == {"n": [1], "body": [GOOD]}


def test_c4_names_documents_without_text_as_such(place: Path) -> None:
    texts = [GOOD, BAD, "", "  ", None, 7]
    lines = [json.dumps({"text": t}) for t in texts] + ["{}"]
    (place / "odd.jsonl").write_text("\n".join(lines) + "\n")
    done = tamis("filter", "c4", "odd.jsonl", "out", "--memory", "600MB", "--json", "-q", cwd=place)
    about = json.loads(done.stdout)
    dropped = {reason: n for stage in about["stages"] for reason, n in stage["dropped"].items()}
    reasons = {"text_missing": 1, "text_null": 1, "text_not_a_string": 1, "text_empty": 2}
    assert dropped == {**reasons, "too_few_sentences": 1}
    assert about["n_written"] == 1


def test_the_result_comes_last(place: Path) -> None:
    done = tamis("filter", "c4", "in", "out", "--memory", "600MB", "-q", cwd=place)
    assert done.stdout.count("too_few_sentences") == 1
    last = done.stdout.splitlines()[-1]
    assert last == f"report: {run_dir_path(place / 'out')}/report.html"
    twice = tamis("dedup", "exact", "in", "unique", "--memory", "1GB", "-q", cwd=place)
    assert twice.stdout.splitlines()[-1] == f"report: {run_dir_path(place / 'unique')}/report.html"


def test_a_preset_that_does_not_exist_is_guessed(place: Path) -> None:
    done = tamis("run", "gophr", cwd=place)
    assert done.returncode == 2
    assert "did you mean 'gopher'" in done.stderr


def test_a_job_is_the_stages_that_it_builds(place: Path) -> None:
    recipe = FilterJob("gopher-quality", str(place / "in"), str(place / "out")).load(Consent())
    reader, filters, writer = (type(stage).__name__ for stage in recipe.stages)
    assert (reader, filters, writer) == ("DocumentReader", "GopherQuality", "JsonlWriter")
    last: Any = recipe.stages[-1]
    assert (last.path, last.file_extension) == (str(place / "out"), "jsonl.gz")


def test_a_path_that_looks_like_a_reference_and_resuming_it(place: Path) -> None:
    (place / "in").rename(place / "${in}")
    arguments = ["c4", "${in}", "[${out}]", "--memory", "600MB", "--quiet"]
    done = tamis("filter", *arguments, cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(list((place / "[${out}]").glob("*.jsonl.gz"))) == 1
    again = tamis("resume", "[${out}]", "--quiet", cwd=place)
    assert (again.returncode, "finished earlier" in again.stdout) == (0, True), again.stderr
    done = tamis("curate", "${in}", "$${c}", "--preset", "minimal", "--memory", "600MB", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_records"] == 10
    again = tamis("resume", "$${c}", "--quiet", cwd=place)
    assert (again.returncode, "finished earlier" in again.stdout) == (0, True), again.stderr


def test_the_list_shows_sets_filters_and_defaults(tmp_path: Path) -> None:
    done = tamis("filter", "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "heuristic-english (28 rules)",
        "heuristic-non-english (25 rules)",
        "gopher (24 rules)",
        "too_few_sentences",
    ):
        assert words in done.stdout
    for words in (
        "WordCountFilter",
        "min_words=50, max_words=100000, lang='en'",
        "HistogramFilter",
        ">= 50, <= 100000",
    ):
        assert words in done.stdout


def test_mistakes_are_one_line(place: Path) -> None:
    done = tamis("filter", cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "expected SET IN OUT" in done.stderr
    done = tamis("filter", "gohper", "in", "out", cwd=place)
    assert (done.returncode, "did you mean gopher" in done.stderr) == (2, True)
    done = tamis("filter", "c4", "absent", "out", cwd=place)
    assert done.returncode == 2
    assert not (place / "out").exists()
