"""Deduplication against an index: old documents stay without being read, new ones that equal or resemble them go."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.dedup.index.index import read_index, refuse_existing, run_name
from tamis.dedup.index.joint_records import _best, with_new
from tamis.errors import FormatError, RunConflict, TamisError, UsageError
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.made_documents import edited, jaccard, read, text, write
from tests.support.run_dirs import run_dir_path


def ids(folder: Path) -> set[Any]:
    return {d["id"] for d in read(folder)}


def run(kind: Any, source: Path, target: Path, fresh: bool = False, **parameters: Any) -> Any:
    parameters = {k: str(v) if isinstance(v, Path) else v for k, v in parameters.items()}
    workflow = kind(output_path=str(target), input_path=str(source), max_source_loss=1, **parameters)
    return workflow.run(InProcessExecutor(), memory="512MB", fresh=fresh)


def exact(source: Path, target: Path, **parameters: Any) -> Any:
    return run(RemoveExactDuplicates, source, target, **parameters)


def fuzzy(source: Path, target: Path, **parameters: Any) -> Any:
    return run(RemoveFuzzyDuplicates, source, target, **parameters)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a fuzzy index of eight documents, for tests that copy it."""
    folder = tmp_path_factory.mktemp("made")
    fuzzy(write(folder / "old", families(0, 8)), folder / "out", index_path=folder / "index")
    return folder / "index"


def test_new_documents_that_equal_an_indexed_one_go(tmp_path: Path) -> None:
    old = [{"id": f"o{i}", "text": f"text {i % 20}"} for i in range(40)] + [{"id": "none"}]
    new = [{"id": f"n{i}", "text": f"text {i % 30}"} for i in range(60)] + [{"id": "none"}]
    source = write(tmp_path / "old", old)
    first = exact(source, tmp_path / "out1", index_path=tmp_path / "index")
    assert (first.n_duplicates, read_index(str(tmp_path / "index")).entries[0].n_documents) == (20, 20)
    shutil.rmtree(source)  # the old texts are not needed
    result = exact(write(tmp_path / "new", new), tmp_path / "out2", against=tmp_path / "index")
    assert ids(tmp_path / "out2") == {f"n{i}" for i in range(20, 30)} | {"none"}
    assert (result.n_documents, result.n_duplicates, result.summary["n_duplicates_of_indexed"]) == (61, 50, 40)
    assert result.summary["n_indexed"] == 20
    rows = pq.read_table(result.duplicates).to_pylist()
    of_old = [r for r in rows if r["kept_path"].startswith(str(tmp_path / "old"))]
    assert len(of_old) == 40
    # Document n0 is the first of its file; its text is that of o0, the first of the old file 0.
    (row,) = [r for r in rows if r["id"] == "000000_0"]
    assert (row["kept_id"], row["kept_path"]) == ("000000_0", str(tmp_path / "old" / "0.jsonl"))
    (row,) = [r for r in rows if r["id"] == "000001_0"]
    assert (row["kept_id"], row["kept_path"]) == ("000001_0", str(tmp_path / "old" / "1.jsonl"))
    assert not (run_dir_path(tmp_path / "out2") / "dedup").exists()


def test_one_after_the_other_keeps_what_all_at_once_keeps(tmp_path: Path) -> None:
    rng = random.Random(4)
    docs = [{"id": i, "text": f"text {rng.randrange(80)}"} for i in range(300)]
    left: set[Any] = set()
    for k in range(3):
        how: dict[str, Any] = {"against": tmp_path / "i", "append": True} if k else {"index_path": tmp_path / "i"}
        exact(write(tmp_path / f"in{k}", docs[100 * k : 100 * k + 100]), tmp_path / f"out{k}", **how)
        left |= ids(tmp_path / f"out{k}")
    seen: dict[str, int] = {}
    for k in range(3):
        for d in [*docs[100 * k : 100 * k + 100 : 2], *docs[100 * k + 1 : 100 * k + 100 : 2]]:
            seen.setdefault(d["text"], d["id"])
    assert left == set(seen.values())
    assert sum(e.n_documents for e in read_index(str(tmp_path / "i")).entries) == len(seen)


