"""Exact deduplication, end to end: the survivors are those of a Python set, whatever the settings."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.dedup.exact.stages import DocumentHashes
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.keys import numbers_of
from tamis.dedup.solver_launcher import SolverLauncher
from tamis.engine.run.output import directory
from tamis.engine.worker import read as reading
from tamis.errors import ConservationError, Incomplete, RunConflict, UsageError
from tests.support.run_dirs import run_dir_path


def documents(n: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(["alpha", "beta", "gamma", "δέλτα", "漢字"], k=rng.randint(1, 6))) for _ in range(n)]
    return [{"id": f"d{i}", "text": t, "score": rng.random()} for i, t in enumerate(texts)]


def write(folder: Path, docs: list[dict[str, Any]], n_files: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(n_files):
        lines = [json.dumps(d, ensure_ascii=False) for d in docs[k::n_files]]
        (folder / f"{k}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for p in sorted(folder.glob("*.jsonl")) for line in p.read_text().splitlines()]


def run(source: Path, target: Path, executor: Any = None, **parameters: Any) -> Any:
    parameters.setdefault("max_source_loss", 1)
    workflow = RemoveExactDuplicates(str(target), str(source), **parameters)
    return workflow.run(executor if executor is not None else InProcessExecutor(), memory="512MB")


def test_what_stays_is_what_a_set_keeps(tmp_path: Path) -> None:
    docs = documents(500)
    source = write(tmp_path / "in", docs)
    first: dict[str, str] = {}
    for d in read(source):
        first.setdefault(d["text"], d["id"])
    result = run(source, tmp_path / "out")
    assert [d["id"] for d in read(tmp_path / "out")] == list(first.values())
    assert (result.n_documents, result.n_duplicates) == (500, 500 - len(first))
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()


def test_long_records_are_copied_unread_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first pass told of all records of a file, the last one takes them from there.

    The output is the same.
    """
    docs = [{**d, "rest": "x" * 2000} for d in documents(400)]
    source = write(tmp_path / "in", docs, n_files=4)
    paths = sorted(source.iterdir())
    paths[1].write_bytes(paths[1].read_bytes().replace(b"\n", b"\r\n"))
    paths[2].write_bytes(paths[2].read_bytes().replace(b"\n", b"\n\n", 7))
    (source / "4.jsonl.gz").write_bytes(gzip.compress(paths[3].read_bytes()))
    paths[3].write_bytes(paths[3].read_bytes().rstrip(b"\n"))
    taken: list[tuple[str, bool]] = []
    take = reading._from_index

    def watched(pieces: Any, limits: Any, contents: Any) -> bool:
        done = take(pieces, limits, contents)
        if limits.record_index is not None:
            taken.extend((Path(piece.path).name, done) for piece in pieces)
        return done

    monkeypatch.setattr(reading, "_from_index", watched)
    first: dict[str, str] = {}
    for path in sorted(source.iterdir()):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in text.splitlines():
            if line:
                first.setdefault(json.loads(line)["text"], json.loads(line)["id"])
    result = run(source, tmp_path / "out", input_blocksize="250KB")
    assert [d["id"] for d in read(tmp_path / "out")] == list(first.values())
    assert result.n_duplicates == 500 - len(first)
    assert dict(taken) == {f"{i}.jsonl": i == 0 for i in range(4)} | {"4.jsonl.gz": False}


def test_every_duplicate_names_the_one_that_stays(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(60), n_files=2)
    run(source, tmp_path / "out")
    table = pq.read_table(run_dir_path(tmp_path / "out") / "duplicates").to_pylist()
    by_place = {}
    for k in range(2):
        offset = 0
        for line in (source / f"{k}.jsonl").read_bytes().splitlines(keepends=True):
            by_place[f"{k:06d}_{offset}"] = json.loads(line)
            offset += len(line)
    kept = {d["id"] for d in read(tmp_path / "out")}
    sizes: dict[str, int] = {}
    for d in by_place.values():
        sizes[d["text"]] = sizes.get(d["text"], 0) + 1
    assert len(table) == 60 - len(kept)
    for row in table:
        gone, stays = by_place[row["id"]], by_place[row["kept_id"]]
        assert gone["text"] == stays["text"]
        assert gone["id"] not in kept
        assert stays["id"] in kept
        assert row["group_size"] == sizes[gone["text"]]
        assert row["similarity"] == 1.0
        assert row["path"] == str(source / f"{int(row['id'][:6])}.jsonl")


