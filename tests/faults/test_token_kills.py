"""SIGKILL at any moment of `tamis tokenize`, then the same command: the same bytes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.fault_harness import env
from tests.stages.text.tokens import small_tokenizers
from tests.support.run_dirs import data_names

pytest.importorskip("tokenizers")
N_KILLS = 20
SETTINGS = [("400MB", "1", "300kB"), ("512MB", "2", "1MB"), ("900MB", "2", "150kB")]


def write_corpus(folder: Path) -> None:
    chance = random.Random(3)
    (folder / "in").mkdir()
    for k in range(4):
        lines = (
            {"text": " ".join(chance.choices(small_tokenizers.TEXTS, k=chance.randrange(1, 30))) + str(i)}
            for i in range(600)
        )
        (folder / f"in/{k}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def start(folder: Path, out: Path, kind: str, settings: tuple[str, str, str]) -> subprocess.Popen[bytes]:
    memory, workers, blocksize = settings
    options = [
        "--tokenizer",
        str(folder / "tok"),
        "--format",
        kind,
        "--sequence-length",
        "512",
        "--packing",
        "best-fit",
    ]
    options += ["--shuffle", "5", "--shard-size", "100kB"]
    if kind != "mds":
        options += ["--split", "train=90,validation=10"]
    options += ["--memory", memory, "--workers", workers, "--blocksize", blocksize, "--quiet"]
    command = [sys.executable, "-m", "tamis.cli.start", "tokenize", str(folder / "in"), str(out), *options]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, env=env(), stdout=subprocess.DEVNULL, stderr=log)


def contents(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in [*out.glob("*-of-*"), *out.glob("index.json")]}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["megatron", "npy", "mds", "parquet"])
def test_killed_at_any_moment_the_same_bytes_come_out(tmp_path: Path, kind: str) -> None:
    small_tokenizers.save(tmp_path / "tok")
    write_corpus(tmp_path)
    began = time.monotonic()
    assert start(tmp_path, tmp_path / "whole", kind, SETTINGS[1]).wait() == 0
    took_s = time.monotonic() - began
    whole = contents(tmp_path / "whole")
    assert len(whole) > 6
    chance, n_killed, n_outputs = random.Random(1), 0, 0
    while n_killed < N_KILLS:
        out, n_outputs = tmp_path / f"out-{n_outputs}", n_outputs + 1
        while True:
            run = start(tmp_path, out, kind, chance.choice(SETTINGS))
            try:
                code = run.wait(timeout=chance.uniform(0.1, 1.2 * took_s) if n_killed < N_KILLS else None)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.wait()
                n_killed += 1
                continue
            assert code == 0, (tmp_path / "log").read_text()[-3000:]
            break
        assert contents(out) == whole
        assert data_names(out) == sorted([*whole, "README.md"])
