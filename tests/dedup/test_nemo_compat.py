"""Two-step deduplication: ids in folders, id generators, removal with other partitions, own ids."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import FormatError, Incomplete, RunConflict, UsageError
from tamis.pipeline import WorkflowBase, WorkflowRunResult
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow
from tamis.stages.deduplication.id_generator import (
    CURATOR_DEDUP_ID_STR,
    IdGenerator,
    create_id_generator_actor,
    get_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)
from tamis.stages.text.deduplication.removal import TextDuplicatesRemovalStage
from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow
from tamis.stages.text.io.reader import JsonlReader, ParquetReader
from tamis.stages.text.io.writer import ParquetWriter
from tamis.tasks import FileGroupTask
from tests.support.run_dirs import run_dir_path

MEMORY: dict[str, Any] = {"memory": "400MB", "workers": 1}
LONG = (
    "a sentence of some length that occurs in two documents, with a small difference at its end, so that it is found. "
    * 6
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, five documents each, of which 3 equal others; identified once."""
    folder = tmp_path_factory.mktemp("two-step")
    (folder / "in").mkdir()
    texts = ["a", "b", "c", "a", LONG + "x", "b", "d", "a", "e", LONG + "y"]
    for k in range(2):
        rows = [{"doc": f"d{i}", "text": texts[i]} for i in range(5 * k, 5 * k + 5)]
        pd.DataFrame(rows).to_parquet(folder / "in" / f"{k}.parquet")
    workflow = ExactDeduplicationWorkflow(input_path=str(folder / "in"), output_path=str(folder / "exact"))
    result = workflow.run(**MEMORY)
    assert isinstance(workflow, WorkflowBase)
    assert isinstance(result, WorkflowRunResult)
    assert (result.workflow_name, result.get_metadata("num_duplicates"), result.n_documents) == (
        "exact_deduplication",
        3,
        10,
    )
    assert result.metadata["total_time"] >= result.metadata["identification_time"] > 0
    assert result.get_metadata("id_generator_path") == str(folder / "exact" / "exact_id_generator.json")
    return folder


def left(folder: Path) -> list[str]:
    return sorted(pd.read_parquet(folder)["doc"])


def test_ids_are_in_the_folder_that_is_documented(place: Path) -> None:
    ids = pd.read_parquet(place / "exact" / "ExactDuplicateIds")
    assert list(ids.columns) == [CURATOR_DEDUP_ID_STR]
    assert sorted(ids[CURATOR_DEDUP_ID_STR]) == [3, 1 << 40, (1 << 40) + 2]
    generator = IdGenerator.from_disk(str(place / "exact" / "exact_id_generator.json"))
    assert generator.get_batch_range([str(place / "in" / "1.parquet")]) == (1 << 40, (2 << 40) - 1)


