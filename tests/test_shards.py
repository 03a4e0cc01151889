"""Several machines without a cluster: `--shard I/N` on each, `tamis merge` at the end.

What comes out is what one run gives.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.main import app
from tamis.curation import Curation, ExactDuplicates
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.engine.run.run import Run
from tamis.errors import RunConflict, UsageError
from tamis.observe.commits import commit_of, written_row
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import data_names, run_dir_path

N = 3


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of which a third are duplicates of others, some of these in other files; one bad line."""
    folder, chance = tmp_path_factory.mktemp("shards") / "in", random.Random(2)
    folder.mkdir()
    texts = [" ".join(f"w{chance.randrange(3000)}" for _ in range(60)) for _ in range(150)]
    for f, size in enumerate((40, 150, 10)):
        lines = []
        for i in range(size):
            text = chance.choice(texts) if chance.random() < 0.5 else texts[(f * 50 + i) % 150] + f" {f} {i}"
            lines.append(json.dumps({"id": f"{f}-{i}", "n": i if f else i / 2, "text": text}))
        (folder / f"{f}.jsonl").write_text("\n".join([*lines, *(["{bad"] if f == 1 else [])]) + "\n")
    return folder


def ids(output: Path) -> list[str]:
    found = []
    for path in output.glob("part-*.jsonl"):
        found += [json.loads(line)["id"] for line in path.read_text().splitlines()]
    return sorted(found)


def filtered(source: Path, output: Path, writer: Any = JsonlWriter, **settings: Any) -> Any:
    stages = [JsonlReader(str(source)), ScoreFilter(WordCountFilter(min_words=61)), writer(str(output))]
    pipeline = Pipeline("filter", stages=stages)
    pipeline.run(InProcessExecutor(), progress=False, **settings)
    return pipeline.last_result


def test_shards_of_a_run_join_to_what_one_run_writes(source: Path, tmp_path: Path) -> None:
    one = filtered(source, tmp_path / "one")
    parts = [filtered(source, tmp_path / "all", shard=f"{i}/{N}") for i in range(N)]
    assert all(p.ledger.records.n for p in parts)
    assert sorted(os.listdir(tmp_path / "all")) == [f"shard-{i:05d}-of-{N:05d}" for i in range(N)]
    joined = filtered(source, tmp_path / "all", merge=True)
    a, b = one.ledger.to_dict(), joined.ledger.to_dict()
    assert [b[k] for k in ("records", "written", "content", "quarantined")] == [
        a[k] for k in ("records", "written", "content", "quarantined")
    ]
    assert ids(tmp_path / "all") == ids(tmp_path / "one")
    assert [n for n in os.listdir(tmp_path / "all") if n.startswith("shard")] == []
    assert filtered(source, tmp_path / "all").status == "already"
    assert filtered(source, tmp_path / "all", merge=True).status == "already"


