"""Decontamination against the script that checks certificates, and by planted items."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation
from tamis.curation.steps import Decontaminate, ExactDuplicates
from tamis.dedup.contamination import build as building
from tamis.dedup.contamination import solver
from tamis.dedup.contamination.index import EvaluationIndex
from tamis.dedup.contamination.limits import Common, Limits
from tamis.dedup.contamination.rules import merged
from tamis.dedup.contamination.sets import EvaluationSet, evaluation_sets, items_of
from tamis.dedup.contamination.tasks import BuildTask
from tamis.dedup.contamination.workflow import DecontaminationWorkflow
from tamis.errors import BudgetError, FormatError, Incomplete, RunConflict, UsageError
from tests.reference.overlap_twin import SCRIPT, twin
from tests.support import command
from tests.support.run_dirs import run_dir_path

WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "nu") for b in ("ban", "dor", "fil", "gem") for c in ("a", "en", "o")]
MEMORY = "512MB"


def words(rng: random.Random, n: int) -> list[str]:
    return rng.choices(WORDS, k=n)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def run(folder: Path, **options: Any) -> Any:
    """Decontaminate folder/in against folder/evals."""
    workflow = DecontaminationWorkflow(str(folder / "out"), str(folder / "in"), folder / "evals", **options)
    return workflow.run(InProcessExecutor(), progress=False, memory=MEMORY)


def check(output: Path, *more: str) -> tuple[int, str]:
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [str(SCRIPT), str(output), *more]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        return twin.main(), printed.getvalue()


def disguised(rng: random.Random, item: list[str], how: str) -> str:
    if how == "lines":
        return "\n".join(" ".join(item[i : i + 4]) for i in range(0, len(item), 4))
    if how == "case":
        return " ".join(w.upper() if rng.random() < 0.5 else w.title() for w in item)
    if how == "punctuation":
        return "".join(w + rng.choice([", ", "! ", " - ", "; (", ".\t"]) for w in item)
    if how == "every 20":
        return " ".join("changed" if i % 20 == 19 else w for i, w in enumerate(item))
    return " ".join(item)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Fifty items in every disguise, each within a document; others hold twelve words of an item, which is too few."""
    rng = random.Random(4)
    items = [words(rng, 45) for _ in range(50)]
    short = [words(rng, 9) for _ in range(6)]
    texts = items + short + [words(rng, 5) for _ in range(4)]
    write(tmp_path / "evals" / "quiz.jsonl", [{"question": " ".join(t)} for t in texts])
    docs = []
    for how in ("verbatim", "lines", "case", "punctuation", "every 20"):
        for i, item in enumerate(items):
            around = [f"x{rng.random()}" for _ in range(80)]
            text = f"{' '.join(around[:40])} {disguised(rng, item, how)} {' '.join(around[40:])}"
            docs.append({"id": f"{how} {i}", "text": text, "planted": True})
    for i, item in enumerate(short):
        docs.append({"id": f"short {i}", "text": f"before {disguised(rng, item, 'case')}. after", "planted": True})
    for i, item in enumerate(items):
        docs.append({"id": f"few {i}", "text": "y " + " ".join(item[:12]) + " z", "planted": False})
        docs.append({"id": f"clean {i}", "text": " ".join(f"u{rng.random()}" for _ in range(200)), "planted": False})
    docs += [{"id": "null", "text": None, "planted": False}, {"id": "empty", "text": "", "planted": False}]
    rng.shuffle(docs)
    for k in range(3):
        write(tmp_path / "in" / f"{k}.jsonl", docs[k::3])
    return tmp_path


def test_every_planted_item_is_found_and_nothing_else(planted: Path) -> None:
    result = run(planted)
    docs = read(planted / "in")
    kept = {d["id"] for d in read(planted / "out")}
    assert kept == {d["id"] for d in docs if not d["planted"]}
    (one,) = result.summary["sets"]
    assert one == {"name": "quiz", "n_items": 60, "n_short": 6, "n_unchecked": 4, "n_found": 56, "n_documents": 256}
    assert result.summary["n_duplicates"] == 256
    assert check(planted / "out") == (0, f"{len(kept)} documents, 0 contaminated, 60 items checked\n")
    folder = run_dir_path(planted / "out") / "duplicates"
    overlaps = pq.read_table(folder / "part-00000.parquet").to_pylist()
    by_id = {row["id"]: row for row in overlaps}
    assert len(by_id) == 256
    assert {row["words"] for row in overlaps} == {45, 19, 9}
    unchecked = [json.loads(line) for line in (folder / "unchecked.jsonl").read_text().splitlines()]
    assert [(u["set"], u["row"]) for u in unchecked] == [("quiz", row) for row in range(56, 60)]
    assert "Decontamination" in (run_dir_path(planted / "out") / "report.html").read_text()


