"""Samples of real runs: the same for any workers, blocks and interruptions; nothing that must not be stored."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.engine.samples import FILE, DocumentSample, SampleOutcome, SampleSelection, read_samples, rule_roles, select
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic.repetition import RepeatedLinesFilter
from tamis.stages.text.filters.heuristic.string import NumbersFilter, WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modifiers import Modify, PiiRedactor, UnicodeReformatter
from tamis.tasks import DocumentBatch
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path

N = 3000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("in"), random.Random(3)
    for name in "abc":
        documents = []
        for i in range(N // 3):
            lines = [
                " ".join(rng.choice(("one", "two", "cafe\u0301", "7")) for _ in range(rng.randint(1, 12)))
            ] * rng.randint(1, 3)
            text = "\n".join([*lines, f"write to someone.{i}@example.com"] if i % 7 == 0 else lines)
            documents.append({"id": f"{name}{i}", "url": f"https://{name}.example/{i}", "language": "en", "text": text})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    return folder


def run(
    source: Path, output: Path, executor: Any = None, blocksize: str = "50KB", more: Sequence[Any] = (), **settings: Any
) -> SampleSelection:
    stages = [
        JsonlReader(str(source), blocksize=blocksize),
        Modify([UnicodeReformatter(), PiiRedactor()], name="clean"),
        ScoreFilter([WordCountFilter(min_words=8), RepeatedLinesFilter(0.6), NumbersFilter(0.1)], name="rules"),
        *more,
        JsonlWriter(str(output)),
    ]
    Pipeline("sampled", stages=stages).execute(executor or InProcessExecutor(report=False), **settings)
    if "shard" in settings:
        return SampleSelection()
    with open(run_dir_path(output) / FILE, "rb") as file:
        return select(read_samples(file))


@pytest.fixture(scope="module")
def selection(source: Path, tmp_path_factory: pytest.TempPathFactory) -> SampleSelection:
    return run(source, tmp_path_factory.mktemp("out") / "out")


def shown(selection: SampleSelection) -> list[DocumentSample]:
    return [s for s in selection.samples() if s.excerpt is not None]


def test_what_is_chosen_and_what_is_stored_of_it(selection: SampleSelection) -> None:
    assert {s.outcome for s in shown(selection)} == set(SampleOutcome)
    assert len(selection.of_role("all")) == 400
    assert len(selection.of_role(SampleOutcome.KEPT)) == len(selection.of_role(SampleOutcome.DROPPED)) == 80
    (short, lines, numbers) = sorted(
        selection.chosen.rules,
        key=lambda r: ("word_count", "repeated_lines").index(r[1]) if r[1] in ("word_count", "repeated_lines") else 9,
    )
    assert [short[1], lines[1], numbers[1]] == ["word_count", "repeated_lines", "numbers_ratio"]
    for stage, rule in selection.chosen.rules:
        any_of_rule, near = (selection.of_role(role) for role in rule_roles(stage, rule))
        assert len(any_of_rule) == len(near) == 3
        assert all(s.value and s.threshold and s.excerpt and s.id for s in (*any_of_rule, *near))
        assert max(s.distance or 0.0 for s in near) <= min(s.distance or 0.0 for s in any_of_rule)
    assert {s.groups["domain"] for s in selection.samples()} == {"a.example", "b.example", "c.example"}
    assert {s.groups["language"] for s in selection.samples()} == {"en"}


def test_what_a_rule_counted_is_marked(selection: SampleSelection) -> None:
    for sample in selection.of_role(rule_roles("rules", "repeated_lines")[0]):
        assert sample.excerpt is not None
        marked = [sample.excerpt.text[a:b] for a, b in sample.excerpt.marks]
        assert marked
        assert all(sample.excerpt.text.count(line) > 1 for line in marked)
    for sample in selection.of_role(rule_roles("rules", "numbers_ratio")[0]):
        assert sample.excerpt is not None
        assert {sample.excerpt.text[a:b] for a, b in sample.excerpt.marks} <= {"7"}


def test_a_changed_document_is_shown_before_and_after(selection: SampleSelection) -> None:
    changed = selection.of_role(SampleOutcome.CHANGED)
    assert len(changed) == 40
    for sample in changed:
        assert sample.excerpt is not None
        assert sample.before is not None
        assert sample.excerpt.text != sample.before.text or "<EMAIL>" in sample.excerpt.text


def test_removed_values_are_stored_nowhere(source: Path, tmp_path: Path) -> None:
    found = run(source, tmp_path / "out")
    assert any("<EMAIL>" in s.excerpt.text for s in shown(found) if s.excerpt is not None)
    for path in (run_dir_path(tmp_path / "out")).rglob("*"):
        if path.is_file():
            assert re.search(rb"someone\.[0-9]+@", path.read_bytes()) is None, path


@pytest.mark.parametrize(
    ("blocksize", "settings"), [("1MB", {}), ("20KB", {"mode": "batch"}), ("20KB", {"workers": 2})]
)
def test_the_samples_do_not_depend_on_how_the_run_went(
    source: Path, selection: SampleSelection, tmp_path: Path, blocksize: str, settings: dict[str, Any]
) -> None:
    executor = LocalExecutor({"memory": "600MB"}, report=False) if "workers" in settings else None
    assert run(source, tmp_path / "out", executor, blocksize, **settings).samples() == selection.samples()


@dataclass(repr=False)
class Interrupt(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Interrupts the first run, after some partitions."""

    name: str = "interrupt"
    left: ClassVar[int] = 0

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        Interrupt.left -= 1
        if Interrupt.left == 0:
            raise KeyboardInterrupt
        return batch


