"""The figures of a whole run are equal wherever they are shown: of one pass, of several, and after a resume."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.run_record import PassStatus, RunStatus, load_run_record
from tamis.observe.dashboard.watching import Watcher
from tamis.observe.metrics.run_metrics import RunMetrics
from tamis.sizes import format_size, format_speed
from tests.support.command import SRC, Told, tamis
from tests.support.made_documents import edited, text
from tests.support.run_dirs import run_dir_path
from tests.support.sample_images import jpeg
from tests.support.sample_videos import make_video

RECIPE = """
name: mine
input: ???
output: ???
steps:
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 30}
    name: long_enough
  - exact_duplicates: {}
  - fuzzy_duplicates: {}
"""


def write_corpus(folder: Path, n: int = 300, n_files: int = 3) -> Path:
    """Write documents of which some are short, some equal and some nearly equal."""
    folder.mkdir(parents=True)
    for k in range(n_files):
        lines = []
        for i in range(k * n // n_files, (k + 1) * n // n_files):
            made = text(i - i % 7) if i % 7 < 2 else edited(text(i - i % 7), 2, i) if i % 7 == 2 else text(i)
            lines.append(json.dumps({"id": f"d{i}", "text": "too short" if i % 11 == 5 else made + "\nThe last line."}))
        (folder / f"{k}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("whole") / "in")


def command_of(kind: str, source: Path, output: Path) -> list[Any]:
    if kind == "curate":
        recipe = source.parent / "mine.yaml"
        recipe.write_text(RECIPE)
        return ["curate", source, output, "--preset", recipe]
    if kind == "images":
        images = source.parent / "images"
        images.mkdir(exist_ok=True)
        for i in range(12):
            (images / f"{i}.jpg").write_bytes(jpeg(i % 10, 96 if i % 4 else 32, 96))
        return ["images", images, output]
    if kind == "semantic":
        vectors = source.parent / "vectors.jsonl"
        rows = [
            {"id": f"v{i}", "text": text(i), "embeddings": [1.0, i // 3 / 10, (i // 3) ** 2 / 50]} for i in range(90)
        ]
        vectors.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ["dedup", "semantic", vectors, output, "--eps", "0.0001"]
    if kind == "filter":
        return ["filter", "gopher", source, output]
    return ["dedup", kind, source, output]


def metric(page: str, name: str) -> float:
    (line,) = [line for line in page.splitlines() if re.match(rf"{name}(\{{[^}}]*\}})? ", line)]
    return float(line.rpartition(" ")[2])


def check_surfaces(output: Path, said: Told) -> None:
    """Compare every place that shows a finished run with its record."""
    run_dir = run_dir_path(output)
    record = load_run_record(run_dir)
    assert record is not None
    assert record.counts is not None
    figures = record.cost()
    size, peak, rate = format_size(record.read_bytes), format_size(record.peak_bytes), format_speed(record.mb_per_s)
    # the terminal
    assert f"{size} in {record.seconds:.1f} s ({rate}), peak memory {peak}" in said.stdout
    # report.json
    report = json.loads((run_dir / "report.json").read_text())
    assert {name: report[name] for name in figures} == figures
    counts = record.counts
    assert [report[f"n_{name}"] for name in ("records", "written", "dropped", "duplicates", "quarantined")] == [
        counts.records,
        counts.written,
        counts.dropped,
        counts.duplicates,
        counts.quarantined,
    ]
    # report.html and the dashboard: cards
    cards = Watcher(run_dir).news("all", "")["fragments"]["cards"]
    for page in ((run_dir / "report.html").read_text(), cards):
        for shown in (f"{record.seconds:,.1f} s", format_speed(record.mb_per_s), peak, f"{counts.records:,}"):
            assert f"<b>{shown}</b>" in page, shown
    # the memory of all passes: its highest moment is the peak of the run
    moments = [m for p in record.passes for m in p.memory]
    assert [m.at_s for m in moments] == sorted(m.at_s for m in moments)
    assert not moments or max(m.peak_bytes for m in moments) == record.peak_bytes
    for page in ((run_dir / "report.html").read_text(), Watcher(run_dir).news("all", "")["fragments"]["all-memory"]):
        assert bool(moments) == ("memory of all passes over time" in page)
        assert not moments or f"Peak {peak}, {record.peak_bytes / record.budget_bytes:.0%} of the budget." in page
    # tamis top
    live = json.loads(tamis("top", output, "--once", "--json").stdout)
    assert live["status"] == "finished"
    assert (live["seconds"], live["peak_bytes"]) == (record.seconds, record.peak_bytes)
    # metrics
    page = RunMetrics(run_dir).text()
    assert metric(page, "tamis_run_seconds_total") == record.seconds
    assert metric(page, "tamis_run_memory_peak_bytes") == record.peak_bytes
    assert metric(page, "tamis_run_read_bytes_total") == record.read_bytes
    # tamis diff
    figures_of_diff = json.loads(tamis("diff", output, output, "--json").stdout)["figures"]
    shown = {f["name"]: (f["before"], f["after"]) for f in figures_of_diff}
    for name in ("seconds", "peak_bytes", "mb_per_s"):
        assert shown[name] == (figures[name], figures[name])
    assert shown["written"] == (counts.written, counts.written)


@pytest.mark.parametrize("kind", ["filter", "exact", "fuzzy", "lines", "semantic", "curate", "images"])
def test_every_place_shows_the_whole_run(kind: str, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    said = tamis(*command_of(kind, source, output), "--memory", "500MB", "--workers", "2")
    assert said.exit_code == 0, said.output
    record = load_run_record(run_dir_path(output))
    assert record is not None
    assert record.status is RunStatus.FINISHED
    assert all(p.status is PassStatus.FINISHED and p.share == 1.0 for p in record.passes)
    # The passes are parts of the whole, and the whole is more than the last of them.
    assert sum(p.seconds for p in record.passes) <= record.seconds
    assert record.peak_bytes >= max(p.peak_bytes for p in record.passes) > 0
    assert all(bool(p.memory) == (kind != "filter") for p in record.passes)
    if kind != "filter":
        assert len(record.passes) >= 3
        assert record.seconds > 1.5 * record.passes[-1].seconds
    check_surfaces(output, said)


@pytest.mark.parametrize("kind", ["filter", "curate"])
def test_a_resumed_run_counts_all_of_its_sessions(kind: str, tmp_path: Path) -> None:
    source, output = write_corpus(tmp_path / "in", 6000, 40), tmp_path / "out"
    command = [*command_of(kind, source, output), "--memory", "500MB", "--workers", "1", "--blocksize", "100KB"]
    command = [str(part) for part in command]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen(
        [sys.executable, "-m", "tamis.cli.start", *command], env=env, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        while not has_commits(output) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    killed = load_run_record(run_dir_path(output))
    assert killed is not None
    assert killed.status is RunStatus.RUNNING  # nobody could record another
    assert killed.seconds > 0
    said = tamis(*command)
    assert said.exit_code == 0, said.output
    record = load_run_record(run_dir_path(output))
    assert record is not None
    assert len(record.sessions) == 2
    assert record.sessions[0] == killed.sessions[0]
    assert record.seconds == round(killed.seconds + record.sessions[1].seconds, 3)
    assert record.peak_bytes == max(s.peak_bytes for s in record.sessions)
    check_surfaces(output, said)
    # The same command again has nothing to do, and is no session.
    assert tamis(*command).exit_code == 0
    assert load_run_record(run_dir_path(output)) == record


def has_commits(output: Path) -> bool:
    return any(log.stat().st_size for log in run_dir_path(output).rglob("commit.log"))


def test_every_place_shows_the_whole_run_of_videos(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "videos").mkdir()
    for i in range(2):
        make_video(tmp_path / "videos" / f"{i}.mp4")
    options = [
        "--clip-seconds",
        "1",
        "--min-clip-seconds",
        "0.5",
        "--transcode",
        "libx264",
        "--memory",
        "1GB",
        "--workers",
        "1",
    ]
    said = tamis("video", tmp_path / "videos", tmp_path / "out", *options)
    assert said.exit_code == 0, said.output
    check_surfaces(tmp_path / "out", said)


def test_flow_in_tokens_is_an_estimate_by_bytes(source: Path, tmp_path: Path) -> None:
    assert tamis("filter", "gopher", source, tmp_path / "out", "--memory", "500MB").exit_code == 0
    record = load_run_record(run_dir_path(tmp_path / "out"))
    assert record is not None
    page = (run_dir_path(tmp_path / "out") / "report.html").read_text()
    flow = page[page.index('id="flow-tokens"') : page.index("An estimate: a token for each 4 bytes of the records.")]
    assert "tokens of the input" in flow
    n_tokens = float(f"{record.read_bytes // 4:.3g}")
    assert f"{n_tokens:,.0f}" in flow