def test_the_script_finds_what_was_left_in(planted: Path) -> None:
    run(planted)
    (file, *_) = sorted((planted / "out").glob("*.jsonl"))
    item = json.loads((planted / "evals" / "quiz.jsonl").read_text().splitlines()[7])["question"]
    with open(file, "a") as out:
        out.write(json.dumps({"text": f"so: {item.upper()}"}) + "\n")
    code, said = check(planted / "out")
    assert code == 1
    assert "quiz quiz.jsonl:7: a run of 45 words" in said
    with open(planted / "evals" / "quiz.jsonl", "a") as out:
        out.write('{"question": "another"}\n')
    assert check(planted / "out")[0] == 2


def test_runs_are_cut_and_nothing_is_left(planted: Path) -> None:
    result = run(planted, action="cut", min_left_chars=20)
    before = {d["id"]: d for d in read(planted / "in")}
    after = {d["id"]: d for d in read(planted / "out")}
    assert set(before) - set(after) == {f"short {i}" for i in range(6)}  # too little is left of them
    for name, doc in after.items():
        if not before[name]["planted"]:
            assert doc == before[name]
            continue
        around = [w for w in before[name]["text"].split() if w.startswith("x0.")]
        assert [w for w in doc["text"].split() if w.startswith("x0.")] == around
        # Of "every 20", the two words that are changed and what is shorter than an n-gram stay.
        inside = [token for token, _ in twin.tokens(doc["text"]) if token in (*WORDS, "changed")]
        assert len(inside) == (7 if name.startswith("every") else 0)
    assert check(planted / "out")[0] == 0
    assert result.run.ledger.written.n == len(after)


def test_what_a_cut_brings_together_is_cut_too(tmp_path: Path) -> None:
    item = words(random.Random(1), 26)
    write(tmp_path / "evals" / "a.jsonl", [{"text": " ".join(item)}])
    text = " ".join(["first", *item[:12], *item[:13], *item[12:24], "last"])
    write(tmp_path / "in" / "a.jsonl", [{"text": text}])
    run(tmp_path, action="cut")
    (doc,) = read(tmp_path / "out")
    assert doc["text"].split() == ["first", "last"]
    assert check(tmp_path / "out")[0] == 0


def test_a_report_changes_nothing(planted: Path) -> None:
    result = run(planted, action="report")
    assert result.summary["n_duplicates"] == 256
    assert result.run is None
    assert not list((planted / "out").glob("*.jsonl"))
    (path, offset) = next(
        (f, at)
        for f in sorted((planted / "in").glob("*.jsonl"))
        if (at := f.read_bytes().find(b'{"id": "case 3"')) >= 0
    )
    why = command.tamis("why", str(planted / "out"), f"{path}:{offset}")
    assert "quiz quiz.jsonl:3: a run of 45 words, 100% of the n-grams of the item" in why.stdout
    kept = Curation(
        [Decontaminate(against=str(planted / "evals"), action="report")],
        str(planted / "in"),
        str(planted / "kept"),
        card=False,
    ).run(InProcessExecutor(), progress=False, memory=MEMORY)
    assert kept.deduplications["decontaminate"]["n_duplicates"] == 256
    assert len(read(planted / "kept")) == len(read(planted / "in"))


