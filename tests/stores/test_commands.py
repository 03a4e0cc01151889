"""s3:// on the command line and in recipes: input and output of every kind of command, and inspecting runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.errors import UsageError
from tamis.stores import retry
from tamis.stores.run_locations import default_local_dir
from tests.support.bucket_runs import documents, keys
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis

TEXT = "A sieve lets fine flour pass and keeps back what is coarse, husks and stones among it; that is all it does. "


def put_documents(s3: Any, bucket: str, n_files: int = 2) -> None:
    """Write each text twice, in neighbouring files; the copy of an odd one differs in its ending."""
    for f in range(n_files):
        lines = []
        for i in range(40):
            text = TEXT + " ".join(f"w{i}x{k}" for k in range(120)) + (" odd" if f and i % 2 else "")
            lines.append(json.dumps({"id": f * 100 + i, "text": text}))
        s3.put_object(Bucket=bucket, Key=f"in/{f}.jsonl", Body="\n".join(lines).encode() + b"\n")


def test_filter_from_a_bucket_into_a_bucket_and_every_command_that_looks_at_it(
    bucket: str, s3: Any, tmp_path: Path
) -> None:
    put_documents(s3, bucket)
    s3.put_object(Bucket=bucket, Key="in/z.jsonl", Body=b'{"id": 999, "text": "no"}\n{bad\n')
    out = f"s3://{bucket}/clean"
    told = tamis(
        "filter", "gopher", f"s3://{bucket}/in", out, "--memory", "512MB", "--quarantine-limit", "10%", "--json"
    )
    assert told.exit_code == 0, told.output
    about = json.loads(told.stdout)
    assert about["output"] == out
    assert (about["n_dropped"], about["n_quarantined"]) == (about["n_records"] - about["n_written"] - 1, 1)
    assert "not-so-secret" not in told.output
    shutil.rmtree(default_local_dir(out))  # from another machine
    run = CliRunner()
    assert "{bad" in run.invoke(app, ["quarantine", out]).output
    assert "dropped by gopher_short_doc" in run.invoke(app, ["why", out, "999"]).output
    assert run.invoke(app, ["report", out]).exit_code == 0
    again = tamis("filter", "gopher", f"s3://{bucket}/in", out, "--memory", "512MB", "--quarantine-limit", "10%")
    assert "finished earlier" in again.output


@pytest.mark.parametrize("kind", ["exact", pytest.param("fuzzy", marks=pytest.mark.slow)])
def test_a_deduplication_in_a_bucket_keeps_what_a_local_one_keeps(
    kind: str, bucket: str, s3: Any, tmp_path: Path
) -> None:
    made: Any = {"exact": RemoveExactDuplicates, "fuzzy": RemoveFuzzyDuplicates}[kind]
    put_documents(s3, bucket)
    for name in ("0.jsonl", "1.jsonl"):
        s3.download_file(bucket, f"in/{name}", str(_made(tmp_path / "in") / name))
    local = made(output_path=str(tmp_path / "out"), input_path=str(tmp_path / "in")).run(memory="1GB")
    remote = made(output_path=f"s3://{bucket}/out", input_path=f"s3://{bucket}/in").run(memory="1GB")
    assert remote.n_duplicates == local.n_duplicates == (20 if kind == "exact" else 40)
    files = (tmp_path / "out").glob("part-*")
    kept = [json.loads(line)["id"] for path in files for line in path.read_text().splitlines()]
    assert documents(s3, bucket, "out") == sorted(kept)
    assert [k for k in keys(s3, bucket, "out/_tamis/") if "/duplicates/" in k]
    shutil.rmtree(os.environ["TAMIS_RUNS"])
    assert made(output_path=f"s3://{bucket}/out", input_path=f"s3://{bucket}/in").run(memory="1GB").status == "already"


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.slow
def test_a_curation_into_a_bucket(bucket: str, s3: Any, tmp_path: Path) -> None:
    from tamis import InProcessExecutor
    from tamis.curation import Curation, ExactDuplicates
    from tamis.stages.text.filters import ScoreFilter, WordCountFilter

    put_documents(s3, bucket)
    out = f"s3://{bucket}/curated"
    make = lambda: Curation([ScoreFilter(WordCountFilter(min_words=5)), ExactDuplicates()], f"s3://{bucket}/in", out)  # noqa: E731
    result = make().run(InProcessExecutor())
    assert (result.status, result.about["n_written"]) == ("finished", 60)
    assert len(documents(s3, bucket, "curated")) == 60
    assert "curated/README.md" in keys(s3, bucket, "curated/")
    shutil.rmtree(default_local_dir(out))
    assert make().run(InProcessExecutor()).status == "already"
    assert make().run(InProcessExecutor(), fresh=True).about["n_written"] == 60
    with pytest.raises(UsageError, match="shard_size, split and shuffle put files together on this machine"):
        Curation([ExactDuplicates()], f"s3://{bucket}/in", f"s3://{bucket}/x", shard_size="1MB").run(
            InProcessExecutor()
        )


def test_a_curation_reaches_its_output_as_its_writer_says(
    bucket: str, s3: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it looks into the bucket before and behind its last pass: for an earlier curation, for its card."""
    from tamis import InProcessExecutor
    from tamis.curation import Curation
    from tamis.stages.text.filters import ScoreFilter, WordCountFilter
    from tamis.stages.text.io import JsonlReader, JsonlWriter

    s3.create_bucket(Bucket=f"{bucket}-out")
    put_documents(s3, bucket, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(retry.call_with_retries, "__defaults__", (retry.Policy(n_tries=1), lambda s: None))
    options = {"endpoint_url": server.url}

    def run(**settings: Any) -> Any:
        monkeypatch.setenv("TAMIS_STORES", "{}")  # as in a process of its own
        reader = JsonlReader(f"s3://{bucket}/in", storage_options=options)
        writer = JsonlWriter(f"s3://{bucket}-out/made", write_kwargs={"storage_options": options})
        return Curation([reader, ScoreFilter(WordCountFilter(min_words=5)), writer]).run(
            InProcessExecutor(), **settings
        )

    assert run().about["n_written"] == 40
    assert run(fresh=True).about["n_written"] == 40
    assert "made/README.md" in keys(s3, f"{bucket}-out", "made/")


def test_options_of_the_command_line(bucket: str, s3: Any, server: Any, monkeypatch: Any) -> None:
    put_documents(s3, bucket, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TAMIS_STORES", "{}")  # put back behind the test
    told = CliRunner().invoke(
        app, ["resume", f"s3://{bucket}/nothing", "--storage-option", f"endpoint_url={server.url}"]
    )
    assert "contains no run of Tamis" in told.output  # which only the store can tell
    for given, message in (("secret=x", "is a credential"), ("colour=x", "not known"), ("x", "expected KEY=VALUE")):
        refused = CliRunner().invoke(app, ["filter", "gopher", "in", "out", "--storage-option", given])
        assert refused.exit_code == 2
        assert message in refused.output


def test_looking_at_input_and_planning(bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_documents(s3, bucket, 1)
    seen = json.loads(CliRunner().invoke(app, ["inspect", f"s3://{bucket}/in", "--json"]).stdout)
    assert (seen["n_sampled"], seen["files"][0]["n_documents"]) == (40, 40)
    to = [
        "--set",
        f"input=s3://{bucket}/in",
        "--set",
        f"output=s3://{bucket}/out",
        "--memory",
        "1GB",
        "--no-probe",
        "--json",
    ]
    told = CliRunner().invoke(app, ["plan", "copy", *to])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["free_bytes"] is None


def test_results_without_a_writer_are_kept_in_a_bucket_and_read_from_it(bucket: str, s3: Any) -> None:
    from tamis import InProcessExecutor, Pipeline
    from tamis.stages.text.io import JsonlReader

    put_documents(s3, bucket, 1)
    made = Pipeline("read", stages=[JsonlReader(f"s3://{bucket}/in")]).run(
        InProcessExecutor(), run_dir=f"s3://{bucket}/results"
    )
    assert sorted(i for batch in made for i in batch.column("id").to_pylist()) == list(range(40))


def test_credentials_in_a_recipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        """
name: x
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: s3://bucket/in
    storage_options: {key: AKIAEXAMPLE, secret: hush-hush-hush}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
"""
    )
    refused = CliRunner().invoke(app, ["run", str(tmp_path / "r.yaml")])
    assert refused.exit_code == 2
    assert "environment only" in refused.output
    assert "hush" not in refused.output


@pytest.mark.parametrize("command", ["report", "why"])
def test_looking_at_nothing_says_so(command: str, bucket: str) -> None:
    told = CliRunner().invoke(app, [command, f"s3://{bucket}/nothing", *(["1"] if command == "why" else [])])
    assert told.exit_code == 2
    assert "no run of Tamis" in told.output
