"""Determinism: the output does not depend on workers, budget, block size, executor or mode.

Hashes of the content are compared, and so are the sorted lines: a hash that ignored something would hide it.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis import Resources
from tests.faults.fault_harness import assert_conserved, content_hash, documents, execute, lines_of, write_lines
from tests.faults.fault_stages import AddLength, DropOdd, Halves, JoinAll, Shout, ThroughPandas

PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "copy": list,
    "added": lambda: [AddLength()],
    "changed": lambda: [Shout()],
    "dropped": lambda: [DropOdd()],
    "one_to_n": lambda: [Halves()],
    "pandas": lambda: [ThroughPandas()],
    "all": lambda: [AddLength(), DropOdd(), Shout(), Halves(), ThroughPandas()],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain and compressed files of about 350 kB; one text per record, unique."""
    folder = tmp_path_factory.mktemp("corpus")
    write_lines(folder / "a.jsonl", documents(1500))
    write_lines(folder / "b.jsonl", documents(500, 1500), end=b"\r\n")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b"\n".join(documents(1000, 2000)), 6, mtime=0))
    return folder


@pytest.fixture(scope="module")
def reference_of(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that runs a pipeline in this process, once, and returns the output."""

    @functools.cache
    def reference(which: str) -> Path:
        output = tmp_path_factory.mktemp("reference") / "out"
        result = execute(corpus, output, PIPELINES[which](), local=False)
        assert result.exit_code == 0
        assert_conserved(result)
        return output

    return reference


def _same(a: Path, b: Path) -> None:
    assert sorted(lines_of(a)) == sorted(lines_of(b))
    assert content_hash(a) == content_hash(b)


@pytest.mark.parametrize("which", PIPELINES)
def test_block_size_executor_and_mode(
    corpus: Path, tmp_path: Path, which: str, reference_of: Callable[[str], Path]
) -> None:
    stages, reference = PIPELINES[which], reference_of(which)
    n_files = set()
    for i, blocksize in enumerate(("64KiB", "1MiB")):
        for mode in ("streaming", "batch"):
            out = tmp_path / f"inline{i}{mode}"
            result = execute(corpus, out, stages(), local=False, blocksize=blocksize, settings={"mode": mode})
            assert_conserved(result)
            _same(out, reference)
            n_files.add(len(result.files))
    assert len(n_files) > 1, "the block size made no difference to the partitions: nothing was tested"
    execute(corpus, tmp_path / "local", stages(), blocksize="64KiB", settings={"workers": 2, "memory": "420MB"})
    _same(tmp_path / "local", reference)


@pytest.mark.parametrize(
    ("workers", "memory", "blocksize"), [(1, "420MB", None), (1, "1GB", "64KiB"), (2, "1GB", "1MiB")]
)
def test_workers_and_budget(
    corpus: Path,
    tmp_path: Path,
    workers: int,
    memory: str,
    blocksize: str | None,
    reference_of: Callable[[str], Path],
) -> None:
    stages = PIPELINES["all"]
    result = execute(
        corpus, tmp_path / "out", stages(), blocksize=blocksize, settings={"workers": workers, "memory": memory}
    )
    assert_conserved(result)
    _same(tmp_path / "out", reference_of("all"))


def test_fields(corpus: Path, tmp_path: Path) -> None:
    for i, (blocksize, local) in enumerate([(None, False), ("64KiB", False), ("64KiB", True)]):
        execute(corpus, tmp_path / str(i), [AddLength()], local=local, fields=["text", "id"], blocksize=blocksize)
        _same(tmp_path / str(i), tmp_path / "0")
    words = b"w0 w4738 w9476 w14214 w18952 w23690 w28428 w33166 w37904 w42642 w47380 w52118"
    assert lines_of(tmp_path / "0")[0] == b'{"id":0,"text":"%s \\u00e9 0","length":81}' % words


def test_n_to_one(corpus: Path, tmp_path: Path) -> None:
    """What belongs together is the file here, so every partition must be one file, whatever the budget."""
    for i, (local, settings) in enumerate(
        [(False, {}), (True, {"workers": 1, "memory": "1GB"}), (True, {"workers": 2, "mode": "batch"})]
    ):
        result = execute(corpus, tmp_path / str(i), [JoinAll()], local=local, files_per_partition=1, settings=settings)
        assert_conserved(result)
        assert result.ledger.written.n == 3
        _same(tmp_path / str(i), tmp_path / "0")


def test_segments_and_batch_mode_give_what_one_segment_gives(corpus: Path, tmp_path: Path) -> None:
    one = [AddLength(), Shout(), DropOdd()]
    two = [AddLength(), Shout().with_(resources=Resources(cpus=2)), DropOdd().with_(resources=Resources(cpus=2))]
    execute(corpus, tmp_path / "one", one, blocksize="100KB")
    execute(corpus, tmp_path / "two", two, blocksize="100KB")
    execute(corpus, tmp_path / "batch", two, blocksize="100KB", settings={"mode": "batch"})
    _same(tmp_path / "two", tmp_path / "one")
    _same(tmp_path / "batch", tmp_path / "one")
