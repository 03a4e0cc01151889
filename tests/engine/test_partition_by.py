"""Output in folders by fields: hostile values, every format, the same files however it ran, killed, read back."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.curation import Curation
from tamis.curation.steps import Mix
from tamis.errors import RunConflict, UsageError
from tamis.stages.text.filters import Filter, ScoreFilter
from tamis.stages.text.filters.heuristic.string import WordCountFilter
from tamis.stages.text.io.reader import DocumentReader, JsonlReader, ParquetReader
from tamis.stages.text.io.writer import ArrowWriter, JsonlWriter, ParquetWriter
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

WRITERS: dict[str, Any] = {
    "jsonl": JsonlWriter,
    "jsonl.gz": JsonlWriter,
    "parquet": ParquetWriter,
    "arrow": ArrowWriter,
}
VALUES = ["en", "EN", "../../up", "a/b=c", "", None, "/etc", "nul\0\n", "100 %", "ünï", "__HIVE_DEFAULT_PARTITION__"]
FIELDS = ["lang", "bucket"]


def make_input(folder: Path, n: int = 400) -> dict[int, dict[str, Any]]:
    """Write two files and return the documents by id, with fields as readers restore them."""
    folder.mkdir()
    rng = random.Random(1)
    documents = {}
    for f in range(2):
        lines = []
        for i in range(f * n, f * n + n):
            document = {"lang": rng.choice(VALUES), "id": i, "text": "w " * rng.randrange(300), "bucket": i % 3}
            lines.append(json.dumps(document) + "\n")
            documents[i] = {**document, "lang": document["lang"] or None}
        (folder / f"{f}.jsonl").write_text("".join(lines))
    return documents


def run(folder: Path, out: Path, extension: str = "jsonl", **settings: Any) -> Any:
    writer = WRITERS[extension](str(out), file_extension=extension, partition_by=FIELDS)
    pipeline = Pipeline("folders", stages=[JsonlReader(str(folder)), writer])
    pipeline.run(InProcessExecutor(), **settings)
    return pipeline.last_result


def outputs(out: Path) -> dict[str, bytes]:
    """Return the files of an output, but for the run directory, by name."""
    inside = run_dir_path(out)
    files = (p for p in out.rglob("*") if p.is_file() and inside not in p.parents)
    return {str(p.relative_to(out)): p.read_bytes() for p in files}


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def read_back(out: Path, target: Path) -> dict[int, dict[str, Any]]:
    Pipeline("back", stages=[DocumentReader(str(out)), JsonlWriter(str(target))]).run(InProcessExecutor())
    documents = read_lines(target)
    assert len({d["id"] for d in documents}) == len(documents)
    return {d["id"]: {"lang": None, **d} for d in documents}


@pytest.mark.parametrize("extension", WRITERS)
def test_files_follow_from_the_documents_alone_and_are_read_back(tmp_path: Path, extension: str) -> None:
    documents = make_input(tmp_path / "in")
    done = run(tmp_path / "in", tmp_path / "out0", extension, blocksize="20kB", file_size="10kB")
    files = outputs(tmp_path / "out0")
    run(tmp_path / "in", tmp_path / "out1", extension, file_size="10kB")
    assert outputs(tmp_path / "out1") == files
    assert done.n_files == len(files) > 30
    assert f"lang=en/bucket=0/part-00000.{extension}" in files
    assert f"lang=%45%4E/bucket=0/part-00000.{extension}" in files
    assert f"lang=..%2F..%2Fup/bucket=2/part-00000.{extension}" in files
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(".tamis")) == ["in", "out0", "out1"]
    assert read_back(tmp_path / "out0", tmp_path / "back") == documents
    if extension != "jsonl.gz":
        kind = "json" if extension == "jsonl" else extension
        paths = [str(tmp_path / "out0" / name) for name in files]
        table = ds.dataset(
            paths, format=kind, partitioning="hive", partition_base_dir=str(tmp_path / "out0")
        ).to_table()
        assert {"id", "text", "lang", "bucket"} == set(table.column_names)
        assert dict(zip(table["id"].to_pylist(), table["bucket"].to_pylist(), strict=True)) == {
            i: d["bucket"] for i, d in documents.items()
        }
    assert run(tmp_path / "in", tmp_path / "out0", extension, file_size="10kB").status == "already"


def test_many_values_are_written_with_few_open_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"text": "t", "lang": f"l{i % 120}", "bucket": 1}) + "\n" for i in range(240))
    (tmp_path / "in/a.jsonl").write_text("".join(lines))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from tests.engine.test_partition_by import run; from pathlib import Path\n"
        f"print(run(Path({str(tmp_path / 'in')!r}), Path({str(tmp_path / 'out')!r})).n_files)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(outputs(tmp_path / "out")) == 120


def test_starting_over_removes_the_folders_and_nothing_else(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 50)
    run(tmp_path / "in", tmp_path / "out")
    mine = tmp_path / "out/lang=en/bucket=0/mine.txt"
    mine.write_text("mine")
    (tmp_path / "in/1.jsonl").unlink()
    (tmp_path / "in/0.jsonl").write_text('{"text": "x", "lang": "de", "bucket": 7}\n')
    with pytest.raises(RunConflict):
        run(tmp_path / "in", tmp_path / "out")
    run(tmp_path / "in", tmp_path / "out", fresh=True)
    assert set(outputs(tmp_path / "out")) == {"lang=de/bucket=7/part-00000.jsonl", "lang=en/bucket=0/mine.txt"}


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 50)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/lang=en").symlink_to(tmp_path / "elsewhere")
    writer = JsonlWriter(str(tmp_path / "out"), partition_by=FIELDS, mode="append")
    with pytest.raises(Exception, match="is a link"):
        Pipeline("folders", stages=[JsonlReader(str(tmp_path / "in")), writer]).run(InProcessExecutor())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_fields_of_folders_can_be_read_by_stages_and_chosen(tmp_path: Path) -> None:
    documents = make_input(tmp_path / "in", 60)
    run(tmp_path / "in", tmp_path / "out", "parquet")
    reader = ParquetReader(str(tmp_path / "out"), fields=["id", "bucket"])
    Pipeline("some", stages=[reader, JsonlWriter(str(tmp_path / "some"))]).run(InProcessExecutor())
    rows = read_lines(tmp_path / "some")
    assert {row["id"]: row for row in rows} == {i: {"id": i, "bucket": d["bucket"]} for i, d in documents.items()}
    mixed = Curation([Mix("bucket", epochs={0: 1, "*": 0})], str(tmp_path / "out"), str(tmp_path / "mix"), card=False)
    mixed.run(memory="512MB", progress=False)
    done = ds.dataset([str(tmp_path / "mix" / n) for n in outputs(tmp_path / "mix")], format="parquet").to_table()
    assert set(done["bucket"].to_pylist()) == {0}
    assert len(done) == 40


def test_files_beside_the_folders_need_not_have_their_fields(tmp_path: Path) -> None:
    (tmp_path / "in/lang=en").mkdir(parents=True)
    (tmp_path / "in/a.jsonl").write_text('{"text": "no language"}\n')
    (tmp_path / "in/lang=en/b.jsonl").write_text('{"text": "one"}\n{"text": "its own", "lang": "de"}\n')
    keep = Filter(lambda value: value != "de", "lang")
    stages = [JsonlReader(str(tmp_path / "in"), files_per_partition=1), keep, JsonlWriter(str(tmp_path / "out"))]
    Pipeline("some", stages=stages).run(InProcessExecutor())
    assert read_lines(tmp_path / "out") == [{"text": "no language"}, {"text": "one", "lang": "en"}]


def test_a_curation_writes_folders_with_a_card_that_finds_them(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 50)
    filters = [ScoreFilter(WordCountFilter(min_words=0))]
    out = tmp_path / "out"
    Curation(filters, str(tmp_path / "in"), str(out), partition_by="lang", shard_size="1kB").run(progress=False)
    files = outputs(out)
    assert "lang=en/part-00001.jsonl" in files
    assert 'path: "**/part-*.jsonl"' in files["README.md"].decode()
    with pytest.raises(UsageError, match="not with split"):
        Curation(filters, str(tmp_path / "in"), str(out), partition_by="lang", shuffle=1)


def test_shards_are_put_into_folders_when_they_are_joined(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 60)
    run(tmp_path / "in", tmp_path / "one")
    for i in range(2):
        run(tmp_path / "in", tmp_path / "all", shard=f"{i}/2")
    run(tmp_path / "in", tmp_path / "all", merge=True)
    assert outputs(tmp_path / "all") == outputs(tmp_path / "one")


def test_a_larger_sample_adds_files_to_the_folders(tmp_path: Path) -> None:
    documents = make_input(tmp_path / "in", 200)
    run(tmp_path / "in", tmp_path / "out", sample="30%")
    first = outputs(tmp_path / "out")
    run(tmp_path / "in", tmp_path / "out")
    files = outputs(tmp_path / "out")
    assert {name: files[name] for name in first} == first
    assert read_back(tmp_path / "out", tmp_path / "back") == documents


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 10)
    reader, out = JsonlReader(str(tmp_path / "in")), str(tmp_path / "out")
    for writer in (
        JsonlWriter(out, partition_by=["lang"], fields=["text"]),
        ParquetWriter(out, partition_by=["lang"], schema={"text": "string"}),
    ):
        with pytest.raises(UsageError, match="add it to its fields"):
            Pipeline("folders", stages=[reader, writer]).run(InProcessExecutor())


RECIPE = """
input: {source}
output: {target}
steps:
  - mix: {{by: bucket, epochs: {{"*": 2}}}}
write: {{partition_by: [lang, bucket], card: false, shard_size: 10kB}}
"""


@pytest.mark.slow
def test_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 1500)
    for name in ("whole", "killed"):
        recipe = RECIPE.format(source=tmp_path / "in", target=tmp_path / name)
        (tmp_path / f"{name}.yaml").write_text(recipe)
    options = ["--memory", "512MB", "-q", "--blocksize", "100kB"]
    call = [sys.executable, "-m", "tamis.cli.start", "run"]
    assert run_python(*call[1:], str(tmp_path / "whole.yaml"), *options).returncode == 0
    reference = outputs(tmp_path / "whole")
    n_kills, out = 0, tmp_path / "killed"
    for number in range(12):
        process = subprocess.Popen(
            [*call, str(tmp_path / "killed.yaml"), *options, "--workers", str(1 + number % 2)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            n_done = len(list(out.glob("lang=*/*/*"))) + 2 * bool(list(out.glob("*.c1.*")))
            if n_kills < 5 and n_done > n_kills:
                process.send_signal(signal.SIGKILL)
                n_kills += 1
                break
            time.sleep(0.002)
        if process.wait() == 0:
            break
    assert n_kills > 2
    assert outputs(out) == reference
