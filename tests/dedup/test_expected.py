"""What a deduplication is expected to take, what it took, and its settings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.expected import conditions, forecast, profile_key
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.dedup.kinds import FUZZY
from tamis.dedup.planning import DedupPlan, estimate_documents
from tamis.forecast import machine_profiles
from tamis.forecast.experience import Experience
from tamis.forecast.prediction import runs_of
from tamis.forecast.shipped_table import PACKED
from tamis.formats.input_files.listing import FileList
from tests.support.run_dirs import run_dir_path

MB = 10**6


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAMIS_PROFILES", "on")
    monkeypatch.setenv("TAMIS_PROFILE_DIR", str(tmp_path / "profiles"))
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"id": i, "text": f"document {i % 900} " * 20}) + "\n" for i in range(1000))
    (tmp_path / "in/a.jsonl").write_text(lines)
    return tmp_path


def read(place: Path, name: str) -> Any:
    return json.loads((run_dir_path(place / "out") / name).read_text())


def test_exact(place: Path) -> None:
    workflow = RemoveExactDuplicates(str(place / "out"), str(place / "in"))
    result = workflow.run(memory="600MB")
    assert result.n_duplicates == 100
    found = read(place, "dedup_prediction.json")
    assert found["peak_bytes"]["measured"] == result.peak_bytes
    assert set(found["scratch_bytes"]) == {"low", "expected", "high", "measured", "inside"}
    kept = machine_profiles.load(
        profile_key(workflow.kind.title, workflow.profile_parameters())
    )  # where `tamis plan dedup` looks
    assert kept is not None
    assert kept["runs"][0]["peak_bytes"] == result.peak_bytes
    assert len(runs_of(kept)) == 1


def test_fuzzy_settings_are_recorded_next_to_those_of_the_last_pass(place: Path) -> None:
    workflow = RemoveFuzzyDuplicates(None, str(place / "out"), str(place / "in"), bands_per_iteration=10)
    workflow.run(memory="600MB")
    entries = {e["name"]: e for e in read(place, "settings.json")["settings"]}
    assert {"memory", "worker cap", "room of the deciding process", "parts of the key space", "bands per pass"} <= set(
        entries
    )
    bands = entries["bands per pass"]
    assert (bands["value"], bands["chosen_by"], bands["evidence"]["bands"]) == (10, "user", 20)
    assert entries["room of the deciding process"]["value"] == int((600 - 130) * MB * 0.6)
    assert machine_profiles.load(profile_key(workflow.kind.title, workflow.profile_parameters())) is not None


def test_the_first_forecast_is_the_plan() -> None:
    plan = DedupPlan(1, 10**9, 500_000, 20, 20, 1, 148 * MB, 10**11, 26 * MB, 1, 512 * MB, 10**9)
    asked = conditions(plan, 2, 10**9)
    found = forecast(plan, FUZZY.figures, asked, Experience("never"))
    assert (found.scratch_bytes.low, found.scratch_bytes.expected, found.scratch_bytes.high) == (
        74 * MB,
        148 * MB,
        296 * MB,
    )
    assert found.centres["peak_bytes"][0] == 250 * MB
    assert found.peak_bytes.low < 250 * MB < found.peak_bytes.high
    assert found.centres["seconds"][0] == pytest.approx(3.5 + 1000 / 70 / 2, abs=0.001)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_documents_of_compressed_files_are_counted_too(tmp_path: Path, suffix: str) -> None:
    data = b"".join(b'{"text": "%s"}\n' % f"document {i} of many ".encode() * 3 for i in range(20_000))
    path = tmp_path / f"a.jsonl{suffix}"
    packed = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix](data)
    path.write_bytes(packed)
    files = FileList()
    files.paths, files.sizes = [str(path)], [len(packed)]
    n = estimate_documents(files)
    ratio = 1.0 if not suffix else len(packed) * PACKED[suffix] / len(data)  # sizes of packed files are a guess
    assert n == pytest.approx(60_000 * ratio, rel=0.1)


def test_documents_of_warc_files_are_records_not_lines(tmp_path: Path) -> None:
    page = b"<p>A page of many lines.\n" * 500
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    kinds = [b"request", b"response"] * 100
    data = b"".join(
        b"WARC/1.0\r\nWARC-Type: %s\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (kind, len(body), body)
        for kind in kinds
        for body in [block if kind == b"response" else b"GET / HTTP/1.1\r\n\r\n"]
    )
    (tmp_path / "a.warc").write_bytes(data)
    files = FileList()
    files.paths, files.sizes = [str(tmp_path / "a.warc")], [len(data)]
    assert estimate_documents(files, len(data)) == pytest.approx(100, rel=0.05)
