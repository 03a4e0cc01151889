"""Settings for the whole suite."""

import gc
import os

from hypothesis import given, settings
from hypothesis import strategies as st

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
from tests.support.limits import pytest_runtest_protocol  # noqa: F401
from tests.support.torture_parts import pytest_addoption, pytest_collection_modifyitems  # noqa: F401

# The same examples every time, on every machine; `HYPOTHESIS=new make test` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


@settings(max_examples=1, database=None)
@given(st.none())
def _first_example(_: None) -> None:
    """Nothing: run for what Hypothesis sets up before its first example."""


def pytest_collection_finish() -> None:
    """Freeze what collecting has imported, so that the garbage collector skips it before every test."""
    # Before its first example Hypothesis asks the collector who holds the random generator that it has just made, and
    # warns when nobody is found. The collector does not find holders that are frozen, and from Python 3.14 on this one
    # would be: the dict is watched even while it is empty.
    _first_example()
    gc.collect()
    gc.freeze()