@pytest.mark.parametrize("more", [{}, {"input_files_per_partition": 1}])
def test_the_second_step_removes_them_however_the_input_is_cut(
    place: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    removal = TextDuplicatesRemovalWorkflow(
        input_path=str(place / "in"),
        ids_to_remove_path=str(place / "exact" / "ExactDuplicateIds"),
        output_path=str(tmp_path / "out"),
        duplicate_id_field=CURATOR_DEDUP_ID_STR,
        id_generator_path=str(place / "exact" / "exact_id_generator.json"),
        **more,
    )
    if more:  # three runs in processes would take three seconds
        result = removal.run(None, InProcessExecutor(), **MEMORY)
    else:
        result = removal.run(**MEMORY)
    assert result.get_metadata("num_duplicates_removed") == 3
    assert left(tmp_path / "out") == ["d0", "d1", "d2", "d4", "d6", "d8", "d9"]
    assert list(pd.read_parquet(tmp_path / "out").columns) == ["doc", "text"]


def test_a_folder_that_moved_and_one_that_is_another(place: Path, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    for path in (place / "in").iterdir():
        (tmp_path / "moved" / path.name).write_bytes(path.read_bytes())
    how = {
        "duplicate_id_field": CURATOR_DEDUP_ID_STR,
        "id_generator_path": str(place / "exact" / "exact_id_generator.json"),
    }
    ids = str(place / "exact" / "ExactDuplicateIds")
    moved = TextDuplicatesRemovalWorkflow(str(tmp_path / "moved"), ids, str(tmp_path / "out"), **how)
    assert moved.run(None, InProcessExecutor(), **MEMORY).n_duplicates == 3
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "z.parquet").write_bytes((place / "in" / "0.parquet").read_bytes())
    other = TextDuplicatesRemovalWorkflow(str(tmp_path / "other"), ids, str(tmp_path / "out2"), **how)
    with pytest.raises((UsageError, Incomplete), match=r"belong to other input files|name no document"):
        other.run(None, InProcessExecutor(), **MEMORY)


def test_ids_of_the_documents_own(place: Path, tmp_path: Path) -> None:
    workflow = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(place / "in"), assign_id=False, id_field="doc")
    workflow.run([], InProcessExecutor(), **MEMORY)
    ids = pd.read_parquet(tmp_path / "found" / "ExactDuplicateIds")
    assert (list(ids.columns), sorted(ids["doc"])) == (["doc"], ["d3", "d5", "d7"])
    assert not (tmp_path / "found" / "exact_id_generator.json").exists()
    removal = TextDuplicatesRemovalWorkflow(
        str(place / "in"),
        str(tmp_path / "found" / "ExactDuplicateIds"),
        str(tmp_path / "out"),
        id_field="doc",
        duplicate_id_field="doc",
    )
    removal.run(InProcessExecutor(), **MEMORY)
    assert left(tmp_path / "out") == ["d0", "d1", "d2", "d4", "d6", "d8", "d9"]
    stage = TextDuplicatesRemovalStage(str(tmp_path / "found" / "ExactDuplicateIds"), "doc", "doc", drop_id_field=True)
    found = Pipeline("p", stages=[ParquetReader(str(place / "in")), stage]).run(InProcessExecutor())
    assert sum(b.num_items for b in found) == 7
    assert {c for b in found for c in b.get_columns()} == {"text"}


def test_own_ids_of_a_finished_deduplication_are_left_alone(place: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in (place / "in").iterdir():
        (tmp_path / "in" / path.name).write_bytes(path.read_bytes())
    workflow = ExactDeduplicationWorkflow(
        str(tmp_path / "found"), str(tmp_path / "in"), assign_id=False, id_field="doc"
    )
    first = workflow.run([], InProcessExecutor(), **MEMORY)
    again = workflow.run([], InProcessExecutor(), **MEMORY)
    assert again.status == "already"
    assert [t.data for t in again.pipeline_tasks["identification"]] == [
        t.data for t in first.pipeline_tasks["identification"]
    ]
    assert sorted(pd.read_parquet(tmp_path / "found" / "ExactDuplicateIds")["doc"]) == ["d3", "d5", "d7"]
    frame = pd.read_parquet(tmp_path / "in" / "0.parquet")
    frame[::-1].to_parquet(tmp_path / "in" / "0.parquet")
    other = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(tmp_path / "in"), assign_id=False, id_field="text")
    for made in (workflow, other):
        with pytest.raises(RunConflict, match=r"result of other input: .*0\.parquet"):
            made.run([], InProcessExecutor(), **MEMORY)
    assert sorted(pd.read_parquet(tmp_path / "found" / "ExactDuplicateIds")["doc"]) == ["d3", "d5", "d7"]
    removal = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(tmp_path / "in"), perform_removal=True)
    removal.run([], InProcessExecutor(), fresh=True, **MEMORY)
    assert not (tmp_path / "found" / "ExactDuplicateIds").exists()


