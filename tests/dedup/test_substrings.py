"""Substring deduplication finds exactly what a dictionary of all windows finds, whatever it has to work with."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.cli.main import app
from tamis.curation import RepeatedPassages
from tamis.dedup.solver import SolverRun
from tamis.dedup.solver_task import CompareWindows, GroupSelections, SolverTask
from tamis.dedup.stages import RecordWriter
from tamis.dedup.substrings.cutting import cut_out, cuts_in
from tamis.dedup.substrings.normalization import MODES, compared, origins
from tamis.dedup.substrings.spans import NO_DOCUMENT, make_spans, removed
from tamis.dedup.substrings.stages import CandidateContexts, WindowSelections
from tamis.dedup.substrings.table import Passages, passages_of
from tamis.errors import Incomplete, RunConflict, UsageError
from tamis.stages.deduplication.substrings.workflow import SubstringDeduplicationWorkflow
from tamis.stages.text.io import JsonlReader
from tests.reference.substring_twin import Spans, removed_by_suffix_array, removed_spans
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path


# -- texts ------------------------------------------------------------------------------------------------------------
def documents(n: int, seed: int = 0, length: int = 24) -> list[str]:
    """Return texts that share passages: copies, parts of others, runs and periods, with characters of up to 4 bytes."""
    rnd = random.Random(seed)
    letters = rnd.choice(["ab", "abc dé", "abcdefghijklmnop qrst漢字😀"])
    texts: list[str] = []
    for _ in range(n):
        kind = rnd.random()
        text = "".join(rnd.choice(letters) for _ in range(rnd.randint(0, 2 * length)))
        if kind < 0.4 and texts:
            other = rnd.choice(texts)
            begin = rnd.randint(0, len(other))
            text += other[begin : begin + rnd.randint(length, 4 * length)] + text[: rnd.randint(0, 9)]
        elif kind < 0.55:
            text += "".join(rnd.choice(letters) for _ in range(rnd.randint(1, 5))) * rnd.randint(1, 3 * length)
        texts.append(text)
    return texts


def fibonacci(n: int) -> str:
    a, b = "a", "ab"
    while len(b) < n:
        a, b = b, b + a
    return b[:n]


def small_differences(n: int, seed: int = 0, length: int = 300) -> list[str]:
    """Return copies of one text, each with a few other characters."""
    rnd = random.Random(seed)
    base = [rnd.choice("abcdefghij") for _ in range(length)]
    texts = []
    for _ in range(n):
        copy = list(base)
        for _ in range(rnd.randint(0, 4)):
            copy[rnd.randrange(length)] = rnd.choice("XYZ")
        texts.append("".join(copy))
    return texts


# -- running the parts ------------------------------------------------------------------------------------------------
def write(folder: Path, texts: Sequence[str | None], n_files: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = max(1, -(-len(texts) // n_files))
    for k in range(n_files):
        records = [{"id": i, "text": text} for i, text in enumerate(texts)][k * size : (k + 1) * size]
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (folder / f"{k}.jsonl").write_text("".join(lines))
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().split("\n")[:-1]]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["id"])


def solved(
    tmp_path: Path, texts: Sequence[str], length: int, keep: str, room_bytes: int, blocksize: str = "2KB"
) -> Spans:
    """Return what the solver finds in this room, without removing anything."""
    source = write(tmp_path / "in", texts)

    def records(name: str, stage: Any) -> list[str]:
        reader = JsonlReader(str(source), blocksize=blocksize)
        result = Pipeline(name, stages=[reader, stage, RecordWriter(str(tmp_path / name))]).run(InProcessExecutor())
        assert result is not None
        return [str(tmp_path / name / file.name) for file in sorted((tmp_path / name).glob("*.arrow"))]

    folder = tmp_path / "work"
    folder.mkdir()

    def run_of(paths: list[str]) -> SolverRun:
        run = SolverRun(str(folder), SolverTask([], paths, str(tmp_path / "duplicates"), room_bytes))
        run.state.write_paths([str(path) for path in sorted(source.glob("*.jsonl"))])
        return run

    run = run_of(records("keys", WindowSelections(min_bytes=length)))
    from tamis.dedup.substrings.comparing import compare_windows
    from tamis.dedup.substrings.grouping import group_selections

    group_selections(GroupSelections(length), run)
    contexts = records("texts", CandidateContexts(str(folder / "candidates"), min_bytes=length))
    compare_windows(CompareWindows(length, keep == "first", contexts), run)
    found: Spans = [[] for _ in texts]
    number = 0
    for k, path in enumerate(sorted(source.glob("*.jsonl"))):
        ends = np.cumsum([len(line) for line in path.read_bytes().splitlines(keepends=True)])
        offsets = np.concatenate([[0], ends[:-1]])
        rows, passages = passages_of(str(folder / "removal"), np.full(len(offsets), k), offsets)
        for row, one in zip(rows.tolist(), passages, strict=True):
            found[number + row] = list(zip(one.start.tolist(), one.stop.tolist(), strict=True))
        number += len(offsets)
    return found


def encoded(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


# -- the specification ------------------------------------------------------------------------------------------------
def test_the_two_specifications_agree() -> None:
    for seed in range(20):
        texts = encoded(documents(12, seed))
        for keep in ("first", "none"):
            assert removed_by_suffix_array(texts, 9, keep) == removed_spans(texts, 9, keep)


def test_a_small_example() -> None:
    """Window 0 of the second text is the second of its kind; its byte 3 is covered by that alone."""
    assert removed_spans([b"abcd", b"xabc"], 3, "first") == [[], [(1, 4)]]
    assert removed_spans([b"abcd", b"xabc"], 3, "none") == [[(0, 3)], [(1, 4)]]
    assert removed_spans([b"aaaaaa"], 3, "first") == [[(3, 6)]]


# -- the solver -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", ["first", "none"])
@pytest.mark.parametrize("room_bytes", [1 << 26, 40_000, 6_000])
@pytest.mark.parametrize("seed", range(4))
def test_finds_what_the_specification_says(tmp_path: Path, seed: int, room_bytes: int, keep: str) -> None:
    """In little room parts, ranges of documents and groups are divided."""
    texts = documents(60, seed)
    length = (16, 17, 24, 40)[seed]
    assert solved(tmp_path, texts, length, keep, room_bytes) == removed_spans(encoded(texts), length, keep)


@pytest.mark.parametrize("room_bytes", [1 << 26, 20_000])
@pytest.mark.parametrize(
    "texts",
    [
        ["a" * 3000, "b" * 40 + "a" * 900, "a" * 31, "a" * 32],
        ["ab" * 700 + "x" + "ab" * 600, "ba" * 300],
        ["abc" * 500 + "abd" * 500, "cab" * 400, "x" + "abc" * 300 + "y"],
        [fibonacci(3000), fibonacci(500)[100:]],
        small_differences(60),
        ["é" * 100, "漢" * 100, "é" * 99 + "x", "😀" * 50 + "é" * 40],
        ["a" * 300 + str(k) + "a" * 300 for k in range(8)],
    ],
    ids=["constant", "period 2", "period 3", "Fibonacci", "small differences", "characters", "runs"],
)
def test_adversarial_texts(tmp_path: Path, texts: list[str], room_bytes: int) -> None:
    for length in (32, 45):
        expected = removed_by_suffix_array(encoded(texts), length, "first")
        assert solved(tmp_path / str(length), texts, length, "first", room_bytes) == expected


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_edited_copies(tmp_path: Path) -> None:
    texts = small_differences(100_000, length=90)
    expected = removed_by_suffix_array(encoded(texts), 32, "first")
    assert solved(tmp_path, texts, 32, "first", 8 << 20, blocksize="1MB") == expected


def test_what_does_not_fit_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, contexts and groups that are larger than the room: each has a way to be gone through."""
    from tamis.dedup.substrings import comparing, grouping

    called: set[str] = set()
    for owner, name in (
        (grouping._Grouper, "_add_frequent"),
        (comparing._Comparer, "_divide"),
        (comparing._Comparer, "_all_equal"),
    ):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, name=name, call=call: (called.add(name), call(*given))[1])
    texts = [*small_differences(60), *documents(40, 1), *("a" * 300 + str(k) + "a" * 300 for k in range(8))]
    expected = removed_by_suffix_array(encoded(texts), 32, "first")
    assert solved(tmp_path, texts, 32, "first", 3000) == expected
    assert called == {"_add_frequent", "_divide", "_all_equal"}


