"""Records that an earlier pass found valid: only those that are left are looked into."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import FormatError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.tasks import DocumentBatch

LINES = [
    '{"id": "a", "text": "one\\n\\u00e9", "n": 1}',
    '{"text": "two", "id": "b", "deep": {"id": "no"}}',
    '{"id": "c", "id": "last", "text": ["x"]}',
    '{"n": 2}',
    *(json.dumps({"id": str(i), "text": f"t{i}"}) for i in range(20)),
]


def _bytes(lines: list[str], end: str = "\n") -> np.ndarray:
    return np.frombuffer("".join(line + end for line in lines).encode(), np.uint8)


@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_a_field_of_some_records_is_what_parsing_finds(end: str) -> None:
    buf = _bytes(LINES, end)
    whole = JsonlBlock.parse(buf, ["id"])
    for rows in ([0], [2, 1, 0], [3], list(range(len(LINES))), []):
        at = np.array(rows, np.int64)
        found = JsonlBlock.parse_valid(buf).column_of("id", at)
        assert found.to_pylist() == whole.column("id").take(pa.array(at)).to_pylist()


def test_only_records_that_are_left_are_scanned() -> None:
    """The others may be anything: nobody looks."""
    buf = _bytes([*LINES[:3], '{"text": broken}', *LINES[4:]])
    block = JsonlBlock.parse_valid(buf)
    block.narrow(np.array([4, 0, 1, -1, 4]))
    assert [block.column("text").to_pylist()[i] for i in (0, 1, 4)] == ["one\né", "two", "t0"]
    assert block.exact("id", np.array([1, -1, 0])).to_pylist() == ["b", None, "a"]
    assert block.raw(2) == LINES[2].encode()
    with pytest.raises(FormatError, match="not any more"):
        JsonlBlock.parse_valid(buf).column("text")
    wanted = JsonlBlock.parse_valid(buf)
    wanted.narrow(np.array([3, 4]))
    with pytest.raises(FormatError, match="not any more"):
        wanted.column("text")


def test_what_is_written_is_the_same() -> None:
    at = np.array([0, 1, 5])
    made = []
    for narrowed in (False, True):
        block = JsonlBlock.parse_valid(_bytes(LINES))
        if narrowed:
            block.narrow(at)
        batch = DocumentBatch.over(block, at).with_column("text", pa.array(["X", "Y", "t1"], pa.large_string()))
        made.append(encode_jsonl(batch).data.tobytes())
    assert made[0] == made[1]
    assert [json.loads(line)["text"] for line in made[0].splitlines()] == ["X", "Y", "t1"]


@pytest.mark.parametrize("n_others", [1, 30])
def test_fields_of_dropped_records_alone_are_no_columns(n_others: int) -> None:
    """However many records lie beside those that are left, and whether or not these were looked into."""
    kept = ['{"id": 1, "text": "a"}', '{"text": "b", "more": null}']
    buf = _bytes([*kept, *['{"id": 2, "extra": 3}'] * n_others])
    narrowed, parsed = JsonlBlock.parse_valid(buf), JsonlBlock.parse(buf)
    narrowed.narrow(np.array([0, 1]))
    for block in (narrowed, parsed):
        assert DocumentBatch.over(block, np.array([0, 1])).get_columns() == ["id", "text", "more"]
        assert DocumentBatch.over(block, np.array([-1, 0])).get_columns() == ["id", "text"]
    assert parsed.field_names() == ["id", "text", "more", "extra"]
    assert DocumentBatch.over(parsed, np.array([], np.int64)).get_columns() == parsed.field_names()
