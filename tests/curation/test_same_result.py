"""A curation writes what its steps write one after the other, for any order, block size, workers and budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, DuplicateLines, ExactDuplicates, FuzzyDuplicates
from tamis.curation.runner import CurationRun
from tamis.stages.text.filters import Score, ScoreFilter
from tamis.stages.text.filters.has_text import HasText
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.modules.sample import Sample
from tests.curation.small_corpus import MEMORY, one_after_the_other, write
from tests.support.run_dirs import run_dir_path


def lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def twice(n: int) -> int:
    return 2 * n


def tag(text: str, m: int) -> str:
    """Swap the two halves of a text around the value of another field."""
    half = len(text) // 2
    return text[half:] + str(m) + text[:half]


def words(at_least: int, **more: Any) -> ScoreFilter:
    return ScoreFilter(WordCountFilter(min_words=at_least), **more)


CHAINS: dict[str, list[Any]] = {
    "filters, exact, fuzzy": [HasText(), words(30), ExactDuplicates(), FuzzyDuplicates(), Sample("70%")],
    "fuzzy in several passes over its bands": [words(30), FuzzyDuplicates(bands_per_iteration=7)],
    "exact by another meaning of equal": [words(30), ExactDuplicates(normalize_text="casefold"), FuzzyDuplicates()],
    "the best of equal ones": [
        HasText(),
        ExactDuplicates(keep="best", keep_by="score"),
        words(40),
        FuzzyDuplicates(keep="first"),
    ],
    "texts that are changed before": [
        Modify(lower, "text"),
        words(30),
        ExactDuplicates(),
        FuzzyDuplicates(),
        words(60),
    ],
    "a field that a modifier reads": [
        words(30, score_field="n"),
        Score(twice, "m", text_field="n"),
        Modify(tag, input_fields=[["text", "m"]], output_fields="text"),
        FuzzyDuplicates(),
    ],
    "a field that is added before": [
        Score(len, "n_chars"),
        words(30, score_field="n_words"),
        FuzzyDuplicates(keep="best", keep_by="n_words"),
    ],
    "lines between": [words(20), DuplicateLines(min_left_chars=100), words(50), ExactDuplicates(), FuzzyDuplicates()],
    "without a deduplication": [HasText(), words(50), Modify(lower, "text")],
}


def curate(steps: list[Any], source: Path, output: Path, **settings: Any) -> Any:
    settings = {"memory": MEMORY, "quarantine_limit": "5%", **settings}
    return Curation(steps, str(source), str(output)).run(settings.pop("executor", InProcessExecutor()), **settings)


def test_texts_are_compared_after_the_steps_that_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.dedup.stages.exists", lambda path: True)  # as if the first pass were done
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    steps = CHAINS["a field that a modifier reads"]
    run = CurationRun(Curation(steps, str(tmp_path / "in.jsonl"), str(tmp_path / "out")), {}, None, InProcessExecutor())
    stages = run.groups[0].workflow.passes.step.before("texts")  # type: ignore[union-attr]
    assert [stage.name for stage in stages] == ["only_listed", *(step.name for step in steps[:3])]


USUAL = ("filters, exact, fuzzy", "texts that are changed before", "without a deduplication")


@pytest.mark.parametrize("name", [n if n in USUAL else pytest.param(n, marks=pytest.mark.slow) for n in CHAINS])
def test_as_one_after_the_other(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    content, n = one_after_the_other(CHAINS[name], source, tmp_path / "apart")
    for blocksize in ("20kB",) if name in USUAL else (None, "20kB", "3kB"):
        out = tmp_path / f"out-{blocksize}"
        result = curate(CHAINS[name], source, out, blocksize=blocksize)
        assert (result.about["content_hash"], result.about["n_written"]) == (content, n)
        assert result.run.ledger.problems() == []
        assert 0 < n < result.about["n_records"]
        assert not (run_dir_path(out) / "curation").exists()


@pytest.mark.parametrize(
    ("workers", "memory", "blocksize"),
    [(2, "600MB", "30kB"), pytest.param(1, "300MB", "1MB", marks=pytest.mark.slow)],
)
def test_with_worker_processes(workers: int, memory: str, blocksize: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    steps = CHAINS["filters, exact, fuzzy"]
    expected = curate(steps, source, tmp_path / "inside").about["content_hash"]
    result = curate(
        steps,
        source,
        tmp_path / "out",
        executor=None,
        workers=workers,
        memory=memory,
        blocksize=blocksize,
        scratch=str(tmp_path / "scratch"),
    )
    assert result.about["content_hash"] == expected
    assert list((tmp_path / "scratch").iterdir()) == []
