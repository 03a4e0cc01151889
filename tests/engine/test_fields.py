"""Fields that some document has, wherever it lies in the input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.engine.worker import fields
from tamis.engine.worker.fields import sampled_fields


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("at", range(40))
def test_a_field_of_one_record_of_a_small_file_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, end: str
) -> None:
    monkeypatch.setattr(fields, "_SAMPLE_BYTES", 64)
    rows = [{"id": i, "text": "x" * (i % 7)} | ({"rare": 1} if i == at else {}) for i in range(40)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + end)
    assert sampled_fields(["rare", "none"], [(str(path), path.stat().st_size)]) == {"rare"}


def test_large_files_are_looked_at_in_places(tmp_path: Path) -> None:
    n_bytes = 100 * fields._SAMPLE_BYTES
    places = list(fields._sample_positions([("a.jsonl", n_bytes), ("b.jsonl.gz", n_bytes), ("c.jsonl", 10)]))
    assert [start for path, start in places if path == "a.jsonl"] == [k * (n_bytes // 21) for k in range(21)]
    assert [(path, start) for path, start in places if path != "a.jsonl"] == [("b.jsonl.gz", 0), ("c.jsonl", 0)]