@pytest.mark.parametrize(("keep", "expected"), [("first", ["a", "d"]), ("longest", ["b", "d"]), ("best", ["c", "d"])])
def test_which_one_stays(tmp_path: Path, keep: str, expected: list[str]) -> None:
    docs = [
        {"id": "a", "text": "same", "score": 1},
        {"id": "b", "text": "same  ", "score": None},
        {"id": "c", "text": "same", "score": 7.5},
        {"id": "d", "text": "other", "score": -1},
    ]
    source = write(tmp_path / "in", docs, n_files=1)
    run(source, tmp_path / "out", keep=keep, keep_by="score" if keep == "best" else None, normalize_text=True)
    assert [d["id"] for d in read(tmp_path / "out")] == expected


def test_what_is_no_number_comes_last_whatever_is_next_to_it(tmp_path: Path) -> None:
    """One text among numbers makes texts of its neighbours in a block: that must not change what they are worth."""
    odd = ["n/a", None, True, [1], {"a": 1}, "", "1_0", "0x9", "Infinity"]
    docs = [{"id": i, "text": "same", "score": v} for i, v in enumerate([*odd, 3, 12, "11.5", -4e2])]
    docs += [{"id": 100 + i, "text": "other", "score": v} for i, v in enumerate(odd)] + [{"id": 200, "text": "other"}]
    found = []
    for name, n_files in (("a", 1), ("b", len(docs))):
        result = run(
            write(tmp_path / name, docs, n_files=n_files), tmp_path / f"out-{name}", keep="best", keep_by="score"
        )
        assert (result.n_duplicates, result.summary["n_without_number"]) == (len(docs) - 2, 2 * len(odd) + 1)
        found.append([d["id"] for d in read(tmp_path / f"out-{name}")])
    assert found == [[10, 100], [10, 100]]
    assert run(tmp_path / "b", tmp_path / "out-b", keep="best", keep_by="score").status == "already"


def test_numbers_of_columns() -> None:
    for values, expected in (
        (pa.array([1, None, -2]), [1.0, None, -2.0]),
        (pa.array([1.5, float("nan"), float("inf")]), [1.5, None, float("inf")]),
        (
            pa.array(["1", "-2.5e1", " 3", "nan", None, "1e999"]).dictionary_encode(),
            [1.0, -25.0, None, None, None, float("inf")],
        ),
        (pa.array([True, False]), [None, None]),
        (pa.array([[1], [2]]), [None, None]),
        (pa.nulls(2), [None, None]),
    ):
        assert [None if v != v else v for v in numbers_of(values).tolist()] == expected


def test_a_document_that_only_one_pass_could_read_is_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = documents(30)
    source = write(tmp_path / "in", docs)
    real = DocumentHashes.process

    def process(self: Any, batch: Any) -> Any:
        if docs[7]["id"] in batch.column("id").to_pylist():
            raise ValueError("not this one")
        return real(self, batch)

    monkeypatch.setattr(DocumentHashes, "process", process)
    workflow = RemoveExactDuplicates(str(tmp_path / "out"), str(source), max_source_loss=1)
    result = workflow.run(InProcessExecutor(), memory="512MB", fail_fast=False)
    assert (result.status, result.summary["n_not_compared"], result.n_documents) == ("finished", 1, 29)
    assert docs[7]["id"] in [d["id"] for d in read(tmp_path / "out")]


@pytest.mark.parametrize(
    ("mode", "n_left"), [("none", 6), ("strip", 5), ("nfc", 5), ("casefold", 3), ("alphanumeric", 2)]
)
def test_what_equal_means(tmp_path: Path, mode: str, n_left: int) -> None:
    texts = ["Café au lait", " Café au lait ", "Cafe\u0301 au lait", "CAFÉ\nAU  LAIT", "caféaulait!", "tea"]
    expected = {"nfc": {0, 1, 3, 4, 5}, "casefold": {0, 4, 5}}
    source = write(tmp_path / "in", [{"id": i, "text": t} for i, t in enumerate(texts)], n_files=1)
    run(source, tmp_path / "out", normalize_text=mode)
    left = {d["id"] for d in read(tmp_path / "out")}
    assert len(left) == n_left
    assert left == expected.get(mode, left)


