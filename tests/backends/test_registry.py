"""The registry of executors: every list of them follows from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from tamis import _satellites
from tamis.backends import registry
from tamis.backends.base import BaseExecutor
from tamis.backends.local import LocalExecutor
from tamis.errors import UsageError


def test_every_executor_can_be_loaded() -> None:
    for name, info in registry.EXECUTORS.items():
        executor = registry.load_executor(name, "127.0.0.1:1" if info.takes_address else None)
        assert isinstance(executor, BaseExecutor)
        assert type(executor) is registry.executor_class(name)


def test_an_alias_names_the_same_executor() -> None:
    assert registry.find_executor("ray_actor_pool") is registry.EXECUTORS["ray"]


def test_the_choices_of_the_command_line_are_the_names() -> None:
    assert get_args(registry.ExecutorName) == registry.NAMES
    assert all(name in registry.HELP for name in registry.NAMES)


def test_an_unknown_name_is_refused_with_all_names() -> None:
    with pytest.raises(UsageError, match="local, in_process, ray, ray_data, xenna"):
        registry.load_executor("dask")


def test_an_executor_of_this_machine_takes_no_address() -> None:
    assert isinstance(registry.load_executor("local"), LocalExecutor)
    with pytest.raises(UsageError, match="ray, ray_data, xenna"):
        registry.load_executor("local", "10.0.0.1:6379")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "cosmos_xenna" else object())
    registry.check_installed("ray_data")
    with pytest.raises(UsageError, match=r"cosmos_xenna.*pip install 'tamis\[ray\]'"):
        registry.check_installed("xenna")


def test_the_page_on_clusters_has_a_row_for_every_executor() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/cluster.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.M)
    assert rows == [(name, registry.executor_class(name).__name__) for name in registry.NAMES]


def test_every_executor_of_the_manifest_is_listed() -> None:
    assert {registry.LOCAL, registry.IN_PROCESS, *_satellites.names("executor")} == set(registry.NAMES)