def test_what_is_written_for_periods_does_not_grow(tmp_path: Path) -> None:
    """A run of one character, or of any period, is one selection however long it is."""
    sizes = []
    for n in (2_000, 200_000):
        folder = tmp_path / str(n)
        source = write(folder / "in", ["a" * n, "xyz" * n])
        Pipeline(
            "keys",
            stages=[JsonlReader(str(source)), WindowSelections(min_bytes=100), RecordWriter(str(folder / "keys"))],
        ).run(InProcessExecutor())
        sizes.append(sum(path.stat().st_size for path in (folder / "keys").glob("*.arrow")))
    assert sizes[0] == sizes[1]


# -- arithmetic of spans ----------------------------------------------------------------------------------------------
def test_first_copies_are_left_out() -> None:
    spans = np.concatenate(
        [
            make_spans(np.array([1, 1, 2]), np.array([0, 5, 3]), np.array([10, 20, 9]), 1, np.array([0, 5, 7]), 2),
            make_spans(np.array([1]), np.array([8]), np.array([12]), NO_DOCUMENT, 0, 0),
        ]
    )
    gone = removed([spans], keep_first=True)
    assert list(zip(gone.doc.tolist(), gone.start.tolist(), gone.end.tolist(), strict=True)) == [
        (1, 0, 8),
        (1, 12, 20),
        (2, 3, 9),
    ]
    assert gone.kept_start.tolist() == [0, 12, 7]
    everything = removed([spans], keep_first=False)
    assert (everything.start.tolist(), everything.end.tolist()) == ([0, 3], [20, 9])


