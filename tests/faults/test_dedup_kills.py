"""SIGKILL in every pass of a fuzzy deduplication, then the same command: the same survivors.

Victims are the process that drives the passes, the process that decides between them and the one they are all forked
from; the workers of a pass are those of any run (test_kills.py). Every restart may have other workers and another
budget.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.faults.fault_harness import env, lines_of
from tests.support.run_dirs import data_names, run_dir_path

N_DOCUMENTS = 4500
WORDS = [
    a + b + c for a in ("ka", "lo", "mi", "nu") for b in ("ban", "dor", "fil", "gem", "hul") for c in ("a", "en", "o")
]
SETTINGS = [("400MB", "1"), ("512MB", "2"), ("1GB", "2")]
PHASES = ("keys", "decision", "texts", "removal")


def write_corpus(folder: Path) -> Path:
    """Write some 13 MB; every third document is an edited copy of another one.

    One file is compressed: texts are then collected in a pass.
    """
    folder.mkdir()
    for name, data in _corpus().items():
        (folder / name).write_bytes(data)
    return folder


@cache
def _corpus() -> dict[str, bytes]:
    rng = random.Random(5)
    texts: list[str] = []
    for i in range(N_DOCUMENTS):
        if i % 3 == 2:
            words = texts[rng.randrange(len(texts))].split()
            for _ in range(3):
                words[rng.randrange(len(words))] = "changed"
        else:
            words = rng.choices(WORDS, k=420)
        texts.append(" ".join(words))
    rng.shuffle(texts)
    files = {}
    for k in range(3):
        lines = [json.dumps({"id": f"{k}-{i}", "text": t}) for i, t in enumerate(texts[k::3])]
        data = ("\n".join(lines) + "\n").encode()
        if k == 2:
            files["2.jsonl.gz"] = gzip.compress(data, 1, mtime=0)
        else:
            files[f"{k}.jsonl"] = data
    return files


def start(
    source: Path, output: Path, memory: str = "512MB", workers: str = "2", more: Sequence[str] = ()
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tamis.cli.start", "dedup", "fuzzy", str(source), str(output), "--quiet", "--json"]
    options = ["--memory", memory, "--workers", workers, "--blocksize", "2MB"]
    return subprocess.Popen(
        [*command, *options, *more], env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def named(run: int, name: str) -> list[int]:
    try:
        return [p.pid for p in psutil.Process(run).children(recursive=True) if p.name() == name]
    except psutil.Error:
        return []


def deciding(run: int) -> list[int]:
    return named(run, "tamis-solver")


@dataclass
class Killer:
    """Runs the command until it finishes, killing it in the phases of the plan."""

    source: Path
    output: Path
    rng: random.Random
    more: Sequence[str] = ()
    n_missed: int = 0  # times in a row
    killed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self, plan: list[tuple[str, str]]) -> None:
        deadline = time.monotonic() + 60 + 25 * len(plan)
        while True:
            assert time.monotonic() < deadline, f"not finished; killed {dict(self.killed)}"
            run = start(self.source, self.output, *self.rng.choice(SETTINGS), self.more)
            try:
                if plan:
                    self._disturb(run, plan)
                text, _ = run.communicate(timeout=100)
            finally:
                if run.poll() is None:
                    run.kill()
                    run.wait()
            if run.returncode == 0:
                return
            told = "the deciding process ended with status -9"
            assert run.returncode == -signal.SIGKILL or (run.returncode == 1 and told in text), text[-3000:]

    def _disturb(self, run: subprocess.Popen[str], plan: list[tuple[str, str]]) -> None:
        """Wait for the phase of the next victim, a random moment longer, and kill.

        A phase that is over is tried in another output.
        """
        phase, victim = plan[0]
        while run.poll() is None and not self._is_in(phase, run.pid):
            time.sleep(0.002)
        longest_s = {"decision": 0.1, "index": 0.02}.get(phase, 0.5)
        time.sleep(self.rng.uniform(0.0, longest_s / 2**self.n_missed))  # sooner, if the phase was over the last times
        pids = [run.pid] if victim == "driver" else named(run.pid, f"tamis-{victim}")
        if run.poll() is None and pids and self._is_in(phase, run.pid):
            os.kill(pids[0], signal.SIGKILL)
            self.killed[phase, victim] += 1
            plan.pop(0)
            self.n_missed = 0
        else:
            self.n_missed += 1

    def _is_in(self, phase: str, run: int) -> bool:
        folder = run_dir_path(self.output)
        work = folder / "dedup"
        if phase == "decision":
            return bool(deciding(run))
        if phase == "index":  # after the removal
            return bool(deciding(run)) and (folder / "manifest.json").exists()
        if phase == "removal":
            return (folder / "plan.json").exists() and not (folder / "dedup.json").exists()
        name, done = ("keys-0", "task.json") if phase == "keys" else ("texts", "summary.json")
        return (run_dir_path(work / name) / "plan.json").exists() and not (work / done).exists()


def rows(output: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.read_table(run_dir_path(output) / "duplicates").to_pylist()
    return sorted(table, key=lambda row: str(row["id"]))


def check(tmp_path: Path, plan: list[tuple[str, str]], seed: int) -> Counter[tuple[str, str]]:
    source = write_corpus(tmp_path / "in")
    calm = start(source, tmp_path / "calm")
    text, _ = calm.communicate(timeout=100)
    assert calm.returncode == 0, text
    expected = sorted(lines_of(tmp_path / "calm"))
    assert N_DOCUMENTS // 2 < len(expected) < N_DOCUMENTS * 3 // 4
    rng, killed, n_rounds, n_missed = random.Random(seed), Counter[tuple[str, str]](), 0, 0
    while plan:
        killer = Killer(source, tmp_path / f"out{n_rounds}", rng, n_missed=n_missed)
        killer.run(plan)
        killed += killer.killed
        assert sorted(lines_of(killer.output)) == expected
        assert rows(killer.output) == rows(tmp_path / "calm")
        assert not (run_dir_path(killer.output) / "dedup").exists()
        assert all(name.startswith("part-") for name in data_names(killer.output))
        n_rounds += 1
        n_missed = killer.n_missed
        assert n_missed < 8, f"whole runs without a kill in {plan[0]}"
    return killed


@pytest.mark.timeout(400)
def test_kills_in_every_pass(tmp_path: Path) -> None:
    """One of each kind; test_fifty_kills has them all, many times."""
    plan = [
        ("keys", "driver"),
        ("decision", "solver"),
        ("texts", "driver"),
        ("decision", "warm"),
        ("removal", "driver"),
    ]
    assert check(tmp_path, list(plan), seed=3) == Counter(plan)


def check_index(tmp_path: Path, plan: list[tuple[str, str]]) -> None:
    """Kill runs that use an index and add to it.

    A third of the documents are new; the index ends with two entries, whole, and nothing else.
    """
    source = write_corpus(tmp_path / "in")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    for path in sorted(source.iterdir()):
        path.rename((new if path.name == "0.jsonl" else old) / path.name)
    index = tmp_path / "index"
    Killer(old, tmp_path / "old-out", random.Random(1), ["--index", str(index)]).run([])

    def added(name: str, plan: list[tuple[str, str]], n_missed: int = 0) -> tuple[Killer, object]:
        """Run with a copy of the index and add to it; return what it leaves."""
        place = tmp_path / name
        shutil.copytree(index, place / "index")
        more = ["--against", str(place / "index"), "--append"]
        killer = Killer(new, place / "new", random.Random(2), more, n_missed)
        killer.run(plan)
        entries = json.loads((place / "index" / "index.json").read_text())["entries"]
        assert len(entries) == 2
        names = sorted(p.name for p in (place / "index").iterdir())
        assert names == sorted(["index.json", "lock", *(e["name"] for e in entries)])
        kept = [(row["id"], row["kept_id"], row["similarity"]) for row in rows(place / "new")]
        lines = sorted(lines_of(place / "new"))
        assert 0 < len(lines) < N_DOCUMENTS // 3
        return killer, (lines, kept, [e["by_file"] for e in entries])

    _, calm = added("calm", [])
    n_rounds = n_missed = 0
    while plan:  # a pass may be over before it is seen: then in another round
        assert n_rounds < 8, f"whole runs without a kill in {plan[0]}"
        killer, found = added(f"killed{n_rounds}", plan, n_missed)
        assert found == calm
        n_rounds, n_missed = n_rounds + 1, killer.n_missed


@pytest.mark.timeout(400)
def test_kills_while_an_index_is_used_and_added_to(tmp_path: Path) -> None:
    check_index(tmp_path, [("decision", "solver"), ("index", "driver")])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_solver_that_adds_to_an_index(tmp_path: Path) -> None:
    check_index(tmp_path, [("index", "solver")])


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_fifty_kills(tmp_path: Path) -> None:
    rng = random.Random(8)
    plan = []
    for i in range(50):
        phase = PHASES[i % 4]
        victims = ["driver", "warm", "solver"] if phase == "decision" else ["driver", "warm"]
        plan.append((phase, rng.choice(victims)))
    assert check(tmp_path, list(plan), seed=9) == Counter(plan)


@pytest.mark.timeout(300)
def test_an_interrupt_ends_with_130_and_the_same_command_continues(tmp_path: Path) -> None:
    source = write_corpus(tmp_path / "in")
    for phase in ("keys", "decision"):
        killer = Killer(source, tmp_path / "out", random.Random(1))
        run = start(source, tmp_path / "out")
        while run.poll() is None and not killer._is_in(phase, run.pid):
            time.sleep(0.002)
        run.send_signal(signal.SIGINT)
        text, _ = run.communicate(timeout=60)
        assert run.returncode == 130, text
        assert "run the same command again" in text
        assert "Traceback" not in text
    last = start(source, tmp_path / "out")
    text, _ = last.communicate(timeout=100)
    assert last.returncode == 0, text
    told = json.loads(text)
    assert told["n_documents"] == N_DOCUMENTS
    assert len(lines_of(tmp_path / "out")) == N_DOCUMENTS - told["n_duplicates"]
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()
