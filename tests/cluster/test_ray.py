"""One start of a real Ray cluster (on_one_node.py, in a process of its own), looked at by many tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.apart import Apart, run_apart

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'tamis[ray]'")
    found = run_apart(Path(__file__).parent / "on_one_node.py", tmp_path_factory.mktemp("ray"), seconds=240)
    assert found.code == 0, found.printed[-4000:]
    return found


def test_filters_keep_the_same_documents_by_every_executor(seen: Apart) -> None:
    assert len(seen.found["local"]) == 32
    assert [seen.found[name] for name in ("page", "ray_data")] == [seen.found["local"]] * 2
    assert seen.found["status again"] == "already"


def test_nothing_of_ray_data_competes_with_its_actors_for_cpus(seen: Apart) -> None:
    """Tasks that read rows would: with actors on all CPUs neither could go on."""
    assert "Input] -> ActorPoolMapOperator[MapBatches(PooledAgent)]" in seen.found["ray_data does"]


def test_deduplication_by_command_on_a_running_cluster_keeps_the_same_documents(seen: Apart) -> None:
    assert 0 < len(seen.found["local exact"]) < 1200
    assert seen.found["exact by command"] == 0
    assert seen.found["ray exact"] == seen.found["local exact"]


def test_the_budget_of_a_node_holds(seen: Apart) -> None:
    assert 0 < seen.found["peak_bytes"] <= seen.found["budget_bytes"] == 10**9


def test_a_client_lends_its_address_and_leaves_nothing(seen: Apart) -> None:
    assert seen.found["in environment"] == seen.found["address"] != ""
    assert (seen.found["running"], seen.found["environment after"]) == (False, None)
    assert seen.left == []


def test_the_program_itself_never_imports_ray(seen: Apart) -> None:
    assert seen.found["ray imported"] is False