# -- cutting ----------------------------------------------------------------------------------------------------------
def cut(text: str, spans: list[tuple[int, int]], edges: str = "characters", mode: str = "none") -> str:
    starts, stops = (np.array(values, np.uint32) for values in zip(*spans, strict=True))
    nothing = np.zeros(len(spans), np.uint32)
    texts = pa.array([text], pa.large_string())
    cuts = cuts_in(texts, [Passages(starts, stops, nothing, nothing, nothing, nothing)], mode, edges)
    return str(cut_out(texts, cuts)[0].as_py())


def test_cuts_shrink_to_whole_characters_words_and_lines() -> None:
    assert cut("aéb", [(0, 2)]) == "éb"
    assert cut("aéb", [(2, 4)]) == "aé"
    assert cut("é", [(0, 1)]) == "é"
    assert cut("one two three", [(1, 9)], "words") == "one three"
    assert cut("one\ntwo\nthree\n", [(1, 9)], "lines") == "one\nthree\n"
    assert cut("one\ntwo", [(2, 7)], "lines") == "one\n"
    assert cut("abcdef", [(0, 2), (4, 6)]) == "cd"


@pytest.mark.parametrize("mode", list(MODES))
def test_normalized_bytes_know_where_they_come_from(mode: str) -> None:
    texts = ["  A  b\n\tC ", "", "é \u3000x", " ", "ab"]
    data, starts, ends = compared(pa.array(["zz  ", *texts], pa.large_string()).slice(1), mode)
    for text, a, b in zip(texts, starts.tolist(), ends.tolist(), strict=True):
        raw = np.frombuffer(text.encode(), np.uint8)
        places = origins(raw, mode)
        places = np.arange(len(raw) + 1) if places is None else places
        assert len(places) == b - a + 1
        assert places[-1] == len(raw)
        for byte, place in zip(data[a:b].tolist(), places[:-1].tolist(), strict=True):
            assert chr(byte) == chr(raw[place]) or (byte == 32 and chr(raw[place]).isspace()) or mode == "case"
    if mode == "case":
        assert bytes(data[starts[0] : ends[0]]) == b" a b c "


# -- the whole --------------------------------------------------------------------------------------------------------
def run(source: Path, target: Path, executor: Any = None, memory: str = "512MB", **parameters: Any) -> Any:
    parameters = {"min_bytes": 24, "max_source_loss": 1, **parameters}
    workflow = SubstringDeduplicationWorkflow(str(target), str(source), **parameters)
    return workflow.run(executor if executor is not None else InProcessExecutor(), memory=memory)


