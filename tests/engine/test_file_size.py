"""Output files of a size: the plan alone, and whole runs over every format, also killed in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor
from tamis.engine.run.output.file_size import output_parts, plan_cuts, plan_joins
from tamis.engine.schema import CommitRecord, CommittedFile, FileKind, ReplaceRecord
from tamis.engine.units import Rewrite
from tamis.errors import RunConflict, UsageError
from tamis.formats.compression.streams import StreamReader
from tamis.observe.commits import written_row
from tamis.pipeline import Pipeline
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic.string import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import ArrowWriter, JsonlWriter, ParquetWriter
from tests.support.run_dirs import data_names, run_dir_path
from tests.support.warm_python import run_python

FORMATS: dict[str, Any] = {
    "jsonl": JsonlWriter,
    "jsonl.gz": JsonlWriter,
    "jsonl.zst": JsonlWriter,
    "parquet": ParquetWriter,
    "arrow": ArrowWriter,
}


# -- the plan ---------------------------------------------------------------------------------------------------------
def commit(start: int, data_bytes: int, step: int = 0, file: int = 0) -> CommitRecord:
    tail = f"-s{step}" if step else ""
    name = f"part-{file:06d}-{start:015d}{tail}.jsonl"
    made = CommittedFile(name, FileKind.OUTPUT, 1, data_bytes, f"{data_bytes:032x}", data_bytes=data_bytes)
    return CommitRecord(step, [], [made], {})


def carried_out(work: list[Rewrite], sizes: dict[str, int]) -> Iterator[ReplaceRecord]:
    """Yield the records of the log for a plan, of documents of one byte each."""
    for rewrite in work:
        (regroup,) = rewrite.regroups
        ends = [*regroup.cuts, regroup.data_bytes]
        names = regroup.names or [f"{rewrite.old[0]}.c{i}" for i in range(len(ends))]
        lengths = [end - begin for begin, end in zip([0, *regroup.cuts], ends, strict=True)]
        files = [
            CommittedFile(n, FileKind.OUTPUT, k, k, "0", data_bytes=k, is_sized=True)
            for n, k in zip(names, lengths, strict=True)
        ]
        sizes |= {f.name: f.rows for f in files}
        yield ReplaceRecord(rewrite.old, files)


def test_the_plan_depends_on_positions_alone() -> None:
    ends = []
    for parts in ([90, 10, 250, 3, 147], [500], [5] * 100):
        log: list[Any] = [commit(sum(parts[:i]), n) for i, n in enumerate(parts)]
        log += carried_out(plan_cuts(output_parts(log), 120, "out"), {})
        log += carried_out(plan_joins(output_parts(log), 120, "out", "jsonl"), {})
        done = output_parts(log)
        ends.append([(p.file.name, p.start, p.end) for p in done])
        assert plan_cuts(done, 120, "out") == plan_joins(done, 120, "out", "jsonl") == []
    assert ends[0] == ends[1] == ends[2] == [(f"part-{i:05d}.jsonl", 100 * i, 100 * i + 100) for i in range(5)]


def test_sampling_steps_are_files_apart() -> None:
    log: list[Any] = [commit(0, 60), commit(60, 60)]
    log += carried_out(plan_joins(output_parts(log), 1000, "out", "jsonl"), {})
    log += [commit(0, 30, step=1), commit(60, 40, step=1)]
    (join,) = plan_joins(output_parts(log), 1000, "out", "jsonl")
    assert join.old == ["part-000000-000000000000000-s1.jsonl", "part-000000-000000000000060-s1.jsonl"]
    assert join.names == ["part-00001.jsonl"]


# -- whole runs -------------------------------------------------------------------------------------------------------
def make_input(folder: Path, n_files: int = 3, n: int = 1500) -> list[str]:
    """Write documents of 0 to 200 words; return the texts of those with five words or more."""
    rng = random.Random(5)
    folder.mkdir()
    kept = []
    for f in range(n_files):
        texts = [" ".join(f"w{rng.randrange(9999)}" for _ in range(rng.randrange(200))) for _ in range(n)]
        lines = (json.dumps({"text": t, "n": i}) + "\n" for i, t in enumerate(texts))
        (folder / f"{f}.jsonl").write_text("".join(lines))
        kept += [t for t in texts if len(t.split()) >= 5]
    return kept


def run(folder: Path, out: Path, extension: str, **settings: Any) -> Pipeline:
    stages = [
        JsonlReader(str(folder)),
        ScoreFilter(WordCountFilter(min_words=5), score_field="words"),
        FORMATS[extension](str(out), file_extension=extension),
    ]
    pipeline = Pipeline("sized", stages=stages)
    pipeline.run(InProcessExecutor(), **settings)
    return pipeline


def outputs(out: Path) -> list[Path]:
    return [out / name for name in data_names(out)]


def texts_of(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).column("text").to_pylist())
    if path.suffix == ".arrow":
        return list(pa.ipc.open_file(path).read_all().column("text").to_pylist())
    with StreamReader.open(path) as reader:
        data = b"".join(iter(lambda: reader.read(1 << 20), b""))
    return [json.loads(line)["text"] for line in data.splitlines()]


def whole(path: Path) -> bytes:
    return path.read_bytes()


@pytest.mark.parametrize("extension", FORMATS)
def test_files_are_the_same_for_all_partitions(tmp_path: Path, extension: str) -> None:
    kept = make_input(tmp_path / "in")
    made = []
    for number, blocksize in enumerate(("150kB", "600kB", "100MB")):
        out = tmp_path / f"out{number}"
        done = run(tmp_path / "in", out, extension, blocksize=blocksize, file_size="400kB")
        files = outputs(out)
        assert [p.name for p in files] == [f"part-{i:05d}.{extension}" for i in range(len(files))]
        assert done.last_result.n_files == len(files) == len(done.last_result.files)
        assert done.last_result.ledger.content.n == len(kept)
        made.append([whole(p) for p in files])
        if extension == "jsonl":
            sizes = [p.stat().st_size for p in files]
            assert max(sizes) - min(sizes) < 3000  # two documents
            assert max(sizes) < 400_000 + 1500
    assert made[0] == made[1] == made[2]
    assert [t for p in files for t in texts_of(p)] == kept
    assert run(tmp_path / "in", out, extension, file_size="400kB").last_result.status == "already"
    with pytest.raises(RunConflict, match="file_size"):
        run(tmp_path / "in", out, extension, file_size="500kB")


def test_without_the_setting_every_partition_keeps_its_file(tmp_path: Path) -> None:
    make_input(tmp_path / "in")
    for number, settings in enumerate(({}, {"file_size": "partition"})):
        run(tmp_path / "in", tmp_path / str(number), "jsonl", blocksize="300kB", **settings)
    names = [[p.name for p in outputs(tmp_path / str(k))] for k in (0, 1)]
    assert names[0] == names[1]
    assert len(names[0]) > 3
    with pytest.raises(UsageError, match="at least 1kB"):
        run(tmp_path / "in", tmp_path / "x", "jsonl", file_size=10)


def test_a_row_is_traced_to_its_partition(tmp_path: Path) -> None:
    make_input(tmp_path / "in")
    run(tmp_path / "in", tmp_path / "parts", "jsonl", blocksize="150kB")
    run(tmp_path / "in", tmp_path / "sized", "jsonl", blocksize="150kB", file_size="400kB")
    for path in outputs(tmp_path / "sized"):
        texts = texts_of(path)
        for row in (0, len(texts) // 2, len(texts) - 1):
            name, at = written_row(run_dir_path(tmp_path / "sized"), path.name, row)
            assert texts_of(tmp_path / "parts" / name)[at] == texts[row]


def test_a_larger_sample_adds_files(tmp_path: Path) -> None:
    kept = make_input(tmp_path / "in")
    run(tmp_path / "in", tmp_path / "out", "jsonl", sample="20%", file_size="400kB")
    first = {p.name: whole(p) for p in outputs(tmp_path / "out")}
    done = run(tmp_path / "in", tmp_path / "out", "jsonl", file_size="400kB")
    assert done.last_result.ledger.written.n == len(kept)
    files = outputs(tmp_path / "out")
    assert {p.name: whole(p) for p in files[: len(first)]} == first
    assert len(files) > len(first)
    assert sorted(t for p in files for t in texts_of(p)) == sorted(kept)


def test_files_of_other_runs_are_not_in_the_way(tmp_path: Path) -> None:
    kept = make_input(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-00000.jsonl").write_text("mine\n")
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"), mode="append")]
    pipeline = Pipeline("added", stages=stages)
    pipeline.run(InProcessExecutor(), blocksize="300kB", file_size="1GB")
    (own,) = [p for p in outputs(tmp_path / "out") if p.name != "part-00000.jsonl"]
    assert (tmp_path / "out/part-00000.jsonl").read_text() == "mine\n"
    assert len(texts_of(own)) >= len(kept)


def test_a_changed_part_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_input(tmp_path / "in")
    from tamis.engine.run import session

    plan = session.plan_value_joins

    def spoiled(*arguments: Any) -> list[Rewrite]:
        path = outputs(tmp_path / "out")[0]
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
        return plan(*arguments)

    monkeypatch.setattr(session, "plan_value_joins", spoiled)
    with pytest.raises(RunConflict, match="not as this run committed"):
        run(tmp_path / "in", tmp_path / "out", "jsonl", blocksize="300kB", file_size="1GB")


# -- killed -----------------------------------------------------------------------------------------------------------
RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {{_target_: tamis.stages.text.filters.heuristic.string.WordCountFilter, min_words: 5}}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {target}
"""