@pytest.mark.parametrize("kind", ["exact", "fuzzy"])
def test_starting_over_leaves_files_of_the_user(place: Path, tmp_path: Path, kind: str) -> None:
    found = str(tmp_path / "found")
    if kind == "exact":
        workflow: Any = ExactDeduplicationWorkflow(found, str(place / "in"))
    else:
        workflow = FuzzyDeduplicationWorkflow(str(tmp_path / "cache"), found, str(place / "in"))
    workflow.run([], InProcessExecutor(), **MEMORY)
    folder = tmp_path / "found" / f"{kind.capitalize()}DuplicateIds"
    before = sorted(pd.read_parquet(sorted(folder.glob("*.parquet"))[0])[CURATOR_DEDUP_ID_STR])
    (folder / "notes.txt").write_text("mine")
    (folder / "drafts").mkdir()
    (folder / "drafts" / "plan.md").write_text("mine, too")

    workflow.run([], InProcessExecutor(), fresh=True, **MEMORY)
    (ids,) = folder.glob("*.parquet")
    assert sorted(pd.read_parquet(ids)[CURATOR_DEDUP_ID_STR]) == before
    assert (folder / "notes.txt").read_text() == "mine"

    removal = ExactDeduplicationWorkflow(found, str(place / "in"), perform_removal=True)
    if kind == "fuzzy":
        removal = FuzzyDeduplicationWorkflow(str(tmp_path / "cache"), found, str(place / "in"), perform_removal=True)  # type: ignore[assignment]
    with pytest.raises(RunConflict, match=r"DuplicateIds/drafts was not written by Tamis; move it to another folder"):
        removal.run([], InProcessExecutor(), fresh=True, **MEMORY)
    assert sorted(p.name for p in folder.rglob("*")) == ["drafts", "notes.txt", "plan.md"]


def test_starting_over_is_resumed_next_to_files_of_the_user(place: Path, tmp_path: Path) -> None:
    workflow = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(place / "in"))
    workflow.run([], InProcessExecutor(), **MEMORY)
    folder = tmp_path / "found" / "ExactDuplicateIds"
    (folder / "notes.txt").write_text("mine")
    (run_dir_path(tmp_path / "found") / "dedup.json").unlink()  # as if killed after it removed the earlier run
    (tmp_path / "found" / "exact_id_generator.json").unlink()
    workflow.run([], InProcessExecutor(), **MEMORY)
    assert len(pd.read_parquet(next(iter(folder.glob("*.parquet"))))) == 3
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["exact", "fuzzy"])
def test_a_folder_of_ids_has_nothing_but_ids(place: Path, tmp_path: Path, kind: str) -> None:
    outer, folder = tmp_path / "found", f"{kind.capitalize()}DuplicateIds"
    identification(kind, place, outer).run(None, InProcessExecutor(), **MEMORY)
    assert sorted(os.listdir(outer)) == [folder, f"{kind}_id_generator.json"]
    assert [Path(name).suffix for name in os.listdir(outer / folder)] == [".parquet"]
    assert len(pd.concat([pd.read_parquet(outer / folder / name) for name in os.listdir(outer / folder)])) >= 3
    assert sorted(os.listdir(tmp_path)) == ["found", "found.tamis"]
    assert run_dir_path(outer / folder) == tmp_path / "found.tamis" / f"{folder}.tamis"
    reader = ParquetReader(str(outer))  # leaves the outputs of other runs out
    with pytest.raises(UsageError, match="no input files"):
        Pipeline("p", stages=[reader, ParquetWriter(str(tmp_path / "o"))]).run(InProcessExecutor())


