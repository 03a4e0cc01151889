"""The script that checks certificates, as a module: its own reading and normalisation are the specification."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_decontamination.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_decontamination", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


twin = load()