def test_documents_without_text_are_no_duplicates_and_empty_ones_are(tmp_path: Path) -> None:
    docs = [{"id": 0}, {"id": 1, "text": None}, {"id": 2, "text": ""}, {"id": 3, "text": ""}, {"id": 4, "text": 7}]
    source = write(tmp_path / "in", docs, n_files=1)
    result = run(source, tmp_path / "out")
    assert [d["id"] for d in read(tmp_path / "out")] == [0, 1, 2, 4]
    assert result.summary["n_without_text"] == 3


def test_compressed_and_parquet_input(tmp_path: Path) -> None:
    docs = documents(80)
    (tmp_path / "gz").mkdir()
    with gzip.open(tmp_path / "gz" / "a.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(d) + "\n" for d in docs)
    (tmp_path / "pq").mkdir()
    pq.write_table(pa.Table.from_pylist(docs), tmp_path / "pq" / "a.parquet")
    run(tmp_path / "gz", tmp_path / "gz-out")
    run(tmp_path / "pq", tmp_path / "pq-out")
    seen: dict[str, str] = {}
    for d in docs:
        seen.setdefault(d["text"], d["id"])
    with gzip.open(next((tmp_path / "gz-out").glob("*.jsonl.gz")), "rt") as lines:
        assert [json.loads(line)["id"] for line in lines] == list(seen.values())
    assert pq.read_table(next((tmp_path / "pq-out").glob("*.parquet")))["id"].to_pylist() == list(seen.values())


def test_only_files_of_the_named_type_are_read(tmp_path: Path) -> None:
    docs = documents(60)
    source = write(tmp_path / "in", docs, n_files=1)
    pq.write_table(pa.table({"text": [d["text"] for d in docs]}), source / "more.parquet")
    (source / "other.txt").write_text((source / "0.jsonl").read_text())
    unique = len({d["text"] for d in docs})
    assert run(source, tmp_path / "both").n_documents == 120
    assert run(source, tmp_path / "jsonl", input_filetype="jsonl").n_documents == 60
    assert len(read(tmp_path / "jsonl")) == unique
    assert run(source, tmp_path / "parquet", input_filetype="parquet").n_documents == 60
    assert pq.read_table(sorted((tmp_path / "parquet").glob("*.parquet"))).num_rows == unique
    assert run(source, tmp_path / "txt", input_file_extensions=[".txt"]).n_documents == 60
    plan = RemoveExactDuplicates(str(tmp_path / "p"), str(source), input_file_extensions=[".txt"]).plan("512MB")
    assert plan.n_files == 1


def test_same_survivors_for_workers_and_budgets(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3000), n_files=4)
    contents = set()
    for k, (workers, memory) in enumerate([(1, "320MB"), (2, "1GB")]):
        workflow = RemoveExactDuplicates(
            str(tmp_path / str(k)), str(source), max_source_loss=1, input_blocksize=("16KB" if k else None)
        )
        result = workflow.run(LocalExecutor(), memory=memory, workers=workers)
        contents.add(f"{result.run.ledger.content.identity:032x}")
    assert len(contents) == 1


def test_a_source_that_would_vanish_stops_the_run_before_removal(tmp_path: Path) -> None:
    docs = [{"id": i, "text": f"text {i}"} for i in range(150)]
    write(tmp_path / "in" / "a", docs, n_files=1)
    write(tmp_path / "in" / "b", [*docs, {"id": 150, "text": "new"}], n_files=1)
    with pytest.raises(Incomplete, match=r"nothing was removed: 1 of 2 sources .*b: 99\.3% of 151"):
        run(tmp_path / "in", tmp_path / "out", max_source_loss=0.95)
    assert list((tmp_path / "out").glob("*.jsonl")) == []
    run(tmp_path / "in", tmp_path / "out", max_source_loss="100%")
    assert len(read(tmp_path / "out")) == 151


