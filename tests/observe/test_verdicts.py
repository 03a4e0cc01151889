"""Why a document went, and what another threshold would do: from what the run stored."""

import contextlib
import errno
import gzip
import io
import json
import os
import subprocess
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.jobs.summary import print_drops
from tamis.cli.main import app
from tamis.errors import TamisError, UsageError
from tamis.observe.document_status import ASIDE, KEPT, NO_RECORD, NOT_READ, NOT_SAMPLED, read_record, whereabouts
from tamis.observe.duplicates import read_side
from tamis.observe.records import line_at
from tamis.observe.thresholds import rethreshold
from tamis.observe.verdicts import (
    AT_LEAST,
    AT_MOST,
    OutputRow,
    find,
    find_written,
    lacks_ids,
    not_asked,
    rule_of,
    rules_of,
    run_folder,
)
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic.repetition import RepeatedLinesFilter
from tamis.stages.text.filters.heuristic.string import LongWordFilter, WordCountFilter
from tamis.stages.text.filters.histogram import HistogramFilter
from tamis.stages.text.io.reader import DocumentReader, JsonlReader
from tamis.stages.text.io.writer import ArrowWriter, JsonlWriter, ParquetWriter
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path


class MinChars(ProcessingStage):
    name = "length"

    def __init__(self, min_chars):
        self.min_chars = min_chars

    def process(self, batch):
        sizes = np.array([len(t) for t in batch.column("text").to_pylist()])
        gone = sizes < self.min_chars
        self._note_drops(batch.serial[gone], "min chars", sizes[gone], {"min_chars": self.min_chars})
        return batch.filter(~gone)


class OddIds(ProcessingStage):
    name = "odd"

    def process(self, batch):
        return batch.filter(np.array([i % 2 == 0 for i in batch.column("id").to_pylist()]))


