"""How a document begins: bounded, and only where it is found at once."""

from __future__ import annotations

import json
from pathlib import Path

from tamis.observe.records import MAX_CHARS, beginning, excerpt


def test_records_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [
        {"id": 1, "text": "<script>alert(1)</script>\n é"},
        {"a": "short", "b": "the longest one"},
        {"n": 7},
        [1],
    ]
    lines = [json.dumps(r).encode() for r in records]
    path.write_bytes(b"\n".join([*lines, b"{broken", b"\xff\xfe"]))
    offsets = [sum(len(x) + 1 for x in lines[:k]) for k in range(5)]
    found = [excerpt(str(path), offset) for offset in offsets]
    assert found == ["<script>alert(1)</script> é", "the longest one", "", "", ""]
    for other in ("s3://bucket/a.jsonl", str(tmp_path / "gone.jsonl"), str(tmp_path / "a.jsonl.gz"), str(tmp_path)):
        assert excerpt(other, 0) == ""


def test_a_long_record_is_read_in_part() -> None:
    whole = json.dumps({"id": 1, "text": "é\n" * 60_000}).encode()
    assert len(beginning(whole + b"\n")) == len(beginning(whole[: 1 << 16])) == MAX_CHARS
    for cut in range(20, 60):  # in the middle of an escape, too
        assert set(beginning(whole[:cut])) <= set("é ")
    assert beginning(b'{"text": "short", "other": "' + b"x" * 70_000) == "short"