def test_finding_alone_writes_the_table_and_no_documents(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(40))
    result = run(source, tmp_path / "out", perform_removal=False)
    assert result.n_duplicates == pq.read_table(result.duplicates).num_rows > 0
    assert list((tmp_path / "out").glob("*.jsonl")) == []


def test_the_same_again_does_nothing_and_another_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(40))
    n = run(source, tmp_path / "out").n_duplicates
    again = run(source, tmp_path / "out")
    assert (again.status, again.n_duplicates) == ("already", n)
    with pytest.raises(RunConflict, match="normalize_text was 'none' and is 'strip' now"):
        run(source, tmp_path / "out", normalize_text="strip")
    other = RemoveExactDuplicates(str(tmp_path / "out"), str(source), normalize_text="strip", max_source_loss=1)
    assert other.run(InProcessExecutor(), memory="512MB", fresh=True).status == "finished"


class Killed(BaseException):
    """Stands for kill -9: nobody tidies up."""


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pass_that_was_not_synced_is_repeated_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Records between passes do not wait for the disk; what the machine may have lost is made again."""
    docs = documents(200)
    source, synced = write(tmp_path / "in", docs), []
    fsync, records = os.fsync, run_dir_path(tmp_path / "out") / "dedup" / "keys-0"

    def noting(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    with monkeypatch.context() as patch:
        patch.setattr(SolverLauncher, "solve", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(source, tmp_path / "out")
    written = {path: path.stat().st_ino for path in records.glob("*.arrow")}
    assert written
    assert not [path for path in synced if "keys-0" in path and path.endswith(".out")]
    for path in written if restarts else ():
        path.write_bytes(bytes(path.stat().st_size))  # as a file system may leave what was not on the disk yet
    if restarts:
        monkeypatch.setattr(directory, "_boot_id", lambda: "another")
    assert run(source, tmp_path / "out").n_documents == 200
    texts = [d["text"] for d in read(tmp_path / "out")]
    assert sorted(texts) == sorted({d["text"] for d in docs})


def test_fresh_that_is_killed_while_it_removes_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file was to be removed next, the next call without --fresh does all passes and writes everything."""
    source = write(tmp_path / "in", [{"text": f"text {i // 2}"} for i in range(20)], n_files=1)
    workflow = RemoveExactDuplicates(str(tmp_path / "out"), str(source), max_source_loss=1)
    assert run(source, tmp_path / "out").status == "finished"
    unlink = os.unlink
    for next_to_go in ("dedup.json", "part-", "run.sqlite", "commit.log", "forgetting"):

        def killed(path: Any, *rest: Any, next_to_go: str = next_to_go, **more: Any) -> None:
            if os.path.basename(path).startswith(next_to_go):
                raise Killed
            unlink(path, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", killed)
            with pytest.raises(Killed):
                workflow.run(InProcessExecutor(), memory="512MB", fresh=True)
        again = run(source, tmp_path / "out")
        assert (again.status, again.n_duplicates, len(read(tmp_path / "out"))) == ("finished", 10, 10), next_to_go


def test_input_that_changed_after_it_was_compared_is_not_touched(tmp_path: Path) -> None:
    docs = [{"id": i, "text": f"text {i % 150}"} for i in range(300)]
    source = write(tmp_path / "in", docs, n_files=2)
    with pytest.raises(Incomplete):
        run(source, tmp_path / "out", max_source_loss=0.3)
    with open(source / "0.jsonl", "a") as file:
        file.write('{"id": 9, "text": "late"}\n')
    with pytest.raises(RunConflict, match="the input changed after it was compared"):
        run(source, tmp_path / "out", max_source_loss=1)


def test_damaged_records_are_in_quarantine_whatever_was_compared(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(300))
    with open(sorted(source.iterdir())[0], "ab") as file:
        file.write(b'{"text": broken}\n{"text":"a"}\n{"text":"a"}\n')
    result = run(source, tmp_path / "out")
    assert result.run.ledger.quarantined.n == 1
    assert sum(d["text"] == "a" for d in read(tmp_path / "out")) == 1


def test_a_removal_that_does_not_remove_what_was_found_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(900), n_files=1)
    with pytest.raises(Incomplete, match="nothing was removed"):
        run(source, tmp_path / "out", max_source_loss=0.01)
    table = run_dir_path(tmp_path / "out") / "dedup" / "removal" / "starts.npy"
    np.save(table, np.zeros_like(np.load(table)))  # a table that lists nothing
    with pytest.raises(ConservationError, match=r"900 documents were read to be compared .* removed 0; do not use"):
        run(source, tmp_path / "out")


