"""Scratch in a bucket: the same output as with a local folder, whatever the store does, and nothing left."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.doctor.command import bucket_advice
from tamis.dedup.exact.workflow import ExactDeduplicationWorkflow, RemoveExactDuplicates
from tamis.dedup.planning import check_room
from tamis.engine.run.output.directory import RunDir
from tamis.errors import BudgetError, StoreError, UsageError
from tamis.formats.scratch.spilled import Spilled
from tamis.formats.scratch.stored_arrays import NpyWriter, open_npy
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.stages.text.modifiers import Modify, UnicodeReformatter
from tamis.stores import scratch_files
from tamis.stores.s3 import AccessDenied, Bucket
from tests.support.bucket_runs import keys, n_uploads
from tests.support.command import SRC, tamis
from tests.support.run_dirs import run_dir_path
from tests.support.s3_server import FaultyProxy

END = "All of this site has one closing line, which says nothing new."


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Texts of which some are there twice, some nearly, some are too short; all end in the same line."""
    rng = random.Random(5)
    texts: list[str] = []
    for i in range(240):
        text = "\n".join(" ".join(f"w{rng.randrange(900)}" for _ in range(12)) for _ in range(10))
        if i % 4 == 3:
            text = rng.choice(texts)
        if i % 8 == 7:
            text = text.replace("w1", "changed", 1)
        texts.append(text if i % 11 else "too short")
    (tmp_path / "data").mkdir()
    for f in range(3):
        lines = [json.dumps({"id": i, "text": f"{texts[i]}\n{END}"}) for i in range(f * 80, f * 80 + 80)]
        (tmp_path / "data" / f"{f}.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "data")


@pytest.fixture
def far(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a local folder whose large files are stored in a bucket, in this process."""
    monkeypatch.setattr(scratch_files, "_mapped", {})
    (tmp_path / "work").mkdir()
    scratch_files.map_folder(str(tmp_path / "work"), f"s3://{bucket}/tmp/tamis-1")
    return str(tmp_path / "work")


def content(output: str | Path) -> str:
    return str(json.loads((run_dir_path(output) / "manifest.json").read_text())["content_hash"])


# -- files ------------------------------------------------------------------------------------------------------------
def test_buckets_that_lie_in_a_store_hold_what_was_added(far: str, s3: Any, bucket: str) -> None:
    where = os.path.join(far, "spilled")
    spilled = Spilled(where, window_bytes=4000)
    wanted: dict[int, list[int]] = {k: [] for k in range(5)}
    rng = random.Random(1)
    for _ in range(60):
        k, n = rng.randrange(5), rng.randrange(200)
        wanted[k] += (values := [rng.randrange(1 << 30) for _ in range(n)])
        spilled.add(k, np.array(values, np.uint32))
        assert sum(p.stat().st_size for p in Path(where).glob("*.bin")) <= 4000
    assert len(keys(s3, bucket, "tmp/tamis-1/spilled/")) >= 5
    again = Spilled(where, fresh=False)  # another process
    for k in range(5):
        assert again.read(k, np.uint32).tolist() == spilled.read(k, np.uint32).tolist() == wanted[k]
        assert again.read(k, np.uint32, 37, 210).tolist() == wanted[k][37:247]
        assert again.read(k, np.uint32, 10**6).tolist() == []
    again.truncate(2, 4 * 300)
    again.add(2, np.array([7], np.uint32))
    assert Spilled(where, fresh=False).read(2, np.uint32).tolist() == [*wanted[2][:300], 7]


def test_a_column_is_written_in_parts(far: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a part, whose head is known only at the end; and over what a killed attempt left."""
    monkeypatch.setattr(scratch_files, "PART_BYTES", 5 << 20)
    url = f"s3://{bucket}/tmp/tamis-1/column.npy"
    for n in (100, 2_000_000):
        with NpyWriter(url, "<i8") as column:
            for first in range(0, n, 70_000):
                column.append(np.arange(first, min(first + 70_000, n)))
        (found,) = s3.list_objects_v2(Bucket=bucket, Prefix="tmp/tamis-1/column")["Contents"]
        assert found["Size"] == 128 + 8 * n
    stored = open_npy(url)
    assert (len(stored), stored[1_999_999], stored.search(777_777)) == (2_000_000, 1_999_999, 777_777)
    scratch_files.remove_tree(f"s3://{bucket}/tmp/tamis-1")
    assert (keys(s3, bucket), n_uploads(s3, bucket)) == ([], 0)


def test_what_a_killed_run_left_is_removed_by_the_next(bucket: str, s3: Any, tmp_path: Path) -> None:
    def opened() -> RunDir:
        made = RunDir(str(tmp_path / "out"), f"s3://{bucket}/tmp")
        made.open()
        made.make_scratch()
        s3.put_object(Bucket=bucket, Key=f"{made.remote_scratch.partition(bucket)[2][1:]}/u1.1.arrow", Body=b"x")
        return made

    first = opened()
    os.close(first._lock)  # as if it had been killed
    second = opened()
    assert first.remote_scratch != second.remote_scratch
    assert keys(s3, bucket) == [f"{second.remote_scratch.partition(bucket)[2][1:]}/u1.1.arrow"]
    second.close()
    assert keys(s3, bucket) == []
    assert not (run_dir_path(tmp_path / "out") / "scratch.json").exists()


# -- runs -------------------------------------------------------------------------------------------------------------
def test_blocks_between_segments_in_batch_mode(data: str, bucket: str, s3: Any, proxy: FaultyProxy) -> None:
    """Handed over by every segment, and by a feeder; with answers that are lost and connections that are cut."""
    plain = Path(data, "2.jsonl")
    with gzip.open(f"{data}/2.jsonl.gz", "wb") as file:
        file.write(plain.read_bytes() * 30)  # too much for one partition: it is fed
    plain.unlink()
    chance = random.Random(2)
    proxy.fault = lambda method, path, n: "" if chance.random() > 0.05 else chance.choice(["500", "lost", "cut"])

    def run(output: str, **settings: Any) -> Any:
        stages = [Modify(UnicodeReformatter()), ScoreFilter(WordCountFilter(min_words=30))]
        pipeline = Pipeline("two", stages=[JsonlReader(data, blocksize="20kB"), *stages, JsonlWriter(output)])
        pipeline.run(InProcessExecutor(), mode="batch", **settings)
        return pipeline.last_result

    here = run(f"{data}-here")
    there = run(f"{data}-there", scratch=f"s3://{bucket}/tmp")
    assert there.ledger.to_dict()["content"] == here.ledger.to_dict()["content"]
    assert there.ledger.written.n > 2000
    blocks = {path.rpartition("/")[2] for method, path, _ in proxy.requests if method == "PUT" and "tamis-" in path}
    assert len(blocks) >= 5, blocks
    assert {name[0] for name in blocks - {"probe"}} == {"f", "u"}, blocks
    for thread in threading.enumerate():  # who removes blocks ends with the run
        if thread.name == "tamis-remove":
            thread.join(timeout=30)
            assert not thread.is_alive()
    assert keys(s3, bucket) == []


@pytest.mark.parametrize(
    "kind", ["exact", *(pytest.param(k, marks=pytest.mark.slow) for k in ("lines", "fuzzy", "substrings"))]
)
def test_a_deduplication_by_command(kind: str, data: str, bucket: str, s3: Any) -> None:
    words = ["--memory", "1GB", "--json"]
    here = tamis("dedup", kind, data, f"{data}-here", *words)
    there = tamis("dedup", kind, data, f"{data}-there", "--scratch", f"s3://{bucket}/tmp/", *words)
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    about = json.loads(there.stdout)
    assert about["n_duplicates"] == json.loads(here.stdout)["n_duplicates"] > 10
    assert about["scratch_bytes"] > 10_000
    assert content(f"{data}-there") == content(f"{data}-here")
    assert (keys(s3, bucket), n_uploads(s3, bucket)) == ([], 0)
    assert not (run_dir_path(f"{data}-there") / "dedup").exists()


@pytest.mark.slow
def test_a_curation_by_python(data: str, bucket: str, s3: Any) -> None:
    from tamis.curation import Curation, DuplicateLines, ExactDuplicates, FuzzyDuplicates

    def run(output: str, **settings: Any) -> Any:
        steps = [ScoreFilter(WordCountFilter(min_words=30)), DuplicateLines(), ExactDuplicates(), FuzzyDuplicates()]
        return Curation(steps, data, output, shuffle=True, shard_size="20kB").run(memory="1GB", **settings)

    here, there = run(f"{data}-here"), run(f"{data}-there", scratch=f"s3://{bucket}/tmp")
    assert there.about["content_hash"] == here.about["content_hash"]
    assert 100 < there.about["n_written"] < 240
    files = {o: [p.read_bytes() for p in sorted(Path(f"{data}-{o}").glob("*.jsonl"))] for o in ("here", "there")}
    assert files["here"] == files["there"]
    assert keys(s3, bucket) == []


@pytest.mark.slow
def test_a_deduplication_that_is_killed_continues_from_the_bucket(
    data: str, bucket: str, s3: Any, proxy: FaultyProxy
) -> None:
    """All processes at once, when the tables of what was decided are being written; then with faults to the end."""
    words = ["dedup", "exact", data, f"{data}-there", "--scratch", f"s3://{bucket}/tmp", "--memory", "1GB"]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    run = subprocess.Popen(
        [sys.executable, "-m", "tamis.cli.start", *words],
        env=env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def kill(method: str, path: str, n: int) -> str:
        if method == "PUT" and "/removal/" in path:
            os.killpg(run.pid, signal.SIGKILL)
            return "drop"
        return ""

    proxy.fault = kill
    try:
        run.wait(timeout=90)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    left = keys(s3, bucket)
    assert any(k.endswith(".arrow") for k in left), left
    n_before, chance = len(proxy.requests), random.Random(4)
    proxy.fault = lambda method, path, n: "" if chance.random() > 0.1 else chance.choice(["500", "drop", "lost", "cut"])
    again = tamis(*words, "--json")
    assert again.exit_code == 0, again.output
    assert proxy.n_faults > 5
    sent = [path for method, path, _ in proxy.requests[n_before:] if method == "PUT" and ".arrow" in path]
    assert sent == []  # keys were there
    assert tamis("dedup", "exact", data, f"{data}-here", "--memory", "1GB").exit_code == 0
    assert content(f"{data}-there") == content(f"{data}-here")
    assert (keys(s3, bucket), n_uploads(s3, bucket)) == ([], 0)


@pytest.mark.slow
def test_ranges_of_keys_are_looked_at_by_agents(
    data: str, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one process would be the bottleneck: all agents read the keys out of the bucket."""
    from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
    from tamis.dedup.range_passes import passes, ranges
    from tests.support.here_agents import BUDGET, HereExecutor, HereSession

    monkeypatch.setattr(ranges, "MIN_DOCUMENTS", 0)
    monkeypatch.setattr(passes, "_LEAST_RANGES", 3)
    one = RemoveFuzzyDuplicates(output_path=f"{data}-here", input_path=data).run(InProcessExecutor(), progress=False)
    session = HereSession(2)
    try:
        several = RemoveFuzzyDuplicates(output_path=f"{data}-there", input_path=data).run(
            HereExecutor(session), progress=False, memory=BUDGET, scratch=f"s3://{bucket}/tmp"
        )
    finally:
        session.close()
    assert several.n_duplicates == one.n_duplicates > 10
    assert content(f"{data}-there") == content(f"{data}-here")
    assert keys(s3, bucket) == []


def test_what_a_killed_run_left_goes_with_fresh_and_no_run_begins_that_could_not_tidy_up(
    data: str, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(output: str, **settings: Any) -> None:
        pipeline = Pipeline("one", stages=[JsonlReader(data), JsonlWriter(output)])
        pipeline.run(InProcessExecutor(), mode="batch", progress=False, **settings)

    run(f"{data}-out")
    left = f"tmp/tamis-{'0' * 16}"
    s3.put_object(Bucket=bucket, Key=f"{left}/u1.1.arrow", Body=b"x")
    (run_dir_path(f"{data}-out") / "scratch.json").write_text(json.dumps({"far": f"s3://{bucket}/{left}"}))
    run(f"{data}-out", fresh=True)
    assert keys(s3, bucket) == []
    other = f"tmp/tamis-dedup-{'1' * 16}"  # of a deduplication in a curation whose recipe was changed since
    s3.put_object(Bucket=bucket, Key=f"{other}/keys-0/a.arrow", Body=b"x")
    pointer = run_dir_path(run_dir_path(f"{data}-out") / "curation" / "1") / "work.json"
    pointer.parent.mkdir(parents=True)
    pointer.write_text(json.dumps({"far": f"s3://{bucket}/{other}"}))
    RemoveExactDuplicates(output_path=f"{data}-out", input_path=data).run(
        InProcessExecutor(), progress=False, fresh=True
    )
    assert keys(s3, bucket) == []

    def refused(self: Bucket, key: str) -> None:
        raise AccessDenied(f"{key}: the store refuses")

    monkeypatch.setattr(Bucket, "delete", refused)
    with pytest.raises(StoreError, match="the store refuses"):
        run(f"{data}-no", scratch=f"s3://{bucket}/tmp")
    assert not list(Path(f"{data}-no").glob("*.jsonl"))


def test_a_place_that_is_not_there_or_is_the_output_is_reported_before_anything_is_done(
    data: str, bucket: str, s3: Any
) -> None:
    def run(output: str, **settings: Any) -> Any:
        return RemoveExactDuplicates(output_path=output, input_path=data).run(
            InProcessExecutor(), progress=False, **settings
        )

    for _ in range(2):
        with pytest.raises(StoreError, match="there is no bucket"):
            run(f"{data}-out", scratch=f"s3://no-{bucket}/tmp")
    assert bucket_advice(f"s3://{bucket}/tmp") == []
    (told,) = bucket_advice(f"s3://no-{bucket}/tmp")
    assert "there is no bucket" in told
    for place in ("out", "out/tmp"):
        with pytest.raises(UsageError, match="is inside the output"):
            run(f"s3://{bucket}/out", scratch=f"s3://{bucket}/{place}")
        with pytest.raises(UsageError, match="is inside the output"):
            Pipeline("one", stages=[JsonlReader(data), JsonlWriter(f"s3://{bucket}/out")]).run(
                InProcessExecutor(), scratch=f"s3://{bucket}/{place}"
            )
    assert run(f"{data}-out").n_duplicates > 10  # nothing is remembered of the wrong place
    assert keys(s3, bucket) == []


def test_what_the_store_takes_of_the_budget_is_in_the_advice() -> None:
    check_room(160_000_000)
    check_room(230_000_000, is_far=True)
    with pytest.raises(BudgetError, match=r"a budget of 225 MB .* the smallest that works here is 230MB"):
        check_room(225_000_000, is_far=True)


def test_a_recipe_names_it_and_what_cannot_be_scratch_is_refused(data: str, bucket: str, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"settings:\n  scratch: s3://{bucket}/tmp\nexecution_mode: batch\nstages:\n"
        f"  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: {data}\n"
        "  - _target_: tamis.stages.text.filters.ScoreFilter\n    filter_obj:\n"
        "      _target_: tamis.stages.text.filters.WordCountFilter\n      min_words: 30\n"
        f"  - _target_: tamis.stages.text.io.writer.JsonlWriter\n    path: {tmp_path}/out\n"
    )
    told = tamis("run", recipe, "--memory", "1GB", "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["n_written"] > 200
    for wrong in ("https://host/tmp", f"s3://{bucket}", "s3://"):
        pipeline = Pipeline("no", stages=[JsonlReader(data), JsonlWriter(f"{data}-no")])
        with pytest.raises(UsageError, match=r"s3://bucket/path|give a path inside the bucket"):
            pipeline.run(InProcessExecutor(), scratch=wrong)
        with pytest.raises(UsageError, match=r"s3://bucket/path|give a path inside the bucket"):
            ExactDeduplicationWorkflow(f"{data}-no", data).run(scratch=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["semantic", "ids", "join", "index", "index of texts"])
def test_other_workflows(kind: str, tmp_path: Path, bucket: str, s3: Any) -> None:
    """Vectors, tables of ids, segments of documents, an index."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow
    from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow
    from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
    from tamis.dedup.substrings.workflow import SubstringDeduplicationWorkflow

    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(2)
    near = rng.normal(size=(40, 16)).repeat(3, axis=0) + rng.normal(size=(120, 16)) * 0.01
    rows = [{"id": f"d{i // 3}", "segment_id": i % 3, "text": f"text {i % 50}", "n": i} for i in range(120)]
    if kind == "index of texts":
        rows = [{"text": f"{i} {'a passage of all, ' * (1 + i % 3)}{i}", "n": i} for i in range(120)]
    if kind == "semantic":
        vectors = pa.array(near.astype(np.float32).tolist(), pa.list_(pa.float32()))
        table = pa.table({"id": [str(i) for i in range(120)], "embeddings": vectors})
        pq.write_table(table, tmp_path / "in" / "a.parquet")
    else:
        (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"n": i}) + "\n" for i in range(0, 120, 7)))

    def run(name: str, **settings: Any) -> Any:
        source, output = str(tmp_path / "in"), str(tmp_path / name)
        here = InProcessExecutor()
        if kind == "semantic":
            made: Any = SemanticDeduplicationWorkflow(source, output, n_clusters=3, eps=0.02, perform_removal=True)
            return made.run(here, memory="512MB", **settings)
        if kind == "ids":
            made = TextDuplicatesRemovalWorkflow(
                source,
                str(tmp_path / "ids.jsonl"),
                output,
                input_filetype="jsonl",
                id_field="n",
                duplicate_id_field="n",
            )
            return made.remove(here, memory="512MB", **settings)
        if kind == "join":
            return DocumentJoinWorkflow(source, output).run(here, memory="512MB", **settings)
        if kind == "index of texts":
            how: Any = {"min_bytes": 16, "max_source_loss": 1}
            index = str(tmp_path / f"{name}-index")
            first = SubstringDeduplicationWorkflow(f"{output}-first", source, index_path=index, **how)
            first.run(here, memory="512MB", **settings)
            second = SubstringDeduplicationWorkflow(output, source, against=index, append=True, **how)
            return second.run(here, memory="512MB", **settings)
        made = RemoveExactDuplicates(output, source, index_path=str(tmp_path / f"{name}-index"), max_source_loss=1)
        return made.run(here, memory="512MB", **settings)

    one, other = run("here"), run("there", scratch=f"s3://{bucket}/tmp")
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert (other.n_documents, other.n_duplicates) == (one.n_documents, one.n_duplicates)
    assert keys(s3, bucket) == []
    if kind.startswith("index"):
        entries = [sorted((tmp_path / f"{n}-index").glob("entry-*/*.*")) for n in ("here", "there")]
        assert {path.name for path in entries[0]} & {"records.arrow", "texts.parquet"}
        contents = [sorted(path.read_bytes() for path in paths if path.suffix != ".json") for paths in entries]
        assert contents[0] == contents[1]
        assert other.n_duplicates > 0