@pytest.mark.parametrize("kind", ["exact", "fuzzy"])
@pytest.mark.parametrize("stop", ["before", "after"])
def test_an_identification_that_was_interrupted_at_its_ids_is_resumed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stop: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    whole = table_of_ids(kind, place, tmp_path / "whole")
    workflow = identification(kind, place, tmp_path / "found")
    with monkeypatch.context() as patch:
        if stop == "before":  # the first batch of ids is committed
            patch.setattr("tamis.dedup.nemo_compat.id_files.IdNumbers.process", interrupt)
        else:
            patch.setattr("tamis.dedup.nemo_compat.id_files.of_files", interrupt)
        with pytest.raises(KeyboardInterrupt):
            workflow.run([], InProcessExecutor(), **MEMORY)
    assert not (tmp_path / "found" / f"{kind}_id_generator.json").exists()
    assert table_of_ids(kind, place, tmp_path / "found") == whole
    assert workflow.run([], InProcessExecutor(), **MEMORY).status == "already"


@pytest.mark.parametrize("kind", ["exact", "fuzzy"])
def test_ids_that_were_moved_or_removed_are_known_or_made_again(place: Path, tmp_path: Path, kind: str) -> None:
    whole = table_of_ids(kind, place, tmp_path / "found")
    for name in ("found", "found.tamis"):
        (tmp_path / name).rename(tmp_path / name.replace("found", "moved"))
    workflow = identification(kind, place, tmp_path / "moved")
    folder = tmp_path / "moved" / f"{kind.capitalize()}DuplicateIds"
    moved = workflow.run([], InProcessExecutor(), **MEMORY)
    assert moved.status == "already"
    assert [Path(path).parent for task in moved.pipeline_tasks["identification"] for path in task.data] == [folder]
    next(folder.glob("*.parquet")).unlink()
    assert table_of_ids(kind, place, tmp_path / "moved") == whole
    shutil.rmtree(folder)
    assert table_of_ids(kind, place, tmp_path / "moved") == whole
    shutil.rmtree(tmp_path / "moved")
    assert table_of_ids(kind, place, tmp_path / "moved") == whole
    assert workflow.run([], InProcessExecutor(), fresh=True, **MEMORY).status == "finished"
    assert table_of_ids(kind, place, tmp_path / "moved") == whole


def test_starting_over_leaves_the_run_of_an_output_in_this_one(place: Path, tmp_path: Path) -> None:
    outer, inner = tmp_path / "out", tmp_path / "out" / "short"

    def write(output: Path, fresh: bool) -> list[Any]:
        stages = [ParquetReader(str(place / "in")), ParquetWriter(str(output))]
        return Pipeline("p", stages=stages).run(InProcessExecutor(), fresh=fresh, **MEMORY)

    write(outer, fresh=False)
    before = [task.data for task in write(inner, fresh=False)]
    assert run_dir_path(inner) == tmp_path / "out.tamis" / "short.tamis"
    write(outer, fresh=True)
    assert [task.data for task in write(inner, fresh=False)] == before
    assert left(inner) == [f"d{i}" for i in range(10)]


def identification(kind: str, place: Path, output: Path) -> Any:
    if kind == "exact":
        return ExactDeduplicationWorkflow(str(output), str(place / "in"))
    return FuzzyDeduplicationWorkflow(str(output / "cache"), str(output), str(place / "in"))


def table_of_ids(kind: str, place: Path, output: Path) -> list[int]:
    """Return the ids that an identification wrote, run once more."""
    identification(kind, place, output).run([], InProcessExecutor(), **MEMORY)
    return sorted(pd.read_parquet(output / f"{kind.capitalize()}DuplicateIds")[CURATOR_DEDUP_ID_STR])


def test_foreign_ids_are_neither_removed_nor_read(place: Path, tmp_path: Path) -> None:
    workflow = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(place / "in"))
    workflow.run([], InProcessExecutor(), **MEMORY)
    mine = tmp_path / "found" / "ExactDuplicateIds" / "mine.parquet"
    pd.DataFrame({CURATOR_DEDUP_ID_STR: [1]}).to_parquet(mine)
    for settings in ({"fresh": True}, {}):
        with pytest.raises(RunConflict, match=r"mine\.parquet was not written by Tamis.*move it to another folder"):
            workflow.run([], InProcessExecutor(), **settings, **MEMORY)
    mine.rename(tmp_path / "mine.parquet")
    assert workflow.run([], InProcessExecutor(), **MEMORY).n_duplicates == 3