@pytest.fixture
def output(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    lines = [json.dumps({"id": i, "text": "x" * i}) for i in range(20)]
    (source / "a.jsonl").write_text("\n".join(lines) + "\n")
    target = tmp_path / "out"
    stages = [JsonlReader(str(source)), MinChars(10), OddIds(), JsonlWriter(str(target))]
    result = Pipeline("verdicts", stages=stages).execute(InProcessExecutor(), keep_rejected=True)
    assert result.ledger.problems() == []
    assert {k: t.n for b in result.ledger.stages for k, t in b.dropped.items()} == {"min chars": 10, "odd": 5}
    return target


def test_the_verdict_names_rule_value_threshold_and_the_smallest_change(output):
    (verdict,) = find(str(output), "7")
    assert (verdict.stage, verdict.rule, verdict.value, verdict.threshold) == (
        "length",
        "min chars",
        7,
        {"min_chars": 10},
    )
    assert str(verdict.smallest_change()) == "min_chars=7 (it is 10)"
    assert verdict.path.endswith("in/a.jsonl")
    assert find(str(output), f"a.jsonl:{verdict.offset}") == [verdict]


def test_a_stage_without_notes_still_reports_which_stage(output):
    (verdict,) = find(str(output), "13")
    assert (verdict.stage, verdict.rule, verdict.value, verdict.smallest_change()) == ("odd", "odd", None, None)


def test_a_kept_document_is_found_in_the_output(output):
    assert find(str(output), "12") == []
    assert find_written(str(output), "12") == OutputRow(str(next(output.glob("part-*.jsonl"))), 1)
    assert find_written(str(output), "99") is None
    assert not lacks_ids(str(output))


def test_rethreshold_counts_what_would_come_back(output):
    result = rethreshold(str(output), "min chars", None, 5)
    assert (result.name, result.old, result.n_dropped, result.n_back) == ("min_chars", 10.0, 10, 5)
    lines = {n: len(json.dumps({"id": n, "text": "x" * n})) for n in range(10)}
    assert (result.dropped_bytes, result.back_bytes) == (sum(lines.values()), sum(lines[n] for n in range(5, 10)))
    with pytest.raises(UsageError, match="no rule named 'nothing'; rules of this run: min chars, odd"):
        rethreshold(str(output), "nothing", None, 5)
    with pytest.raises(UsageError, match="has no limit named 'max_chars'"):
        rethreshold(str(output), "min chars", "max_chars", 5)


def test_rejected_documents_are_kept_with_their_verdict(output):
    lines = [json.loads(x) for p in (run_dir_path(output) / "rejected").iterdir() for x in p.read_text().splitlines()]
    assert sorted(r["id"] for r in lines) == [*range(10), 11, 13, 15, 17, 19]
    seven = next(r for r in lines if r["id"] == 7)
    assert seven["text"] == "x" * 7
    assert seven["_tamis_rejected"] == {
        "stage": "length",
        "rule": "min chars",
        "value": "7",
        "threshold": '{"min_chars": 10}',
    }


def tamis(*args):
    return CliRunner().invoke(app, args)


def test_the_commands(output):
    said = tamis("why", str(output), "7")
    assert said.exit_code == 0, said.output
    assert "7 was dropped by min chars (stage length)" in said.stdout
    assert (
        "  this rule would have kept it with `min_chars: 7` for length in the recipe\n"
        "  rules after it, which did not see this document and might also drop it: odd\n" in said.stdout
    )
    assert "it would have been kept" not in said.stdout  # the other stage drops it, too
    assert "12 was kept" in tamis("why", str(output), "12").stdout
    absent = tamis("why", str(output), "99")
    assert (absent.exit_code, "no document '99'" in absent.stderr) == (2, True)
    shown = tamis("rethreshold", str(output), "min chars=5").stdout
    assert "5 of them pass this rule (50.0%, " in shown
    later = json.loads(tamis("rethreshold", str(output), "min chars=5", "--json").stdout)["later_rules"]
    assert later
    assert all(rule in shown for rule in later[:8])
    assert json.loads(tamis("rethreshold", str(output), "min chars.min_chars=5", "--json").stdout)["n_back"] == 5
    assert tamis("why", str(output / "nothing"), "7").exit_code == 2


def scored(tmp_path, filters, documents, **settings):
    """Return the output of a chain of rules over documents, run in this process."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    stages = [JsonlReader(str(tmp_path / "in")), ScoreFilter(filters, **settings), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("rules", stages=stages).execute(InProcessExecutor())
    assert result.ledger.problems() == []
    return str(tmp_path / "out")


def test_rules_after_the_one_that_dropped_a_document_are_named_not_skipped(tmp_path):
    long_words = "abcdefghijklmnopqrstuvwxyz"
    output = scored(
        tmp_path,
        [WordCountFilter(min_words=3), LongWordFilter(max_word_length=10)],
        [{"id": "both", "text": f"one {long_words}"}, {"id": "last", "text": f"one two three {long_words}"}],
    )
    rules = rules_of(run_folder(output))
    assert [(r.stage.split("_")[0], r.name, r.sides) for r in rules] == [
        ("score", "word_count", {"min_words": AT_LEAST, "max_words": AT_MOST}),
        ("score", "max_word_length", {"max_word_length": AT_MOST}),
    ]
    (both,), (last,) = find(output, "both"), find(output, "last")
    assert (str(both.smallest_change(rule_of(both, rules))), not_asked(both, rules)) == (
        "min_words=2 (it is 3)",
        ["max_word_length"],
    )
    assert (str(last.smallest_change(rule_of(last, rules))), not_asked(last, rules)) == (
        "max_word_length=26 (it is 10)",
        [],
    )
    told = json.loads(tamis("why", output, "both", "--json").stdout)["verdicts"][0]
    assert (told["kept_by_rule_with"], told["not_evaluated"]) == ("min_words=2 (it is 3)", ["max_word_length"])


def test_a_limit_counts_the_way_its_rule_says_whatever_it_is_called(tmp_path):
    lines = "the same line\n" * 9 + "another line"
    output = scored(
        tmp_path,
        [RepeatedLinesFilter(max_repeated_line_fraction=0.7), WordCountFilter(min_words=2)],
        [{"id": "repeats", "text": lines}, {"id": "short", "text": "one"}],
        invert=[False, True],
    )
    rules = rules_of(run_folder(output))
    (repeats,) = find(output, "repeats")  # 2 of its 10 lines differ, and 7 of 10 must
    assert str(repeats.smallest_change(rule_of(repeats, rules))) == "max_repeated_line_fraction=0.2 (it is 0.7)"
    assert find(output, "short") == []


def test_a_rule_that_compares_nothing_proposes_no_threshold(tmp_path):
    output = scored(tmp_path, HistogramFilter("en", threshold=0.8), [{"id": "odd", "text": "\u4e00\u4e8c\u4e09"}])
    (odd,) = find(output, "odd")
    assert (odd.value, odd.smallest_change(rule_of(odd, rules_of(run_folder(output))))) == (0, None)


@pytest.mark.parametrize("kind", ["plain", "gz", "parquet"])
def test_a_document_named_by_its_place_is_not_denied(tmp_path, kind):
    documents = [{"id": i, "text": "x" * i} for i in (12, 14, 3)]
    source = tmp_path / "in"
    source.mkdir()
    text = "".join(json.dumps(d) + "\n" for d in documents).encode()
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(documents), source / "a.parquet")
    else:
        name, data = ("a.jsonl.gz", gzip.compress(text)) if kind == "gz" else ("a.jsonl", text + b"no json\n")
        (source / name).write_bytes(data)
    (source / "ba.jsonl").write_text('{"id": 99, "text": "a file whose name ends alike"}\n')
    stages = [DocumentReader(str(source)), MinChars(10), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("places", stages=stages).execute(InProcessExecutor(), quarantine_limit="100%")
    name = next(p.name for p in source.iterdir() if p.name != "ba.jsonl")
    second = 1 if kind == "parquet" else text.index(b"\n") + 1
    for offset in (0, second):
        (found,) = whereabouts(str(tmp_path / "out"), f"{name}:{offset}")
        assert (found.state, found.sentence) == (KEPT, f"was kept: {found.files[0]}")
        assert f'"id":{12 if offset == 0 else 14},' in Path(found.files[0]).read_text().replace(" ", "")
    inside = 3 if kind == "parquet" else 1
    assert whereabouts(str(tmp_path / "out"), f"{name}:{inside}")[0].state in (NO_RECORD, NOT_READ)
    assert whereabouts(str(tmp_path / "out"), "other.jsonl:0") == []
    if kind == "plain":
        (bad,) = whereabouts(str(tmp_path / "out"), f"{name}:{len(text)}")
        assert (bad.state, "was quarantined: " in bad.sentence) == (ASIDE, True)


@pytest.mark.parametrize("place", ["\u00b2", "\u0661", "9" * 5000, "-1", ""])
def test_a_place_that_is_no_number_is_no_place(output, place):
    assert find(str(output), f"a.jsonl:{place}") == []
    assert whereabouts(str(output), f"a.jsonl:{place}") == []
    said = CliRunner().invoke(app, ["why", str(output), f"a.jsonl:{place}"])
    assert (said.exit_code, "was dropped or written by this run" in said.output) == (2, True)


def test_a_kept_document_is_found_in_files_of_every_format(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "d1", "text": "x"}\n')
    for name, writer in (("arrow", ArrowWriter), ("parquet", ParquetWriter)):
        stages = [JsonlReader(str(tmp_path / "a.jsonl")), writer(str(tmp_path / name))]
        Pipeline("kept", stages=stages).execute(InProcessExecutor())
        (tmp_path / name / "a_stats.json").write_text("{\n}\n")  # of somebody else
        found = find_written(str(tmp_path / name), "d1")
        assert found is not None
        assert (found.path.endswith(f".{name}"), found.row) == (True, 0)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_the_first_record_after_a_byte_order_mark(tmp_path, name):
    data = b'\xef\xbb\xbf{"id": 1}\n{"id": 2}\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    path = str(tmp_path / name)
    assert [line_at(path, offset) for offset in (3, 13, 4, 2)] == [b'{"id": 1}', b'{"id": 2}', None, None]
    (tmp_path / name).write_bytes(gzip.compress(b"{}\n[]\n") if name.endswith("gz") else b"{}\n[]\n")
    assert line_at(path, 3) == b"[]"


def test_what_is_in_a_store_is_not_called_gone(tmp_path, monkeypatch):
    assert read_record("s3://bucket/a.jsonl", 0) == (
        None,
        "s3://bucket/a.jsonl lies in a store, and is not read for this",
    )
    assert (
        read_side("https://host/a.jsonl", 0, "text", {}).problem
        == "it lies in a store, and files there are not read for this"
    )
    run = run_dir_path(tmp_path / "home.tamis")
    run.mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps({"inputs": {"paths": ["/in/a.jsonl"]}}))
    monkeypatch.setattr("tamis.observe.verdicts.fetch_run_dir", lambda output: str(run.parent))
    monkeypatch.setattr("tamis.observe.duplicates.local_output_dir", lambda output: str(run.parent))
    with pytest.raises(UsageError, match=r"the commit log of s3://bucket/out lies in the bucket"):
        whereabouts("s3://bucket/out", "a.jsonl:0")
    said = CliRunner().invoke(app, ["why", "s3://bucket/out", "some-id"])
    assert "cannot be looked up by its id in a bucket, only by its place" in said.output


def test_a_document_outside_the_sample_differs_from_one_that_was_kept(tmp_path):
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": f"d{i}", "text": "x"}) + "\n" for i in range(40)]
    (tmp_path / "in/a.jsonl").write_text("".join(lines))
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("sample", stages=stages).execute(InProcessExecutor(), sample=0.5)
    kept = {json.loads(x)["id"] for p in (tmp_path / "out").glob("part-*") for x in p.read_text().splitlines()}
    assert 5 < len(kept) < 35
    for i in (0, *range(10, 20)):
        (found,) = whereabouts(str(tmp_path / "out"), f"a.jsonl:{sum(map(len, lines[:i]))}")
        assert found.state == (KEPT if f"d{i}" in kept else NOT_SAMPLED)


def test_a_run_from_python_leaves_its_report(tmp_path, output):
    assert (run_dir_path(output) / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((run_dir_path(output) / "report.json").read_text())["n_records"] == 20
    pipeline = Pipeline("again", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "other"))])
    result = pipeline.execute(InProcessExecutor())
    assert result.report == str(run_dir_path(tmp_path / "other") / "report.html")
    again = pipeline.execute(InProcessExecutor())
    assert (again.status, again.report) == ("already", result.report)
    quiet = Pipeline("quiet", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "quiet"))])
    assert quiet.execute(InProcessExecutor(report=False)).report == ""
    assert not (run_dir_path(tmp_path / "quiet") / "report.html").exists()


def test_a_run_from_python_that_ends_in_an_error_leaves_its_report_too(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("no json\n" * 300)
    pipeline = Pipeline("bad", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(TamisError):
        pipeline.run(InProcessExecutor())
    assert (run_dir_path(tmp_path / "out") / "report.html").exists()


EVIL = ["$(touch ran)", "`touch ran`", "a; touch ran", "a' ; touch ran '", "--help", "a b", "x\ny; touch ran"]


@pytest.mark.parametrize("name", EVIL)
def test_a_pasted_hint_runs_nothing_but_the_command(tmp_path, name):
    fake = tmp_path / "tamis"
    fake.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    fake.chmod(0o755)
    drops = [{"stage": "s", "reason": "r", "documents": 1, "bytes": 1, "examples": [name]}]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        print_drops(drops, str(tmp_path / "my out"))
    pasted = shown.getvalue().rpartition("why one of them went: ")[2].strip()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", pasted], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    words = [w for w in done.stdout.split("\0") if w and w != "--"]
    assert words == ["why", str(tmp_path / "my out"), name.replace("\n", "\\n")]
    assert not (tmp_path / "ran").exists()
    row = next(line for line in shown.getvalue().splitlines() if line.split()[:1] == ["r"])
    subprocess.run(
        ["sh", "-c", "tamis why out " + row.split("1 B")[1].strip()],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=True,
    )
    assert not (tmp_path / "ran").exists()


def test_a_report_that_cannot_be_written_says_what_to_do(output: Path) -> None:
    refused = OSError(errno.EROFS, os.strerror(errno.EROFS), "report.json.tmp")
    with mock.patch("tamis.files.write_text", side_effect=refused):
        told = CliRunner().invoke(app, ["report", str(output)])
    assert told.exit_code == 2
    assert "Read-only file system; copy it to where you may write, and name the copy" in told.output
