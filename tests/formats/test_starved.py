"""Under a real memory cap every decoder says MemoryError, and never that its input is bad."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

READ = """
import resource, sys
from tamis.errors import FormatError
kind, path, n_free_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "parquet":
    from tamis.formats.parquet.format import iter_rows
    read = lambda: [t.num_rows for _, t in iter_rows(path, 0, 10**9, batch_bytes=200_000_000)]
else:
    from tamis.formats.compression import zstd
    from tamis.formats.compression.streams import StreamReader
    read = lambda: StreamReader(open(path, "rb"), kind).skip(10**12)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = int(status["VmData"].split()[0]) * 1024 + n_free_bytes
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    print("read", read() is not None)
except MemoryError:
    print("MemoryError")
except FormatError as exc:
    print("blamed the input:", exc)
"""


def outcome(kind: str, path: Path, n_free_bytes: int) -> str:
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", READ, kind, str(path), str(n_free_bytes)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=True).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts anonymous memory on Linux only")
@pytest.mark.parametrize("kind", ["zst", "xz", "parquet"])
def test_a_capped_decoder_raises_memory_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    data = os.urandom(1000) * 40_000
    if kind == "zst":
        parameters = zstandard.ZstdCompressionParameters(window_log=26, write_content_size=False)
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        path.write_bytes(compressor.compress(data) + compressor.flush())
    elif kind == "xz":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**26}]
        path.write_bytes(lzma.compress(data, filters=filters))
    else:
        pq.write_table(pa.table({"text": [data[:40_000].hex()] * 3000}), path)
    assert outcome(kind, path, 20_000_000) == "MemoryError"
    assert outcome(kind, path, 900_000_000) == "read True"
