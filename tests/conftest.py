"""Settings for the whole suite."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
from tests.support.limits import pytest_runtest_protocol  # noqa: F401
from tests.support.shared_warm_process import lend_to, shared_process
from tests.support.torture_parts import keep_part, pytest_addoption  # noqa: F401
from tests.support.warm_python import end_warm_python

# A shell without job control starts background processes with SIGINT ignored, and all that they start inherits that:
# tests that interrupt a command would wait for its regular end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_n_frozen_modules = 0
gc.disable()  # until everything is imported: nearly all of it stays

# The same examples every time, on every machine; `HYPOTHESIS=new make test` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


@settings(max_examples=1, database=None)
@given(st.none())
def _first_example(_: None) -> None:
    """Nothing: run for what Hypothesis sets up before its first example."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    keep_part(config, items)
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        from tests.support.distribution import sort_for_distribution

        sort_for_distribution(items)


@pytest.fixture(scope="session", autouse=True)
def warm_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with shared_process(tmp_path_factory.mktemp("warm") / "processes.log"):
        yield
    end_warm_python()


def pytest_runtest_setup(item: pytest.Item) -> None:
    lend_to(item)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.distribution import make_scheduler

    return make_scheduler(config, log)


def pytest_collection_finish() -> None:
    """Freeze what collecting has imported, so that the garbage collector skips it before every test."""
    # Before its first example Hypothesis asks the collector who holds the random generator that it has just made, and
    # warns when nobody is found. The collector does not find holders that are frozen, and from Python 3.14 on this one
    # would be: the dict is watched even while it is empty.
    _first_example()
    _freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Freeze what a test has imported (transformers, ray), too: tests of memory collect garbage hundreds of times."""
    if nextitem is not None and len(sys.modules) > _n_frozen_modules + 300:
        _freeze()


def _freeze() -> None:
    global _n_frozen_modules
    gc.collect()
    gc.freeze()
    _n_frozen_modules = len(sys.modules)
