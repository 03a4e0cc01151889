"""The release: two builds of the same sources are the same bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, target: Path, made_at: int) -> Path:
    for path in source.rglob("*.py"):
        os.utime(path, (made_at, made_at))
    env = {**os.environ, "TAMIS_BUILD_LEVELS": "x86-64-v2" if os.uname().machine == "x86_64" else ""}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(target), "."]
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=600, check=False)
    if "No matching distribution" in done.stderr:
        pytest.skip("what a build needs cannot be had here")
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    wheels = []
    for name, made_at in (("first", 1_700_000_000), ("second/and/deeper", 1_750_000_000)):
        source = tmp_path / name
        for file in listed.stdout.decode().split("\0"):
            if file and (ROOT / file).exists() and not file.startswith("tests/"):
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, source / file)
        wheels.append(build(source, tmp_path / name.partition("/")[0] / "wheels", made_at))
    first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert first == second
    with zipfile.ZipFile(wheels[0]) as wheel:
        libraries = [name for name in wheel.namelist() if name.endswith(".so")]
        (record,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("RECORD"))
    assert libraries
    assert all(f"{name},sha256=" in record for name in libraries)
