"""Texts by document number, read from the input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tamis.dedup.fuzzy import candidate_texts as texts
from tamis.errors import FormatError


@pytest.mark.parametrize("lot_bytes", [1, 3000, 1 << 20])
def test_texts_are_the_same_whether_or_not_the_lengths_of_records_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lot_bytes: int
) -> None:
    monkeypatch.setattr(texts, "_LOT_BYTES", lot_bytes)
    documents = [[f"{k} {i} ü\n" * (i * 7 % 40 + 1) for i in range(30)] for k in range(3)]
    paths, file, offset, size = [], [], [], []
    for k, some in enumerate(documents):
        lines = [json.dumps({"n": i, "text": text}).encode() for i, text in enumerate(some)]
        paths.append(str(tmp_path / f"{k}.jsonl"))
        Path(paths[-1]).write_bytes(b"\n".join(lines))  # no line feed at the end
        file += [k] * len(lines)
        offset += np.cumsum([0, *(len(line) + 1 for line in lines[:-1])]).tolist()
        size += [len(line) for line in lines]
    wanted = np.array([5, 3, 88, 0, 31, 30, 29], np.uint32)
    numbers = np.arange(90, dtype=np.uint32)
    np.save(tmp_path / "file.npy", np.array(file, np.int32))
    np.save(tmp_path / "offset.npy", np.array(offset, np.int64))
    found = []
    for told in (False, True):
        if told:
            np.save(tmp_path / "record_bytes.npy", np.array(size, np.uint32))
        stored = texts.InputTexts(paths, str(tmp_path), numbers, "text", "none")
        assert (stored._sizes is not None) is told
        found.append(stored.array(wanted).to_pylist())
        assert stored.array(wanted[:0]).to_pylist() == []
        stored.close()
    assert found == [[documents[i // 30][i % 30] for i in wanted.tolist()]] * 2
    Path(paths[0]).write_bytes(Path(paths[0]).read_bytes()[:100])
    with pytest.raises(FormatError, match="changed after it was compared"):
        texts.InputTexts(paths, str(tmp_path), numbers, "text", "none").array(wanted)
