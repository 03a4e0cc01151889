"""Hashes, temporary files, measures of stages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tamis.errors import UsageError
from tamis.utils import grouping, operation_utils
from tamis.utils.hash_utils import get_deterministic_hash
from tamis.utils.performance_utils import StagePerfStats, StageTimer


def test_hashes_are_the_same_everywhere_and_distinguished() -> None:
    assert get_deterministic_hash(["a", "b"]) == "18c0aebc550b2d5a"
    hashes = [
        get_deterministic_hash(x, s)
        for x, s in ((["a", "b"], ""), (["ab"], ""), (["a"], "b"), (["a", "b"], "1"), ([], ""))
    ]
    assert len(set(hashes)) == 5


def test_chunks() -> None:
    assert list(grouping.split_by_chunk_size(["aa", "b", "cccc"], 3, custom_size_func=len)) == [["aa", "b"], ["cccc"]]
    for call in (
        lambda: list(grouping.split_by_chunk_size([1], 0)),
        lambda: list(grouping.split_into_n_chunks([1], 0)),
    ):
        with pytest.raises(UsageError, match="expected at least 1"):
            call()


def test_temporary_files_go_with_their_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with operation_utils.make_temporary_dir(prefix="p-") as folder:
        (folder / "x").touch()
        assert folder.name.startswith("p-")
    with operation_utils.make_pipeline_named_temporary_file("sub", suffix=".mp4") as file:
        assert (file.parent, file.suffix, file.exists()) == (tmp_path / "sub", ".mp4", True)
        file.unlink()
    with operation_utils.make_pipeline_temporary_dir("sub") as folder:
        assert folder.parent == tmp_path / "sub"
    with operation_utils.make_named_temporary_file(delete=False, target_dir=tmp_path / "kept") as file:
        pass
    assert file.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "sub"]
    assert list((tmp_path / "sub").iterdir()) == []


def test_measures_can_be_added() -> None:
    one = StagePerfStats("s", 1.0, 0.5, 2.0, 3, {"a": 1.0})
    two = StagePerfStats("s", 2.0, 0.0, 1.0, 4, {"b": 2.0})
    assert sum([one, two]) == StagePerfStats("s", 3.0, 0.5, 3.0, 7, {"a": 1.0, "b": 2.0})
    assert dict(one.items()) == {
        "process_time": 1.0,
        "actor_idle_time": 0.5,
        "input_data_size_mb": 2.0,
        "num_items_processed": 3,
        "custom.a": 1.0,
    }
    assert one.to_dict()["stage_name"] == "s"
    one.reset()
    assert one == StagePerfStats("s")
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]


def test_a_timer_counts_what_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 15.0, 18.0, 19.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    timer = StageTimer(SimpleNamespace(name="s"))
    timer.reinit(2 * 1024**2)
    with timer.time_process(5):
        pass
    assert timer.log_stats() == ("s", StagePerfStats("s", 3.0, 0.0, 2.0, 5))
    timer.reinit()
    with pytest.raises(KeyError), timer.time_process(5):
        raise KeyError
    assert timer.log_stats(verbose=True)[1] == StagePerfStats("s", 1.0, 3.0, 1 / 1024**2, 0)