def expected_output(texts: Sequence[str | None], length: int, keep: str = "first") -> list[dict[str, Any]]:
    kept = []
    for i, (text, spans) in enumerate(
        zip(texts, removed_spans(encoded([t or "" for t in texts]), length, keep), strict=True)
    ):
        if text is None or not spans:
            kept.append({"id": i, "text": text})
            continue
        after = cut(text, spans)
        if after == text or after.strip():
            kept.append({"id": i, "text": after})
    return kept


@pytest.mark.parametrize("keep", ["first", "none"])
def test_what_stays_is_what_the_specification_keeps(tmp_path: Path, keep: str) -> None:
    texts: list[str | None] = [*documents(150, 2), None]
    result = run(write(tmp_path / "in", texts), tmp_path / "out", keep=keep)
    assert read(tmp_path / "out") == expected_output(texts, 24, keep)
    spans = removed_spans(encoded([text or "" for text in texts]), 24, keep)
    assert result.n_documents == 151
    assert result.summary["n_without_text"] == 1
    assert result.summary["n_passages"] == sum(map(len, spans))
    assert result.n_duplicates == sum(b - a for some in spans for a, b in some)
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()


def test_workers_budgets_blocks_and_formats_change_nothing(tmp_path: Path) -> None:
    texts = documents(800, 5)
    source = write(tmp_path / "in", texts, 4)
    wanted = expected_output(texts, 24)
    settings = [(1, "300MB", None), (2, "2GB", "4KB"), (2, "300MB", "25KB"), (1, "2GB", "4KB")]
    for k, (workers, memory, blocksize) in enumerate(settings):
        workflow = SubstringDeduplicationWorkflow(
            str(tmp_path / str(k)), str(source), input_blocksize=blocksize, min_bytes=24, max_source_loss=1
        )
        workflow.run(LocalExecutor(), memory=memory, workers=workers)
        assert read(tmp_path / str(k)) == wanted
    tables = [pq.read_table(run_dir_path(tmp_path / str(k)) / "duplicates" / "part-00000.parquet") for k in range(4)]
    assert all(table.equals(tables[0]) for table in tables)
    (tmp_path / "gz").mkdir()
    with gzip.open(tmp_path / "gz" / "a.jsonl.gz", "wt") as out:
        out.writelines(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    run(tmp_path / "gz", tmp_path / "gz-out", input_blocksize="20KB")
    packed = [gzip.decompress(p.read_bytes()).splitlines() for p in sorted((tmp_path / "gz-out").glob("*.jsonl.gz"))]
    assert [json.loads(line) for part in packed for line in part] == wanted
    (tmp_path / "pq").mkdir()
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "pq" / "a.parquet", row_group_size=90)
    run(tmp_path / "pq", tmp_path / "pq-out", cut_field="cut")
    rows = pq.read_table(tmp_path / "pq-out", columns=["id", "text"]).to_pylist()
    assert sorted(rows, key=lambda d: d["id"]) == wanted


def test_only_what_is_cut_changes(tmp_path: Path) -> None:
    passage = "a passage that is long enough\\u0021"
    raw = [
        f'{{ "n" : 1.50e1, "text":"{passage}  one", "x": [ 1,2 ] }}',
        f'{{ "n" : 1.50e1, "text":"two {passage}\\u00e9", "x": [ 1,2 ] }}',
        '{"text": "", "n": 1e3}',
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(raw) + "\n")
    result = run(tmp_path / "in", tmp_path / "out", cut_field="cut")
    lines = next((tmp_path / "out").glob("*.jsonl")).read_text().splitlines()
    assert json.loads(lines[1]) == {"n": 15.0, "text": "two é", "x": [1, 2], "cut": [4, 34]}
    assert '"n" : 1.50e1' in lines[1]
    metrics = next(s.metrics for s in result.run.ledger.stages if s.name == "cut_passages")
    assert metrics == {"passages_cut": 1, "bytes_cut": 30, "documents_cut": 1}