def test_common_text_does_not_count_and_is_listed(tmp_path: Path) -> None:
    rng = random.Random(2)
    licence, item = words(rng, 30), words(rng, 30)
    write(tmp_path / "evals" / "a.jsonl", [{"text": " ".join(item + licence)}, {"text": " ".join(licence)}])
    docs = [{"id": f"l{i}", "text": f"{i} " + " ".join(licence)} for i in range(20)]
    docs += [{"id": f"i{i}", "text": f"{i} " + " ".join(item)} for i in range(5)]
    write(tmp_path / "in" / "a.jsonl", docs)
    result = run(tmp_path, common=10)
    assert [d["id"] for d in read(tmp_path / "out")] == [f"l{i}" for i in range(20)]
    listed = [
        json.loads(line)
        for line in (run_dir_path(tmp_path / "out") / "duplicates/excepted.jsonl").read_text().splitlines()
    ]
    assert result.summary["n_excepted"] == len(listed) == 18
    assert {entry["n_documents"] for entry in listed} == {20}
    assert " ".join(licence[:13]) in {entry["words"] for entry in listed}
    assert check(tmp_path / "out")[0] == 0
    assert Common(share=0.5).limit(1000) == 500
    assert Common().limit(10) == 10


def test_common_ngrams_are_counted_by_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_common_text_does_not_count_and_is_listed(tmp_path / "whole")
    whole = (run_dir_path(tmp_path / "whole/out") / "duplicates/excepted.jsonl").read_text()
    monkeypatch.setattr(solver, "_range_size", lambda n, room: 7)
    test_common_text_does_not_count_and_is_listed(tmp_path / "parts")
    assert (run_dir_path(tmp_path / "parts/out") / "duplicates/excepted.jsonl").read_text() == whole


def test_limits_on_the_run_and_the_share(tmp_path: Path) -> None:
    rng = random.Random(3)
    item = words(rng, 60)
    write(tmp_path / "evals" / "a.jsonl", [{"text": " ".join(item)}])
    docs = [{"id": str(n), "text": "a " + " ".join(item[:n]) + " b"} for n in (12, 13, 20, 30, 45, 60)]
    docs.append({"id": "twice", "text": " ".join([*item[:20], "x", *item[30:50]])})
    write(tmp_path / "in" / "a.jsonl", docs)
    assert [d["id"] for d in kept_by(tmp_path, "a")] == ["12"]
    assert [d["id"] for d in kept_by(tmp_path, "b", min_words=30)] == ["12", "13", "20", "twice"]
    assert [d["id"] for d in kept_by(tmp_path, "c", min_share="50%")] == ["12", "13", "20", "30", "twice"]
    assert [d["id"] for d in kept_by(tmp_path, "d", min_share=0.3)] == ["12", "13", "20"]


def kept_by(folder: Path, name: str, **limits: Any) -> list[dict[str, Any]]:
    workflow = DecontaminationWorkflow(str(folder / name), str(folder / "in"), folder / "evals", **limits)
    workflow.run(InProcessExecutor(), progress=False, memory=MEMORY)
    assert check(folder / name)[0] == 0
    return read(folder / name)


@pytest.mark.parametrize("seed", range(3))
def test_random_corpora_agree_with_the_script(tmp_path: Path, seed: int) -> None:
    """Items and documents of few words, so that runs of all lengths, repetitions and short items occur by chance."""
    rng = random.Random(seed)
    few = ["a", "b", "漢", "ก", "é"]
    items = [" ".join(rng.choices(few, k=rng.randrange(1, 14))) for _ in range(30)]
    write(tmp_path / "evals" / "a.jsonl", [{"text": t} for t in items])
    docs = [{"id": str(i), "text": " ".join(rng.choices(few, k=rng.randrange(60)))} for i in range(300)]
    write(tmp_path / "in" / "a.jsonl", docs)
    options = {"words": 6, "short_words": 3, "min_words": 7, "min_share": 0.2, "common": "none"}
    run(tmp_path, **options)
    kept = {d["id"] for d in read(tmp_path / "out")}
    certificate = json.loads((run_dir_path(tmp_path / "out") / "duplicates/decontamination.json").read_text())
    evaluation = twin.Evaluation(certificate, set())
    expected = {d["id"] for d in docs if not any(evaluation.contaminations(d["text"], 7, 0.2))}
    assert kept == expected
    assert 20 < len(kept) < 290


def test_a_step_of_a_curation_and_of_a_recipe(planted: Path) -> None:
    steps = [ExactDuplicates(), Decontaminate(against=str(planted / "evals"))]
    result = Curation(steps, str(planted / "in"), str(planted / "one"), card=False).run(
        InProcessExecutor(), progress=False, memory=MEMORY
    )
    assert result.deduplications["decontaminate"]["n_duplicates"] == 256
    assert check(planted / "one")[0] == 0
    (planted / "recipe.yaml").write_text(
        f"name: clean\ninput: {planted}/in\noutput: {planted}/two\nsteps:\n  - exact_duplicates\n"
        f"  - decontaminate: {{against: {planted}/evals, action: drop}}\nsettings: {{memory: {MEMORY}}}\n"
    )
    done = command.tamis("run", str(planted / "recipe.yaml"), "--json")
    assert done.exit_code == 0, done.output
    assert read(planted / "two") == read(planted / "one")
    assert check(planted / "two")[0] == 0