def test_a_scratch_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(900), n_files=1)
    scratch = tmp_path / "scratch"

    def attempt(max_source_loss: float) -> Any:
        workflow = RemoveExactDuplicates(str(tmp_path / "out"), str(source), max_source_loss=max_source_loss)
        return workflow.run(InProcessExecutor(), memory="512MB", scratch=str(scratch))

    with pytest.raises(Incomplete):
        attempt(0.01)
    (folder,) = scratch.glob("tamis-dedup-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(RunConflict, match=r"can be written by others \(mode 0777\).*give another --scratch"):
        attempt(1)
    folder.chmod(0o700)
    folder.rename(scratch / "elsewhere")
    folder.symlink_to(scratch / "elsewhere")
    with pytest.raises(RunConflict, match=r"is a link.*give another --scratch"):
        attempt(1)
    folder.unlink()
    (scratch / "elsewhere").rename(folder)
    assert attempt(1).status == "finished"


def test_an_output_with_other_data_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    with pytest.raises(RunConflict, match="holds data that Tamis did not write"):
        run(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"normalize_text": "lower"}, "normalize_text must be"),
        ({"keep": "last"}, "keep must be one of first, longest, best"),
        ({"keep": "best"}, "keep='best' goes with keep_by"),
        ({"max_source_loss": 2}, "max_source_loss"),
        ({"id_field": "id"}, "id_field goes with assign_id=False"),
        ({"output_filetype": "csv"}, "output_filetype must be"),
        ({"input_filetype": "csv"}, "input_filetype must be"),
    ],
)
def test_mistakes(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(write(tmp_path / "in", documents(3)), tmp_path / "out", **parameters)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sample": "10%"}, "sample is for runs of one pass, .*with --sample wrote"),
        ({"progressive": True}, "progressive is for runs of one pass"),
        ({"on_infeasible": "sample"}, "on_infeasible is for runs of one pass"),
        ({"mode": "batch"}, "mode is for runs of one pass, and this takes several; leave it out"),
        ({"run_dir": "elsewhere"}, "run_dir is for recipes without a writer"),
        ({"shard": "0/2", "merge": True}, "not both"),
    ],
)
def test_what_is_for_runs_of_one_pass_is_refused(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(9))
    with pytest.raises(UsageError, match=words):
        RemoveExactDuplicates(str(tmp_path / "out"), str(source)).run(InProcessExecutor(), **given)
    assert not (tmp_path / "out").exists()


def test_rejected_documents_are_kept_where_some_are_removed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(60))
    settings: dict[str, Any] = {"keep_rejected": True, "mode": "streaming", "on_infeasible": "stop", "progress": False}
    made = RemoveExactDuplicates(str(tmp_path / "out"), str(source), max_source_loss=1)
    result = made.run(InProcessExecutor(), **settings)
    assert len(read(run_dir_path(tmp_path / "out") / "rejected")) == result.n_duplicates > 0
    found = RemoveExactDuplicates(str(tmp_path / "found"), str(source), perform_removal=False)
    with pytest.raises(UsageError, match="keep_rejected: duplicates are only found here"):
        found.run(InProcessExecutor(), **settings)


def test_a_pass_that_stops_says_what_it_did_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n' + "{broken\n" * 200)
    workflow = RemoveExactDuplicates(str(tmp_path / "out"), str(tmp_path / "in"))
    with pytest.raises(
        Incomplete, match=r"^reading documents, making keys: 200 of 201.*\n.*--quarantine-limit.*--fresh"
    ):
        workflow.run(InProcessExecutor(), memory="512MB")
    assert workflow.run(InProcessExecutor(), memory="512MB", quarantine_limit=1).n_documents == 1