def test_samples_of_a_resumed_run(source: Path, selection: SampleSelection, tmp_path: Path) -> None:
    Interrupt.left = 5
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out", more=[Interrupt()])
    with open(run_dir_path(tmp_path / "out") / FILE, "ab") as file:
        file.write(b'{"key":5,')  # killed while it wrote
    Interrupt.left = 0
    assert run(source, tmp_path / "out", more=[Interrupt()]).samples() == selection.samples()


def test_samples_of_shards_are_joined(source: Path, selection: SampleSelection, tmp_path: Path) -> None:
    for shard in ("0/2", "1/2"):
        run(source, tmp_path / "out", shard=shard)
    assert run(source, tmp_path / "out", merge=True).samples() == selection.samples()


def test_no_samples(source: Path, tmp_path: Path) -> None:
    arguments = ["filter", "gopher", str(source), str(tmp_path / "out"), "--no-samples", "-q", "--memory", "600MB"]
    result = tamis(*arguments)
    assert result.exit_code == 0, result.output
    assert not (run_dir_path(tmp_path / "out") / FILE).exists()
    report = (run_dir_path(tmp_path / "out") / "report.html").read_text()
    assert "one two" not in report
    assert "two one" not in report


def test_samples_of_a_killed_run(tmp_path: Path) -> None:
    """SIGKILL, then the same command: the same samples, all of them with their texts and what rules counted."""
    rng, source = random.Random(5), tmp_path / "in.jsonl"
    with open(source, "w") as file:
        for i in range(1500):
            lines = [
                " ".join(rng.choices(("and", "with", "the", "be", "of", "that", f"word{i}"), k=9)) for _ in range(8)
            ]
            file.write(json.dumps({"id": str(i), "text": "\n".join(lines if i % 3 else lines[:2] * 8)}) + "\n")

    def command(output: Path) -> list[str]:
        options = ["-q", "--memory", "600MB", "--blocksize", "25KB", "--workers", "2"]
        return [sys.executable, "-m", "tamis.cli.start", "filter", "gopher", str(source), str(output), *options]

    subprocess.run(command(tmp_path / "whole"), check=True)
    for n_commits in (2, 12):
        with subprocess.Popen(command(tmp_path / "killed"), start_new_session=True) as process:
            log = run_dir_path(tmp_path / "killed") / "commit.log"
            while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < n_commits):
                time.sleep(0.005)
            assert process.poll() is None, "it ended before it was killed"
            os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(command(tmp_path / "killed"), check=True)
    found = []
    for name in ("whole", "killed"):
        with open(run_dir_path(tmp_path / name) / FILE, "rb") as file:
            found.append(select(read_samples(file)).samples())
    assert found[0] == found[1]
    assert all(s.record is None for s in found[0])
    assert any(s.excerpt is not None and s.excerpt.marks for s in found[0])
