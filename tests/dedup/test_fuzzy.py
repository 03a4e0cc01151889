"""Fuzzy deduplication, end to end: pairs found and verified, what stays, and that nothing but content decides."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.dedup import key_comparison
from tamis.dedup.fuzzy.workflow import FuzzyDeduplicationWorkflow, RemoveFuzzyDuplicates
from tamis.dedup.workflow import Workflow
from tamis.errors import UsageError, WorkerError
from tests.support.made_documents import edited, jaccard, read, text, write
from tests.support.run_dirs import run_dir_path


def run(source: Path, target: Path, executor: Any = None, memory: str = "512MB", **parameters: Any) -> Any:
    workflow = RemoveFuzzyDuplicates(None, str(target), str(source), max_source_loss=1, **parameters)
    return workflow.run(executor if executor is not None else InProcessExecutor(), memory=memory)


def corpus() -> list[dict[str, Any]]:
    """Twenty families: an original, a near copy, an equal copy; and texts of their own."""
    docs = []
    for i in range(20):
        whole = text(i)
        docs += [{"id": f"{i}a", "text": whole}, {"id": f"{i}b", "text": edited(whole, 2) + " longer"}]
        docs += [{"id": f"{i}c", "text": whole}, {"id": f"{i}x", "text": text(1000 + i)}]
    return docs


def test_near_copies_go_and_the_longest_stays(tmp_path: Path) -> None:
    docs = corpus()
    result = run(write(tmp_path / "in", docs), tmp_path / "out")
    left = {d["id"] for d in read(tmp_path / "out")}
    assert left == {f"{i}b" for i in range(20)} | {f"{i}x" for i in range(20)}
    assert (result.summary["n_equal"], result.summary["n_similar"], result.n_duplicates) == (20, 20, 40)
    assert result.summary["component_sizes"] == {"2": 20}
    assert result.summary["largest_group"] == 3


def test_the_table_reports_the_true_similarity(tmp_path: Path) -> None:
    docs = corpus()
    run(write(tmp_path / "in", docs, n_files=1), tmp_path / "out")
    by_place, offset = {}, 0
    for line in (tmp_path / "in" / "0.jsonl").read_bytes().splitlines(keepends=True):
        by_place[f"000000_{offset}"] = json.loads(line)
        offset += len(line)
    rows = pq.read_table(run_dir_path(tmp_path / "out") / "duplicates").to_pylist()
    assert len(rows) == 40
    for row in rows:
        gone, stays = by_place[row["id"]], by_place[row["kept_id"]]
        assert stays["id"].endswith("b")
        assert row["similarity"] == pytest.approx(jaccard(gone["text"], stays["text"]), abs=1e-6)


def test_a_document_goes_only_if_it_resembles_one_that_stays(tmp_path: Path) -> None:
    """A chain: neighbours resemble each other, the ends do not. Linked together they must not all vanish."""
    words = text(5, 400).split()
    chain = [" ".join([*words[:i], *text(900 + i, 40).split(), *words[i + 40 :]]) for i in range(0, 320, 40)]
    step = [edited(chain[0], k * 4, seed=k) for k in range(8)]
    docs = [{"id": i, "text": t} for i, t in enumerate([*chain, *step])]
    run(write(tmp_path / "in", docs, n_files=1), tmp_path / "out", threshold=0.8, num_bands=40, minhashes_per_band=4)
    left = {d["id"] for d in read(tmp_path / "out")}
    assert 2 < len(left) < len(docs)
    for d in docs:
        if d["id"] not in left:
            assert max(jaccard(d["text"], docs[k]["text"]) for k in left) >= 0.8


def test_unverified_pairs_that_share_a_band_go_only_without_a_threshold(tmp_path: Path) -> None:
    whole = text(3, 400)
    docs = [{"id": 0, "text": whole}, {"id": 1, "text": edited(whole, 45)}]  # about 0.45 alike
    source = write(tmp_path / "in", docs, n_files=1)
    loose = {"num_bands": 60, "minhashes_per_band": 2}
    strict = run(source, tmp_path / "strict", threshold=0.7, **loose)
    assert (strict.n_duplicates, strict.summary["n_components"], strict.summary["n_compared"]) == (0, 1, 1)
    assert run(source, tmp_path / "off", threshold=None, **loose).n_duplicates == 1


def test_short_documents_are_compared_by_equality_only(tmp_path: Path) -> None:
    docs = [{"id": i, "text": t} for i, t in enumerate(["tiny text", "tiny text", "tiny text!", "", None, "   "])]
    run(write(tmp_path / "in", docs, n_files=1), tmp_path / "out", threshold=0.1)
    assert [d["id"] for d in read(tmp_path / "out")] == [0, 2, 3, 4, 5]


def test_the_order_of_files_workers_budget_and_passes_change_nothing(tmp_path: Path) -> None:
    docs = corpus()
    source = write(tmp_path / "in", docs, n_files=4)
    turned = write(tmp_path / "turned", docs[::-1], n_files=3)
    runs = [
        run(source, tmp_path / "1"),
        run(turned, tmp_path / "2"),
        run(source, tmp_path / "3", bands_per_iteration=7),
        run(source, tmp_path / "4", LocalExecutor(), memory="1GB", input_blocksize="20KB"),
    ]
    texts = [sorted(d["text"] for d in read(tmp_path / str(k))) for k in range(1, 5)]
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert {r.n_duplicates for r in runs} == {40}


@pytest.mark.parametrize("kind", [FuzzyDeduplicationWorkflow, RemoveFuzzyDuplicates])
@pytest.mark.parametrize(("asked", "bands_per_pass"), [(None, 20), (1, 1), (5, 5), (20, 20)])
def test_a_number_of_bands_is_followed_as_given(
    tmp_path: Path, kind: type[FuzzyDeduplicationWorkflow], asked: int | None, bands_per_pass: int
) -> None:
    source = write(tmp_path / "in", corpus(), n_files=1)
    parameters = {} if asked is None else {"bands_per_iteration": asked}
    workflow = kind(None, str(tmp_path / "out"), str(source), input_filetype="jsonl", **parameters)
    assert workflow.plan("512MB").bands_per_pass == bands_per_pass


def test_texts_that_cannot_be_read_by_place_are_collected(tmp_path: Path) -> None:
    docs = [*corpus(), {"id": "null", "text": None}, {"id": "odd", "text": "\ud83d\ude00 " + text(77)}]
    plain = write(tmp_path / "in", docs, n_files=1)
    (tmp_path / "gz").mkdir()
    with gzip.open(tmp_path / "gz" / "0.jsonl.gz", "wb") as out:
        out.write((plain / "0.jsonl").read_bytes())
    by_place = run(plain, tmp_path / "1", normalize_text="casefold")
    collected = run(tmp_path / "gz", tmp_path / "2", normalize_text="casefold", output_filetype="jsonl")
    with gzip.open(next((tmp_path / "2").glob("*.gz")), "rt") as lines:
        assert [json.loads(line)["id"] for line in lines] == [d["id"] for d in read(tmp_path / "1")]
    same = ("n_similar", "n_equal", "n_compared", "n_candidates")
    assert [by_place.summary[k] for k in same] == [collected.summary[k] for k in same] == [20, 20, 20, 40]


def test_words_and_plain_permutations_find_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "in", corpus())
    for k, parameters in enumerate([{"word_ngrams": 5}, {"method": "permutations"}, {"use_64_bit_hash": True}]):
        run(source, tmp_path / str(k), threshold=0.6, **parameters)
        assert {d["id"] for d in read(tmp_path / str(k))} == {f"{i}b" for i in range(20)} | {f"{i}x" for i in range(20)}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_bands": 0}, "num_bands: expected a whole number from 1 to 1000"),
        ({"char_ngrams": -1}, "char_ngrams: expected"),
        ({"threshold": 1.5}, "threshold"),
        ({"bands_per_iteration": 21}, "bands_per_iteration: expected a whole number from 1 to 20, got 21"),
        ({"method": "simhash"}, "method must be"),
    ],
)
def test_mistakes(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RemoveFuzzyDuplicates(None, str(tmp_path / "out"), str(tmp_path), **parameters)


def test_a_decision_that_was_begun_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop when equal texts are known, before those of candidates are collected from a compressed file."""
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps(d) + "\n" for d in corpus())
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    do_pass = key_comparison.run_key_pass

    def stopped(workflow: Workflow, folder: str, stage: Any) -> list[str]:
        if folder == "texts":
            raise WorkerError("stopped")
        return do_pass(workflow, folder, stage)

    with monkeypatch.context() as patch:
        patch.setattr(key_comparison, "run_key_pass", stopped)
        with pytest.raises(WorkerError, match="stopped"):
            run(tmp_path / "in", tmp_path / "out")
    result = run(tmp_path / "in", tmp_path / "out")
    assert (result.summary["n_equal"], result.summary["n_similar"]) == (20, 20)
    with gzip.open(next((tmp_path / "out").glob("*.gz")), "rt") as left:
        assert {json.loads(line)["id"] for line in left} == {f"{i}{k}" for i in range(20) for k in "bx"}