def test_the_command_and_why(planted: Path) -> None:
    arguments = [str(planted / "in"), str(planted / "out"), "--against", str(planted / "evals"), "--memory", MEMORY]
    done = command.tamis("decontaminate", *arguments, "--workers", "1", "-q")
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "contaminated, dropped 256" in said
    assert "by quiz 256, 56 of 60 items" in said
    assert "items too short to check 4" in said
    why = command.tamis("why", str(planted / "out"), "case 3", "--json")
    (verdict,) = json.loads(why.stdout)["verdicts"]
    assert verdict["rule"] == "contaminated"
    assert (verdict["value"]["set"], verdict["value"]["item"], verdict["value"]["words"]) == (
        "quiz",
        "quiz.jsonl:3",
        45,
    )
    item = json.loads((planted / "evals" / "quiz.jsonl").read_text().splitlines()[3])["question"]
    assert verdict["value"]["text"].casefold() == item
    shown = command.tamis("why", str(planted / "out"), "case 3").stdout
    assert "set:       quiz, item quiz.jsonl:3\n  shared:    a run of 45 words, 100% of" in shown
    assert "finished earlier" in command.tamis("decontaminate", *arguments, "-q").stdout


def test_other_evaluation_sets_are_another_run(planted: Path) -> None:
    run(planted)
    write(planted / "evals" / "more.jsonl", [{"question": "what is it"}])
    with pytest.raises(RunConflict):
        run(planted)


def test_other_contents_of_evaluation_sets_are_another_run(planted: Path) -> None:
    run(planted)
    assert run(planted).status == "already"
    path = planted / "evals" / "quiz.jsonl"
    path.write_text(path.read_text().replace("a", "e"))  # of the same size
    with pytest.raises(RunConflict, match=r"files_of_sets was .*quiz\.jsonl"):
        run(planted)


def test_a_source_that_would_lose_too_much_stops_it(planted: Path) -> None:
    with pytest.raises(Incomplete, match="nothing was removed"):
        run(planted, max_source_loss=0.3)
    assert run(planted, max_source_loss=1).summary["n_duplicates"] == 256


