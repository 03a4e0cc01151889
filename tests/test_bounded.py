"""tests/support/bounded.py: a command always ends with all that it started; limits.py: no test waits for ever."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.limits import end_newer, present

BOUNDED = Path(__file__).parent / "support" / "bounded.py"
DAEMON = (
    "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\n    "
    "time.sleep(60)\n"
)

ORPHAN = """
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(write, b"%d" % os.getpid())
    os._exit(0)
orphan = int(os.read(read, 20))
until = time.monotonic() + 20
while os.path.exists(f"/proc/{orphan}") and time.monotonic() < until:
    time.sleep(0.01)
assert not os.path.exists(f"/proc/{orphan}")
"""


def bounded(minutes: float, script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` with Python under a limit of `minutes`; waits for the end of its output, as CI does."""
    command = [sys.executable, str(BOUNDED), "--minutes", str(minutes), sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def test_a_daemon_is_ended_and_delays_no_exit() -> None:
    done = bounded(0.5, DAEMON + "else:\n    time.sleep(0.3)\n    sys.exit(3)\n")
    assert done.returncode == 3
    assert not Path("/proc", done.stdout.strip()).exists()
    assert "left behind, and ended: 1" in done.stderr


def test_what_takes_too_long_is_named_and_ended() -> None:
    done = bounded(0.02, "import time\nprint('begun', flush=True)\ntime.sleep(60)")
    assert done.returncode == 124
    assert done.stdout.startswith("begun")
    assert "time.sleep(60)" in done.stderr


def test_orphans_that_end_are_collected() -> None:
    done = bounded(0.5, "import os, time\n" + ORPHAN)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_nothing_becomes_real_time() -> None:
    done = bounded(0.5, "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))")
    assert done.returncode == 1
    assert "PermissionError" in done.stdout + done.stderr


WAITING = """
import subprocess, sys, pytest
pytest_plugins = ["tests.support.limits"]

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(["sleep", "30"]) as process:
        yield process
        assert process.poll() is None
        process.kill()

def test_first(server):
    pass

@pytest.mark.timeout(0.5)
def test_that_hangs(server):
    with subprocess.Popen(["sh", "-c", "sleep 31 & sleep 31"], stdout=subprocess.PIPE) as process:
        process.stdout.read()
"""


class Item:
    """A test, as far as its report is concerned."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, ...]] = []

    def add_report_section(self, *section: str) -> None:
        self.sections.append(section)


def test_what_a_test_began_is_ended_with_what_that_began() -> None:
    item = Item()
    with subprocess.Popen(["sleep", "30"]) as earlier:
        before = present()
        with subprocess.Popen(["sh", "-c", "sleep 31 & echo; wait"], stdout=subprocess.PIPE) as late:
            late.stdout.readline()  # type: ignore[union-attr]
            end_newer(before, item)  # type: ignore[arg-type]
            assert late.communicate(timeout=20) == (b"", None)  # nobody holds its output any more
        assert earlier.poll() is None  # what an earlier test began is left alone
        earlier.kill()
    ((when, title, named),) = item.sections
    assert (when, title) == ("call", "killed")
    assert len(named.split("\n")) == 2
    assert "sh -c sleep 31 & echo; wait" in named


def test_a_test_that_waits_for_its_process_without_end_loses_it(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITING)
    code = (
        "import sys, pytest; from tests.support import limits; limits.GRACE_S = 0.3; sys.exit(pytest.main(['-q', "
        "'-p', 'no:cacheprovider', '-p', 'pytest_timeout', 'test_waiting.py']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=25,
        env={**os.environ, "PYTHONPATH": str(BOUNDED.parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr  # what an earlier test began is left alone
    assert "Captured killed call" in done.stdout
    assert "\nsh -c sleep 31 & sleep 31\nsleep 31\nsleep 31\n" in done.stdout
