"""The forecast of a curation: ranges before the first run, learned from each run, for compressed input, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.forecast.input_size import measured_bytes
from tamis.forecast.shipped_table import PACKED
from tamis.formats.compression.streams import StreamWriter
from tests.support.command import tamis
from tests.support.made_documents import text
from tests.support.run_dirs import data_names

N_DOCUMENTS = 400


@pytest.fixture(autouse=True)
def _profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_PROFILES", "on")
    monkeypatch.setenv("TAMIS_PROFILE_DIR", str(tmp_path / "profiles"))


def write_input(folder: Path, codec: str | None) -> int:
    """Write documents that compress better than the table assumes, and return their decoded bytes."""
    folder.mkdir()
    writer = StreamWriter(folder / f"a.jsonl{'.' + codec if codec else ''}", codec)
    for i in range(N_DOCUMENTS):
        writer.write((json.dumps({"id": i, "text": text(i), "padding": "=" * 3000}) + "\n").encode())
    writer.close()
    return writer.n_bytes


def curate(folder: Path, *more: str) -> dict[str, Any]:
    said = tamis("curate", folder / "in", folder / "out", "--preset", "minimal", "--memory", "400MB", "--json", *more)
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)


@pytest.mark.parametrize("codec", ["gz", "zst", None])
def test_the_ranges_follow_from_the_decoded_size_and_then_from_the_run(tmp_path: Path, codec: str | None) -> None:
    decoded = write_input(tmp_path / "in", codec)
    plan = curate(tmp_path, "--plan")
    assert plan["decoded_bytes"] == pytest.approx(decoded, rel=0.02)
    assert plan["n_documents"] == pytest.approx(N_DOCUMENTS, rel=0.1)
    first = plan["forecast"]
    assert (first["n_runs"], plan["basis"].startswith("starting table")) == (0, True)
    assert first["peak_bytes"]["high"] <= 400_000_000
    done = curate(tmp_path)
    stored = sum((tmp_path / "out" / name).stat().st_size for name in data_names(tmp_path / "out") if ".jsonl" in name)
    assert first["output_bytes"]["low"] <= stored <= first["output_bytes"]["high"]
    measured = {name: done["prediction"][name]["measured"] for name in ("peak_bytes", "output_bytes", "scratch_bytes")}
    assert measured["output_bytes"] == stored
    assert measured["peak_bytes"] == pytest.approx(done["peak_bytes"], rel=0.1)

    later = curate(tmp_path, "--plan")
    second = later["forecast"]
    assert (second["n_runs"], "1 earlier run of this pipeline" in later["basis"]) == (1, True)
    assert all(second[name]["low"] <= n <= second[name]["high"] for name, n in measured.items())
    spans = [forecast["seconds"]["high"] / max(forecast["seconds"]["low"], 0.01) for forecast in (first, second)]
    assert spans[1] < spans[0]


def test_the_plan_as_text_has_the_ranges(tmp_path: Path) -> None:
    write_input(tmp_path / "in", "gz")
    words = ("curate", tmp_path / "in", tmp_path / "out", "--preset", "minimal", "--plan", "--memory")
    shown = tamis(*words, "400MB").output
    for line in ("peak memory: about ", "scratch for keys: about ", "size of the output: about ", "time: about "):
        assert line in shown
    assert " decoded, about " in shown
    assert "the ranges should contain the true value in 9 of 10 runs" in shown
    refused = tamis(*words, "100MB")
    assert (refused.exit_code, "peak memory: " in refused.output) == (4, False)


def test_a_file_that_cannot_be_decoded_counts_by_the_table(tmp_path: Path) -> None:
    broken = tmp_path / "a.jsonl.gz"
    broken.write_bytes(b"no gzip at all")
    assert measured_bytes([str(broken)], [100]) == int(100 * PACKED[".gz"])