def test_an_indexed_document_stays_even_if_a_new_one_is_better(tmp_path: Path) -> None:
    exact(
        write(tmp_path / "a", [{"id": 1, "text": "same", "score": 1}]),
        tmp_path / "o1",
        index_path=tmp_path / "i",
        normalize_text=True,
        keep="best",
        keep_by="score",
    )
    new = [{"id": 2, "text": "SAME", "score": 9}, {"id": 3, "text": "other"}, {"id": 4, "text": "other", "score": 2}]
    exact(
        write(tmp_path / "b", new, n_files=1),
        tmp_path / "o2",
        against=tmp_path / "i",
        normalize_text=True,
        keep="best",
        keep_by="score",
    )
    assert ids(tmp_path / "o2") == {4}  # one without a number is worse than any other


def test_similar_new_documents_of_which_one_has_no_number(tmp_path: Path, made: Path) -> None:
    new = [{"id": "none", "text": text(99)}, {"id": "some", "text": edited(text(99), 2), "score": 2}]
    fuzzy(write(tmp_path / "b", new), tmp_path / "o2", against=made, keep="best", keep_by="score")
    assert ids(tmp_path / "o2") == {"some"}


@pytest.mark.parametrize("way", ["verified", "by bands alone", "exact"])
def test_no_new_document_at_all(tmp_path: Path, made: Path, way: str) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "0.jsonl").touch()
    if way == "exact":
        exact(
            write(tmp_path / "a", [{"id": 1, "text": "same"}, {"id": 2, "text": "same"}]),
            tmp_path / "o1",
            index_path=tmp_path / "i",
            perform_removal=False,
        )
        result = exact(tmp_path / "b", tmp_path / "o2", against=tmp_path / "i")
    else:
        result = fuzzy(tmp_path / "b", tmp_path / "o2", against=made, threshold=0.7 if way == "verified" else None)
    assert (result.n_documents, result.n_duplicates) == (0, 0)


def families(first: int, n: int) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "text": text(i)} for i in range(first, first + n)]


def test_new_documents_that_resemble_an_indexed_one_go(tmp_path: Path) -> None:
    source = write(tmp_path / "old", families(0, 30))
    fuzzy(source, tmp_path / "out1", index_path=tmp_path / "index")
    shutil.move(source, tmp_path / "moved")
    new = [{"id": f"near{i}", "text": edited(text(i), 2) + " and longer"} for i in range(10)]  # about 0.95 alike
    new += [{"id": f"equal{i}", "text": text(i)} for i in range(5, 12)]
    new += [{"id": f"far{i}", "text": edited(text(i), 60)} for i in range(12, 20)]  # about 0.35 alike
    new += [{"id": f"own{i}", "text": edited(text(1000 + i), i % 2)} for i in range(10)]
    new += [{"id": f"twin{i}", "text": text(1000 + i) + " a little longer"} for i in range(10)]
    result = fuzzy(write(tmp_path / "new", new), tmp_path / "out2", against=tmp_path / "index")
    assert ids(tmp_path / "out2") == {f"far{i}" for i in range(12, 20)} | {f"twin{i}" for i in range(10)}
    assert result.summary["n_duplicates_of_indexed"] == 17
    texts = {}
    for folder, k in ((tmp_path / "moved", 0), (tmp_path / "moved", 1), (tmp_path / "new", 0), (tmp_path / "new", 1)):
        offset, name = 0, "old" if folder.name == "moved" else "new"
        for line in (folder / f"{k}.jsonl").read_bytes().splitlines(keepends=True):
            texts[str(tmp_path / name / f"{k}.jsonl"), f"{k:06d}_{offset}"] = json.loads(line)["text"]
            offset += len(line)
    for row in pq.read_table(result.duplicates).to_pylist():
        true = jaccard(texts[row["path"], row["id"]], texts[row["kept_path"], row["kept_id"]])
        exactly = row["kept_path"].startswith(str(tmp_path / "new"))
        assert row["similarity"] == pytest.approx(true, abs=1e-6 if exactly else 0.1)


