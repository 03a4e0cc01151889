"""TAMIS_KERNELS=python: every kernel's own Python body runs, and gives what its machine code gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tamis

SOURCE = str(Path(tamis.__file__).resolve().parents[1])
SCRIPT = str(Path(__file__).with_name("every_kernel.py"))


def what_kernels_give(how: str) -> dict[str, Any]:
    settings = {**os.environ, "PYTHONPATH": SOURCE, "TAMIS_KERNELS": how}
    done = subprocess.run([sys.executable, SCRIPT], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def nearly(value: Any) -> Any:
    """Exact but for floats: C's expf and Python's exp round the last bit differently."""
    if isinstance(value, dict):
        return {name: nearly(one) for name, one in value.items()}
    if isinstance(value, list):
        return [nearly(one) for one in value]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def test_every_kernel_gives_the_same_in_plain_python() -> None:
    compiled, plain = what_kernels_give(""), what_kernels_give("python")
    assert compiled["not called"] == plain["not called"] == []
    assert compiled["kernels"] == plain["kernels"] > 40
    for group, found in compiled["found"].items():
        for number, (one, other) in enumerate(zip(found, plain["found"][group], strict=True)):
            assert other == nearly(one), (group, number)
