"""kill -9 in every pass of a curation with every kind of step and of writing: the same files in the end, byte for byte.

Which passes there are is seen in a calm run; then each is disturbed in turn. Whoever is killed is the process that
drives them, the one that works on its behalf at that moment, or all of them at once, as by a machine that goes down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.fault_harness import env
from tests.faults.test_dedup_kills import SETTINGS, named, write_corpus
from tests.support.run_dirs import run_dir_path

RECIPE = """
name: everything
sources:
  - {path: "IN/0.jsonl", weight: 1.5}
  - {path: "IN/[12].jsonl*", max_documents: 1500}
output: ???
steps:
  - text
  - gopher_quality: {min_stop_words: null, max_avg_word_length: null, min_doc_words: 100}
  - _target_: tamis.stages.text.modifiers.Modify
    modifier_fn: {_target_: tamis.stages.text.modifiers.NewlineNormalizer}
    input_fields: text
  - exact_duplicates
  - fuzzy_duplicates
  - duplicate_lines
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.SubstringFilter, substring: kabana lobana, position: any}
    invert: true
  - sample: {fraction: 90%}
  - add_id: {id_field: number}
  - _target_: tamis.stages.text.modifiers.Modify
    modifier_fn: {_target_: tamis.stages.text.modifiers.PiiRedactor, kinds: [email, ipv4]}
    input_fields: text
write: {format: parquet, shard_size: 1MB, split: "train=90,validation=10", shuffle: 3}
"""
N_KILLS = 20


def start(recipe: Path, output: Path, memory: str = "512MB", workers: str = "2") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tamis.cli.start", "run", recipe, "--set", f"output={output}"]
    options = ["--memory", memory, "--workers", workers, "--blocksize", "2MB", "--quiet", "--json"]
    return subprocess.Popen(
        [*map(str, command), *options],
        env=env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def place(output: Path, run: int) -> str:
    """Return what it does now, judged by the content of its folders."""
    folder = run_dir_path(output)
    if (folder / "curation.json").exists():
        return "end"
    if (folder / "curation" / "pack").exists():
        return "packing"
    if (folder / "plan.json").exists():
        return "write"
    passes = sorted(folder.glob("curation/*/_tamis/dedup/*/_tamis/plan.json"), key=lambda p: (p.parts[-6], _age(p)))
    if not passes:
        return "beginning"
    group, name = passes[-1].parts[-6], passes[-1].parts[-3]
    return f"{group} decision" if named(run, "tamis-solver") else f"{group} {name}"


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def finished(run: subprocess.Popen[str], disturbed: bool = False) -> dict[str, Any] | None:
    """Return its output; None if it, or a process it cannot do without, was killed."""
    try:
        text, _ = run.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    if run.returncode == 0:
        told: dict[str, Any] = json.loads(text)
        return told
    assert disturbed, text[-3000:]
    assert run.returncode in (-signal.SIGKILL, 1), text[-3000:]
    return None


def kill(run: subprocess.Popen[str], rng: random.Random) -> None:
    """Kill the driver, one of its processes, or all of them."""
    try:
        others = [p.pid for p in psutil.Process(run.pid).children(recursive=True)]
    except psutil.Error:
        others = []
    which = rng.choice(["driver", "another", "all"])
    victims = (
        [run.pid]
        if which == "driver" or not others
        else [rng.choice(others)]
        if which == "another"
        else [run.pid, *others]
    )
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def left(output: Path) -> dict[str, str]:
    """Every file of the output but for the card, which tells of times."""
    files = [p for p in output.iterdir() if p.is_file() and p.name != "README.md"]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_twenty_kills_over_every_kind_of_pass(tmp_path: Path) -> None:
    recipe = tmp_path / "everything.yaml"
    recipe.write_text(RECIPE.replace("IN/", f"{write_corpus(tmp_path / 'in')}/"))
    places: list[str] = []
    run = start(recipe, tmp_path / "calm")
    while run.poll() is None:
        here = place(tmp_path / "calm", run.pid)
        if here not in places:
            places.append(here)
        time.sleep(0.003)
    calm = finished(run)
    assert calm is not None
    expected = left(tmp_path / "calm")
    assert {name.partition("-")[0] for name in expected} == {"train", "validation"}
    assert len(expected) > 2
    places = [p for p in places if p not in ("beginning", "end")]
    assert {"packing", "write", "0 decision", "0 keys-0"} <= set(places)
    rng, killed, n_round, n_tries = random.Random(29), Counter[str](), 0, 0
    while sum(killed.values()) < N_KILLS:
        output, told, n_round = tmp_path / f"out{n_round}", None, n_round + 1
        while told is None:
            target = min(places, key=lambda p: (killed[p], rng.random()))
            n_tries += 1
            assert n_tries < 6 * N_KILLS, killed
            run = start(recipe, output, *rng.choice(SETTINGS))
            disturbed = False
            while run.poll() is None and place(output, run.pid) != target:
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, 0.02 if "decision" in target else 0.2))
            if run.poll() is None and (where := place(output, run.pid)) != "end" and sum(killed.values()) < N_KILLS:
                kill(run, rng)
                killed[where] += 1
                disturbed = True
            told = finished(run, disturbed)
        assert told["content_hash"] == calm["content_hash"], killed
        assert left(output) == expected, killed
        assert not (run_dir_path(output) / "curation").exists()
    assert all(killed[p] for p in places), killed
