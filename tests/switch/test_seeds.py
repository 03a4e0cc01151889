"""Every code block of the seed documents runs with one word changed, or is listed here with a reason."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tamis.recipe.load import load_recipe
from tamis.stages.base import ProcessingStage

SEEDS = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "seeds"
BLOCKS = [
    (file.name[:3], language, code)
    for file in (sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else ())
    for language, code in re.findall(r"```(\{?\w*\}?)\s(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL)
]
# What a block contains -> why it does not run here.
NOT_RUN = {
    "torch.OutOfMemoryError": "a note, not code",
    "memory_per_doc": "a formula, not code: tamis plan computes it",
    "ray.init": "starts a Ray cluster in this process: tests/cluster/on_begun_cluster.py does it in another",
}


class WordCountStage(ProcessingStage[Any, Any]):
    name = "word_count"

    def process(self, task: Any) -> Any:
        return task


@pytest.mark.skipif(not BLOCKS, reason="the documents are not beside this checkout")
def test_the_blocks_are_found() -> None:
    assert len(BLOCKS) >= 13
    assert all(any(key in code for _, _, code in BLOCKS) for key in NOT_RUN)


@pytest.mark.skipif(not BLOCKS, reason="the documents are not beside this checkout")
@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_block_runs(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, language, code = BLOCKS[at]
    why = next((reason for key, reason in NOT_RUN.items() if key in code), None)
    if why is not None:
        pytest.skip(f"{where}: {why}")
    monkeypatch.chdir(tmp_path)
    if language == "yaml":
        stages = "stages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: input\n"
        (tmp_path / "recipe.yaml").write_text("name: x\n" + stages + code.replace("nemo_curator", "tamis"))
        assert getattr(load_recipe(tmp_path / "recipe.yaml").ray_client, "num_gpus", None) == 4
        return
    assert language == "python"
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.jsonl").write_text('{"text": "a"}\n')
    if " # " in code and "\n" not in code.strip():  # a document whose line breaks are gone
        code = re.sub(r"# Configure batch size on a stage ", "\n", code)
    scope: dict[str, Any] = {name: WordCountStage() for name in ("cpu_operation", "gpu_operation", "cpu_operation_2")}
    scope["WordCountStage"] = WordCountStage
    exec(compile(code.replace("nemo_curator", "tamis"), f"<block {at} of {where}>", "exec"), scope)
    made = [
        v
        for k, v in scope.items()
        if k in ("reader", "dedup", "classifier", "pipeline", "word_count_stage", "client", "executor")
    ]
    assert made or "Resources(" in code
    if "word_count_stage" in scope:
        assert scope["word_count_stage"].batch_size == 128
    if "client" in scope:
        with scope["client"] as client:
            assert client.n_workers == 1
    if "pipeline" in scope:
        assert [s.name for s in scope["pipeline"].build()].count("to_backend") == 2
    if "dedup" in scope:
        assert (scope["dedup"].input_blocksize, scope["dedup"].perform_removal) == ("1GB", False)
