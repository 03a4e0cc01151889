"""Removing documents by a table of ids: what goes, what is refused, and the table on disk against a Python set."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis import files
from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.dedup.alarms import alarms
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.ids.procedure import RemovalByIds
from tamis.dedup.ids.stages import IdHashes, TextDuplicatesRemovalStage, _is_same, _renumbered, id_texts
from tamis.dedup.ids.table import IdTable, build, check_ids
from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow
from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow
from tamis.dedup.nemo_compat.id_generator import of_files
from tamis.dedup.records import Records
from tamis.dedup.state import Summary
from tamis.errors import Incomplete, RunConflict, UsageError
from tamis.tasks import DocumentBatch
from tests.support.command import tamis
from tests.support.made_documents import read, write
from tests.support.run_dirs import run_dir_path


def ids_file(path: Path, ids: list[Any], field: str = "id") -> Path:
    path.write_text("".join(json.dumps({field: i}) + "\n" for i in ids))
    return path


def run(source: Path, ids: Path, target: Path, executor: Any = None, **parameters: Any) -> Any:
    given = {"input_filetype": None, "id_field": None, "output_filetype": None, **parameters}
    workflow = TextDuplicatesRemovalWorkflow(str(source), str(ids), str(target), **given)
    return workflow.remove(executor if executor is not None else InProcessExecutor(), memory="512MB")


def test_the_result_of_finding_alone_removes_what_removal_in_one_call_removes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"id": i, "text": f"text {i % 70}"} for i in range(200)], n_files=3)
    found = RemoveExactDuplicates(str(tmp_path / "found"), str(source), perform_removal=False)
    found.run(InProcessExecutor(), memory="512MB")
    at_once = RemoveExactDuplicates(str(tmp_path / "once"), str(source), max_source_loss=1)
    at_once.run(InProcessExecutor(), memory="512MB")
    result = run(source, run_dir_path(tmp_path / "found") / "duplicates", tmp_path / "out", LocalExecutor())
    assert read(tmp_path / "out") == read(tmp_path / "once")
    assert (result.n_documents, result.n_duplicates, result.summary["n_ids"]) == (200, 130, 130)
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()
    again = run(source, run_dir_path(tmp_path / "found") / "duplicates", tmp_path / "out")
    assert (again.status, again.n_duplicates) == ("already", 130)


@pytest.mark.parametrize(
    "listed", [[3, 5, 700], ["3", "5", "5", None], [3.0, 5.0, None]], ids=["numbers", "texts", "floats"]
)
def test_ids_of_the_documents_own_are_texts_or_numbers(tmp_path: Path, listed: list[Any]) -> None:
    docs = [{"name": i, "text": "x"} for i in range(8)] + [{"text": "no id"}, {"name": None, "text": "null id"}]
    source = write(tmp_path / "in", docs, n_files=1)
    result = run(source, ids_file(tmp_path / "ids.jsonl", listed), tmp_path / "out", id_field="name")
    assert [d.get("name") for d in read(tmp_path / "out")] == [0, 1, 2, 4, 6, 7, None, None]
    assert result.n_duplicates == 2


def test_parquet_in_and_out_with_another_field_and_fewer_fields(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"key": ["a", "b", "c", "é"], "text": ["1", "2", "3", "4"], "more": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"gone": pa.array(["é", "b"]).dictionary_encode()}), tmp_path / "ids.parquet")
    run(
        tmp_path / "in",
        tmp_path / "ids.parquet",
        tmp_path / "out",
        id_field="key",
        duplicate_id_field="gone",
        output_fields=["key", "text"],
        drop_id_field=True,
    )
    assert pq.read_table(next((tmp_path / "out").glob("*.parquet"))).to_pylist() == [{"text": "1"}, {"text": "3"}]
    run(
        tmp_path / "in",
        tmp_path / "ids.parquet",
        tmp_path / "lines",
        id_field="key",
        duplicate_id_field="gone",
        output_filetype="jsonl",
    )
    assert [d["key"] for d in read(tmp_path / "lines")] == ["a", "c"]


def test_ids_by_place_that_name_no_document_are_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"text": "a"}, {"text": "b"}], n_files=1)
    with pytest.raises(Incomplete, match=r"1 of 2 ids in .* name no document"):
        run(source, ids_file(tmp_path / "ids.jsonl", ["000000_0", "000000_3"]), tmp_path / "out")


def test_ids_that_all_name_no_document_are_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"name": "a", "text": "a"}], n_files=1)
    with pytest.raises(Incomplete, match=r"none of the 1 ids .* all 1 were written"):
        run(source, ids_file(tmp_path / "ids.jsonl", ["x"]), tmp_path / "out", id_field="name")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "doc-1"}], "id is not an id by file and position"),
        ([{"id": "000002_0"}], "its file is not the one with this number"),
        ([{"id": "000001_0", "path": "/elsewhere/0.jsonl"}], "its file is not the one with this number"),
        ([{"id": [1]}], "id is neither text nor a number"),
        ([{"key": "000000_0"}], r"reads the field 'id', which no document has; they have \['key'\]"),
    ],
)
def test_tables_that_cannot_mean_this_input(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    source = write(tmp_path / "in", [{"text": "a"}, {"text": "b"}])
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UsageError, match=message):
        run(source, tmp_path / "ids.jsonl", tmp_path / "out")
    assert list((tmp_path / "out").glob("*.jsonl")) == []
    ids_file(tmp_path / "ids.jsonl", ["000001_0"])
    assert run(source, tmp_path / "ids.jsonl", tmp_path / "out").n_duplicates == 1


def test_a_table_with_damaged_records_removes_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"text": str(i)} for i in range(300)], n_files=1)
    ids = ids_file(tmp_path / "ids.jsonl", [f"000000_{15 * i}" for i in range(9)])
    with open(ids, "a") as file:
        file.write('{"id": "0000\n')
    with pytest.raises(Incomplete, match="1 records of"):
        run(source, ids, tmp_path / "out")
    assert list((tmp_path / "out").glob("*.jsonl")) == []


def test_input_that_changed_after_the_ids_were_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", [{"text": "a"}, {"text": "b"}], n_files=1)
    ids = ids_file(tmp_path / "ids.jsonl", ["000000_0"])

    def interrupted(self: Any, workflow: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RemovalByIds, "remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(source, ids, tmp_path / "out")
    with open(source / "0.jsonl", "a") as file:
        file.write('{"text": "late"}\n')
    with pytest.raises(RunConflict, match="the input changed after it was compared"):
        run(source, ids, tmp_path / "out")
    assert run(source, ids, tmp_path / "out", output_mode="overwrite").n_duplicates == 1


def folders(place: Path) -> dict[str, Any]:
    """de/part-0, en/part-0 and fr/part-1, three documents each; the parameters of a removal by their numbers."""
    paths = []
    for folder, name in (("de", "0"), ("en", "0"), ("fr", "1")):
        (place / "data" / folder).mkdir(parents=True)
        paths.append(str(place / "data" / folder / f"part-{name}.parquet"))
        pq.write_table(pa.table({"doc": [f"{folder}{i}" for i in range(3)]}), paths[-1])
    of_files(paths).to_disk(str(place / "numbers.json"))
    return {"duplicate_id_field": "number", "id_generator_path": str(place / "numbers.json")}


def numbers_file(path: Path, numbers: list[int | None], kind: pa.DataType | None = None) -> Path:
    pq.write_table(pa.table({"number": pa.array(numbers, kind or pa.int64())}), path)
    return path


def test_a_part_of_the_input_loses_its_own_duplicates_and_not_those_of_files_of_the_same_name(tmp_path: Path) -> None:
    how = folders(tmp_path)
    ids = numbers_file(tmp_path / "ids.parquet", [1, (1 << 40) + 2, 2 << 40])
    result = run(tmp_path / "data" / "de", ids, tmp_path / "out", **how)
    assert pq.read_table(tmp_path / "out").column("doc").to_pylist() == ["de0", "de2"]
    assert (result.n_duplicates, result.summary["n_ids"]) == (1, 1)


def test_files_that_moved_are_known_by_their_names_only_where_each_is_there_once(tmp_path: Path) -> None:
    how = folders(tmp_path)
    (tmp_path / "moved").mkdir()
    os.rename(tmp_path / "data" / "de" / "part-0.parquet", tmp_path / "moved" / "part-0.parquet")
    with pytest.raises(UsageError, match="the ids belong to other input files"):
        run(tmp_path / "moved", numbers_file(tmp_path / "ids.parquet", [1]), tmp_path / "out", **how)
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_rows_of_files_that_the_input_leaves_out_are_no_mistake(tmp_path: Path) -> None:
    found = records(tmp_path / "r.arrow", [1, 2], [1, 2], length=[-5, -5])
    assert check_ids(found, "id", ["ids.parquet"]) == 0


@pytest.mark.parametrize("kind", [pa.uint64(), pa.int32(), pa.uint8()], ids=str)
def test_numbers_of_documents_of_any_kind(tmp_path: Path, kind: pa.DataType) -> None:
    how = folders(tmp_path)
    (tmp_path / "paths.json").write_text(json.dumps([str(tmp_path / "data" / "de" / "part-0.parquet")]))
    stage = IdHashes("number", str(tmp_path / "paths.json"), how["id_generator_path"])
    stage.setup()
    assert stage._place_texts(pa.array([1, None, 2], kind)).to_pylist() == ["000000_1", None, "000000_2"]
    # One file is there, number 0: what is left out is of number 2, and what was never an id of number 1.
    above = pa.array([1 << 40, (1 << 64) - 1], pa.uint64())
    assert stage._place_texts(above).to_pylist() == ["000002_0", f"000001_{(1 << 40) - 1}"]


def test_which_file_of_now_each_file_of_then_is(tmp_path: Path) -> None:
    assert _renumbered(["/a/0", "/a/1"], ["/a/1", "/a/0"]).tolist() == [1, 0]
    assert _renumbered(["/a/0", "/b/0"], ["/b/0"]).tolist() == [-2, 0]  # a part: the other file is left out
    assert _renumbered(["/a/0", "/a/1"], ["/a/0", "/c/1"]).tolist() == [0, -1]  # no part of it
    assert _renumbered(["/a/0", "/a/1"], ["/b/0", "/b/1"]).tolist() == [0, 1]  # moved
    assert _renumbered(["/a/0", "/b/0"], ["/c/0"]).tolist() == [-1, -1]
    assert _renumbered(["/a/0"], ["/b/0", "/c/0"]).tolist() == [-1]
    then, now = (
        write(tmp_path / "then", [{"text": "a"}], n_files=1),
        write(tmp_path / "now", [{"text": "bc"}], n_files=1),
    )
    assert _renumbered([f"{then}/0.jsonl"], [f"{now}/0.jsonl"]).tolist() == [-1]  # nothing moved: another file


def test_the_table_of_duplicates_of_another_folder_with_files_of_the_same_names_is_refused(tmp_path: Path) -> None:
    folders(tmp_path)
    told = str(tmp_path / "data" / "de" / "part-0.parquet")
    (tmp_path / "ids.jsonl").write_text(json.dumps({"id": "000000_1", "path": told}) + "\n")
    pq.write_table(pa.table({"doc": ["a longer one"] * 3}), tmp_path / "data" / "en" / "part-0.parquet")
    with pytest.raises(UsageError, match="the ids belong to other input files"):
        run(tmp_path / "data" / "en", tmp_path / "ids.jsonl", tmp_path / "out")


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        (["/a/de/0", "/a/en/0"], ["/b/de/0", "/b/en/0"], [True, True]),
        (["/a/de/0", "/a/en/0"], ["/a/de/0", "/a/fr/0"], [True, False]),
        (["/a/de/0", "/a/en/1"], ["/b/0", "/b/1"], [True, True]),
        (["/a/en/0", "/a/de/0"], ["/b/de/0", "/b/en/0"], [False, False]),
        (["/a/0"], ["/a/1"], [False]),
        (["/a/0"], ["/b/10"], [False]),
    ],
)
def test_paths_of_a_table_mean_files_of_the_input_by_each_path_alone(
    then: list[str], now: list[str], expected: list[bool]
) -> None:
    backwards = sorted(path[::-1] for path in now)
    assert [_is_same(a, b, backwards) for a, b in zip(then, now, strict=True)] == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"id_generator_path": "ids.json"}, "no id generator can be read there"),
        ({"drop_id_field": True, "id_field": None}, "there is no field to drop"),
        ({"input_kwargs": {"lines": 1, "x": 1}}, "unknown input_kwargs"),
        ({"duplicate_id_read_kwargs": {"x": 1}}, "unknown duplicate_id_read_kwargs"),
        ({"duplicate_id_read_kwargs": {"compression": "gz"}}, "duplicate_id_read_kwargs: .*compression"),
        ({"output_filetype": "csv"}, "output_filetype must be"),
        ({"output_mode": "anew"}, "output_mode must be"),
        ({"id_field": 7}, "id_field=.*expected the name of a field"),
        ({"id_field": "id", "input_fields": ["text"]}, "input_fields must hold id_field"),
    ],
)
def test_mistakes(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    source = write(tmp_path / "in", [{"text": "a"}])
    with pytest.raises(UsageError, match=message):
        TextDuplicatesRemovalWorkflow(str(source), "ids.jsonl", str(tmp_path / "out"), **parameters)


def test_an_empty_folder_of_ids_removes_nothing_and_does_the_rest_as_ever(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"name": "a", "text": "1"}, {"name": "b", "text": "2"}], n_files=1)
    (tmp_path / "none").mkdir()
    how: dict[str, Any] = {"input_filetype": "jsonl", "output_filetype": "jsonl", "id_field": "name"}
    told: list[dict[str, Any]] = []
    for more in ({}, {"drop_id_field": True, "output_mode": "overwrite"}):
        workflow = TextDuplicatesRemovalWorkflow(
            str(source), str(tmp_path / "none"), str(tmp_path / "out"), **how, **more
        )
        result = workflow.run(None, InProcessExecutor(), progress=told.append, memory="512MB")
        assert (result.n_documents, result.n_duplicates, result.summary["n_ids"]) == (2, 0, 0)
    assert read(tmp_path / "out") == [{"text": "1"}, {"text": "2"}]
    assert {state["pass_label"] for state in told} == {"removal"}
    stage = TextDuplicatesRemovalStage(str(tmp_path / "none"), "name")
    stage.setup()
    batch = DocumentBatch("d", pa.table({"name": ["a", "b"]}))
    assert stage._is_listed(batch).tolist() == [False, False]
    command = [
        "dedup",
        "remove",
        str(source),
        str(tmp_path / "none"),
        str(tmp_path / "other"),
        "--memory",
        "512MB",
        "--json",
    ]
    assert json.loads(tamis(*command).stdout)["n_documents"] == 2


def test_ids_that_several_documents_have_are_reported() -> None:
    def counted(n_removed: int, **listed: int) -> Any:
        ledger = SimpleNamespace(
            stages=[SimpleNamespace(dropped={"x": SimpleNamespace(n=n_removed)})], written=SimpleNamespace(n=7)
        )
        request: Any = SimpleNamespace(ids_name="ids", own_field="name")
        removed: Any = SimpleNamespace(ledger=ledger)
        workflow: Any = SimpleNamespace(output=SimpleNamespace(path="out"))
        return RemovalByIds(request, is_empty=False).check_counts(workflow, cast("Summary", listed), removed)

    assert counted(3, n_ids=3, n_rows=4, n_rows_without_id=1) == {"n_documents": 10, "n_duplicates": 3}
    assert counted(3, n_ids=2, n_rows=3, n_rows_without_id=0) == {
        "n_documents": 10,
        "n_duplicates": 3,
    }  # two rows, one id
    found = counted(5, n_ids=3, n_rows=3, n_rows_without_id=0)
    assert found["n_by_shared_ids"] == 2
    assert alarms(found)[0].startswith("2 more documents were removed than ids are listed")


def test_ids_in_the_output_itself_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"text": "a"}])
    with pytest.raises(UsageError, match="lies in the output"):
        TextDuplicatesRemovalWorkflow(
            str(source), str(run_dir_path(tmp_path / "o") / "duplicates"), str(tmp_path / "o")
        )


def test_the_command(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"name": i, "text": "x"} for i in range(5)], n_files=1)
    ids = ids_file(tmp_path / "ids.jsonl", [1, 3], "gone")
    options = ["--id-field", "name", "--ids-field", "gone", "--drop-id-field", "--memory", "512MB", "--quiet"]
    command = ["dedup", "remove", str(source), str(ids), str(tmp_path / "out"), *options]
    told = tamis(*command)
    assert told.exit_code == 0, told.output
    assert ["ids", "listed", "2"] in [line.split() for line in told.output.splitlines()]
    assert read(tmp_path / "out") == [{"text": "x"}] * 3
    assert "2 of 5 documents are duplicates" in tamis(*command).output


def test_ids_as_texts() -> None:
    assert id_texts(pa.array([1.0, -2.0, 2.5, None, float("nan"), 1e300])).to_pylist() == [
        "1",
        "-2",
        "2.5",
        None,
        None,
        "1e+300",
    ]
    assert id_texts(pa.array([7, None])).to_pylist() == ["7", None]
    assert id_texts(pa.nulls(2)).to_pylist() == [None, None]
    assert id_texts(pa.array([True])) is None


def records(path: Path, hi: list[int], lo: list[int], length: list[int] | None = None) -> Records:
    """Write a record file of one batch, as the stage does."""
    order = np.argsort(np.array(hi, np.uint64), kind="stable")
    n = len(hi)
    batch = pa.record_batch(
        {
            "file": pa.array(np.zeros(n, np.int32)),
            "offset": pa.array(np.arange(n)),
            "lo": pa.array(np.array(lo, np.uint64)),
            "length": pa.array(np.array(length or [1] * n)),
            "key_0": pa.array(np.array(hi, np.uint64)[order]),
            "row_0": pa.array(order.astype(np.uint32)),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Records([str(path)])


U64 = st.one_of(st.integers(0, (1 << 64) - 1), st.sampled_from([0, 1, (1 << 63), (1 << 64) - 1]))


@given(
    listed=st.lists(st.tuples(U64, st.integers(0, 3)), max_size=60),
    asked=st.lists(st.tuples(U64, st.integers(0, 3)), max_size=30),
    room=st.sampled_from([500, 1 << 20]),
)
def test_the_table_answers_like_a_set(
    tmp_path_factory: pytest.TempPathFactory, listed: list[tuple[int, int]], asked: list[tuple[int, int]], room: int
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    n = (
        build(records(folder / "r.arrow", *(list(c) for c in zip(*listed, strict=True))), str(folder / "t"), room)
        if listed
        else 0
    )
    assert n == len(set(listed))
    if listed:
        table = IdTable(str(folder / "t"))
        every = [*asked, *listed[::3]]
        hi, lo = (np.array([e[k] for e in every], np.uint64) for k in range(2))
        assert table.lists(hi, lo).tolist() == [e in set(listed) for e in every]
        table.close()


def test_many_ids_are_read_a_bucket_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    hi, lo = rng.integers(0, 1 << 64, (2, 200_000), dtype=np.uint64)
    assert build(records(tmp_path / "r.arrow", hi.tolist(), lo.tolist()), str(tmp_path / "t"), 1 << 20) == 200_000
    table = IdTable(str(tmp_path / "t"))
    sizes = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, views, at: sizes.append(len(views[0])) or preadv(f, views, at))
    assert table.lists(hi[:8], lo[:8]).all()
    assert not table.lists(hi[:8], lo[:8] + np.uint64(1)).any()
    assert sum(sizes) < 16 * 16 * 700
    assert table.lists(hi, lo).all()
    assert max(sizes) <= 16 << 16
    assert os.path.getsize(tmp_path / "t" / "ids.bin") == 16 * 200_000
    table.close()


def test_what_is_done_as_a_whole_is_not_done_by_shards(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": "1", "text": "a"}\n')
    removal = TextDuplicatesRemovalWorkflow(
        str(tmp_path / "in"), str(tmp_path / "in"), str(tmp_path / "out"), None, id_field="id", output_filetype=None
    )
    (tmp_path / "none").mkdir()
    nothing = TextDuplicatesRemovalWorkflow(
        str(tmp_path / "in"), str(tmp_path / "none"), str(tmp_path / "out"), None, id_field="id", output_filetype=None
    )
    for settings in ({"shard": "0/2"}, {"merge": True}):
        for each in (removal, nothing):
            with pytest.raises(UsageError, match="removal of listed duplicates is done as a whole and not by shards"):
                each.remove(InProcessExecutor(), **settings)
        with pytest.raises(UsageError, match="join is done as a whole and not by shards"):
            DocumentJoinWorkflow(str(tmp_path / "in"), str(tmp_path / "out")).run(InProcessExecutor(), **settings)
    assert not (tmp_path / "out").exists()


def test_a_sample_is_refused_also_where_no_duplicates_were_found(tmp_path: Path) -> None:
    for name in ("in", "ids"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": "1", "text": "a"}\n')
    removal = TextDuplicatesRemovalWorkflow(
        str(tmp_path / "in"), str(tmp_path / "ids"), str(tmp_path / "out"), None, id_field="id", output_filetype=None
    )
    with pytest.raises(UsageError, match="sample is for runs of one pass, and this takes several; leave it out"):
        removal.run(executor=InProcessExecutor(), sample="10%")
    with pytest.raises(UsageError, match="this takes several; join what a run with --sample wrote"):
        DocumentJoinWorkflow(str(tmp_path / "in"), str(tmp_path / "out")).run(InProcessExecutor(), sample=0.1)


def test_a_folder_of_ids_that_was_empty_is_another_removal(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"name": "a"}, {"name": "b"}], n_files=1)
    (tmp_path / "ids").mkdir()
    (run_dir_path(tmp_path / "out")).mkdir(parents=True)
    busy = files.locked(run_dir_path(tmp_path / "out") / "dedup.lock", "busy")
    with busy, pytest.raises(RunConflict, match="another deduplication is writing"):
        run(source, tmp_path / "ids", tmp_path / "out", id_field="name")
    run(source, tmp_path / "ids", tmp_path / "out", id_field="name")
    assert run(source, tmp_path / "ids", tmp_path / "out", id_field="name").status == "already"
    ids_file(tmp_path / "ids" / "a.jsonl", ["a"])
    with pytest.raises(RunConflict, match="already contains another deduplication: ids_files was None"):
        run(source, tmp_path / "ids", tmp_path / "out", id_field="name")


def test_a_longer_list_of_ids_is_another_removal(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"name": "a"}, {"name": "b"}, {"name": "c"}], n_files=1)
    ids = ids_file(tmp_path / "ids.jsonl", ["a"])
    run(source, ids, tmp_path / "out", id_field="name")
    assert run(source, ids, tmp_path / "out", id_field="name").status == "already"
    ids_file(ids, ["a", "b"])
    with pytest.raises(RunConflict, match=r"already contains another deduplication: ids_files was .*ids\.jsonl"):
        run(source, ids, tmp_path / "out", id_field="name")