@pytest.mark.parametrize("parameters", [{"bands_per_iteration": 7}, {"threshold": None}])
def test_other_ways_against_an_index_find_the_same(tmp_path: Path, made: Path, parameters: dict[str, Any]) -> None:
    new = [{"id": f"near{i}", "text": edited(text(i), 1)} for i in range(8)] + families(100, 5)
    fuzzy(write(tmp_path / "new", new), tmp_path / "out2", against=made, **parameters)
    assert ids(tmp_path / "out2") == {f"a{i}" for i in range(100, 105)}


def test_tamis_why_shows_the_indexed_document(tmp_path: Path) -> None:
    fuzzy(write(tmp_path / "old", families(0, 3), 1), tmp_path / "out1", index_path=tmp_path / "index")
    fuzzy(
        write(tmp_path / "new", [{"id": "n", "text": edited(text(0), 1)}], 1),
        tmp_path / "out2",
        against=tmp_path / "index",
    )
    told = CliRunner().invoke(app, ["why", str(tmp_path / "out2"), "n"]).output
    assert f"  kept:      {tmp_path / 'old' / '0.jsonl'}, offset 0" in told.splitlines()
    assert "+ changed" in told.splitlines()


def test_the_command(tmp_path: Path) -> None:
    old = write(tmp_path / "old", [{"id": i, "text": f"text {i}"} for i in range(5)])
    new = write(tmp_path / "new", [{"id": i, "text": f"text {i}"} for i in range(3, 9)])
    common = ["--memory", "512MB", "--quiet", "--json", "--max-source-loss", "100%"]
    first = ["dedup", "exact", str(old), str(tmp_path / "o1"), "--index", str(tmp_path / "i"), *common]
    assert json.loads(tamis(*first).stdout)["n_duplicates"] == 0
    then = ["dedup", "exact", str(new), str(tmp_path / "o2"), "--against", str(tmp_path / "i"), "--append", *common]
    told = json.loads(tamis(*then).stdout)
    assert (told["n_indexed"], told["n_documents"], told["n_duplicates_of_indexed"]) == (5, 6, 2)
    assert ids(tmp_path / "o2") == {5, 6, 7, 8}
    assert [e.n_documents for e in read_index(str(tmp_path / "i")).entries] == [5, 4]


def test_a_source_can_be_listed_and_removed(tmp_path: Path) -> None:
    docs = [{"id": i, "text": f"text {i}"} for i in range(30)]
    write(tmp_path / "in" / "x", docs[:10])
    write(tmp_path / "in" / "y", docs[10:30])
    index = tmp_path / "index"
    exact(tmp_path / "in", tmp_path / "out", index_path=index)
    told = json.loads(CliRunner().invoke(app, ["dedup", "index-list", str(index), "--json"]).stdout)
    assert told["sources"] == [
        {"path": str(tmp_path / "in" / "x"), "n_documents": 10},
        {"path": str(tmp_path / "in" / "y"), "n_documents": 20},
    ]
    assert "30 documents in" in CliRunner().invoke(app, ["dedup", "index-list", str(index)]).output
    gone = CliRunner().invoke(app, ["dedup", "index-remove", str(index), str(tmp_path / "in" / "x")])
    assert gone.output.startswith("10 documents of ")
    again = CliRunner().invoke(app, ["dedup", "index-remove", str(index), str(tmp_path / "in" / "x")])
    assert again.exit_code == 2
    new = write(tmp_path / "new", docs)
    exact(new, tmp_path / "out2", against=index)
    assert ids(tmp_path / "out2") == set(range(10))
    CliRunner().invoke(app, ["dedup", "index-remove", str(index), str(tmp_path / "in")])
    assert read_index(str(index)).entries == []
    assert [p.name for p in index.iterdir() if p.is_dir()] == []


