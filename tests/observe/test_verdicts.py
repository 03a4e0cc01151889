"""Why a document went, and what another threshold would do: from what the run stored."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.errors import UsageError
from tamis.observe.verdicts import find, find_written, rethreshold
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


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
    assert verdict.smallest_change() == "min_chars=7 (it is 10)"
    assert verdict.path.endswith("in/a.jsonl")
    assert find(str(output), f"a.jsonl:{verdict.offset}") == [verdict]


def test_a_stage_without_notes_still_tells_which_stage(output):
    (verdict,) = find(str(output), "13")
    assert (verdict.stage, verdict.rule, verdict.value, verdict.smallest_change()) == ("odd", "odd", None, None)


def test_a_kept_document_is_found_in_the_output(output):
    assert find(str(output), "12") == []
    assert find_written(str(output), "12") == str(next(output.glob("part-*.jsonl")))
    assert find_written(str(output), "99") is None


def test_rethreshold_counts_what_would_come_back(output):
    result = rethreshold(str(output), "min chars", None, 5)
    assert (result.name, result.old, result.n_dropped, result.n_back) == ("min_chars", 10.0, 10, 5)
    lines = {n: len(json.dumps({"id": n, "text": "x" * n})) for n in range(10)}
    assert (result.dropped_bytes, result.back_bytes) == (sum(lines.values()), sum(lines[n] for n in range(5, 10)))
    with pytest.raises(UsageError, match="rules that dropped documents: min chars, odd"):
        rethreshold(str(output), "nothing", None, 5)
    with pytest.raises(UsageError, match="has no limit named 'max_chars'"):
        rethreshold(str(output), "min chars", "max_chars", 5)


def test_rejected_documents_are_kept_with_their_verdict(output):
    lines = [json.loads(x) for p in (output / "_tamis/rejected").iterdir() for x in p.read_text().splitlines()]
    assert sorted(r["id"] for r in lines) == [*range(10), 11, 13, 15, 17, 19]
    seven = next(r for r in lines if r["id"] == 7)
    assert seven["text"] == "x" * 7
    assert seven["_tamis_rejected"] == {
        "stage": "length",
        "rule": "min chars",
        "value": "7",
        "threshold": '{"min_chars": 10}',
    }


def test_the_commands(output):
    def tamis(*args):
        return subprocess.run(
            [sys.executable, "-m", "tamis.cli.main", *args], capture_output=True, text=True, check=False
        )

    said = tamis("why", str(output), "7")
    assert said.returncode == 0, said.stderr
    assert "7 was dropped by min chars (stage length)" in said.stdout
    assert "it would have been kept with min_chars=7 (it is 10)" in said.stdout
    assert "12 was kept" in tamis("why", str(output), "12").stdout
    absent = tamis("why", str(output), "99")
    assert (absent.returncode, "no document '99'" in absent.stderr) == (2, True)
    assert "would keep 5 of them (50.0%, " in tamis("rethreshold", str(output), "min chars=5").stdout
    assert json.loads(tamis("rethreshold", str(output), "min chars.min_chars=5", "--json").stdout)["n_back"] == 5
    assert tamis("why", str(output / "nothing"), "7").returncode == 2
