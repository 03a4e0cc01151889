"""What `tamis tokenize` writes is what the readers of trainers read."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import numpy as np
import pytest

from tamis.curation import Curation
from tests.curation.token_readers import MegatronDataset, MemmapLoader
from tests.stages.text.tokens import small_tokenizers
from tests.stages.text.tokens.small_tokenizers import TEXTS

tokenizers = pytest.importorskip("tokenizers")
N = 60
# LocalDataset does not decompress.
READ_BY_MOSAICML = """
import json, sys
from streaming import LocalDataset, StreamingDataset

if __name__ == "__main__":
    dataset = (
        LocalDataset(sys.argv[1])
        if sys.argv[2] == "local"
        else StreamingDataset(local=sys.argv[1], remote=None, shuffle=False, batch_size=1)
    )
    print(json.dumps([{name: value.tolist() for name, value in dataset[i].items()} for i in range(len(dataset))]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readers")
    small_tokenizers.save(folder / "tok")
    (folder / "in").mkdir()
    texts = [f"{TEXTS[i % 10]} {i}" for i in range(N)]
    (folder / "in/0.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def expected(data: Path) -> list[list[int]]:
    library = tokenizers.Tokenizer.from_file(str(data / "tok/tokenizer.json"))
    texts = [json.loads(line)["text"] for line in (data / "in/0.jsonl").read_text().splitlines()]
    return [[*one.ids, 0] for one in library.encode_batch_fast(texts, add_special_tokens=False)]


def tokenize(data: Path, out: Path, kind: str, length: int | None = None, compression: str | None = None) -> None:
    tokens = {"tokenizer": str(data / "tok"), "format": kind, "sequence_length": length, "compression": compression}
    tokens = {name: value for name, value in tokens.items() if value is not None}
    Curation([], str(data / "in"), str(out), tokens=tokens).run(memory="900MB", progress=False)


def test_an_indexed_dataset_of_megatron(data: Path, tmp_path: Path) -> None:
    tokenize(data, tmp_path / "out", "megatron")
    (index,) = (tmp_path / "out").glob("*.idx")
    dataset = MegatronDataset(index.with_suffix(""))
    assert [dataset[i].tolist() for i in range(len(dataset))] == expected(data)
    assert dataset.documents.tolist() == list(range(N + 1))


@pytest.mark.parametrize("kind", ["npy", "raw"])
def test_a_memmap_loader(data: Path, tmp_path: Path, kind: str) -> None:
    tokenize(data, tmp_path / "out", kind)
    flat = [i for one in expected(data) for i in one]
    loader = MemmapLoader(tmp_path / "out", 16)
    batches = list(loader.batches(4, seed=1))
    assert len(batches) == (len(flat) - 1) // 16 // 4
    windows = {tuple(flat[i : i + 17]) for i in range(0, len(flat) - 16, 16)}
    for inputs, targets in batches:
        for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert (*row, target[-1]) in windows
            assert row[1:] == target[:-1]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_local_dataset_of_mosaicml(data: Path, tmp_path: Path) -> None:
    """In an environment of its own: it needs older numpy and transformers."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    pip = [python, "-m", "pip", "install", "-q", "mosaicml-streaming"]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"mosaicml-streaming cannot be installed: {installed.stderr.strip()[-300:]}")

    def read(folder: Path, kind: str) -> list[dict[str, list[int]]]:
        command = [python, "-c", READ_BY_MOSAICML, str(folder), kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        samples: list[dict[str, list[int]]] = json.loads(done.stdout.strip().splitlines()[-1])
        return samples

    documents = [{"input_ids": ids} for ids in expected(data)]
    for folder, compression in (("plain", "none"), ("zstd", None)):
        tokenize(data, tmp_path / folder, "mds", None, compression)
        if compression is not None:
            assert read(tmp_path / folder, "local") == documents
        assert read(tmp_path / folder, "streaming") == documents
    tokenize(data, tmp_path / "sequences", "mds", 32, "none")
    samples = read(tmp_path / "sequences", "local")
    assert samples == read(tmp_path / "sequences", "streaming")
    flat = [i for one in expected(data) for i in one]
    rows = [sample["input_ids"] for sample in samples]
    assert [i for row in rows for i in row][: len(flat)] == flat
    assert {len(row) for row in rows} == {32}
    starts = [32 * k + start for k, sample in enumerate(samples) for start in sample["document_starts"]]
    begins = np.cumsum([0, *(len(one) for one in expected(data))]).tolist()
    assert set(begins[:-1]) <= set(starts)