def test_entries_of_outputs_and_inputs_in_a_bucket_do_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, output = tmp_path / "index", "s3://corpus/clean"
    exact(write(tmp_path / "in", [{"id": 1, "text": "a"}]), tmp_path / "out", index_path=index)
    about = json.loads((index / "index.json").read_text())
    local_name = about["entries"][0]["name"]
    name = f"{run_name(output)}-{local_name.rpartition('-')[2]}"
    about["entries"][0] |= {"output": output, "name": name}
    (index / "index.json").write_text(json.dumps(about))
    (index / local_name).rename(index / name)
    (index / name / "paths.json").write_text('["s3://corpus/in/0.jsonl", "s3://corpus/in/1.jsonl"]')
    (entry,) = read_index(str(index)).entries
    outputs = (output, "s3://corpus/other", str(tmp_path / "out"))
    assert [entry.is_of(name) for name in outputs] == [True, False, False]
    monkeypatch.chdir(tmp_path)
    assert run_name(output + "/") == entry.run
    assert run_name("out") == local_name.rpartition("-")[0]
    refuse_existing(str(index), output)
    told = json.loads(CliRunner().invoke(app, ["dedup", "index-remove", str(index), "s3://corpus/in", "--json"]).stdout)
    assert (told["source"], told["n_removed"]) == ("s3://corpus/in", 1)


def test_a_removed_source_of_a_fuzzy_index_is_no_longer_met(tmp_path: Path) -> None:
    write(tmp_path / "in" / "x", families(0, 6))
    write(tmp_path / "in" / "y", families(10, 6))
    fuzzy(tmp_path / "in", tmp_path / "out", index_path=tmp_path / "index")
    told = CliRunner().invoke(app, ["dedup", "index-remove", str(tmp_path / "index"), str(tmp_path / "in" / "x")])
    assert told.exit_code == 0, told.output
    new = [{"id": i, "text": edited(text(i), 1)} for i in (0, 3, 10, 15)]
    fuzzy(write(tmp_path / "new", new), tmp_path / "out2", against=tmp_path / "index")
    assert ids(tmp_path / "out2") == {0, 3}


def test_a_run_done_anew_replaces_its_entry_and_is_not_compared_with_itself(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [{"id": 1, "text": "one"}])
    exact(first, tmp_path / "o1", index_path=tmp_path / "i")
    second = write(tmp_path / "b", [{"id": 2, "text": "two"}])
    exact(second, tmp_path / "o2", against=tmp_path / "i", append=True)
    exact(second, tmp_path / "o2", against=tmp_path / "i", append=True, fresh=True)
    assert ids(tmp_path / "o2") == {2}
    index = read_index(str(tmp_path / "i"))
    assert [e.n_documents for e in index.entries] == [1, 1]
    assert len([p for p in (tmp_path / "i").iterdir() if p.is_dir()]) == 2


