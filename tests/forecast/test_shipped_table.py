"""The shipped table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.forecast.shipped_table import (
    CLASSIFIERS,
    GB,
    TB,
    TEXT_SIZES,
    decoded_bytes,
    gpu_seconds_per_document,
    seconds_per_byte,
    text_sizing,
)


def test_the_longest_name_counts_and_strangers_are_slow() -> None:
    rate = {
        n: round(1e-6 / seconds_per_byte([n]))
        for n in (
            "tamis.stages.text.filters.gopher.GopherRepetition",
            "tamis.stages.text.filters.gopher.GopherQuality",
            "tamis.stages.text.filters.heuristic.string.X",
            "mine.Stage",
        )
    }
    assert list(rate.values()) == [80, 400, 3000, 20]


@pytest.mark.parametrize(
    ("size", "nodes", "gpus", "memory"),
    [
        (9 * GB, "1", "1", "32 GB"),
        (10 * GB, "1", "4", "64 GB"),
        (499 * GB, "2 to 4", "8 to 16", "128 GB or more"),
        (999 * GB, "4 to 8", "16 to 32", "256 GB or more"),
        (1 * TB, "8 or more", "32 or more", "512 GB or more"),
    ],
)
def test_sizes_of_clusters(size: int, nodes: str, gpus: str, memory: str) -> None:
    row = text_sizing(size)
    assert (row.nodes, row.gpus, row.memory) == (nodes, gpus, memory)


def test_classifiers() -> None:
    assert {n: (c.batch_size, c.gpu_memory_bytes // GB, c.documents_per_s) for n, c in CLASSIFIERS.items()} == {
        "QualityClassifier": (64, 8, 1000.0),
        "FineWebEduClassifier": (32, 12, 500.0),
        "AegisClassifier": (16, 16, 200.0),
    }
    assert gpu_seconds_per_document(["a.AegisClassifier", "b.QualityClassifier", "c.Filter"]) == pytest.approx(0.006)


def test_decoded_sizes() -> None:
    assert decoded_bytes(["a.jsonl", "b.jsonl.gz", "c.parquet", "gone.jsonl"], [10, 10, 10, -1]) == 60


def test_the_tables_of_the_documentation_are_these() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/planning.md").read_text(encoding="utf-8")
    rows = [f"| {r.size} | {r.nodes} | {r.gpus} | {r.memory} |" for r in TEXT_SIZES]
    rows += [
        f"| {name} | {c.batch_size} | {c.gpu_memory_bytes // GB} GB | {c.documents_per_s:.0f} |"
        for name, c in CLASSIFIERS.items()
    ]
    assert [row for row in rows if row not in page] == []
    tables = page.partition("## Look up the starting tables")[2]
    assert len([line for line in tables.splitlines() if line.startswith("|")]) == len(rows) + 4
