"""Splitting by the names that users know, over what `tamis split` does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import Incomplete, UsageError
from tamis.utils.split_large_files import main, parse_args, split_jsonl_file_by_size, split_parquet_file_by_size


def test_jsonl_and_parquet_are_split_and_lose_nothing(tmp_path: Path) -> None:
    lines = [json.dumps({"i": i, "text": "x" * 1000}) + "\n" for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    chunks = split_jsonl_file_by_size(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), 1)
    assert len(chunks) == 4
    assert "".join(Path(c).read_text() for c in chunks) == "".join(lines)
    pq.write_table(pa.table({"i": range(3000), "text": [f"{i:01000d}" for i in range(3000)]}), tmp_path / "b.parquet")
    chunks = split_parquet_file_by_size(str(tmp_path / "b.parquet"), str(tmp_path / "out"), 1)
    assert len(chunks) == 4
    assert [i for c in chunks for i in pq.read_table(c)["i"].to_pylist()] == list(range(3000))


def test_a_folder_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "in/sub/b.json").write_text('{"b": 1}\n')
    (tmp_path / "in/c.txt").write_text("no")
    common = ["--input-path", str(tmp_path / "in"), "--output-path", str(tmp_path / "out"), "--file-type"]
    main([*common, "jsonl"])
    made = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert made == ["a-00000.jsonl", "sub/b-00000.json"]
    assert capsys.readouterr().out.count("1 files") == 2
    with pytest.raises(Incomplete, match=r"2 of 2 files were not split"):
        main(parse_args([*common, "jsonl"]))
    with pytest.raises(UsageError, match=r"holds no file that ends in \.parquet"):
        main([*common, "parquet"])


def test_equal_names_in_subfolders(tmp_path: Path) -> None:
    for i, name in enumerate(("x/a.jsonl", "y/a.jsonl", "a.jsonl")):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(f'{{"i": {i}}}\n')
    main(["--input-path", str(tmp_path / "in"), "--output-path", str(tmp_path / "in/out"), "--file-type", "jsonl"])
    made = {str(p.relative_to(tmp_path / "in/out")): p.read_text() for p in (tmp_path / "in/out").rglob("*.jsonl")}
    assert made == {
        "a-00000.jsonl": '{"i": 2}\n',
        "x/a-00000.jsonl": '{"i": 0}\n',
        "y/a-00000.jsonl": '{"i": 1}\n',
    }
    with pytest.raises(Incomplete, match=r"3 of 3 files were not split"):  # and none of the chunks, which lie there now
        main(["--input-path", str(tmp_path / "in"), "--output-path", str(tmp_path / "in/out"), "--file-type", "jsonl"])


@pytest.mark.parametrize(("source", "output"), [("in/a.jsonl", "in"), ("in", "in"), ("in", "."), ("in/a.jsonl", ".")])
def test_chunks_may_lie_next_to_the_input(
    source: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"i": 0}\n')
    main(["--input-path", source, "--output-path", output, "--file-type", "jsonl"])
    assert (tmp_path / output / "a-00000.jsonl").read_text() == '{"i": 0}\n'


def test_what_is_refused(tmp_path: Path) -> None:
    assert parse_args(["--input-path", "a", "--file-type", "jsonl", "--output-path", "b"]).target_size_mb == 128
    with pytest.raises(UsageError, match="remote files are not split"):
        split_jsonl_file_by_size("s3://b/a.jsonl", str(tmp_path), 1)
    with pytest.raises(UsageError, match="expected more than 0"):
        split_jsonl_file_by_size("a.jsonl", str(tmp_path), 0)


def test_a_function_can_be_sent_to_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Task:
        def __init__(self, function: Any) -> None:
            self.function = function

        def remote(self, *args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(remote=Task))
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    chunks = split_jsonl_file_by_size.remote(
        input_file=str(tmp_path / "a.jsonl"), output_path=str(tmp_path / "out"), target_size_mb=1
    )
    assert [Path(path).read_text() for path in chunks] == ['{"text": "x"}\n']