def test_a_run_that_was_killed_after_it_added_its_documents_adds_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tamis.dedup.workflow import Workflow

    source = write(tmp_path / "a", [{"id": 1, "text": "one"}, {"id": 2, "text": "one"}])
    add = Workflow._append_to_index

    def interrupted(self: Any) -> None:
        add(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Workflow, "_append_to_index", interrupted)
        with pytest.raises(KeyboardInterrupt):
            exact(source, tmp_path / "out", index_path=tmp_path / "i")
    (tmp_path / "i" / "entry-0123456789abcdef-1").mkdir()  # what a kill leaves behind
    exact(source, tmp_path / "out", index_path=tmp_path / "i")
    assert [e.n_documents for e in read_index(str(tmp_path / "i")).entries] == [1]
    assert len([p for p in (tmp_path / "i").iterdir() if p.is_dir()]) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seed": 7}, r"made with seed=42, this run has 7"),
        ({"char_ngrams": 20}, r"made with n=24, this run has 20"),
        ({"num_bands": 10}, r"made with bands=20, this run has 10"),
        ({"normalize_text": True}, r"made with normalize_text='none', this run has 'casefold'"),
    ],
)
def test_keys_made_otherwise_are_not_compared(
    tmp_path: Path, made: Path, parameters: dict[str, Any], message: str
) -> None:
    source = write(tmp_path / "in", families(0, 2))
    with pytest.raises(UsageError, match=message):
        fuzzy(source, tmp_path / "out2", against=made, **parameters)
    with pytest.raises(UsageError, match="is an index of fuzzy deduplication, this is exact"):
        exact(source, tmp_path / "out3", against=made)


def test_mistakes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"id": 1, "text": "one"}])
    with pytest.raises(UsageError, match="append adds to the index that `against` names"):
        exact(source, tmp_path / "o", append=True)
    with pytest.raises(UsageError, match="not both"):
        exact(source, tmp_path / "o", append=True, against="a", index_path="b")
    with pytest.raises(UsageError, match="against: an index is a folder of this machine, got s3://corpus/kept"):
        exact(source, tmp_path / "o", against="s3://corpus/kept")
    with pytest.raises(UsageError, match="give append=True"):
        exact(source, tmp_path / "o", against="a", index_path="a")
    with pytest.raises(UsageError, match="an index holds all bands"):
        fuzzy(source, tmp_path / "o", index_path="a", bands_per_iteration=5)
    with pytest.raises(UsageError, match="holds no index"):
        exact(source, tmp_path / "o", against=tmp_path / "nothing")
    exact(source, tmp_path / "o1", index_path=tmp_path / "i")
    with pytest.raises(UsageError, match="holds an index already"):
        exact(source, tmp_path / "o2", index_path=tmp_path / "i")
    with pytest.raises(UsageError, match="holds other data"):
        exact(source, tmp_path / "o3", index_path=tmp_path / "in")


