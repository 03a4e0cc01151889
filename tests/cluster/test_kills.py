"""Kills of workers, agents, a node and the driver on two nodes: the same content, and no processes left."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.apart import run_apart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("ray", "worker+agent+driver+node"), ("ray_data", "worker+agent+driver+node"), ("xenna", "worker+agent+driver")],
)
def test_kills_change_nothing(name: str, kinds: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("cosmos_xenna" if name == "xenna" else "ray") is None:
        pytest.skip("not installed: pip install 'tamis[ray]'")
    seen = run_apart(Path(__file__).parent / "on_several_nodes.py", tmp_path, name, kinds, seconds=600)
    assert seen.code == 0, seen.printed[-4000:]
    wanted = seen.found["local"]["content"]
    for kind in kinds.split("+"):
        told = seen.found[kind]
        assert told["code"] == 0, (kind, told)
        assert (told["hit"], told["content"]) == (1, wanted), kind
    assert seen.found["driver"]["left"] == 0
    assert seen.found["left"] == []


def test_a_head_that_begins_again_finds_the_run_resumed(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("not installed: pip install 'tamis[ray]'")
    seen = run_apart(Path(__file__).parent / "on_restarted_head.py", tmp_path, seconds=500)
    assert seen.code == 0, seen.printed[-4000:]
    assert seen.found["without"]["code"] == 1, seen.found
    assert "run the same command again to resume" in seen.found["said"]
    assert 4 <= seen.found["committed"] < 36
    assert (seen.found["left"], seen.left) == (0, [])
    again = seen.found["again"]
    assert (again["code"], again.get("content")) == (0, seen.found["local"]["content"]), again
    assert again["counters"]["committed"] == 36 - seen.found["committed"]
