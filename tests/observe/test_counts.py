"""Every count that a run shows (summary, progress, report, database, dashboard), against a count in plain Python.

One run of each kind, in this process, over input with bad and blank lines, in plain, compressed and Parquet files.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.jobs.summary import as_dict
from tamis.dedup.alarms import alarms
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.lines.workflow import LineDeduplicationWorkflow
from tamis.observe.live import read_live
from tamis.observe.snapshot import read_snapshot
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic.string import LongWordFilter, WordCountFilter
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.tasks import DocumentBatch
from tests.support.run_dirs import run_dir_path

LONG, MIN_WORDS = 12, 5


@dataclass
class Truth:
    """What is in the input, counted while it is made."""

    n_records: int = 0
    n_bad: int = 0
    n_blank: int = 0
    decoded_bytes: int = 0  # of files whose bytes are read as they are
    kept: set[str] = field(default_factory=set)
    short: set[str] = field(default_factory=set)
    long: set[str] = field(default_factory=set)


def make_input(folder: Path, parquet: bool = True) -> Truth:
    truth, rng = Truth(), random.Random(7)
    folder.mkdir()
    for i, name in enumerate(["a.jsonl", "b.jsonl.gz", *(["c.parquet"] if parquet else [])]):
        documents = []
        for n in range(80):
            words = ["w" * rng.choice((2, 4, 20 if n % 9 == 0 else 5)) for _ in range(rng.choice((2, 8, 30)))]
            documents.append({"id": f"{i}-{n}", "text": " ".join(words)})
        for d in documents:
            words = d["text"].split()
            rule = truth.short if len(words) < MIN_WORDS else truth.long if max(map(len, words)) > LONG else truth.kept
            rule.add(d["id"])
        truth.n_records += len(documents)
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(documents), folder / name)
            continue
        lines = [json.dumps(d) for d in documents]
        lines[10:10] = ["", "no json", "  "]
        truth.n_records, truth.n_bad, truth.n_blank = truth.n_records + 1, truth.n_bad + 1, truth.n_blank + 2
        data = ("\n".join(lines) + "\n").encode()
        truth.decoded_bytes += len(data)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert min(len(truth.kept), len(truth.short), len(truth.long)) > 5
    return truth


class Greedy(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Has no room for more than 30 documents at once."""

    name = "greedy"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if batch.num_items > 30:
            raise MemoryError
        return batch


def rules() -> list[Any]:
    """Two stages, so that batch mode has something between them."""
    return [ScoreFilter(WordCountFilter(min_words=MIN_WORDS)), ScoreFilter(LongWordFilter(max_word_length=LONG))]


def run(tmp_path: Path, writer: Any = None, stages: list[Any] | None = None, **settings: Any) -> tuple[Any, list[Any]]:
    states: list[Any] = []
    executor = InProcessExecutor(progress=states.append)
    writer = writer or JsonlWriter(str(tmp_path / "out"))
    made = [DocumentReader(str(tmp_path / "in"), blocksize="4KB"), *(rules() if stages is None else stages), writer]
    result = Pipeline("counts", stages=made).execute(executor, quarantine_limit="100%", **settings)
    return result, [s for s in states if s["phase"] == "working"]


def written_ids(folder: Path) -> Counter[str]:
    return Counter(json.loads(x)["id"] for p in folder.glob("part-*.jsonl") for x in p.read_text().splitlines())


