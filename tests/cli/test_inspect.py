"""tamis inspect: what the sample says, as JSON and as tables."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.data.sampling import places, take_sample
from tamis.cli.main import app
from tests.stages.text.tokens import small_tokenizers
from tests.support.cli_runner import CliRunner
from tests.support.warc_files import members, record, response


def inspect(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["inspect", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


MIXED = [
    b'\xef\xbb\xbf{"id": 1, "text": "hello"}',
    b"",
    b'{"id": "2", "text": null, "n": 1.5}',
    b" \t\r",
    b"{broken",
    b"[1]",
    b'{"id": 3, "text": "' + b"\xff" + b'"}',
    b"[" * 100_000,
    b'{"id": ' + b"9" * 5000 + b', "text": ["x"], "meta": {"a": true}}',
    b'{"id": 4, "text": "' + b"y" * 150 + b'"}\r',
]


def test_a_small_file_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(MIXED))
    found = inspect(str(path))
    (file,) = found["files"]
    assert (file["n_documents"], file["is_exact"], file["format"]) == (4, True, "jsonl")
    assert found["n_blank_lines"] == 2
    offsets = [sum(len(line) + 1 for line in MIXED[:i]) for i in range(len(MIXED))]
    assert [(bad["offset"], bad["reason"].split(":")[0]) for bad in found["bad_lines"]] == [
        (offsets[4], "not JSON"),
        (offsets[5], "not an object but list"),
        (offsets[6], "not UTF-8 at byte 19 of the line"),
        (offsets[7], "nested too deeply"),
    ]
    fields = {seen["name"]: seen for seen in found["fields"]}
    assert fields["id"] == {"name": "id", "types": {"int": 3, "string": 1}, "share": 1.0, "example": "1"}
    assert fields["text"]["types"] == {"string": 2, "null": 1, "list": 1}
    assert (fields["n"]["share"], fields["n"]["example"]) == (0.25, "1.5")
    assert fields["meta"]["example"] == '{"a": true}'
    lengths = found["text_chars"]
    assert (lengths["n"], lengths["min"], lengths["max"], lengths["mean"]) == (2, 5, 150, 77.5)
    assert [row for row in lengths["histogram"] if row["n"]] == [
        {"from": 1, "below": 100, "n": 1},
        {"from": 100, "below": 300, "n": 1},
    ]


def test_a_large_file_is_sampled_in_places_and_estimated(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = b'{"text": "%s"}\n' % (b"x" * 85)
    path.write_bytes(line * 50_000)
    found = inspect(str(path), "--sample-mb", "0.2")
    (file,) = found["files"]
    assert 150_000 < file["sampled_bytes"] <= 200_000
    assert file["sampled_bytes"] % len(line) == 0
    assert (file["n_documents"], file["is_exact"]) == (50_000, False)
    assert (found["n_bad_lines"], found["n_blank_lines"]) == (0, 0)
    assert inspect(str(path), "--sample-mb", "0.2") == found


def test_places_do_not_overlap() -> None:
    for size in (201, 1000, 12345, 10**12):
        pieces = places(size, 200)
        assert pieces[0] == (0, 100)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(pieces))
        assert pieces[-1][0] + pieces[-1][1] <= size


def test_one_line_larger_than_the_sample_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * 3_000_000 + b'"}\n')
    found = inspect(str(path), "--sample-mb", "0.5")
    assert (found["n_sampled"], found["n_bad_lines"], found["files"][0]["n_documents"]) == (0, 0, None)


def test_compressed_files(tmp_path: Path) -> None:
    data = b"".join(b'{"text": "%d"}\n' % i for i in range(100_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data[:4000])[:-20])
    (tmp_path / "c.jsonl.gz").write_bytes(b"")
    found = inspect(str(tmp_path), "--sample-mb", "0.6")
    whole, cut, empty = found["files"]
    assert abs(whole["n_documents"] - 100_000) < 5_000
    assert not whole["is_exact"]
    assert cut["fault"] != ""
    assert (empty["n_documents"], empty["is_exact"], empty["fault"]) == (0, True, "")


def test_parquet_and_unreadable_parquet(tmp_path: Path) -> None:
    table = pa.table({"id": range(1000), "text": ["a" * (i % 7) if i % 10 else None for i in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    (tmp_path / "b.parquet").write_bytes(b"no such thing")
    found = inspect(str(tmp_path))
    good, bad = found["files"]
    assert (good["n_documents"], good["is_exact"], good["format"]) == (1000, True, "parquet")
    assert "not a readable Parquet file" in bad["fault"]
    assert found["n_sampled"] == 500
    assert [seen["name"] for seen in found["fields"]] == ["id", "text"]
    assert found["fields"][1]["types"] == {"string": 450, "null": 50}


def test_many_files_and_many_fields(tmp_path: Path) -> None:
    for i in range(10):
        record = {f"key{i}-{k}": k for k in range(300)}
        (tmp_path / f"{i}.jsonl").write_text(json.dumps(record) + "\n")
    paths = [str(tmp_path / f"{i}.jsonl") for i in range(10)]
    sample = take_sample(paths, [Path(p).stat().st_size for p in paths], 10**6, "text", 5)
    assert [file.n_sampled for file in sample.files] == [1, 0] * 5
    assert (len(sample.fields), sample.n_fields_left_out) == (1000, 500)


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(MIXED))
    result = CliRunner().invoke(app, ["inspect", str(path)])
    assert result.exit_code == 0
    for words in (
        "1 file",
        "4 documents",
        "string 50.0%",
        "100 - 299",
        "not UTF-8 at byte 19",
        "4 bad lines, 2 blank lines",
    ):
        assert words in result.output
    result = CliRunner().invoke(app, ["inspect", str(path), "--text-field", "body"])
    assert "--text-field" in result.output


@pytest.mark.parametrize(("name", "words"), [("none.jsonl", "no such file"), ("a.csv", "cannot tell its format")])
def test_mistakes(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "a.csv").write_text("")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / name)])
    assert result.exit_code == 2
    assert words in result.stderr


def test_tokens_are_counted_and_estimated(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    library = small_tokenizers.save(tmp_path / "tok")
    texts = small_tokenizers.TEXTS
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    n = sum(len(one.ids) for one in library.encode_batch_fast(texts, add_special_tokens=False))
    found = inspect(str(tmp_path / "a.jsonl"), "--tokenizer", str(tmp_path / "tok"))["tokens"]
    assert (found["sampled"], found["estimated"]) == (n, n)
    assert found["bytes_per_token"] == round(sum(len(text.encode()) for text in texts) / n, 3)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.jsonl"), "--tokenizer", str(tmp_path / "tok")]).output
    assert f"Tokens: {n:,} in the sample" in shown
    assert f"about {n:,} in all documents" in shown


def test_warc_files_show_their_kinds_of_records_and_where_texts_come_from(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nWords."
    image = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n\x89PNG"
    records = [record(1, b"GET /", "request"), record(1), record(2), record(3, plain), record(4, image)]
    path.write_bytes(b"".join(members(*records, record(5, response(b"")))))
    found = inspect(str(path))
    assert found["records"] == {
        "documents, text/html": 2,
        "documents, text/plain": 1,
        "request records": 1,
        "records that are not text (image)": 1,
        "empty records": 1,
    }
    assert "records" not in inspect(str(_small(tmp_path)))
    shown = CliRunner().invoke(app, ["inspect", str(path)])
    assert "Kinds of 6 sampled records" in shown.output
    assert "extract them with HtmlExtract" in " ".join(shown.output.split())
    lengths = CliRunner().invoke(app, ["inspect", str(path), "--text-field", "content"])
    assert "Characters in 'content'" in lengths.output


def _small(folder: Path) -> Path:
    path = folder / "small.jsonl"
    path.write_text('{"text": "a"}\n')
    return path
