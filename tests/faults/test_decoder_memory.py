"""Streams and tables that are expensive to decode end in documents, in quarantine, or in a refusal with a number."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tamis.errors import Incomplete
from tests.faults.fault_harness import assert_conserved, documents, execute, ids_of

MB = 1_000_000


def long_window(path: Path, lines: list[bytes]) -> None:
    """Make a small file that needs a window of 128 MiB, as zstd --long=27 writes them."""
    window = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=window).compressobj()
    path.write_bytes(b"".join(packer.compress(line + b"\n") for line in lines) + packer.flush())


def test_records_larger_than_a_share_of_the_memory(tmp_path: Path) -> None:
    """Three records of 40 MB in one stream: none of them is ever held by the feeder, each by one worker."""
    folder = tmp_path / "in"
    folder.mkdir()
    packer = zstandard.ZstdCompressor().compressobj()
    with open(folder / "a.jsonl.zst", "wb") as out:
        for i in range(3):
            out.write(packer.compress(b'{"id":%d,"text":"' % i))
            for _ in range(40):
                out.write(packer.compress(b"x" * MB))
            out.write(packer.compress(b'"}\n'))
        out.write(packer.flush())
    result = execute(folder, tmp_path / "out", settings={"memory": "400MB"})
    assert_conserved(result)
    assert (result.exit_code, result.ledger.written.n) == (0, 3)
    assert result.peak_bytes <= 400 * MB


def test_a_window_that_does_not_fit_is_refused_by_name_and_a_larger_budget_continues(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    long_window(folder / "a.jsonl.zst", documents(3000))
    (folder / "b.jsonl.xz").write_bytes(lzma.compress(b"\n".join(documents(3000, 3000)), preset=9))
    with pytest.raises(Incomplete, match=r"a\.jsonl\.zst cannot be decoded") as caught:
        execute(folder, tmp_path / "out", blocksize="100kB", settings={"memory": "230MB"})
    told = str(caught.value)
    assert "it asked for 134 MB at once" in told
    assert set(ids_of(tmp_path / "out")) == set(range(3000, 6000)), "the other file was read"
    enough = re.search(r"--memory (\d+)MB", told)
    assert enough is not None
    settings = {"memory": f"{enough[1]}MB"}
    result = execute(folder, tmp_path / "out", blocksize="100kB", settings=settings)
    assert_conserved(result)
    assert (result.exit_code, sorted(ids_of(tmp_path / "out"))) == (0, list(range(6000)))
    assert result.peak_bytes <= int(enough[1]) * MB


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "fits"), [("300MB", False), ("1GB", True)])
def test_a_large_dictionary(tmp_path: Path, memory: str, fits: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = [bytes([97 + i % 26]) * 100 + str(i).encode() * 300 for i in range(90_000)]
    column = pa.DictionaryArray.from_arrays(
        pa.array(list(range(90_000)), pa.int32()), pa.array(texts).cast(pa.string())
    )
    pq.write_table(pa.table({"text": column}), folder / "a.parquet", dictionary_pagesize_limit=1 << 30)
    if fits:
        result = execute(folder, tmp_path / "out", settings={"memory": memory})
        assert (result.exit_code, result.ledger.written.n) == (0, 90_000)
    else:
        with pytest.raises(Incomplete, match=r"a\.parquet cannot be decoded in the memory .* --memory \d+MB"):
            execute(folder, tmp_path / "out", settings={"memory": memory})


@pytest.mark.slow
def test_a_few_kilobytes_that_are_a_gigabyte(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    n = 1_000_000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * 1000]))
    pq.write_table(pa.table({"text": column}), folder / "a.parquet", row_group_size=n)
    result = execute(folder, tmp_path / "out", settings={"memory": "300MB"})
    assert_conserved(result)
    assert (result.exit_code, result.ledger.written.n) == (0, n)
    assert result.peak_bytes <= 300 * MB


@pytest.mark.slow
def test_ten_thousand_columns(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({f"c{i}": list(range(i, i + 500)) for i in range(10_000)}), folder / "a.parquet")
    with pytest.raises(Incomplete, match=r"a\.parquet cannot be decoded in the memory .* --memory \d+MB"):
        execute(folder, tmp_path / "out", settings={"memory": "400MB"})
    result = execute(folder, tmp_path / "out", settings={"memory": "1500MB"})
    assert (result.exit_code, result.ledger.written.n) == (0, 500)
