"""Exactly once: kill -9 of workers, forking server and supervisor at random instants, then the same command again.

The run lives in a script of its own (TARGET in fault_harness.py); every restart uses other workers, another budget and
another block size. At the end the content hash and the written lines are those of an undisturbed run.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.fault_harness import content_hash, document, env, execute, lines_of, manifest, quarantine, target
from tests.faults.fault_stages import AddLength, DropOdd, Slow
from tests.support.run_dirs import run_dir_path

N_DOCUMENTS = 16_000
SETTINGS = [("420MB", "1", "64KiB"), ("512MB", "2", "100KB"), ("1GB", "2", "256KiB"), ("700MB", "3", "80KB")]
VICTIMS = ("worker", "server", "supervisor")


@dataclass
class Killer:
    """Runs the script until it finishes, killing one of its processes now and then."""

    source: Path
    output: Path
    rng: random.Random
    seconds_per_batch: float
    early: float = 0.0  # share of starts that may be killed before they committed anything
    killed: Counter[str] = field(default_factory=Counter)
    n_starts: int = 0
    committed_before: list[int] = field(default_factory=list)  # commits an interrupted run left to the next one

    def run(self, plan: list[str]) -> None:
        """Until the script has finished. Victims are taken off the plan as they are killed."""
        deadline = time.monotonic() + 20 * (len(plan) + 2)
        while True:
            assert time.monotonic() < deadline, f"not finished after {self.n_starts} starts; killed {dict(self.killed)}"
            status, text = self._once(plan)
            if status == 0:
                return
            if status != -signal.SIGKILL:
                # Only a server killed while it is still importing may end the run; the same command goes on.
                assert "the forking server died while starting" in text, f"exit status {status}: {text[-3000:]}"
            self.committed_before.append(self._n_commits())

    def _once(self, plan: list[str]) -> tuple[int, str]:
        memory, workers, blocksize = self.rng.choice(SETTINGS)
        self.n_starts += 1
        command = target(self.source, self.output, memory, workers, blocksize, self.seconds_per_batch)
        run = subprocess.Popen(command, env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self._wait_for_work(run)
            while plan and run.poll() is None:
                time.sleep(self.rng.uniform(0.0, 0.35))
                if self._kill(run, plan[0]):
                    self.killed[plan.pop(0)] += 1
            text, _ = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                run.kill()
                run.wait()
        return run.returncode, text

    def _wait_for_work(self, run: subprocess.Popen[str]) -> None:
        """Most kills should hit a run that has committed something."""
        if self.rng.random() < self.early:
            return
        before = self._n_commits()
        while run.poll() is None and self._n_commits() == before:
            time.sleep(0.005)

    def _n_commits(self) -> int:
        log = run_dir_path(self.output) / "commit.log"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def _kill(self, run: subprocess.Popen[str], victim: str) -> bool:
        pids = _pids(run.pid, victim)
        if not pids or run.poll() is not None:
            return False
        try:
            os.kill(self.rng.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def _pids(run: int, victim: str) -> list[int]:
    if victim == "supervisor":
        return [run]
    try:
        servers = [p for p in psutil.Process(run).children() if "tamis.backends.forkserver" in " ".join(p.cmdline())]
        return [p.pid for p in servers] if victim == "server" else [w.pid for p in servers for w in p.children()]
    except psutil.Error:
        return []


def _write_plain(folder: Path) -> Path:
    folder.mkdir()
    cut = [0, N_DOCUMENTS // 2, N_DOCUMENTS // 2 + 20, N_DOCUMENTS]
    for i, (a, b) in enumerate(itertools.pairwise(cut)):
        (folder / f"{i}.jsonl").write_bytes(b"\n".join(document(k) for k in range(a, b)) + b"\n{broken\n")
    return folder


def _write_gz(folder: Path) -> Path:
    folder.mkdir()
    lines = [document(k) for k in range(N_DOCUMENTS)]
    lines[7] = lines[N_DOCUMENTS // 2] = lines[-1] = b"{broken"
    (folder / "one.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines), 1, mtime=0))
    return folder


def _write_row_group(folder: Path) -> Path:
    folder.mkdir()
    rows = [json.loads(document(k, 40)) for k in range(N_DOCUMENTS)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "one.parquet", row_group_size=N_DOCUMENTS)
    return folder


WRITERS = {"plain": _write_plain, "gz": _write_gz, "row_group": _write_row_group}


def _check(
    tmp_path: Path, kind: str, victims: list[str], seed: int, seconds_per_batch: float, early: float = 0.0
) -> Killer:
    """Kill these, in as many runs as it takes; every run ends as an undisturbed one does."""
    source = WRITERS[kind](tmp_path / "in")
    calm = execute(source, tmp_path / "calm", [AddLength(), DropOdd(), Slow(0.0)], local=False, blocksize="300KB")
    assert calm.exit_code == 0
    expected = sorted(lines_of(tmp_path / "calm"))
    assert len(expected) > N_DOCUMENTS // 2 - 10

    rng, left, n_rounds = random.Random(seed), list(victims), 0
    while True:
        killer = Killer(source, tmp_path / f"out{n_rounds}", rng, seconds_per_batch, early)
        n_before = len(left)
        killer.run(left)
        _same_as_calm(tmp_path / "calm", killer.output, expected)
        again = execute(source, killer.output, [AddLength(), DropOdd(), Slow(seconds_per_batch)], local=False)
        assert again.status == "already"
        n_rounds += 1
        if not left:
            return killer
        assert len(left) < n_before, "a whole run without a kill"


def _same_as_calm(calm: Path, out: Path, expected: list[bytes]) -> None:
    written = sorted(lines_of(out))
    assert len(written) == len(set(written)), "something was written twice"
    assert written == expected
    assert content_hash(out) == content_hash(calm)
    assert manifest(out)["ledger"]["records"] == manifest(calm)["ledger"]["records"]
    assert manifest(out)["ledger"]["quarantined"] == manifest(calm)["ledger"]["quarantined"]
    assert sorted(_places(out)) == sorted(_places(calm))


def _places(output: Path) -> list[tuple[str, int]]:
    return [(e["file"], e["offset"]) for e in quarantine(output)]


def _victims(n: int, seed: int) -> list[str]:
    """Every kind of victim in turn, shuffled."""
    chosen = [VICTIMS[i % 3] for i in range(n)]
    random.Random(seed).shuffle(chosen)
    return chosen


def test_kills_plain_files(tmp_path: Path) -> None:
    killer = _check(tmp_path, "plain", ["worker", "supervisor", "server", "supervisor"], seed=1, seconds_per_batch=0.08)
    assert killer.committed_before[-1] > 0, "no run was killed after a commit: nothing was resumed"


def test_kills_one_compressed_stream(tmp_path: Path) -> None:
    killer = _check(tmp_path, "gz", ["supervisor", "server", "worker"], seed=2, seconds_per_batch=0.08)
    assert killer.committed_before[-1] > 0


def test_kills_one_row_group(tmp_path: Path) -> None:
    killer = _check(tmp_path, "row_group", ["server", "worker", "supervisor"], seed=3, seconds_per_batch=0.08)
    assert killer.committed_before[-1] > 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["plain", "gz", "row_group"])
def test_fifty_kills(tmp_path: Path, kind: str) -> None:
    _check(tmp_path, kind, _victims(50, seed=11), seed=12, seconds_per_batch=0.25, early=0.15)