def check(result: Any, truth: Truth, kept: set[str], sampled: set[str], n_reads: int = 1) -> None:
    """Compare all counts; `sampled`: ids of the documents of the sample; `n_reads`: how often all input was read."""
    folder = Path(result.output)
    n_short, n_long = len(truth.short & sampled), len(truth.long & sampled)
    n_all = len(truth.kept | truth.short | truth.long)
    expected = {
        "n_records": truth.n_records,
        "n_written": len(kept),
        "n_dropped": n_short + n_long,
        "n_quarantined": truth.n_bad,
    }
    about = as_dict(result)
    assert {k: about[k] for k in expected} == expected
    assert (about["n_blank_lines"], about["n_not_sampled"]) == (truth.n_blank, n_all - len(sampled))
    stages = [(s["n_in"], s["n_out"], list(s["dropped"].values())) for s in about["stages"]]
    n_left = len(sampled) - n_short
    assert stages == [(len(sampled), n_left, [n_short]), (n_left, n_left - n_long, [n_long])]
    report = json.loads((run_dir_path(folder) / "report.json").read_text())
    assert {k: report[k] for k in expected} == expected
    assert [d["documents"] for d in report["drops"]] == [n_short, n_long]
    page = (run_dir_path(folder) / "report.html").read_text()
    for name, n in (("documents", truth.n_records), ("kept", len(kept)), ("dropped", n_short + n_long)):
        assert f"<span>{name}</span><b>{n:,}</b>" in page
    snapshot, live = read_snapshot(run_dir_path(folder)), read_live(run_dir_path(folder))
    for seen in (snapshot.last, live.total):  # the dashboard, `tamis top` and the metrics show these
        assert seen is not None
        assert (seen.documents, seen.written, seen.dropped) == (truth.n_records, len(kept), n_short + n_long)
        assert (seen.quarantined, seen.left_bytes) == (truth.n_bad, 0)
    assert {(d.reason, d.documents) for d in snapshot.drops} == {("word_count", n_short), ("max_word_length", n_long)}
    assert [(s.n_in, s.n_dropped) for s in snapshot.stages] == [(len(sampled), n_short), (n_left, n_long)]
    lengths = {t["kind"]: sum(b[2] for b in t["bins"]) for t in snapshot.manifest.histograms if not t["stage"]}
    assert lengths == {"length_in": len(sampled), "length_out": len(kept)}
    if result.ledger.read_bytes == result.read_bytes:  # one attempt
        assert snapshot.last is not None
        assert snapshot.last.read_bytes == result.read_bytes >= truth.decoded_bytes * n_reads


@pytest.mark.parametrize("kind", ["streaming", "batch", "parquet out"])
def test_a_run_over_everything(tmp_path: Path, kind: str) -> None:
    truth = make_input(tmp_path / "in")
    out = ParquetWriter(str(tmp_path / "out")) if kind == "parquet out" else None
    result, states = run(tmp_path, out, mode="batch" if kind == "batch" else "streaming")
    everyone = truth.kept | truth.short | truth.long
    check(result, truth, truth.kept, everyone)
    if kind != "parquet out":
        assert written_ids(tmp_path / "out") == Counter(truth.kept)
    for before, after in itertools.pairwise(states):
        assert before["documents"] <= after["documents"] <= truth.n_records
        assert before["read_bytes"] <= after["read_bytes"]


def test_batch_mode_counts_documents_before_the_first_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = make_input(tmp_path / "in")
    monkeypatch.setattr("tamis.engine.run.observation._SHOW_S", 0.0)
    _, states = run(tmp_path, mode="batch")
    early = [s for s in states if not s["written"]]
    assert max(s["documents"] for s in early) == truth.n_records
    assert max(s["dropped"] for s in early) >= len(truth.short)
    shares = [1 - s["left_bytes"] / s["total_bytes"] for s in states]
    assert max(1 - s["left_bytes"] / s["total_bytes"] for s in early) < 0.8  # the second stage is yet to come
    assert shares[-1] == 1.0


def test_progressive_samples_count_every_document_once(tmp_path: Path) -> None:
    truth = make_input(tmp_path / "in")
    result, states = run(tmp_path, progressive=True)
    check(result, truth, truth.kept, truth.kept | truth.short | truth.long, n_reads=3)
    assert written_ids(tmp_path / "out") == Counter(truth.kept)
    assert max(s["documents"] for s in states) <= truth.n_records


