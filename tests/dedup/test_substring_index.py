"""Substring deduplication against an index: the same passages go as if its texts were the first of the input."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, LocalExecutor
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.index.index import read_index
from tamis.dedup.substrings.normalization import compared
from tamis.dedup.substrings.table import passages_in
from tamis.errors import RunConflict, TamisError, UsageError
from tamis.stages.deduplication.substrings.workflow import SubstringDeduplicationWorkflow
from tests.dedup.test_substrings import documents, fibonacci, read, run, small_differences, write
from tests.reference.substring_twin import Spans, removed_by_suffix_array, removed_spans
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path


def as_compared(texts: Sequence[str], mode: str = "none") -> list[bytes]:
    data, starts, ends = compared(pa.array(texts, pa.large_string()), mode)
    return [bytes(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def spans_in(source: Path, target: Path) -> Spans:
    """Return the passages that a run over a folder found, by document."""
    found, spans = passages_in(str(target)), []
    for k, path in enumerate(sorted(source.glob("*.jsonl"))):
        offset = 0
        for line in path.read_bytes().splitlines(keepends=True):
            spans.append(found.get((k, offset), []))
            offset += len(line)
    return spans


def kept(target: Path) -> list[str]:
    """Return the texts that a run wrote, in the order of the input."""
    return [str(record["text"]) for record in read(target)]


@dataclass(frozen=True)
class Made:
    """An index of 60 documents, as an earlier run kept them; `expected`: what goes of 60 others."""

    index: Path
    kept: list[str]
    new: list[str]
    expected: Spans


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, texts = tmp_path_factory.mktemp("made"), documents(120, 4)
    run(write(folder / "in", texts[:60]), folder / "out", index_path=folder / "index")
    earlier = kept(folder / "out")
    expected = removed_spans(as_compared([*earlier, *texts[60:]]), 24)[len(earlier) :]
    return Made(folder / "index", earlier, texts[60:], expected)


# -- the same as a joint run ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seed", "keep"), [(0, "first"), (1, "none")])
def test_finds_what_a_joint_run_would_find(tmp_path: Path, seed: int, keep: str) -> None:
    """Of two runs whose texts are in the index, and one that is compared with them."""
    texts, index = documents(240, seed), str(tmp_path / "index")
    parts = [texts[:80], texts[80:150], texts[150:]]
    run(write(tmp_path / "in0", parts[0]), tmp_path / "out0", keep=keep, index_path=index)
    earlier = kept(tmp_path / "out0")
    for k in (1, 2):
        source, target = write(tmp_path / f"in{k}", parts[k]), tmp_path / f"out{k}"
        result = run(source, target, keep=keep, against=index, append=True)
        joint = as_compared([*earlier, *parts[k]])
        expected = removed_spans(joint, 24, keep)[len(earlier) :]
        assert spans_in(source, target) == expected
        assert removed_by_suffix_array(joint, 24, keep)[len(earlier) :] == expected
        assert result.summary["n_indexed"] == len(earlier)
        assert result.n_documents == len(parts[k])
        assert result.n_duplicates == sum(b - a for some in expected for a, b in some)
        earlier += kept(target)
    assert sum(entry.n_documents for entry in read_index(index).entries) == len(earlier)


def test_adversarial_texts(tmp_path: Path) -> None:
    """The index has texts that are repeated themselves: nothing was removed when they were added."""
    texts = ["a" * 3000, "b" * 40 + "a" * 900, "a" * 31, "ba" * 300, fibonacci(3000), "x" + fibonacci(500)[100:]]
    texts += ["abc" * 300, *small_differences(40), "漢" * 100, "é" * 99 + "x" + "漢" * 30]
    texts += ["a" * 300 + str(k) + "a" * 300 for k in range(3)]
    run(write(tmp_path / "old", texts), tmp_path / "o1", min_bytes=32, remove="nothing", index_path=tmp_path / "index")
    new = [*texts[::2], "new " + texts[1], *documents(20, 1)]
    source = write(tmp_path / "new", new)
    run(source, tmp_path / "o2", min_bytes=32, against=tmp_path / "index")
    expected = removed_by_suffix_array(as_compared([*texts, *new]), 32, "first")[len(texts) :]
    assert spans_in(source, tmp_path / "o2") == expected


def test_normalized_texts(tmp_path: Path) -> None:
    rnd, mode = random.Random(1), "case"
    texts = ["".join(rnd.choice([c, c.upper(), f"{c} ", f"{c}\n\t"]) for c in text) for text in documents(120, 7)]
    run(write(tmp_path / "old", texts[:60]), tmp_path / "o1", normalize_text=mode, index_path=tmp_path / "index")
    source = write(tmp_path / "new", texts[60:])
    run(source, tmp_path / "o2", normalize_text=mode, against=tmp_path / "index")
    earlier = kept(tmp_path / "o1")
    expected = removed_spans(as_compared([*earlier, *texts[60:]], mode), 24)[len(earlier) :]
    assert spans_in(source, tmp_path / "o2") == expected


def test_workers_budgets_and_little_room_change_nothing(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tamis.dedup import solver_launcher

    source = write(tmp_path / "new", made.new, 3)
    run(source, tmp_path / "two", LocalExecutor(), "1GB", against=made.index, input_blocksize="4KB")
    assert spans_in(source, tmp_path / "two") == made.expected
    monkeypatch.setattr(solver_launcher, "solver_room", lambda *_: 6_000)
    run(source, tmp_path / "small", against=made.index)
    assert spans_in(source, tmp_path / "small") == made.expected


# -- contents of an index ---------------------------------------------------------------------------------------------
def test_an_entry_has_the_texts_that_were_written(tmp_path: Path) -> None:
    passage = "a passage that is in two of these texts"
    texts = [f"1-{passage} two", f"three={passage}", passage]
    write(tmp_path / "in", texts, 1)
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 3, "text": "lone \\ud800"}\n{"id": 4, "text": null}\n')
    run(tmp_path / "in", tmp_path / "out", index_path=tmp_path / "index")
    (entry,) = (tmp_path / "index").glob("entry-*")
    rows = pq.read_table(entry / "texts.parquet")
    first = len((tmp_path / "in" / "0.jsonl").read_bytes().splitlines(keepends=True)[0])
    assert rows.to_pylist() == [
        {"file": 0, "offset": 0, "text": texts[0]},
        {"file": 0, "offset": first, "text": "three="},
        {"file": 1, "offset": 0, "text": "lone \ufffd"},
    ]
    assert read_index(str(tmp_path / "index")).entries[0].by_file == [2, 1]
    source = write(tmp_path / "new", ["x" + passage], 1)
    run(source, tmp_path / "o2", against=tmp_path / "index")
    assert spans_in(source, tmp_path / "o2") == [[(1, 1 + len(passage))]]


def test_what_stays_depends_on_what_is_removed(tmp_path: Path) -> None:
    remove = "document-above 50%"
    passage = "a passage that is in two of these texts"
    texts = [f"1-{passage} two", f"three={passage}"]
    run(write(tmp_path / "in", texts, 1), tmp_path / "out", index_path=tmp_path / "index", remove=remove)
    (entry,) = (tmp_path / "index").glob("entry-*")
    assert pq.read_table(entry / "texts.parquet")["text"].to_pylist() == texts[:1]


def test_a_removed_source_is_no_longer_met(tmp_path: Path) -> None:
    texts = ["a passage of one folder, and of no other", "another passage, and of another folder"]
    for name, text in zip("xy", texts, strict=True):
        write(tmp_path / "in" / name, [text], 1)
    index = tmp_path / "index"
    run(tmp_path / "in", tmp_path / "out", index_path=index)
    listed = CliRunner().invoke(app, ["dedup", "index-list", str(index)]).output
    assert "2 documents in" in listed
    assert "for substrings deduplication with min_bytes=24, normalize_text=none" in listed
    gone = CliRunner().invoke(app, ["dedup", "index-remove", str(index), str(tmp_path / "in" / "x")])
    assert gone.output.startswith("1 documents of "), gone.output
    source = write(tmp_path / "new", texts)
    run(source, tmp_path / "o2", against=index)
    assert spans_in(source, tmp_path / "o2") == [[], [(0, len(texts[1]))]]


# -- messages ---------------------------------------------------------------------------------------------------------
def test_texts_that_are_compared_otherwise_are_refused(tmp_path: Path, made: Made) -> None:
    source = write(tmp_path / "in", made.new)
    with pytest.raises(UsageError, match="min_bytes=24, this run has 30; they must be the same: change it, or make"):
        run(source, tmp_path / "o2", against=made.index, min_bytes=30)
    with pytest.raises(UsageError, match="made with normalize_text='none', this run has 'case'"):
        run(source, tmp_path / "o3", against=made.index, normalize_text="case")
    with pytest.raises(UsageError, match="is an index of substrings deduplication, this is exact"):
        RemoveExactDuplicates(str(tmp_path / "o4"), str(source), against=str(made.index)).run(
            InProcessExecutor(), memory="512MB"
        )


def test_mistakes(tmp_path: Path) -> None:
    for parameters, message in (
        ({"append": True}, "append adds to the index that `against` names"),
        ({"against": "s3://corpus/kept"}, "an index is a folder of this machine"),
        ({"index_path": "a", "against": "a"}, "give append=True"),
    ):
        with pytest.raises(UsageError, match=message):
            SubstringDeduplicationWorkflow(str(tmp_path / "out"), str(tmp_path), **parameters)


def test_a_damaged_index_ends_the_run(tmp_path: Path, made: Made) -> None:
    index, source = tmp_path / "index", write(tmp_path / "new", made.new)
    shutil.copytree(made.index, index)
    (path,) = index.glob("entry-*/texts.parquet")
    table, about = pq.read_table(path), json.loads((index / "index.json").read_text())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RunConflict, match="changed or is damaged"):
        run(source, tmp_path / "o2", against=index)
    for k, (damaged, message) in enumerate(
        [
            (table.drop_columns(["offset"]), "has other columns than an index"),
            (table.set_column(0, "file", pa.array([9] * len(table), pa.int32())), "a document names no input file"),
        ]
    ):
        pq.write_table(damaged, path)
        about["entries"][0]["n_bytes"] = path.stat().st_size
        (index / "index.json").write_text(json.dumps(about))
        with pytest.raises(TamisError, match=message):
            run(source, tmp_path / f"damaged{k}", against=index)


# -- what users see ---------------------------------------------------------------------------------------------------
def test_the_command_why_and_the_report(tmp_path: Path) -> None:
    passage = "a passage that is in an earlier text, too"
    write(tmp_path / "old", ["nothing of it", f"1-{passage}=2"], 1)
    source = write(tmp_path / "new", [f"new {passage} end", "one more", f"({passage})"], 1)
    common = ["--min-bytes", "24", "--memory", "512MB", "--quiet", "--max-source-loss", "100%"]
    index = str(tmp_path / "index")
    done = tamis("dedup", "substrings", str(tmp_path / "old"), str(tmp_path / "o1"), "--index", index, *common)
    assert done.exit_code == 0, done.output
    shutil.rmtree(tmp_path / "old")
    words = ["dedup", "substrings", str(source), str(tmp_path / "o2"), "--against", index, "--append", *common]
    done = tamis(*words)
    assert done.exit_code == 0, done.output
    assert re.search(r"first in the index +2 \(82 B\)", done.output)
    assert kept(tmp_path / "o2") == ["new  end", "one more", "()"]
    (entry,) = (e for e in read_index(index).entries if e.output.endswith("o1"))
    told = CliRunner().invoke(app, ["why", str(tmp_path / "o2"), "000000_0"]).output
    where = f"first in {tmp_path}/old/0.jsonl:"
    assert where in told
    assert f"at byte 2 of the text that was kept (index entry {index}/{entry.name})" in told
    page = (run_dir_path(tmp_path / "o2") / "report.html").read_text()
    section = page.partition('<section id="passages">')[2].partition("</section>")[0]
    assert "(in the index)" in section
    assert "2 of 2 passages (82 B of 82 B) are in the index of earlier runs, which has 2 documents." in section
    assert passage in section  # from the new document: the earlier file is gone
    rows = pq.read_table(run_dir_path(tmp_path / "o2") / "duplicates" / "part-00000.parquet").to_pylist()
    assert {row["kept_entry"] for row in rows} == {f"{index}/{entry.name}"}
    offset = len('{"id": 0, "text": "nothing of it"}\n')
    assert {row["kept_id"] for row in rows} == {f"000000_{offset}"}
    plan = CliRunner().invoke(
        app, ["plan", "dedup", "substrings", str(source), "--set", f"against={index}", "--set", "min_bytes=24"]
    )
    assert plan.exit_code == 0, plan.output


def test_a_recipe(tmp_path: Path, made: Made) -> None:
    source, recipe = write(tmp_path / "new", made.new), tmp_path / "recipe.yaml"
    recipe.write_text(
        "workflow:\n"
        "  - _target_: tamis.stages.deduplication.substrings.workflow.SubstringDeduplicationWorkflow\n"
        f"    output_path: {tmp_path}/o2\n    input_path: {source}\n    min_bytes: 24\n    max_source_loss: 1\n"
        f"    against: {made.index}\n"
    )
    done = CliRunner().invoke(app, ["run", str(recipe), "--quiet", "--memory", "8GB"])
    assert done.exit_code == 0, done.output
    assert spans_in(source, tmp_path / "o2") == made.expected


# -- interruptions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stop", ["indexed-texts", "kept"])
def test_a_run_resumes_where_it_was_stopped(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    from tamis.dedup.pass_runner import PassRunner

    index, source = tmp_path / "index", write(tmp_path / "new", made.new)
    shutil.copytree(made.index, index)
    execute = PassRunner.execute

    def stopping(self: Any, pipeline: Any, label: str, **more: Any) -> Any:
        result = execute(self, pipeline, label, **more)
        if label == stop:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patched:
        patched.setattr(PassRunner, "execute", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "o2", InProcessExecutor(), against=index, append=True)
    run(source, tmp_path / "o2", InProcessExecutor(), against=index, append=True)
    assert spans_in(source, tmp_path / "o2") == made.expected
    entries = [entry.n_documents for entry in read_index(str(index)).entries]
    assert entries == [len(made.kept), len(kept(tmp_path / "o2"))]