@pytest.mark.parametrize("mark", ["evaluation/index.json", "keys-0", "summary.json"])
def test_a_killed_run_resumes_and_ends_the_same(planted: Path, mark: str) -> None:
    run(planted)
    whole = read(planted / "out")
    target = planted / "killed"
    words = [str(planted / "in"), str(target), "--against", str(planted / "evals"), "--memory", MEMORY, "-q"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tamis.cli.start", "decontaminate", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and not (run_dir_path(target) / "dedup" / mark).exists():
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = command.tamis("decontaminate", *words)
    assert done.exit_code == 0, done.output
    assert read(target) == whole
    assert check(target)[0] == 0


# -- evaluation sets --------------------------------------------------------------------------------------------------
def test_sets_in_all_formats(tmp_path: Path) -> None:
    rows = [{"question": "What is é?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answer": 1}] * 3
    folder = tmp_path / "evals"
    write(folder / "lines.jsonl", rows)
    (folder / "array.json").write_text(json.dumps(rows, indent=1))
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    hub = folder / "hub"
    (hub / "train").mkdir(parents=True)
    (hub / "dataset_dict.json").write_text('{"splits": ["train"]}')
    (hub / "train" / "dataset_info.json").write_text("{}")
    table = pa.Table.from_pylist(rows)
    with (
        pa.OSFile(str(hub / "train" / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    sets = evaluation_sets(folder, ["question", "choices.text", "answer"])
    assert [s.name for s in sets] == ["array", "hub", "lines", "rows"]
    for one in sets:
        (path,) = one.files()
        assert [i.text for i in items_of(one, path)] == ["What is é?\none\ntwo\n1"] * 3
    (one,) = evaluation_sets({"path": folder / "rows.parquet", "name": "mine"})
    assert one == EvaluationSet(str(folder / "rows.parquet"), "mine", [])
    assert next(items_of(one, one.path)).text == "What is é?"


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ([], "expected the path"),
        ("nowhere", "there is no nowhere"),
        ([{"name": "x"}], "has a path"),
        ([{"path": "a.jsonl", "fields": "question"}], "list of names"),
        (["a.jsonl", "a.jsonl"], "are called 'a'"),
        ([{"path": "a.jsonl", "colour": 1}], "has a path"),
        ("empty", "holds no evaluation sets"),
    ],
)
def test_mistakes_in_evaluation_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, against: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", [{"question": "?"}])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        evaluation_sets(against)


def test_mistakes_in_files_of_sets(tmp_path: Path) -> None:
    def texts(content: str, *fields: str) -> list[str]:
        path = tmp_path / "a.jsonl"
        path.write_text(content)
        return [item.text for item in items_of(EvaluationSet(str(path), "a", list(fields)), str(path))]

    with pytest.raises(FormatError, match="line 2"):
        texts('{"question": "?"}\n{"quest')
    with pytest.raises(FormatError, match="row 0 is no mapping"):
        texts('"text"\n')
    with pytest.raises(UsageError, match="name those that count"):
        texts('{"x": "?"}\n')
    with pytest.raises(UsageError, match="has no field y; it has x"):
        texts('{"x": "?"}\n', "y")
    assert texts('{"x": null}\n\n{"x": ["a", {"b": true, "c": 2.5}]}\n', "x", "y") == ["", "a\n2.5"]


@pytest.mark.parametrize(
    "options",
    [{"words": 3}, {"words": 61}, {"action": "burn"}, {"common": 0}, {"min_words": 12}, {"short_words": -1}],
)
def test_mistakes_in_options(planted: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DecontaminationWorkflow(str(planted / "out"), str(planted / "in"), planted / "evals", **options)


def test_it_is_done_as_a_whole(planted: Path) -> None:
    workflow = DecontaminationWorkflow(str(planted / "out"), str(planted / "in"), planted / "evals")
    with pytest.raises(UsageError, match="as a whole"):
        workflow.run(InProcessExecutor(), progress=False, shard="1/2")


# -- the index --------------------------------------------------------------------------------------------------------
def test_a_budget_below_the_filter_is_refused_with_the_smallest(tmp_path: Path) -> None:
    task = BuildTask([], 13, 8, 300_000_000)
    with pytest.raises(BudgetError, match="the smallest that works is 680MB") as refused:
        building._write_filter(str(tmp_path), 200_000_000, task)
    assert refused.value.smallest_bytes == 680_000_000


def test_the_index_has_every_ngram_of_every_item(tmp_path: Path) -> None:
    rng = random.Random(5)
    items = [" ".join(words(rng, rng.randrange(13, 60))) for _ in range(400)]
    items += items[:150]  # n-grams of several items
    write(tmp_path / "evals" / "a.jsonl", [{"text": t} for t in items])
    (tmp_path / "index").mkdir()
    building.build(str(tmp_path / "index"), BuildTask(evaluation_sets(tmp_path / "evals"), 13, 8, 10**9))
    index = EvaluationIndex(str(tmp_path / "index"))
    raw = [t.encode() for t in items]
    ends = np.cumsum([len(t) for t in raw], dtype=np.int64)
    starts = ends - np.array([len(t) for t in raw])
    hits, n_tokens = index.hits(np.frombuffer(b"".join(raw), np.uint8), starts, ends)
    assert n_tokens.tolist() == [len(t.split()) for t in items]
    assert np.bincount(hits.row).tolist() == [len(t.split()) - 12 for t in items]
    for row, token, ngram in zip(hits.row.tolist(), hits.token.tolist(), hits.ngram.tolist(), strict=True):
        holders = {p.item: p for p in index.postings(ngram)}
        assert row in holders
        assert holders[row].token == token
        assert index.text(row, holders[row].place).split()[:13] == items[row].split()[token : token + 13]
    assert index.name_of(3) == ("a", "a.jsonl:3")


def test_ranges_are_joined() -> None:
    assert merged(np.array([5, 0, 2, 9]), np.array([9, 3, 4, 12])).tolist() == [[0, 4], [5, 12]]
    assert merged(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
    assert Limits() == Limits(13, 0.0)
