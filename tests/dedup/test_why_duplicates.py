"""Explaining a duplicate: the kept document, the similarity and the differences, for every format."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.observe.duplicates import diff_lines, read_side
from tests.support.cli_runner import CliRunner

ORIGINAL = " ".join(f"word{i}" for i in range(400))
COPY = ORIGINAL.replace("word200 ", "other200 ")
DOCS = [
    {"id": "kept", "body": ORIGINAL + " end"},
    {"id": "alone", "body": " ".join(f"thing{i}" for i in range(100))},
    {"id": "gone", "body": COPY},
]


def write(folder: Path, kind: str, docs: list[dict[str, Any]] = DOCS) -> Path:
    folder.mkdir()
    text = "".join(json.dumps(d) + "\n" for d in docs).encode()
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(docs), folder / "a.parquet", row_group_size=2)
    elif kind == "gz":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(text, mtime=0))
    else:
        (folder / "a.jsonl").write_bytes(text)
    return folder


def fuzzy(tmp_path: Path, kind: str = "plain", **parameters: Any) -> Path:
    source = write(tmp_path / "in", kind)
    workflow = RemoveFuzzyDuplicates(None, str(tmp_path / "out"), str(source), text_field="body", **parameters)
    assert workflow.run(InProcessExecutor(), memory="512MB").n_duplicates == 1
    return tmp_path / "out"


def why(*args: object) -> Any:
    return CliRunner().invoke(app, ["why", *map(str, args)])


@pytest.mark.parametrize("kind", ["plain", "gz", "parquet"])
def test_the_kept_document_the_similarity_and_what_differs(tmp_path: Path, kind: str) -> None:
    out = fuzzy(tmp_path, kind)
    told = why(out, "gone")
    assert told.exit_code == 0, told.output
    name = next((tmp_path / "in").iterdir())
    offset = 2 if kind == "parquet" else sum(len(json.dumps(d)) + 1 for d in DOCS[:2])
    lines = told.output.splitlines()
    assert lines[0] == "gone was dropped by duplicate (stage remove_duplicates)"
    assert f"  place:     {name}, offset {offset}" in lines
    assert f"  kept:      {name}, offset 0" in lines
    (similar,) = [float(line.split()[1]) for line in lines if line.startswith("  similar:")]
    assert 0.95 < similar < 1
    assert "  threshold: 0.7711" in lines
    assert "- word200" in lines
    assert "+ other200" in lines
    assert "@@ word 201 @@" in lines
    assert len(lines) < 20
    assert why(out, f"000000_{offset}").output.splitlines()[1:] == lines[1:]
    assert why(out, f"{name.name}:{offset}").output.splitlines()[1:] == lines[1:]


def test_json_has_both_texts_and_the_similarity(tmp_path: Path) -> None:
    told = json.loads(why(fuzzy(tmp_path), "gone", "--json").stdout)
    (pair,) = told["duplicates"]
    assert pair["kept"]["text"] == (ORIGINAL + " end")[:2000]
    assert pair["removed"]["text"] == COPY[:2000]
    assert 0.95 < pair["similarity"] < 1
    assert (pair["threshold"], pair["kept"]["offset"], pair["kept"]["problem"]) == (0.7711, 0, None)
    assert told["verdicts"][0]["value"]["kept"] == f"{tmp_path / 'in' / 'a.jsonl'}:0"


def test_input_that_is_gone_or_changed_is_reported(tmp_path: Path) -> None:
    out = fuzzy(tmp_path)
    path = tmp_path / "in" / "a.jsonl"
    os.utime(path, ns=(1, 1))
    told = why(out, "gone").output
    assert "the removed document cannot be shown: the file was changed after the run" in told
    path.unlink()
    told = why(out, "gone").output
    assert "the removed document cannot be shown: the file is gone" in told
    assert "the kept document cannot be shown: the file is gone" in told
    assert "  similar:   0.9" in told


def test_a_run_that_only_looked_for_duplicates(tmp_path: Path) -> None:
    out = fuzzy(tmp_path, perform_removal=False)
    offset = sum(len(json.dumps(d)) + 1 for d in DOCS[:2])
    told = why(out, f"000000_{offset}")
    assert told.output.splitlines()[0] == f"000000_{offset} is a duplicate; this run removed nothing"
    assert "+ other200" in told.output.splitlines()
    assert why(out, f"a.jsonl:{offset}").output.splitlines()[1:] == told.output.splitlines()[1:]
    assert json.loads(why(out, f"000000_{offset}", "--json").stdout)["duplicates"][0]["threshold"] == 0.7711


def test_a_document_that_was_not_dropped(tmp_path: Path) -> None:
    out = fuzzy(tmp_path)
    assert why(out, "alone").output.startswith("alone was kept: ")
    assert why(out, "000000_1").exit_code == 2
    assert why(out, "000009_0").exit_code == 2


def test_equal_texts_need_no_diff(tmp_path: Path) -> None:
    docs = [{"id": 1, "text": "same text"}, {"id": 2, "text": "Same  text"}, {"id": 3, "text": "same text"}]
    source = write(tmp_path / "in", "plain", docs)
    RemoveExactDuplicates(str(tmp_path / "out"), str(source), normalize_text=True).run(
        InProcessExecutor(), memory="512MB"
    )
    assert "the two texts are the same" in why(tmp_path / "out", "3").output
    told = why(tmp_path / "out", "2").output.splitlines()
    assert told[-4:] == ["@@ word 1 @@", "- same", "+ Same", "  text"]


def test_what_differs_is_short_and_by_lines_where_there_are_lines() -> None:
    a = "\n".join(f"line {i}" for i in range(40))
    assert diff_lines(a, a.replace("line 20", "line twenty")) == [
        "@@ line 21 @@",
        "  line 18",
        "  line 19",
        "- line 20",
        "+ line twenty",
        "  line 21",
        "  line 22",
    ]
    assert diff_lines("a  b", "a b") == ["the two texts differ in whitespace alone"]
    assert diff_lines("", "a") == ["@@ word 1 @@", "+ a"]
    assert diff_lines("x y z", "x z") == ["@@ word 2 @@", "  x", "- y", "  z"]
    many = diff_lines("\n".join(map(str, range(0, 9000, 2))), "\n".join(map(str, range(9000))))
    assert len(many) == 60
    assert many[-1] == "... (the rest is not shown)"


def test_huge_texts_with_nothing_in_common_are_cut() -> None:
    lines = diff_lines(" ".join(f"a{i % 50}" for i in range(50_000)), " ".join(f"b{i % 50}" for i in range(50_000)))
    assert len(lines) == 60


@pytest.mark.parametrize(
    ("content", "offset", "problem"),
    [
        (b'{"text": 7}\n', 0, "there is no text in its field 'text'"),
        (b'{"text": "a"}\n', 3, "it cannot be read there"),
        (b"[" * 100_000 + b"\n", 0, "it cannot be read there"),
        (b"", 0, "it cannot be read there"),
        (b'{"other": "a"}', 0, "there is no text in its field 'text'"),
    ],
)
def test_records_that_hold_no_text(tmp_path: Path, content: bytes, offset: int, problem: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    side = read_side(str(tmp_path / "a.jsonl"), offset, "text", {})
    assert side.text is None
    assert problem in str(side.problem)


def test_a_damaged_parquet_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    assert "it cannot be read there" in str(read_side(str(tmp_path / "a.parquet"), 0, "text", {}).problem)


def test_hostile_texts_cannot_steer_the_terminal(tmp_path: Path) -> None:
    docs = [{"id": 1, "text": "same\x1b[2J text"}, {"id": 2, "text": "same\x1b[2J TEXT"}]
    source = write(tmp_path / "in", "plain", docs)
    RemoveExactDuplicates(str(tmp_path / "out"), str(source), normalize_text=True).run(
        InProcessExecutor(), memory="512MB"
    )
    told = why(tmp_path / "out", "2").output
    assert "\x1b" not in told
    assert "  same\\x1b[2J" in told.splitlines()