def test_shards_have_no_ids_until_they_are_joined(place: Path, tmp_path: Path) -> None:
    workflow = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(place / "in"))
    for part in ("0/2", "1/2"):
        assert workflow.run([], InProcessExecutor(), shard=part, **MEMORY).pipeline_tasks == {}
    joined = workflow.run([], InProcessExecutor(), merge=True, **MEMORY)
    assert (joined.n_duplicates, len(joined.pipeline_tasks["identification"])) == (3, 1)
    assert len(pd.read_parquet(tmp_path / "found" / "ExactDuplicateIds")) == 3


def test_fuzzy_in_two_steps(place: Path, tmp_path: Path) -> None:
    workflow = FuzzyDeduplicationWorkflow(
        str(tmp_path / "cache"),
        str(tmp_path / "fuzzy"),
        str(place / "in"),
        char_ngrams=24,
        num_bands=20,
        minhashes_per_band=13,
        env_vars={"SOME_VARIABLE": "1"},
    )
    result = workflow.run(executor=InProcessExecutor(), **MEMORY)
    assert result.get_metadata("num_duplicates") == 4
    ids = pd.read_parquet(tmp_path / "fuzzy" / "FuzzyDuplicateIds")[CURATOR_DEDUP_ID_STR]
    assert len(ids) == 4
    removal = TextDuplicatesRemovalWorkflow(
        str(place / "in"),
        str(tmp_path / "fuzzy" / "FuzzyDuplicateIds"),
        str(tmp_path / "out"),
        duplicate_id_field=CURATOR_DEDUP_ID_STR,
        id_generator_path=str(tmp_path / "fuzzy" / "fuzzy_id_generator.json"),
        output_filetype="jsonl",
    )
    removal.run(executor=InProcessExecutor(), **MEMORY)
    lines = [json.loads(line) for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert len(lines) == 6


def test_initial_tasks_and_removal_in_one_call(place: Path, tmp_path: Path) -> None:
    tasks = [
        FileGroupTask("d", [str(place / "in" / "0.parquet")]),
        FileGroupTask("d", [str(place / "in" / "1.parquet")]),
    ]
    result = ExactDeduplicationWorkflow(output_path=str(tmp_path / "out"), perform_removal=True).run(
        tasks, InProcessExecutor(), **MEMORY
    )
    assert result.n_duplicates == 3
    assert left(tmp_path / "out") == ["d0", "d1", "d2", "d4", "d6", "d8", "d9"]


def test_nothing_found_and_nothing_removed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    how = {"input_filetype": "jsonl"}
    found = ExactDeduplicationWorkflow(str(tmp_path / "found"), str(tmp_path / "in"), **how).run(
        executor=InProcessExecutor(), **MEMORY
    )
    assert found.n_duplicates == 0
    removal = TextDuplicatesRemovalWorkflow(
        str(tmp_path / "in"),
        str(tmp_path / "found" / "ExactDuplicateIds"),
        str(tmp_path / "out"),
        output_filetype="jsonl",
        id_generator_path=found.get_metadata("id_generator_path"),
        **how,
    ).run(executor=InProcessExecutor(), **MEMORY)
    assert (removal.n_documents, removal.n_duplicates) == (2, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExactDeduplicationWorkflow("o", "i", id_field="x"), "id_field goes with assign_id=False"),
        (lambda: ExactDeduplicationWorkflow("o", "i", assign_id=False), "assign_id=False needs id_field"),
        (
            lambda: ExactDeduplicationWorkflow("s3://b/o", "i"),
            "ids of duplicates are written to a folder of this machine",
        ),
        (
            lambda: ExactDeduplicationWorkflow("o", "i", write_kwargs={"storage_options": {"key": "k"}}),
            "write_kwargs has",
        ),
        (
            lambda: ExactDeduplicationWorkflow("o", "i", read_kwargs={"storage_options": {"key": "k"}}),
            "key is a credential",
        ),
        (lambda: FuzzyDeduplicationWorkflow(input_path="i"), "output_path must name a folder"),
        (
            lambda: TextDuplicatesRemovalWorkflow("i", "d", "o", id_generator_path="nowhere.json"),
            "no id generator can be read",
        ),
        (lambda: ExactDeduplicationWorkflow("o", "i").run([1]), "must be FileGroupTask, got int"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_paths_that_are_none_are_refused_by_the_name_of_their_parameter() -> None:
    with pytest.raises(UsageError, match=r"^output_path: expected a path or a list of paths, got None$"):
        ExactDeduplicationWorkflow(output_path=None, input_path="in")  # type: ignore[arg-type]
    found = ExactDeduplicationWorkflow("out", {Path("/b"), Path("/a")})
    assert found.input_path == ["/a", "/b"]


def test_parameters_for_gpus_are_accepted_and_reported() -> None:
    with pytest.warns(UserWarning, match="DeduplicationWorkflow: ") as first:
        ExactDeduplicationWorkflow("o", "i", rmm_pool_size="2GB", total_nparts=7, identification_batchsize=4)
    with pytest.warns(UserWarning, match="DeduplicationWorkflow: ") as second:
        FuzzyDeduplicationWorkflow("c", "o", "i", lsh_spill_memory_limit=5, use_async_memory=False)
    lines = [str(w.message) for w in (*first, *second)]
    assert [line.split(" ")[1] for line in lines] == [
        "rmm_pool_size",
        "total_nparts",
        "identification_batchsize",
        "use_async_memory",
        "lsh_spill_memory_limit",
    ]
    assert "memory=... bounds this run" in lines[0]


def test_the_generator_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b", "a"):
        (tmp_path / "in" / f"{name}.jsonl").write_text('{"text": "x"}\n{"text": "yy"}\n')
    path = str(tmp_path / "state.json")

    def ids(**how: bool) -> list[int]:
        found = Pipeline("p", stages=[JsonlReader(str(tmp_path / "in"), **how)]).run(InProcessExecutor())
        return [i for b in found for i in b.data[CURATOR_DEDUP_ID_STR]]

    with pytest.raises(UsageError, match="begin one with create_id_generator_actor"):
        get_id_generator_actor()
    with pytest.raises(UsageError, match="_assign_ids takes ids from a generator"):
        ids(_assign_ids=True)
    create_id_generator_actor()
    try:
        assert ids(_generate_ids=True) == [0, 14, 1 << 40, (1 << 40) + 14]
        write_id_generator_to_disk(path)
        with pytest.raises(UsageError, match="there is an id generator already"):
            create_id_generator_actor()
    finally:
        kill_id_generator_actor()
    (tmp_path / "in" / "0.jsonl").write_text('{"text": "new"}\n')
    create_id_generator_actor(path)
    try:
        with pytest.raises(UsageError, match=r"0.jsonl has no ids"):
            ids(_assign_ids=True)
        assert ids(_generate_ids=True) == [2 << 40, 0, 14, 1 << 40, (1 << 40) + 14]
    finally:
        kill_id_generator_actor()


def test_ranges_of_ids(tmp_path: Path) -> None:
    generator = IdGenerator()
    assert (generator.register_batch(["a", "b"], 10), generator.register_batch("c", 5)) == (0, 10)
    assert generator.register_batch(["a", "b"], 10) == 0
    generator.to_disk(str(tmp_path / "g.json"))
    again = IdGenerator.from_disk(str(tmp_path / "g.json"))
    assert (again.get_batch_range("c"), again.get_batch_range(key=again.hash_files(["a", "b"]))) == ((10, 14), (0, 9))
    assert again.next_id == 15
    with pytest.raises(KeyError):
        again.get_batch_range("d")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(FormatError, match="no id generator"):
        IdGenerator.from_disk(str(tmp_path / "bad.json"))