def test_shards_of_other_stages_do_not_join(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "all"
    for i in range(2):
        filtered(source, out, shard=f"{i}/2")
    path = run_dir_path(out / "shard-00001-of-00002") / "plan.json"
    plan = json.loads(path.read_text())
    plan["stages"][2]["params"]["text_field"] = ["body"]
    path.write_text(json.dumps(plan))
    with pytest.raises(
        RunConflict,
        match=r"with other stages or settings, than shard 0 \(.*text_field \['text'\] -> \['body'\]",
    ):
        filtered(source, out, merge=True)
    plan["stages"][2]["params"]["text_field"] = ["text"]
    path.write_text(json.dumps(plan))
    assert filtered(source, out, merge=True).status == "finished"


def test_parquet_gets_one_schema_when_shards_are_joined(source: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for i in range(N):
        filtered(source, tmp_path / "all", ParquetWriter, shard=f"{i}/{N}")
    filtered(source, tmp_path / "all", ParquetWriter, merge=True)
    schemas = {str(pq.read_schema(p)) for p in (tmp_path / "all").glob("part-*.parquet")}
    assert len(schemas) == 1
    assert "n: double" in schemas.pop()


def test_files_that_got_one_schema_in_their_shard_get_another_when_joined(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    for name, values in (("a", range(9)), ("b", [i / 2 for i in range(9)]), ("c", ["x" * 9] * 7)):
        lines = [json.dumps({"id": f"{name}{i}", "n": n}) for i, n in enumerate(values)]
        (tmp_path / "in" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def copy(**settings: Any) -> None:
        reader = JsonlReader(str(tmp_path / "in"), files_per_partition=1)
        Pipeline("copy", stages=[reader, ParquetWriter(str(tmp_path / "all"))]).run(
            InProcessExecutor(), progress=False, **settings
        )

    copy(shard="0/2")
    copy(shard="1/2")
    assert list(tmp_path.glob("all/shard-00000*/*.r.parquet"))  # whole numbers beside others: written anew
    copy(merge=True)
    tables = [pq.read_table(p) for p in sorted((tmp_path / "all").glob("part-*.parquet"))]
    assert len({str(t.schema) for t in tables}) == 1
    assert sorted(i for t in tables for i in t["id"].to_pylist()) == sorted(
        f"{name}{i}" for name, n in (("a", 9), ("b", 9), ("c", 7)) for i in range(n)
    )
    for path in (tmp_path / "all").glob("part-*.parquet"):
        name, _ = written_row(run_dir_path(tmp_path / "all"), path.name, 0)
        assert commit_of(run_dir_path(tmp_path / "all"), name) is not None


@pytest.mark.parametrize("kind", ["exact", pytest.param("fuzzy", marks=pytest.mark.slow)])
def test_a_deduplication_in_shards_keeps_the_same_documents(kind: str, source: Path, tmp_path: Path) -> None:
    make: Any = {"exact": RemoveExactDuplicates, "fuzzy": RemoveFuzzyDuplicates}[kind]
    one = make(output_path=str(tmp_path / "one"), input_path=str(source)).run(InProcessExecutor())
    for i in range(N):
        part = make(output_path=str(tmp_path / "all"), input_path=str(source)).run(
            InProcessExecutor(), shard=f"{i}/{N}"
        )
        assert part.status == "shard"
    joined = make(output_path=str(tmp_path / "all"), input_path=str(source)).run(InProcessExecutor(), merge=True)
    assert joined.n_duplicates == one.n_duplicates > 20
    assert ids(tmp_path / "all") == ids(tmp_path / "one")
    assert [n for n in os.listdir(tmp_path / "all") if n.startswith("shard")] == []


@pytest.mark.slow
def test_semantic_deduplication_in_shards_by_command_keeps_the_same_documents(tmp_path: Path) -> None:
    """Clusters are made once all vectors are there: by `tamis merge`."""
    chance, run = random.Random(4), CliRunner()
    (tmp_path / "in").mkdir()
    for f in range(4):
        with open(tmp_path / "in" / f"{f}.jsonl", "w") as file:
            for i in range(30):
                base = random.Random(i if i % 3 else f * 100 + i)  # two of three are like one of each other file
                vector = [base.gauss(0, 1) + chance.gauss(0, 1e-4) for _ in range(8)]
                file.write(json.dumps({"id": f"{f}-{i}", "text": "x", "embeddings": vector}) + "\n")
    words = ["dedup", "semantic", str(tmp_path / "in"), "{}", "--eps", "0.01", "--clusters", "3", "--quiet"]
    words += ["--memory", "4GB", "--max-source-loss", "100%"]

    def told(output: str, *more: str, before: tuple[str, ...] = ()) -> None:
        done = run.invoke(app, [*before, *(w.format(str(tmp_path / output)) for w in words), *more])
        assert done.exit_code == 0, done.output

    told("one")
    for i in range(2):
        told("all", "--shard", f"{i}/2")
    told("all", before=("merge",))
    assert ids(tmp_path / "all") == ids(tmp_path / "one")
    assert len(ids(tmp_path / "one")) == 20 + 4 * 10


@pytest.mark.parametrize("with_duplicates", [True, False])
def test_a_curation_in_shards(with_duplicates: bool, source: Path, tmp_path: Path) -> None:
    def make(output: str) -> Curation:
        steps: list[Any] = [ScoreFilter(WordCountFilter(min_words=61))]
        return Curation(
            [*steps, *([ExactDuplicates()] if with_duplicates else [])], str(source), str(tmp_path / output)
        )

    one = make("one").run(InProcessExecutor())
    for i in range(N):
        assert make("all").run(InProcessExecutor(), shard=f"{i}/{N}").status == "shard"
    joined = make("all").run(InProcessExecutor(), merge=True)
    assert joined.about["content_hash"] == one.about["content_hash"]
    assert ids(tmp_path / "all") == ids(tmp_path / "one")


def test_what_cannot_be_joined_is_reported(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no shards"):
        filtered(source, tmp_path / "none", merge=True)
    filtered(source, tmp_path / "all", shard="0/2")
    with pytest.raises(UsageError, match="shard 1/2 is not there: run the same command with --shard 1/2 first"):
        filtered(source, tmp_path / "all", merge=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.jsonl").write_text('{"id": "1", "text": "a"}\n' * 50)
    filtered(other, tmp_path / "all", shard="1/2")
    with pytest.raises(RunConflict, match="made of other files"):
        filtered(source, tmp_path / "all", merge=True)
    with pytest.raises(UsageError, match="not both"):
        filtered(source, tmp_path / "all", merge=True, shard="0/2")
    with pytest.raises(UsageError, match="end with a writer"):
        Pipeline("x", stages=[JsonlReader(str(source))]).run(InProcessExecutor(), progress=False, shard="0/2")


def test_shards_from_the_command_line(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner()
    arguments = ["filter", "c4", str(source), str(tmp_path / "out"), "--memory", "4GB", "--quarantine-limit", "10%"]
    for i in range(2):
        told = run.invoke(app, [*arguments, "--shard", f"{i}/2", "--quiet"])
        assert told.exit_code == 0, told.output
    refused = run.invoke(app, ["merge", *arguments, "--shard", "0/2"])
    assert (refused.exit_code, "repeat the command without --shard" in refused.output) == (2, True)
    told = run.invoke(app, ["merge", *arguments, "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["n_records"] == 201
    assert "finished earlier" in run.invoke(app, arguments).output
    assert "--shard 0/N to --shard N-1/N" in run.invoke(app, ["merge", "--help"]).output
    assert run.invoke(app, ["merge"]).exit_code == 2


def test_a_join_that_was_killed_is_done_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.engine.run.output.directory import RunDir

    one = filtered(source, tmp_path / "one")
    for i in range(N):
        filtered(source, tmp_path / "all", shard=f"{i}/{N}")

    def killed(self: Any, plan: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "write_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            filtered(source, tmp_path / "all", merge=True)
    assert list((tmp_path / "all").glob("part-*"))
    joined = filtered(source, tmp_path / "all", merge=True)
    assert joined.ledger.to_dict()["content"] == one.ledger.to_dict()["content"]
    assert ids(tmp_path / "all") == ids(tmp_path / "one")


def test_a_file_of_others_is_never_taken_for_a_shards(source: Path, tmp_path: Path) -> None:
    for i in range(N):
        filtered(source, tmp_path / "all", shard=f"{i}/{N}")
    theirs = tmp_path / "all" / next((tmp_path / "all").glob("shard-*/part-*")).name
    theirs.write_text("mine")
    with pytest.raises(RunConflict, match="no shard wrote it"):
        filtered(source, tmp_path / "all", merge=True)
    assert theirs.read_text() == "mine"


def files_of(output: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in output.glob("part-*")}


def test_nothing_is_moved_before_every_shard_was_looked_at(source: Path, tmp_path: Path) -> None:
    """A shard whose files were removed is refused: made anew, its files would join the old ones."""
    for i in range(2):
        filtered(source, tmp_path / "all", shard=f"{i}/2")
    manifest = run_dir_path(tmp_path / "all" / "shard-00001-of-00002") / "manifest.json"
    manifest.rename(tmp_path / "manifest.json")
    with pytest.raises(UsageError, match="shard-00001-of-00002 is not finished"):
        filtered(source, tmp_path / "all", merge=True)
    assert files_of(tmp_path / "all") == {}
    assert filtered(source, tmp_path / "all", shard="0/2").status == "already"
    (tmp_path / "manifest.json").rename(manifest)
    stray = tmp_path / "all" / "part-000000-000000000000007.jsonl"
    stray.write_text("{}\n")
    with pytest.raises(RunConflict, match=r"holds 'part-000000-000000000000007.jsonl' .*which no shard wrote"):
        filtered(source, tmp_path / "all", merge=True)
    stray.unlink()
    filtered(source, tmp_path / "one")
    filtered(source, tmp_path / "all", merge=True)
    assert ids(tmp_path / "all") == ids(tmp_path / "one")


def test_what_was_joined_is_not_removed_where_no_shards_could_take_its_place(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwriting(path: str) -> Any:
        return JsonlWriter(path, mode="overwrite")

    for i in range(2):
        filtered(source, tmp_path / "all", overwriting, shard=f"{i}/2")
    with monkeypatch.context() as patch:  # killed behind joining
        patch.setattr(Run, "_plan_and_work", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            filtered(source, tmp_path / "all", overwriting, merge=True)
    before = files_of(tmp_path / "all")
    assert filtered(source, tmp_path / "all", overwriting, merge=True).status == "finished"
    assert filtered(source, tmp_path / "all", overwriting, merge=True).status == "already"
    with pytest.raises(RunConflict, match="joined already or are not all there"):
        filtered(source, tmp_path / "all", overwriting, merge=True, fresh=True)
    assert files_of(tmp_path / "all") == before
    (run_dir_path(tmp_path / "all") / "forgetting").touch()
    with pytest.raises(RunConflict, match=r"^an earlier --fresh, which did not end: .* removed\. To start over, make"):
        filtered(source, tmp_path / "all", overwriting, merge=True)
    (run_dir_path(tmp_path / "all") / "forgetting").unlink()
    for i in range(2):
        filtered(source, tmp_path / "all", overwriting, shard=f"{i}/2")
    assert filtered(source, tmp_path / "all", overwriting, merge=True, fresh=True).status == "finished"
    assert files_of(tmp_path / "all") == before
    assert data_names(tmp_path / "all") == sorted(before)


def test_a_file_of_a_shard_that_is_gone_is_reported(source: Path, tmp_path: Path) -> None:
    for i in range(2):
        filtered(source, tmp_path / "all", shard=f"{i}/2")
    next((tmp_path / "all").glob("shard-00001*/part-*")).unlink()
    with pytest.raises(RunConflict, match="was written by a shard and is gone"):
        filtered(source, tmp_path / "all", merge=True)