def test_an_index_that_changes_while_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.dedup.solver_launcher import SolverLauncher

    first = write(tmp_path / "a", [{"id": 1, "text": "one"}, {"id": 0, "text": "zero"}])
    exact(first, tmp_path / "o1", index_path=tmp_path / "i")
    second = write(tmp_path / "b", [{"id": 2, "text": "one"}, {"id": 3, "text": "three"}])

    def interrupted(self: Any, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SolverLauncher, "solve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            exact(second, tmp_path / "o2", against=tmp_path / "i")
    CliRunner().invoke(app, ["dedup", "index-remove", str(tmp_path / "i"), str(tmp_path / "a" / "0.jsonl")])
    with pytest.raises(RunConflict, match="changed or is damaged"):
        exact(second, tmp_path / "o2", against=tmp_path / "i")
    assert exact(second, tmp_path / "o2", against=tmp_path / "i", fresh=True).n_duplicates == 0


def test_data_of_others_in_the_output_is_refused_without_advice_to_append(tmp_path: Path) -> None:
    source = write(tmp_path / "a", [{"id": 1, "text": "one"}])
    write(tmp_path / "out", [{"id": 2}])
    with pytest.raises(RunConflict, match=r"did not write .*; give an empty folder$"):
        exact(source, tmp_path / "out")


def test_an_index_that_has_grown_since_a_run_ended(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [{"id": 1, "text": "one"}])
    exact(first, tmp_path / "o1", index_path=tmp_path / "i")
    second = write(tmp_path / "b", [{"id": 2, "text": "two"}, {"id": 3, "text": "three"}])
    exact(second, tmp_path / "o2", against=tmp_path / "i")
    assert exact(second, tmp_path / "o2", against=tmp_path / "i").status == "already"
    third = write(tmp_path / "c", [{"id": 4, "text": "two"}])
    exact(third, tmp_path / "o3", against=tmp_path / "i", append=True)
    with pytest.raises(RunConflict, match=r"the index .* has other entries now \(2, and had 1\)"):
        exact(second, tmp_path / "o2", against=tmp_path / "i")
    exact(second, tmp_path / "o2", against=tmp_path / "i", fresh=True)
    assert ids(tmp_path / "o2") == {3}
    fourth = write(tmp_path / "d", [{"id": 5, "text": "five"}])
    exact(fourth, tmp_path / "o4", against=tmp_path / "i", append=True)
    again = exact(third, tmp_path / "o3", against=tmp_path / "i", append=True)
    assert again.status == "already"  # later runs were compared with this one


def test_a_run_resumed_with_other_memory_decides_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.dedup.solver_launcher import SolverLauncher
    from tamis.dedup.solver_task import CompareCandidates

    docs = families(0, 6) + [{"id": f"n{i}", "text": edited(text(i), 1)} for i in range(6)]
    source = write(tmp_path / "in", docs)
    with gzip.open(
        source / "z.jsonl.gz", "wt"
    ) as file:  # not plain: the texts take a pass, and the decision comes after it
        file.write(json.dumps({"id": "z", "text": "alone"}) + "\n")
    workflow = RemoveFuzzyDuplicates(None, str(tmp_path / "out"), str(source), max_source_loss=1)
    whole = SolverLauncher.solve

    def interrupted(self: Any, steps: list[Any], records: list[str], label: str) -> None:
        if any(isinstance(step, CompareCandidates) for step in steps):
            raise KeyboardInterrupt
        whole(self, steps, records, label)

    with monkeypatch.context() as patched:
        patched.setattr(SolverLauncher, "solve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workflow.run(InProcessExecutor(), memory="512MB")
    work = run_dir_path(tmp_path / "out") / "dedup"
    (work / "equal" / "00001.bin").write_bytes(b"cut for other memory")
    assert (work / "linked-0.json").exists()
    result = workflow.run(InProcessExecutor(), memory="1GB")
    assert (result.n_duplicates, len(ids(tmp_path / "out"))) == (6, 7)
    assert not work.exists()


def damaged(index: Path, change: Any) -> None:
    """Rewrite the records of the only entry."""
    (path,) = index.glob("entry-*/records.arrow")
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    table = change(table.combine_chunks())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    about = json.loads((index / "index.json").read_text())
    about["entries"][0]["n_bytes"] = path.stat().st_size
    (index / "index.json").write_text(json.dumps(about))


def replaced(name: str, values: Any) -> Any:
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values(len(table))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("row_1", lambda n: np.full(n, 1 << 31, np.uint32)), "belongs to no document"),
        (replaced("row_0", lambda n: np.full(n, 500, np.uint32)), "belongs to no document"),
        (replaced("file", lambda n: np.full(n, 99, np.int32)), "names no input file"),
        (replaced("file", lambda n: np.full(n, -1, np.int32)), "names no input file"),
        (replaced("key_3", lambda n: np.zeros(n, np.uint8)), "column key_3 is uint8, expected uint64"),
        (lambda t: t.drop_columns(["key_20"]), "lacks the column key_20"),
        (lambda t: t.drop_columns(["sig_31"]), "lacks the column sig_31"),
    ],
)
def test_a_damaged_index_is_an_error_and_nothing_worse(tmp_path: Path, made: Path, change: Any, message: str) -> None:
    shutil.copytree(made, tmp_path / "index")
    damaged(tmp_path / "index", change)
    new = write(tmp_path / "new", [{"id": i, "text": edited(text(i), 1)} for i in range(8)] + families(0, 3))
    with pytest.raises(TamisError, match=message):
        fuzzy(new, tmp_path / "out2", against=tmp_path / "index")
    assert list((tmp_path / "out2").glob("*.jsonl")) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2}',
        '{"version": 1, "kind": "exact", "parameters": {}, "sketch_version": 0, "entries": [{}]}',
        '{"version": 1, "kind": "exact", "parameters": {"bands": 1e9}, "sketch_version": 0, "entries": []}',
    ],
)
def test_an_index_json_that_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(UsageError):
        read_index(str(tmp_path))