def test_documents_with_too_little_left_say_where_the_first_copy_is(tmp_path: Path) -> None:
    passage = "this passage is in all of these texts"
    texts = [passage + " one", passage, passage + "  ", passage + " and much more"]
    run(write(tmp_path / "in", texts, 1), tmp_path / "out", min_left_chars=5)
    assert [record["id"] for record in read(tmp_path / "out")] == [0, 3]
    verdicts = pq.read_table(run_dir_path(tmp_path / "out") / "verdicts").to_pylist()
    first = f"{tmp_path}/in/0.jsonl:0"
    assert [(v["id"], v["rule"], json.loads(v["value"])) for v in verdicts] == [
        ("1", "repeated_passages", {"bytes_cut": 37, "chars_left": 0, "first_copy": first}),
        ("2", "repeated_passages", {"bytes_cut": 38, "chars_left": 0, "first_copy": first}),
    ]
    assert verdicts[0]["threshold"] == '{"min_left_chars": 5}'


def test_documents_of_which_too_much_is_repeated(tmp_path: Path) -> None:
    passage = "this passage is in all of these texts"
    texts = [passage, passage + "x" * 10, passage + "some words of its own, more of them than of the others' "]
    run(write(tmp_path / "in", texts, 1), tmp_path / "out", remove="document-above 50%")
    assert read(tmp_path / "out") == [{"id": 0, "text": texts[0]}, {"id": 2, "text": texts[2]}]
    (verdict,) = pq.read_table(run_dir_path(tmp_path / "out") / "verdicts").to_pylist()
    assert verdict["rule"] == "repeated_share"
    assert json.loads(verdict["value"]) == {"share": round(37 / 47, 4), "first_copy": f"{tmp_path}/in/0.jsonl:0"}
    assert json.loads(verdict["threshold"]) == {"max_share": 0.5}


