"""A classifier before a deduplication: its model is asked once per document, later passes read what it gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, ExactDuplicates
from tamis.stages import vector_cache
from tamis.stages.text.classifiers import DistributedDataClassifier
from tests.curation.small_corpus import MEMORY
from tests.stages.text.models import small_models as small
from tests.support.optional import optional

optional("torch", reason="the extra `models` is not installed")
optional("transformers", reason="the extra `models` is not installed")
pytestmark = pytest.mark.timeout(300)  # a busy machine takes minutes to import them


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    small.sequence_classifier(folder / "model")
    texts = [t for t in small.texts(40) for _ in range(1 + len(t) % 2)]
    (folder / "in.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)))
    return folder


def curated(place: Path, out: Path) -> tuple[list[dict[str, Any]], Any, Curation]:
    model = DistributedDataClassifier(str(place / "model"), filter_by=["High", "Low"], max_seq_length=64)
    curation = Curation([model, ExactDuplicates()], str(place / "in.jsonl"), str(out), card=False)
    result = curation.run(InProcessExecutor(), memory="3GB")
    rows = [json.loads(line) for p in sorted(out.glob("*.jsonl")) for line in p.read_text().splitlines()]
    return rows, result, curation


def test_the_model_is_called_once_and_the_output_is_the_same(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "_DISK_SPEED", 1e15)  # so small a model is quicker than any disk
    monkeypatch.setattr(vector_cache, "_SPARE_BYTES", 0)
    rows, result, curation = curated(place, tmp_path / "kept")
    assert {row["preds"] for row in rows} == {"High", "Low"}
    book = next(b for b in result.run.ledger.stages if b.name.endswith("_model"))
    assert book.metrics["asked_again"] == 0
    assert any("kept on the disk between passes" in remark for remark in curation.plan().remarks)
    assert curation.plan().groups[0].is_as_read  # a classifier changes no text
    monkeypatch.setattr(vector_cache, "_DISK_SPEED", 1)  # now nothing is worth keeping
    again, result, _ = curated(place, tmp_path / "again")
    book = next(b for b in result.run.ledger.stages if b.name.endswith("_model"))
    assert book.metrics["asked_again"] == book.into.n > 0
    assert again == rows
    assert MEMORY