def command(folder: Path, target: str, *options: str) -> list[str]:
    recipe = folder / f"{target}.yaml"
    recipe.write_text(RECIPE.format(source=folder / "in", target=folder / target))
    sized = ("--blocksize", "300kB", "--memory", "512MB", "--json", "-q", *options)
    return [sys.executable, "-m", "tamis.cli.start", "run", str(recipe), *sized]


def test_commands_join_files_unless_configured_otherwise(tmp_path: Path) -> None:
    kept = make_input(tmp_path / "in")
    about = json.loads(run_python(*command(tmp_path, "one")[1:]).stdout)
    (path,) = outputs(tmp_path / "one")
    assert (path.name, about["n_files"]) == ("part-00000.jsonl", 1)
    assert texts_of(path) == kept
    unique = ["dedup", "exact", str(tmp_path / "in"), str(tmp_path / "unique"), "--memory", "1GB"]
    run_python("-m", "tamis.cli.start", *unique, "--blocksize", "300kB")
    (path,) = outputs(tmp_path / "unique")
    assert path.name == "part-00000.jsonl"
    several = json.loads(run_python(*command(tmp_path, "many", "--file-size", "partition")[1:]).stdout)
    assert several["n_files"] == len(outputs(tmp_path / "many")) > 3


def test_a_run_that_is_killed_while_it_joins_continues(tmp_path: Path) -> None:
    make_input(tmp_path / "in", 4, 3000)
    sized = ("--file-size", "150kB")
    expected = json.loads(run_python(*command(tmp_path, "a", *sized)[1:]).stdout)
    reference = {p.name: whole(p) for p in outputs(tmp_path / "a")}
    assert len(reference) == expected["n_files"] > 20
    n_kills, printed = 0, b""
    for number in range(20):
        call = command(tmp_path, "b", *sized, "--workers", str(1 + number % 2))
        process = subprocess.Popen(call, stdout=subprocess.PIPE)
        while process.poll() is None:
            n_final = sum(os.path.exists(tmp_path / "b" / name) for name in reference)
            if n_kills < 4 and n_final > n_kills * 4:
                process.send_signal(signal.SIGKILL)
                n_kills += 1
                break
            time.sleep(0.001)
        printed, _ = process.communicate(timeout=120)
        if process.returncode == 0:
            break
    assert n_kills > 1
    assert json.loads(printed)["content_hash"] == expected["content_hash"]
    assert {p.name: whole(p) for p in outputs(tmp_path / "b")} == reference
