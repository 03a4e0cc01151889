"""What another threshold would do, told from a run's directory, against the same run with that threshold."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.errors import UsageError
from tamis.formats.scratch.score_file import BYTES_PER_DOCUMENT, BYTES_PER_RULE
from tamis.observe.thresholds import find_limit, rethreshold
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import Filter, ScoreFilter
from tamis.stages.text.filters.gopher import GopherQuality
from tamis.stages.text.filters.heuristic.repetition import RepeatedLinesFilter
from tamis.stages.text.filters.heuristic.string import MeanWordLengthFilter, WordCountFilter
from tamis.stages.text.io.reader import DocumentReader, JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path

N = 600
LIMITS: dict[str, float] = {
    "min_words": 5,
    "max_words": 60,
    "lines": 0.3,
    "min_mean": 3.0,
    "max_mean": 6.0,
    "grade": 10,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain and Parquet documents whose scores lie on both sides of every limit."""
    folder, rng = tmp_path_factory.mktemp("in"), random.Random(5)
    for name in ("a.jsonl", "b.parquet"):
        documents = []
        for i in range(N // 2):
            words = ["x" * rng.randint(1, 10) for _ in range(rng.randint(1, 80))]
            lines = [
                "\n".join([" ".join(words[k : k + 6])] * rng.choice((1, 1, 1, 4))) for k in range(0, len(words), 6)
            ]
            documents.append({"id": f"{name}-{i}", "text": "\n".join(lines), "grade": rng.randint(0, 20)})
        if name.endswith("parquet"):
            pq.write_table(pa.Table.from_pylist(documents), folder / name)
        else:
            (folder / name).write_text("".join(json.dumps(d) + "\n" for d in documents))
    return folder


def curate(source: Path, output: Path, limits: dict[str, float] | None = None, **settings: Any) -> Any:
    now = {**LIMITS, **(limits or {})}
    stages = [
        DocumentReader(str(source), blocksize="16KB"),
        ScoreFilter(
            [WordCountFilter(min_words=now["min_words"], max_words=now["max_words"]), RepeatedLinesFilter(now["lines"])]
        ),
        ScoreFilter(MeanWordLengthFilter(now["min_mean"], now["max_mean"])),
        Filter(WordCountFilter(min_words=0, max_words=now["grade"]), "grade", invert=True),  # keeps what is later
        JsonlWriter(str(output)),
    ]
    result = Pipeline("limits", stages=stages).execute(InProcessExecutor(report=False), **settings)
    assert result.ledger.problems() == []
    return result


COUNTS = ("n_written", "n_dropped", "n_back", "n_lost", "n_unsure")


def written(output: Path) -> dict[str, int]:
    """Ids in the output."""
    return {json.loads(x)["id"]: 1 for p in output.glob("part-*.jsonl") for x in p.read_text().splitlines()}


RULES = {
    "min_words": ("word_count", "min_words"),
    "max_words": ("word_count", "max_words"),
    "lines": ("repeated_lines", "max_repeated_line_fraction"),
    "min_mean": ("mean_word_length", "min_mean_word_length"),
    "max_mean": ("mean_word_length", "max_mean_word_length"),
    "grade": ("word_count (inverted)", "max_words"),
}
STRICTER: dict[str, list[float]] = {
    "min_words": [6, 20, 59],
    "max_words": [59, 30],
    "lines": [0.30001, 0.5, 1.0],
    "min_mean": [3.5, 5.0],
    "max_mean": [5.9999, 5.0],
    "grade": [11, 15, 99],
}
LOOSER: dict[str, float] = {
    "min_words": 3,
    "max_words": 70,
    "lines": 0.2,
    "min_mean": 2.0,
    "max_mean": 7.0,
    "grade": 5,
}


@pytest.fixture(scope="module")
def output(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    curate(source, folder)
    return folder


@pytest.fixture(scope="module")
def sizes(source: Path) -> dict[str, int]:
    """Bytes of the plain records."""
    return {json.loads(x)["id"]: len(x) for x in (source / "a.jsonl").read_text().splitlines()}


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_stricter_limit_would_drop_what_it_then_drops(
    source: Path, output: Path, sizes: dict[str, int], tmp_path: Path, limit: str
) -> None:
    before = written(output)
    for i, new in enumerate(STRICTER[limit]):
        told = rethreshold(str(output), *RULES[limit], new)
        curate(source, tmp_path / str(i), {limit: new})
        lost = set(before) - set(written(tmp_path / str(i)))
        assert told.n_written == len(before)
        assert told.n_lost <= len(lost) <= told.n_lost + told.n_unsure
        assert told.n_unsure <= (0 if limit in ("min_words", "max_words", "grade") else len(before) / 50)
        assert told.n_back == 0
        plain = sum(sizes.get(i, 0) for i in lost)
        assert plain <= told.lost_bytes + told.unsure_bytes
        if lost:
            assert told.lost_bytes > 0
    assert told.n_lost > 0


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_looser_limit_drops_nothing_more_and_brings_some_back(output: Path, limit: str) -> None:
    told = rethreshold(str(output), *RULES[limit], LOOSER[limit])
    assert (told.n_lost, told.n_unsure) == (0, 0)
    assert 0 < told.n_back <= told.n_dropped


class Greedy(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Has no room for more than seven documents at once: partitions are cut, in the first segment and behind it."""

    name = "greedy"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if batch.num_items > 7:
            raise MemoryError
        return batch


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_partitions_that_were_cut_answer_all_the_same(source: Path, tmp_path: Path, mode: str) -> None:
    stages = [
        DocumentReader(str(source / "a.jsonl")),
        ScoreFilter(WordCountFilter(5, 60)),
        Greedy(),
        ScoreFilter(MeanWordLengthFilter(3.0, 6.0)),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("cut", stages=stages).execute(InProcessExecutor(), mode=mode)
    assert result.counters["splits"] > 10
    documents = [json.loads(x) for p in sorted((tmp_path / "out").glob("part-*")) for x in p.read_text().splitlines()]
    n_words = {d["id"]: len(d["text"].split()) for d in documents}
    told = rethreshold(str(tmp_path / "out"), "word_count", "min_words", 20)
    assert (told.n_lost, told.n_unsure, told.n_written) == (sum(n < 20 for n in n_words.values()), 0, len(n_words))
    for name in list(n_words)[::17]:
        told_of = json.loads(CliRunner().invoke(app, ["why", str(tmp_path / "out"), name, "--json"]).stdout)["scores"]
        assert {m["low"] for m in told_of if m["rule"] == "word_count"} == {n_words[name]}
        assert {m["rule"] for m in told_of} == {"word_count", "mean_word_length"}


@pytest.mark.parametrize("how", ["batch", "progressive", "resumed"])
def test_the_answer_does_not_depend_on_how_the_run_went(source: Path, output: Path, tmp_path: Path, how: str) -> None:
    if how == "resumed":
        calls = []

        def stop(state: dict[str, Any]) -> None:
            calls.append(state)
            if state["phase"] == "working":
                raise KeyboardInterrupt

        stages = [
            DocumentReader(str(source), blocksize="16KB"),
            ScoreFilter(WordCountFilter(5, 60)),
            JsonlWriter(str(tmp_path / "x")),
        ]
        with pytest.raises(KeyboardInterrupt):
            Pipeline("stopped", stages=stages).execute(InProcessExecutor(progress=stop))
        Pipeline("stopped", stages=stages).execute(InProcessExecutor())
        told = rethreshold(str(tmp_path / "x"), "word_count", "min_words", 20)
        n_words = [
            len(json.loads(x)["text"].split())
            for p in (tmp_path / "x").glob("part-*")
            for x in p.read_text().splitlines()
        ]
        assert (told.n_lost, told.n_unsure, told.n_written) == (sum(n < 20 for n in n_words), 0, len(n_words))
        return
    settings = {"mode": "batch"} if how == "batch" else {"progressive": True}
    curate(source, tmp_path / "out", **settings)
    for limit, values in STRICTER.items():
        a, b = (rethreshold(str(folder), *RULES[limit], values[1]) for folder in (tmp_path / "out", output))
        assert [getattr(a, n) for n in COUNTS] == [getattr(b, n) for n in COUNTS]


def test_scores_take_no_more_than_is_stated(output: Path) -> None:
    files = list((run_dir_path(output) / "scores").iterdir())
    n, n_rules = len(written(output)), 4
    assert sum(p.stat().st_size for p in files) <= n * (BYTES_PER_DOCUMENT + BYTES_PER_RULE * n_rules) + 600 * len(
        files
    )
    assert (BYTES_PER_DOCUMENT, BYTES_PER_RULE) == (20, 2)  # docs/guides/resume.md states these


def test_a_kept_document_reports_what_it_came_closest_to(output: Path, source: Path) -> None:
    documents = {d["id"]: d for d in map(json.loads, (source / "a.jsonl").read_text().splitlines())}
    name = next(i for i in written(output) if i in documents)
    n_words = len(documents[name]["text"].split())
    told = json.loads(CliRunner().invoke(app, ["why", str(output), name, "--json"]).stdout)["scores"]
    words = {m["name"]: (m["low"], m["high"], m["limit"]) for m in told if m["rule"] == "word_count"}
    assert words == {"min_words": (n_words, n_words, 5), "max_words": (n_words, n_words, 60)}
    assert {m["rule"] for m in told} == {"word_count", "repeated_lines", "mean_word_length"}
    text = (source / "a.jsonl").read_text()
    offset = text.index(json.dumps(documents[name]))
    by_place = json.loads(CliRunner().invoke(app, ["why", str(output), f"a.jsonl:{offset}", "--json"]).stdout)
    assert by_place["scores"] == told
    shown = CliRunner().invoke(app, ["why", str(output), name]).stdout.splitlines()
    assert shown[1] == "  closest to being dropped by:"
    assert len(shown) == 5


def test_what_the_command_prints(output: Path) -> None:
    def tamis(change: str) -> list[str]:
        return CliRunner().invoke(app, ["rethreshold", str(output), change]).stdout.splitlines()

    told = rethreshold(str(output), "word_count", "min_words", 20)
    first, second, third = tamis("word_count.min_words=20")
    assert first.startswith(f"word_count: min_words=5 dropped {told.n_dropped} documents (")
    assert second.startswith("min_words=20: 0 of them pass this rule (0.0%, 0 B)")
    assert third.startswith(f"min_words=20 would drop {told.n_lost} of the {told.n_written} documents written (")
    unsure = next(
        x for x in (3.9 + i / 1000 for i in range(900)) if rethreshold(str(output), *RULES["min_mean"], x).n_unsure
    )
    told = rethreshold(str(output), *RULES["min_mean"], unsure)
    assert (
        f" would drop {told.n_lost} to {told.n_lost + told.n_unsure} of the " in tamis(f"mean_word_length={unsure}")[2]
    )


def test_a_rule_that_dropped_nothing_can_have_another_threshold(source: Path, tmp_path: Path) -> None:
    curate(source, tmp_path / "out", {"min_words": 0, "max_words": 100_000})
    told = rethreshold(str(tmp_path / "out"), "word_count", "min_words", 10)
    assert (told.n_dropped, told.n_back) == (0, 0)
    assert told.n_lost > 0
    lines = (
        CliRunner().invoke(app, ["rethreshold", str(tmp_path / "out"), "word_count.min_words=10"]).stdout.splitlines()
    )
    assert lines[0] == "word_count: min_words=0 dropped 0 documents"


def test_a_damaged_score_file_is_an_error_not_a_wrong_answer(source: Path, tmp_path: Path) -> None:
    curate(source, tmp_path / "out")
    path = next((run_dir_path(tmp_path / "out") / "scores").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UsageError, match="the run directory is damaged"):
        rethreshold(str(tmp_path / "out"), "word_count", "min_words", 10)


def test_a_run_without_scores_says_so(source: Path, tmp_path: Path) -> None:
    import shutil

    curate(source, tmp_path / "out")
    shutil.rmtree(run_dir_path(tmp_path / "out") / "scores")
    assert rethreshold(str(tmp_path / "out"), "word_count", "min_words", 10).n_written is None
    lines = CliRunner().invoke(app, ["rethreshold", str(tmp_path / "out"), "word_count=10"]).stdout
    assert "is not known: this run did not store their scores" in lines


def test_a_limit_goes_by_its_name_in_recipes(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(i), "text": "A line\n" * i}) + "\n" for i in range(9)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), GopherQuality(), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    output = str(tmp_path / "out")
    short = ("gopher_quality:gopher_short_doc", "minimum")
    assert find_limit(output, "min_doc_words") == find_limit(output, "gopher_quality.min_doc_words") == short
    assert find_limit(output, "gopher_short_doc.minimum") == ("gopher_short_doc", "minimum")
    assert find_limit(output, "gopher_short_doc") == ("gopher_short_doc", None)
    with pytest.raises(UsageError, match=r"max_symbol_word_ratio is the limit of several rules: say .*hashes or .*"):
        find_limit(output, "max_symbol_word_ratio")
    result = rethreshold(output, *find_limit(output, "min_doc_words"), 10)
    assert (result.parameter, result.old, result.n_dropped) == ("min_doc_words", 50, 9)
