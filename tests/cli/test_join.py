"""`tamis join`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import tamis


def test_segments_become_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"doc": d, "part": p, "text": f"{d}{p}"} for p in range(3) for d in "ab"]
    for k in range(2):
        (tmp_path / "in" / f"{k}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[k::2][::-1]))
    options = ["--id-field", "doc", "--segment-field", "part", "--separator", "\\n", "--memory", "512MB"]
    command = ["join", str(tmp_path / "in"), str(tmp_path / "out"), *options]
    result = tamis(*command)
    assert result.exit_code == 0, result.output
    assert "6 segments are 2 documents" in result.output
    found = [json.loads(line) for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert sorted((d["doc"], d["text"]) for d in found) == [("a", "a0\na1\na2"), ("b", "b0\nb1\nb2")]
    again = tamis(*command)
    assert again.exit_code == 0, again.output