def test_a_sample_and_then_a_larger_one(tmp_path: Path) -> None:
    truth = make_input(tmp_path / "in")
    everyone = truth.kept | truth.short | truth.long
    chosen = [
        set(written_ids(Path(run(tmp_path, JsonlWriter(str(tmp_path / f"all-{s}")), stages=[], sample=s)[0].output)))
        for s in (0.2, 0.6)
    ]
    assert 0 < len(chosen[0]) < len(chosen[1]) < len(everyone)
    for share, sampled in zip((0.2, 0.6), chosen, strict=True):
        result, _ = run(tmp_path, sample=share)
        check(result, truth, truth.kept & sampled, sampled)
    result, _ = run(tmp_path)
    check(result, truth, truth.kept, everyone)
    assert result.read_bytes < result.ledger.read_bytes  # what the summary gives a speed of is this attempt's


def test_a_run_that_continues_has_the_speed_of_all_its_sessions(tmp_path: Path) -> None:
    truth = make_input(tmp_path / "in")

    def stop(state: dict[str, Any]) -> None:
        if state["phase"] == "working":
            raise KeyboardInterrupt

    made = [DocumentReader(str(tmp_path / "in"), blocksize="4KB"), *rules(), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(KeyboardInterrupt):
        Pipeline("counts", stages=made).execute(InProcessExecutor(progress=stop), quarantine_limit="100%")
    result, _ = run(tmp_path)
    check(result, truth, truth.kept, truth.kept | truth.short | truth.long)
    again, _ = run(tmp_path)
    assert (again.status, again.read_bytes) == ("already", 0)
    assert again.record == result.record
    assert as_dict(again)["seconds"] == as_dict(result)["seconds"] > 0


def test_files_that_were_cut_are_not_called_whole(tmp_path: Path) -> None:
    make_input(tmp_path / "in")
    made = [DocumentReader(str(tmp_path / "in"), files_per_partition=1), Greedy(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("cut", stages=made).execute(InProcessExecutor(), quarantine_limit="100%")
    assert result.counters["splits"] > 0
    notes = {
        e["name"]: e for e in json.loads((run_dir_path(tmp_path / "out") / "settings.json").read_text())["settings"]
    }
    told = notes["blocksize"]
    assert told["why"].startswith("partitions begin as one whole file each, as asked for, whatever their size")
    assert told["why"].endswith(f"; {result.counters['splits']:,} times one was cut in two after it did not fit")
    assert told["evidence"]["splits"] == result.counters["splits"]


def test_lines_are_counted_as_lines(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    line = "the same long line in every document of all"
    documents = [{"id": i, "text": "\n".join([line] * 30)} for i in range(4)]
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    workflow = LineDeduplicationWorkflow(str(tmp_path / "out"), str(tmp_path / "in"), max_source_loss=1.0)
    result = workflow.run(InProcessExecutor(), memory="512MB")
    assert (result.counted, result.n_documents, result.n_duplicates) == ("lines", 4, 119)
    assert result.summary["n_long_enough"] == 120
    assert alarms(result.summary, result.counted) == [
        "99% of all lines are duplicates: is one source in the input twice?"
    ]


def test_duplicates_are_counted_as_documents(tmp_path: Path) -> None:
    truth = make_input(tmp_path / "in", parquet=False)
    texts = Counter(
        json.loads(x)["text"]
        for x in (tmp_path / "in/a.jsonl").read_text().splitlines()
        + gzip.decompress((tmp_path / "in/b.jsonl.gz").read_bytes()).decode().splitlines()
        if x.startswith("{")
    )
    result = RemoveExactDuplicates(str(tmp_path / "out"), str(tmp_path / "in"), text_field="text").run(
        InProcessExecutor(), memory="512MB", quarantine_limit="100%"
    )
    n_gone = sum(texts.values()) - len(texts)
    assert (result.n_documents, result.n_duplicates) == (truth.n_records - truth.n_bad, n_gone)
    assert n_gone > 0
    last = read_snapshot(run_dir_path(tmp_path / "out")).last
    assert last is not None
    assert (last.documents, last.written, last.dropped, last.duplicates, last.quarantined) == (
        truth.n_records,
        len(texts),
        n_gone,
        n_gone,
        truth.n_bad,
    )
