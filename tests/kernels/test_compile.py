"""python -m tamis.kernels.compile: everything compiled and marked, also by two processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tamis.kernels
from tamis.kernels import cache

SOURCE = str(Path(tamis.kernels.__file__).resolve().parents[2])
COMMAND = [sys.executable, "-m", "tamis.kernels.compile"]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE + os.pathsep + os.environ.get("PYTHONPATH", ""), **changes}


def test_compile_marks_the_cache_ready() -> None:
    done = subprocess.run(COMMAND, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernels: ")
    assert cache.kernels_are_cached()


@pytest.mark.slow
def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    settings = environment(TAMIS_CACHE_DIR=str(tmp_path))
    pair = [subprocess.Popen(COMMAND, env=settings, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0][:8] for process in pair] == ["kernels:", "kernels:"]
    assert [process.returncode for process in pair] == [0, 0]
    code = (
        "from tamis.kernels.cache import kernels_are_cached; from tamis.kernels.groups import all_groups, load_all\n"
        "print(kernels_are_cached(all_groups()), [load_all(group) for group in all_groups()])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert done.stdout == "True [None, None, None]\n"


def test_code_that_no_process_can_load_is_not_called_ready(tmp_path: Path) -> None:
    code = (
        "import tamis.kernels.compile as c; c.compile_groups = lambda groups: {g: b'not what it should be' for g in groups}\n"
        "import sys; sys.exit(c.main(['']))"
    )
    settings = environment(TAMIS_CACHE_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another process could not load it" in done.stderr
    assert not list(tmp_path.glob("*/READY"))


def test_no_usable_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code = (
        "import tamis.kernels.compile as c; c.compile_groups = lambda groups: {g: b'' for g in groups}\n"
        "import sys; sys.exit(c.main())"
    )  # fmt: skip
    settings = environment(TAMIS_CACHE_DIR=str(tmp_path / "file"))
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "set TAMIS_CACHE_DIR" in done.stderr
