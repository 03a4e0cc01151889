"""A reader of a live run sees whole moments: figures that add up, and all processes, at every look."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tamis.engine.ledger import Ledger
from tamis.engine.run_record import RunCounts
from tamis.observe.charts.run_charts import document_cards
from tamis.observe.live import LiveRun, read_live
from tamis.observe.passes import find_shown_run
from tamis.observe.snapshot import Snapshot, read_snapshot
from tests.support.command import SRC
from tests.support.run_dirs import run_dir_path

N_LOOKS = 500
RECIPE = """
name: moments
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: in
    files_per_partition: 1
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 20}
  - _target_: user_stages.Halves
  - _target_: user_stages.Slow
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
settings: {memory: 800MB, workers: 3, quarantine_limit: 5%}
"""
N_FILES, N_LAST = 40, 8
# Several workers that hand documents on, a stage that fails on some, and one that makes two of one. All workers wait in
# the last files until the reader has seen enough: how many moments there are does not depend on who is faster.
STAGES = """
import time
from pathlib import Path
from tamis import ProcessingStage, Resources
from tamis.stages.text.modules.splitter import DocumentSplitter

class Halves(DocumentSplitter):
    name = "halves"
    def __init__(self):
        super().__init__(separator=" stop ")

class Slow(ProcessingStage):
    name = "slow"
    resources = Resources(cpus=0.5)  # a segment of its own
    def process(self, batch):
        if "poison" in batch.values("text"):
            raise ValueError("poison")
        time.sleep(0.2)
        is_last = any(text.startswith("last") for text in batch.values("text"))
        while is_last and not Path(__file__).with_name("enough").exists():
            time.sleep(0.02)
        return batch
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moments")
    (folder / "in").mkdir()
    rng = random.Random(1)
    for k in range(N_FILES):
        first = "last" if k >= N_FILES - N_LAST else "first"
        lines = [
            f'{{"text": "{first} {"word " * rng.randrange(1, 60)}stop {first} {"more " * rng.randrange(1, 60)}"}}'
            for _ in range(90)
        ]
        lines[7] = "{broken"
        (folder / f"in/{k}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "user_stages.py").write_text(STAGES)
    return folder


def add_up(counts: RunCounts) -> bool:
    ended = counts.written + counts.dropped + counts.quarantined + counts.not_sampled
    return counts.in_flight >= 0 and counts.records + counts.added == ended + counts.in_flight


def check_moment(look: LiveRun | Snapshot) -> None:
    total = look.total if isinstance(look, LiveRun) else look.last
    points = [s.point for s in look.stages] if isinstance(look, LiveRun) else look.stages
    assert total is not None
    assert look.counts is not None
    assert add_up(look.counts)
    assert total.documents + total.added == (
        total.written + total.dropped + total.quarantined + total.not_sampled + total.in_flight
    )
    # The stages are those of the same moment: what they dropped is what the card says.
    assert {p.at for p in points} == {total.at}
    assert sum(p.n_dropped for p in points) == total.dropped
    assert points[0].n_in <= total.documents
    assert points[-1].n_out >= total.written
    # So are the processes, all of them.
    assert {p.at for p in look.processes} == {total.at}
    assert len(look.processes) == total.n_processes
    assert {str(p.worker) for p in look.processes if p.role == "worker"} == set(total.workers)
    assert [p.role for p in look.processes].count("supervisor") == 1


def test_every_look_at_a_real_run_sees_a_whole_moment(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "run",
        "recipe.yaml",
        "--allow-module",
        "user_stages",
        "--quiet",
    ]
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{folder}"}
    n_looks, seen = 0, set()
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while (is_live := process.poll() is None) or n_looks < N_LOOKS:
            if not (run_dir_path(folder / "out") / "run.sqlite").exists():
                assert is_live, process.stderr.read() if process.stderr is not None else ""
                time.sleep(0.01)
                continue
            place = find_shown_run(run_dir_path(folder / "out"))
            for look in (read_live(place.run_dir), read_snapshot(place.run_dir)):
                total = look.total if isinstance(look, LiveRun) else look.last
                if total is None or not total.at:
                    continue
                check_moment(look)
                n_looks += 1
                seen.add((total.at, len(look.processes)))
                # Moments of a run that goes on, with supervisor, server and three workers.
                if len({at for at, _ in seen}) > 3 and max(n for _, n in seen) >= 5:
                    (folder / "enough").touch()
        assert process.wait() == 0
    assert n_looks >= N_LOOKS
    assert len({at for at, _ in seen}) > 3
    assert max(n for _, n in seen) >= 5
    look = read_snapshot(run_dir_path(folder / "out"))
    assert look.record is not None
    assert look.record.counts == look.counts
    assert look.counts is not None
    assert (look.counts.in_flight, look.counts.quarantined) == (0, N_FILES)
    assert look.counts.added > 0


def test_the_parts_of_the_documents_that_are_shown_add_up() -> None:
    counts = RunCounts(records=100, written=20, dropped=60, duplicates=7, quarantined=3, added=10)
    entries = {name: (value, detail) for name, value, detail in document_cards(counts)}
    assert entries["in flight"][0] == "27"
    assert entries["dropped"] == ("60", "54.5%, of which 7 duplicates")
    assert "duplicates" not in entries  # a part of the dropped ones, not a number next to it
    shown = [int(value) for value, _ in entries.values()]
    assert shown[0] + shown[1] == sum(shown[2:])
    assert document_cards(RunCounts.of_ledger(Ledger()))[0] == ("documents", "0", "")
