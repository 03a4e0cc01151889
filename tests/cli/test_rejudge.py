"""`tamis rethreshold`: what the whole run would keep with another limit, against the run with that limit."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.jobs.jobs import Consent
from tamis.cli.main import app
from tamis.cli.runs import rejudge
from tamis.cli.runs.rejudge import interval
from tamis.observe.records import records_at
from tamis.observe.thresholds import Position, Rethreshold, find_limit, rethreshold
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path

WORDS = "the of and sieve drum corpus memory budget paper word with have be".split()  # noqa: SIM905
RECIPE = """
name: rules
input: ???
output: ???
steps:
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {{_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: {least}}}
    name: words
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {{_target_: tamis.stages.text.filters.heuristic.RepeatedLinesFilter, max_repeated_line_fraction: 0.7}}
    name: lines
  - exact_duplicates: {{}}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("in"), random.Random(4)
    for name in ("a.jsonl", "b.jsonl"):
        documents = []
        for i in range(500):
            lines = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 9))) for _ in range(rng.randint(1, 12))]
            lines += lines[:1] * rng.choice((0, 0, 1, 6))
            documents.append({"id": f"{name}-{i}", "text": "\n".join(lines)})
        (folder / name).write_text("".join(json.dumps(d) + "\n" for d in documents))
    subprocess.run(["gzip", str(folder / "b.jsonl")], check=True)
    return folder


def curate(source: Path, folder: Path, least: int) -> Path:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE.format(least=least))
    arguments = ["curate", str(source), str(folder / "out"), "--preset", str(folder / "recipe.yaml"), "-q"]
    result = tamis(*arguments, "--memory", "700MB", "--workers", "1")
    assert result.exit_code == 0, result.output
    return folder / "out"


def n_written(output: Path) -> int:
    written: int = json.loads((run_dir_path(output) / "report.json").read_text())["n_written"]
    return written


def documents_in(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


def ask(output: Path, *more: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["rethreshold", str(output), "word_count.min_words=25", "--json", *more])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


@pytest.fixture(scope="module")
def runs(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run, and the run with another limit."""
    folder = tmp_path_factory.mktemp("runs")
    return curate(source, folder / "1", 45), curate(source, folder / "2", 25)


def test_all_that_would_pass_are_judged_as_the_run_would(runs: tuple[Path, Path]) -> None:
    output, again = runs
    answer = ask(output, "--judge", "100000")
    estimate, n_more = answer["estimate"], n_written(again) - n_written(output)
    assert n_more < answer["n_back"]  # later rules drop some
    assert (estimate["n_judged"], estimate["low"], estimate["high"]) == (answer["n_back"], n_more, n_more)
    assert estimate["left_out"] == ["remove_exact_duplicates"]
    few = ask(output, "--judge", "60")["estimate"]
    assert few["n_judged"] == 60
    assert few["low"] < few["high"]
    assert ask(output, "--judge", "60")["estimate"] == few
    assert ask(output, "--judge", "0")["estimate"] is None
    text = CliRunner().invoke(app, ["rethreshold", str(output), "word_count.min_words=25", "--judge", "60"]).output
    assert f"later rules would keep {few['low']:,} to {few['high']:,} (95 %) of these" in text


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_limit_is_a_finite_number(runs: tuple[Path, Path], value: str) -> None:
    result = CliRunner().invoke(app, ["rethreshold", str(runs[0]), f"word_count.min_words={value}"])
    assert result.exit_code == 2
    assert f"a limit is a finite number, got {value}" in result.output


def test_an_input_that_is_gone_is_said(source: Path, tmp_path: Path) -> None:
    own = tmp_path / "in"
    own.mkdir()
    (own / "a.jsonl").write_bytes((source / "a.jsonl").read_bytes())
    output = curate(own, tmp_path / "1", 45)
    (own / "a.jsonl").unlink()
    result = CliRunner().invoke(app, ["rethreshold", str(output), "word_count.min_words=25"])
    assert result.exit_code == 0
    assert "cannot be judged again" in result.output
    assert "not seen them" in result.output


@pytest.mark.parametrize(
    ("n_all", "n_kept", "n"), [(400, 300, 80), (2000, 60, 400), (355, 183, 60), (10_000, 9_700, 400)]
)
def test_the_interval_holds_the_truth_in_at_least_90_of_100_cases(n_all: int, n_kept: int, n: int) -> None:
    population = [True] * n_kept + [False] * (n_all - n_kept)
    n_right = 0
    for seed in range(100):
        low, high = interval(sum(random.Random(seed).sample(population, n)), n, n_all)
        n_right += low <= n_kept <= high
    assert n_right >= 90


def test_the_interval_holds_what_the_run_with_that_limit_wrote(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100 seeds, by what the second run did with each document, in place of judging samples again and again."""
    output, again = runs
    result = rethreshold(str(output), *find_limit(str(output), "word_count.min_words"), 25.0)
    written = {d["id"] for f in again.glob("*.jsonl*") for d in documents_in(f)}

    def judge(_: str, __: Rethreshold, positions: Sequence[Position], ___: Consent) -> tuple[int, list[str]]:
        offsets = {path: sorted(o for p, o in positions if p == path) for path, _ in positions}
        records = [record for path in offsets for record in records_at(path, offsets[path])]
        return sum(json.loads(record)["id"] in written for record in records), []

    monkeypatch.setattr(rejudge, "judge", judge)
    n_more, n_right = n_written(again) - n_written(output), 0
    for seed in range(100):
        found = rejudge.estimate(str(output), result, 60, seed=seed)
        assert found.n_judged == 60 < result.n_back
        n_right += found.low <= n_more <= found.high
    assert n_right >= 90
