"""Commands and scripts that are forks behave as processes of their own (tests/support/warm_python.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tamis.memory import meter
from tests.support.warm_python import run_python

SHOW = """
import os, sys
print(__name__, sys.argv, os.getcwd(), os.environ.get("SHOWN"), sys.path[0], sys.stdin.read())
print("to stderr", file=sys.stderr)
"""
ENDS = {
    "returns": "x = 1",
    "number": "import sys; sys.exit(7)",
    "text": "import sys; sys.exit('no')",
    "exception": "raise ValueError('no')",
    "killed": "import os, signal; print(1, flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "leaves a thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.05), print(2))).start()",
    "at the end": "import atexit; atexit.register(print, 'last')",
}


def both(*arguments: str, **how: object) -> list[subprocess.CompletedProcess[str]]:
    """Run the interpreter in a fork and in a process of its own."""
    real = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **how,  # type: ignore[call-overload]
    )
    return [run_python(*arguments, **how), real]  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_as_one_of_its_own(end: str) -> None:
    warm, real = both("-c", ENDS[end])
    assert (warm.returncode, warm.stdout) == (real.returncode, real.stdout)
    assert warm.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


@pytest.mark.parametrize("how", ["code", "file"])
def test_it_has_arguments_folder_environment_and_streams(tmp_path: Path, how: str) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    program = ["-c", SHOW] if how == "code" else ["show.py"]
    warm, real = both(*program, "a", "b c", cwd=tmp_path, env={**os.environ, "SHOWN": "yes"})
    assert (warm.returncode, warm.stdout, warm.stderr) == (0, real.stdout, real.stderr)


def test_nothing_is_left_for_the_next_one(tmp_path: Path) -> None:
    run_python("-c", "import os, sys; sys.path.append('/mine'); os.environ['MINE'] = '1'; sys.modules['mine'] = sys")
    seen = run_python("-c", "import os, sys; print('/mine' in sys.path, 'MINE' in os.environ, 'mine' in sys.modules)")
    assert seen.stdout == "False False False\n"


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    run_python("-c", "pass")  # it takes a while to start
    with pytest.raises(subprocess.TimeoutExpired):
        run_python("-c", code, cwd=tmp_path, timeout=2)
    deadline_s = time.monotonic() + 20
    while meter.is_alive(int((tmp_path / "pid").read_text())):  # the kernel ends it with the process it came from
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert run_python("-c", "print(1)").stdout == "1\n"