def test_nothing_is_removed_when_passages_are_only_counted(tmp_path: Path) -> None:
    texts = documents(40, 1)
    result = run(write(tmp_path / "in", texts), tmp_path / "out", remove="nothing")
    assert result.run is None
    assert not list((tmp_path / "out").glob("*.jsonl"))
    rows = [
        row
        for path in sorted((run_dir_path(tmp_path / "out") / "duplicates").glob("part-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    assert sum(row["end_byte"] - row["start_byte"] for row in rows) == result.n_duplicates > 0


def test_each_passage_is_where_the_table_says_it_is_first(tmp_path: Path) -> None:
    texts = documents(120, 9)
    source = write(tmp_path / "in", texts)
    run(source, tmp_path / "out")
    by_id = {}
    for k, path in enumerate(sorted(source.glob("*.jsonl"))):
        offset = 0
        for line in path.read_bytes().splitlines(keepends=True):
            by_id[f"{k:06d}_{offset}"] = json.loads(line)["text"].encode()
            offset += len(line)
    rows = pq.read_table(run_dir_path(tmp_path / "out") / "duplicates" / "part-00000.parquet").to_pylist()
    assert rows
    for row in rows:
        n = min(24, row["end_byte"] - row["start_byte"])
        mine = by_id[row["id"]][row["start_byte"] :][:n]
        assert by_id[row["kept_id"]][row["kept_start_byte"] :][:n] == mine
        assert row["n_occurrences"] >= 2
    most = pq.read_table(run_dir_path(tmp_path / "out") / "duplicates" / "most-frequent.parquet").to_pylist()
    assert most[0]["n_occurrences"] == max(row["n_occurrences"] for row in rows)


@pytest.mark.parametrize("mode", ["whitespace", "case"])
def test_normalized_passages_are_cut_from_the_text_as_it_is(tmp_path: Path, mode: str) -> None:
    texts = ["begin A passage  of\nsome words, all the same. end", "x A passage of some\t words, all the  same. y"]
    if mode == "case":
        texts[1] = texts[1].upper()
    run(write(tmp_path / "in", texts, 1), tmp_path / "out", normalize_text=mode)
    assert [record["text"].lower() for record in read(tmp_path / "out")] == [texts[0].lower(), "xy"]
    told = json.loads(
        why(tmp_path / "out", f"0.jsonl:{len(json.dumps({'id': 0, 'text': texts[0]})) + 1}", "--json").output
    )
    (passage,) = told["passages"]
    assert texts[1][passage["start"] : passage["end"]].lower() == " a passage of some\t words, all the  same. "
    assert texts[0][passage["first_start"] :].startswith(" A passage  of\nsome")
    run(write(tmp_path / "in", texts, 1), tmp_path / "plain", min_bytes=30)
    assert [record["text"] for record in read(tmp_path / "plain")] == texts


def test_a_source_that_would_be_lost_stops_the_run(tmp_path: Path) -> None:
    text = documents(1, 3)[0] + "x" * 400
    write(tmp_path / "in" / "a", [text], 1)
    write(tmp_path / "in" / "b", [text], 1)
    with pytest.raises(Incomplete, match="more than 50% of their bytes"):
        run(tmp_path / "in", tmp_path / "out", max_source_loss=0.5)


def why(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["why", *map(str, arguments)])


def test_why_says_which_passage_and_where_its_first_copy_is(tmp_path: Path) -> None:
    passage = "a passage that is in three of these texts"
    texts = [f"1-{passage} two", f"three={passage}", passage, "nothing of it"]
    source = write(tmp_path / "in", texts, 1)
    run(source, tmp_path / "out")
    offsets = np.cumsum([0, *(len(line) for line in (source / "0.jsonl").read_bytes().splitlines(keepends=True))])
    first = f"{source}/0.jsonl:0"
    kept = why(tmp_path / "out", f"0.jsonl:{offsets[1]}").output.splitlines()
    assert kept[-2:] == [
        "  1 repeated passage, 41 B",
        f"    bytes 6 to 47 occur 3 times, first in {first} at byte 2",
    ]
    dropped = why(tmp_path / "out", "2").output.splitlines()
    assert dropped[0] == "2 was dropped by repeated_passages (stage cut_passages)"
    assert dropped[-1] == f"    bytes 0 to 41 occur 3 times, first in {first} at byte 2"
    assert "repeated passage" not in why(tmp_path / "out", f"0.jsonl:{offsets[3]}").output
    told = json.loads(why(tmp_path / "out", f"000000_{offsets[1]}", "--json").output)
    assert told["passages"] == [{"start": 6, "end": 47, "n_occurrences": 3, "first": first, "first_start": 2}]
    run(source, tmp_path / "found", remove="nothing")
    counted = why(tmp_path / "found", f"000000_{offsets[2]}").output.splitlines()
    assert counted[0] == f"000000_{offsets[2]} has repeated passages; this run removed nothing"
    assert counted[-1] == dropped[-1]


def test_the_report_shows_the_most_frequent_passages(tmp_path: Path) -> None:
    passage = "a passage <b>that is</b> in all of these texts"
    run(write(tmp_path / "in", [f"{k}-{passage}={k}" for k in range(5)], 1), tmp_path / "out")
    page = (run_dir_path(tmp_path / "out") / "report.html").read_text()
    section = page.partition('<section id="passages">')[2].partition("</section>")[0]
    assert "<td>5</td>" in section.replace(' class="n"', "").replace(' class="right"', "")
    assert f"{tmp_path}/in/0.jsonl:0</code>, byte 1" in section
    assert "-a passage &lt;b&gt;that is&lt;/b&gt; in all" in section
    frequent = run_dir_path(tmp_path / "out") / "duplicates" / "most-frequent.json"
    for damage in ("[1, {}]", '{"a": 1}', "[", '[{"path": 7, "offset": "x", "start": -1}]'):
        frequent.write_text(damage)
        assert CliRunner().invoke(app, ["report", str(tmp_path / "out")]).exit_code == 0


def test_a_run_resumes_with_other_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The selections are gone by then: the first pass is done again, and the same passages go."""
    from tamis.dedup.substrings import procedure

    texts = documents(150, 4)
    source = write(tmp_path / "in", texts)
    original = procedure.run_key_pass
    called: list[str] = []

    def stopped(workflow: Any, name: str, stage: Any) -> list[str]:
        called.append(name)
        if called.count("texts") == 1 and name == "texts":
            raise KeyboardInterrupt
        return original(workflow, name, stage)

    monkeypatch.setattr(procedure, "run_key_pass", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out", memory="400MB")
    assert not list((run_dir_path(tmp_path / "out") / "dedup" / "keys-0").glob("*.arrow"))
    run(source, tmp_path / "out", memory="600MB")
    assert called == ["keys-0", "texts", "keys-0", "texts"]
    assert read(tmp_path / "out") == expected_output(texts, 24)


def test_shards_are_merged(tmp_path: Path) -> None:
    texts = documents(150, 6)
    source = write(tmp_path / "in", texts, 4)
    words = ["dedup", "substrings", str(source), str(tmp_path / "out"), "--min-bytes", "24", "--memory", "512MB"]
    for shard in ("0/2", "1/2"):
        done = tamis(*words, "--shard", shard, "--quiet")
        assert done.exit_code == 0, done.output
    done = tamis(*words, "--merge", "--quiet", "--max-source-loss", "100%")
    assert done.exit_code == 0, done.output
    assert read(tmp_path / "out") == expected_output(texts, 24)


def test_the_plan_of_a_run(tmp_path: Path) -> None:
    texts = ["".join(random.Random(k).choices("abcdefgh ", k=4000)) for k in range(200)]
    source = write(tmp_path / "in", texts)
    words = ["plan", "dedup", "substrings", str(source), "--set", "min_bytes=200", "--memory", "512MB"]
    plan = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert plan["n_key_passes"] + plan["n_other_passes"] == 3
    words = ["dedup", "substrings", str(source), str(tmp_path / "out"), "--min-bytes", "200", "--memory", "512MB"]
    assert (
        json.loads(CliRunner().invoke(app, [*words, "--plan", "--json"]).output)["scratch_bytes"]
        == (plan["scratch_bytes"])
    )
    assert not (tmp_path / "out").exists()
    result = run(source, tmp_path / "out", min_bytes=200)
    assert result.scratch_bytes / 2 < plan["scratch_bytes"] < result.scratch_bytes * 2
    imagined = CliRunner().invoke(app, ["plan", "dedup", "substrings", "--dataset-bytes", "1TB", "--memory", "8GB"])
    assert imagined.exit_code == 0, imagined.output


def test_a_step_of_a_curation(tmp_path: Path) -> None:
    """Passages are compared as the steps before it leave the texts, and later steps see what is left of them."""
    texts = [*documents(120, 3), "zz", "zz"]
    source = write(tmp_path / "in", texts)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: passages\ninput: ???\noutput: ???\nsteps:\n  - exact_duplicates\n"
        "  - repeated_passages: {min_bytes: 24, max_source_loss: 1}\n  - text\n"
    )
    words = ["curate", str(source), str(tmp_path / "out"), "--preset", str(recipe), "--memory", "512MB", "--quiet"]
    planned = CliRunner().invoke(
        app, ["plan", str(recipe), "--set", f"input={source}", "--set", f"output={tmp_path}/x"]
    )
    assert "texts for cut_repeated_passages" in planned.output
    done = tamis(*words)
    assert done.exit_code == 0, done.output
    seen: dict[str, int] = {}
    for i, text in enumerate(texts):
        seen.setdefault(text, i)
    unique = sorted(seen.values())
    wanted = expected_output([texts[i] for i in unique], 24)
    kept = [(unique[record["id"]], record["text"]) for record in wanted if str(record["text"]).strip()]
    assert [(record["id"], record["text"]) for record in read(tmp_path / "out")] == kept
    tables = [path.name for path in sorted((run_dir_path(tmp_path / "out") / "duplicates").glob("cut_*"))]
    names = ["most-frequent.json", "most-frequent.parquet", "part-00000.parquet"]
    assert tables == [f"cut_repeated_passages-{name}" for name in names]
    with pytest.raises(UsageError, match="leave the step out"):
        RepeatedPassages(remove="nothing")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_bytes": 3}, "min_bytes"),
        ({"min_bytes": 100_000}, "min_bytes"),
        ({"keep": "longest"}, "keep"),
        ({"remove": "document-above"}, "document-above SHARE"),
        ({"remove": "document-above 2"}, "document-above"),
        ({"edges": "bytes"}, "edges"),
        ({"normalize_text": "nfc"}, "normalize_text"),
        ({"min_left_chars": 0}, "min_left_chars"),
        ({"cut_field": "text"}, "cut_field"),
        ({"cut_field": "cut", "remove": "document-above 10%"}, "cut_field"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SubstringDeduplicationWorkflow(str(tmp_path / "out"), str(tmp_path), **parameters)


def test_another_length_is_another_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(20))
    run(source, tmp_path / "out")
    assert run(source, tmp_path / "out").status == "already"
    with pytest.raises(RunConflict, match="min_bytes was 24 and is 30 now"):
        run(source, tmp_path / "out", min_bytes=30)
