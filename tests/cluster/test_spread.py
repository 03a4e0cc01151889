"""Deciding by ranges of keys on several agents: the same documents go as where one process decides."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.dedup.range_passes import passes, ranges
from tamis.errors import FormatError
from tests.support.here_agents import BUDGET, HereExecutor, HereSession
from tests.support.run_dirs import run_dir_path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, chance = tmp_path_factory.mktemp("spread") / "in", random.Random(6)
    folder.mkdir()
    texts = [" ".join(f"w{chance.randrange(3000)}" for _ in range(60)) for _ in range(80)]
    for f in range(3):
        lines = []
        for i in range(80):
            text = chance.choice(texts)
            text = text if i % 3 else text[:-9] + f" other {f}-{i}"
            lines.append(json.dumps({"id": f"{f}-{i}", "text": text}) + "\n")
        (folder / f"{f}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def two_agents() -> Iterator[HereExecutor]:
    session = HereSession(2)
    yield HereExecutor(session)
    session.close()


def told(output: Path) -> tuple[list[str], Any]:
    """Return the documents that stay, and the partner of each one that is removed."""
    import pyarrow.parquet as pq

    stay = [json.loads(line)["id"] for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]
    gone = pq.read_table(run_dir_path(output) / "duplicates").to_pylist()
    return sorted(stay), sorted(map(str, gone))


@pytest.mark.parametrize("kind", ["fuzzy", pytest.param("exact", marks=pytest.mark.slow)])
def test_ranges_of_keys_on_two_agents_decide_as_one_process_does(
    kind: str, source: Path, two_agents: HereExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Any = {"exact": RemoveExactDuplicates, "fuzzy": RemoveFuzzyDuplicates}[kind]
    one = make(output_path=str(tmp_path / "one"), input_path=str(source)).run(InProcessExecutor(), progress=False)
    looked: list[str] = []
    of = passes.RangePasses._pass
    monkeypatch.setattr(ranges, "MIN_DOCUMENTS", 0)
    monkeypatch.setattr(passes, "_LEAST_RANGES", 3)
    monkeypatch.setattr(
        passes.RangePasses, "_pass", lambda self, name, *more: looked.append(name) or of(self, name, *more)
    )
    spread = make(output_path=str(tmp_path / "spread"), input_path=str(source)).run(
        two_agents, progress=False, memory=BUDGET
    )
    assert looked == (["equal"] if kind == "exact" else ["equal", "bands-0"])
    assert spread.n_duplicates == one.n_duplicates > 50
    assert told(tmp_path / "spread") == told(tmp_path / "one")


def test_ranges_cut_the_keys_and_read_as_they_were_written(tmp_path: Path) -> None:
    made = ranges.ranges_of(3_000_000, [0, 4], 48, 48_000_000)
    assert [r.order for r in made] == list(range(6))
    assert [(r.low, r.high) for r in made[:3]] == [(r.low, r.high) for r in made[3:]]
    assert (made[0].low, made[2].high) == (0, 1 << 64)
    assert all(a.high == b.low for a, b in itertools.pairwise(made[:3]))
    ranges.write_ranges(str(tmp_path / "in"), made)
    texts = [json.loads(path.read_text())["text"] for path in sorted((tmp_path / "in").iterdir())]
    assert [ranges.KeyRange.from_text(text) for text in texts] == made


def test_a_range_of_which_nothing_is_left_is_noticed(tmp_path: Path) -> None:
    spreading = passes.RangePasses("x", str(tmp_path), 100, 48_000_000, lambda *_: None)  # which says that all is done
    with pytest.raises(FormatError, match=r"16 ranges of keys are missing.*start over \(--fresh\)"):
        spreading.search(0, [], [], [])


def test_equal_texts_are_looked_for_once_and_later_where_the_first_pass_was_decided_otherwise(tmp_path: Path) -> None:
    looked: list[str] = []

    def execute(pipeline: Any, label: str) -> None:
        looked.append(label)
        stage = next(s for s in pipeline.stages if hasattr(s, "results"))
        for one in Path(stage.results.removesuffix("-found") + "-in").iterdir():
            (Path(stage.results) / one.with_suffix(".npy").name).touch()

    spreading = passes.RangePasses("x", str(tmp_path), 100, 48_000_000, execute)
    for i in (1, 2):  # pass 0 ran on one machine, and left no ranges
        spreading.search(i, ["first"], ["now"], [3])
    assert looked == ["ranges-equal", "ranges-bands-1", "ranges-bands-2"]
    assert [json.loads(p.read_text()) for p in sorted(tmp_path.glob("ranges-equal-*.json"))] == [["first"]]
