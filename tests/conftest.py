"""Settings for the whole suite."""

import gc
import os
import sys
from pathlib import Path

from hypothesis import settings

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
sys.path.insert(0, str(Path(__file__).parent / "support"))
from limits import pytest_runtest_protocol  # noqa: F401

# The same examples every time, on every machine; `HYPOTHESIS=new make test` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


def pytest_collection_finish() -> None:
    """What collecting has imported stays for good: the garbage collector need not look at it before every test."""
    gc.collect()
    gc.freeze()
