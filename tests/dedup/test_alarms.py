"""Which summaries make a user look twice."""

from __future__ import annotations

import os
from unittest import mock

from tamis.dedup.alarms import alarms, sources_of


def test_an_ordinary_result_says_nothing() -> None:
    assert alarms({"n_documents": 1000, "n_duplicates": 300, "largest_component": 900, "n_heavy_buckets": 0}) == []
    assert alarms({"n_documents": 1_000_000, "n_duplicates": 0, "largest_component": 9_000}) == []


def test_each_alarm() -> None:
    summary = {
        "n_documents": 10_000,
        "n_duplicates": 9_500,
        "largest_component": 2_000,
        "n_heavy_buckets": 2,
        "largest_bucket": 150_000,
        "n_beyond_leaders": 7,
    }
    found = alarms(summary)
    assert len(found) == 4
    assert found[0].startswith("2,000 documents (20.0%) hang together")
    assert "largest by 150,000" in found[1]
    assert found[2].startswith("7 documents were not compared")
    assert found[3].startswith("95% of all documents")


def test_what_could_not_be_compared_or_ranked() -> None:
    told = alarms({"n_documents": 9, "n_duplicates": 1, "n_without_number": 9, "n_not_compared": 2})
    assert [t.partition(" (")[0] for t in told] == [
        "2 documents could not be compared",
        "no document has a number in the field of --keep-by: is that its name? It decided nothing",
    ]
    assert alarms({"n_documents": 9, "n_duplicates": 1, "n_without_number": 8}) == []


def test_sources_of_many_files_are_found_by_one_comparison_of_their_folders() -> None:
    paths = [f"/in/{i % 3}/{i}.jsonl" for i in range(200)]
    with mock.patch.object(os.path, "commonpath", wraps=os.path.commonpath) as compare:
        assert sources_of(paths) == [f"/in/{i % 3}" for i in range(200)]
    assert [len(call.args[0]) for call in compare.call_args_list] == [3]
