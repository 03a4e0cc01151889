"""Faults of networks and stores: errors, cut connections, lost answers, a killed driver; the output is the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.stores import retry
from tamis.stores import s3 as requests
from tamis.stores.uploads import send
from tests.support.bucket_runs import copy, documents, keys, n_uploads, write_input
from tests.support.s3_server import FaultyProxy

KINDS = ("500", "503", "drop", "lost", "cut", "slow")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without the waits."""
    monkeypatch.setattr(retry.call_with_retries, "__defaults__", (retry.POLICY, lambda s: time.sleep(0.001)))


@pytest.mark.parametrize("kind", ["lost", *(pytest.param(k, marks=pytest.mark.slow) for k in ("500", "drop"))])
def test_each_kind_of_request_survives_each_kind_of_fault(
    kind: str, bucket: str, s3: Any, proxy: FaultyProxy, tmp_path: Path, hasty: None
) -> None:
    """The first request of every kind fails: looking, listing, log, parts, completion, deletion."""
    seen: set[str] = set()

    def fault(method: str, path: str, n: int) -> str:
        about = f"{method} {_about(path)}"
        if about in seen:
            return ""
        seen.add(about)
        return kind

    proxy.fault = fault
    result = copy(write_input(tmp_path / "in"), f"s3://{bucket}/out")
    assert result.ledger.written.n == 200
    assert documents(s3, bucket, "out") == list(range(200))
    assert n_uploads(s3, bucket) == 0
    assert {"PUT log", "PUT part", "POST begin", "POST complete", "GET list", "DELETE probe"} <= seen
    assert proxy.n_faults >= 8


def _about(path: str) -> str:
    """Return the kind of a request, in a word."""
    for mark, name in (
        ("list-type", "list"),
        ("uploads&", "uploads"),
        ("?uploads", "begin"),
        ("partNumber", "part"),
        ("uploadId", "complete"),
        ("/log/", "log"),
        ("probe-", "probe"),
        (".json", "kept"),
    ):
        if mark in path:
            return name
    return "object"


def test_a_log_record_whose_answer_was_lost_is_our_own(bucket: str, proxy: FaultyProxy, hasty: None) -> None:
    proxy.fault = lambda method, path, n: "lost" if method == "PUT" and n < 3 else ""
    store = requests.Bucket(bucket)
    store.put_new("log/0", b"mine")
    assert store.get("log/0") == b"mine"
    with pytest.raises(requests.NameTaken):
        store.put_new("log/0", b"theirs")
    assert store.get("log/0") == b"mine"


def test_a_completion_whose_answer_was_lost_is_done_once(
    bucket: str, s3: Any, proxy: FaultyProxy, tmp_path: Path, hasty: None
) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    store = requests.Bucket(bucket)
    upload = send(store, "a", str(tmp_path / "a"))
    n = len(proxy.requests)
    proxy.fault = lambda method, path, i: "lost" if method == "POST" and i == n else ""
    store.complete("a", upload.id, upload.parts, upload.mark)
    store.complete("a", upload.id, upload.parts, upload.mark)
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"x" * 100
    other = send(store, "a", str(tmp_path / "a"))
    with pytest.raises(requests.NameTaken):  # a late attempt of somebody else
        store.complete("a", other.id, other.parts, other.mark)


def _random_faults(seed: int, share: float) -> Callable[[str, str, int], str]:
    chance = random.Random(seed)
    return lambda method, path, n: chance.choice(KINDS) if chance.random() < share else ""


def test_fifty_faults_and_the_same_content(
    bucket: str, s3: Any, proxy: FaultyProxy, tmp_path: Path, hasty: None
) -> None:
    source = write_input(tmp_path / "in", 18)
    plain = copy(source, str(tmp_path / "out"))
    for path in Path(source).iterdir():
        s3.put_object(Bucket=bucket, Key=f"in/{path.name}", Body=path.read_bytes())
    proxy.fault = _random_faults(3, 0.4)
    result = copy(f"s3://{bucket}/in", f"s3://{bucket}/out")
    assert proxy.n_faults >= 50
    assert {kind for _, _, kind in proxy.requests} == {"", *KINDS}
    assert result.ledger.to_dict()["content"] == plain.ledger.to_dict()["content"]
    assert documents(s3, bucket, "out") == list(range(1800))
    assert n_uploads(s3, bucket) == 0


@pytest.mark.slow
def test_a_driver_that_is_killed_again_and_again(bucket: str, s3: Any, tmp_path: Path) -> None:
    """Run the program and kill its group at random instants, resuming from the bucket alone each time."""
    source, url = write_input(tmp_path / "in", 30), f"s3://{bucket}/out"
    code = (
        "import sys; from tamis import Pipeline; from tamis.stages.text.io import JsonlReader, JsonlWriter\n"
        "Pipeline('copy', stages=[JsonlReader(sys.argv[1], files_per_partition=1), "
        "JsonlWriter(sys.argv[2])]).run(memory='512MB')"
    )
    chance, n_kills = random.Random(4), 0
    for attempt in range(12):
        env = {**os.environ, "TAMIS_RUNS": str(tmp_path / f"runs-{attempt}")}
        run = subprocess.Popen(
            [sys.executable, "-c", code, source, url],
            env=env,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _, told = run.communicate(timeout=60.0 if attempt == 11 else 3.0 + 3.0 * chance.random())
        except subprocess.TimeoutExpired:
            n_kills += 1
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=20)
            continue
        assert run.returncode == 0, told
        break
    assert n_kills >= 1
    assert documents(s3, bucket, "out") == list(range(3000))
    assert n_uploads(s3, bucket) == 0
    assert len(keys(s3, bucket, "out/part-")) == 30