def test_entries_cannot_lead_elsewhere(tmp_path: Path) -> None:
    entry = {"name": "../other", "input": "", "output": "", "n_documents": 0, "n_bytes": 0, "by_file": []}
    about = {"version": 1, "kind": "exact", "parameters": {}, "sketch_version": 0, "entries": [entry]}
    (tmp_path / "index.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match=r"entry '\.\./other'"):
        read_index(str(tmp_path))


def test_similarities_estimated_by_signatures() -> None:
    rng = np.random.default_rng(0)
    old = rng.integers(0, 256, (3, 256), np.uint8)
    new = old[[2, 0]].copy()
    new[1, :64] = rng.integers(0, 256, 64, np.uint8)
    best, which = _best(old, new)
    assert which.tolist() == [2, 0]
    assert best[0] == pytest.approx(1.0)
    assert best[1] == pytest.approx(0.75, abs=0.02)


def test_components_too_large_for_the_room_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.dedup.index import joint_records as joined

    rng = np.random.default_rng(0)
    families = rng.integers(0, 256, (7, 256), np.uint8)
    of = rng.integers(0, 7, 400)

    class Some:
        n_old = 100

        def gather(self, names: tuple[str, ...], numbers: Any) -> dict[str, Any]:
            assert (np.diff(numbers) > 0).all()
            words = families[of[numbers]].view(np.uint64)
            return {name: words[:, i] for i, name in enumerate(names)}

    monkeypatch.setattr(joined, "MAX_COMPARED", 40)
    # One component of all documents up to 350, and some of one old and one new document.
    pairs = np.array(
        sorted(
            [0 << 32 | n for n in [*range(60), *range(100, 350)]]
            + [(60 + k) << 32 | n for k in range(40) for n in (60 + k, 350 + k)]
        ),
        np.uint64,
    )
    left, (gone, kept, similarity), n_capped = joined.similar_to_indexed(pairs, Some(), 0.9, 600)  # type: ignore[arg-type]
    assert n_capped == 20
    assert (of[gone] == of[kept]).all()
    assert (similarity == 1).all()
    expected = [n for n in range(100, 350) if of[n] in of[:40]] + [
        350 + k for k in range(40) if of[350 + k] == of[60 + k]
    ]
    assert sorted(gone.tolist()) == expected
    assert [n for n in (left & np.uint64(0xFFFFFFFF)).tolist() if n in expected or n < 100 or n >= 350] == []


def test_components_without_new_documents_are_left_out() -> None:
    pairs = np.array(
        [1 << 32 | n for n in (1, 2)] + [3 << 32 | n for n in (3, 10)] + [4 << 32 | n for n in (4, 11, 12)], np.uint64
    )
    left, by_text = with_new(pairs, 10)
    assert (left & np.uint64(0xFFFFFFFF)).tolist() == [3, 10, 4, 11, 12]
    assert by_text.tolist() == [11, 12]
    assert with_new(pairs[:0], 10)[0].tolist() == []


def test_a_truncated_record_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [{"id": i, "text": f"text {i}"} for i in range(50)])
    exact(source, tmp_path / "o1", index_path=tmp_path / "i")
    (path,) = (tmp_path / "i").glob("entry-*/records.arrow")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunConflict, match="changed or is damaged"):
        exact(source, tmp_path / "o2", against=tmp_path / "i")
    path.write_bytes(bytes(len(whole)))
    with pytest.raises((FormatError, TamisError), match="not a record file"):
        exact(source, tmp_path / "o3", against=tmp_path / "i")
