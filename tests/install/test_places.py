"""Tamis where hardly anything is writable: a read-only container, no home, no bytecode, another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import SRC
from tests.support.run_dirs import run_dir_path

COMMAND = [sys.executable, "-P", "-m", "tamis.cli.start"]
# Everything is mounted read-only but the folder with the data, as in `docker run --read-only -v data:...`.
INSIDE = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -o remount,bind,ro /
for place in $(awk '$2 != "/" {print $2}' /proc/mounts); do
  case $place in "$1"|/proc*|/sys*|/dev*) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
if touch /tmp/tamis-written 2>/dev/null; then rm /tmp/tamis-written; exit 42; fi
cd /
shift
exec "$@"
"""
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/proc/nobody", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(SRC)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"text": "one document"}\n{"text": "one document"}\n')
    return tmp_path


def run(command: Sequence[str], cwd: str = "/") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=BARE, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)


def test_in_a_read_only_container(data: Path) -> None:
    if shutil.which("unshare") is None or run(["unshare", "-m", "true"]).returncode:
        pytest.skip("this machine lets nobody make mounts of his own")

    def inside(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = run(["unshare", "-m", "sh", "-c", INSIDE, "sh", str(data), *COMMAND, *arguments])
        if done.returncode in (32, 42):
            pytest.skip("mounts cannot be made read-only here")
        return done

    done = inside("filter", "gopher", f"{data}/in", f"{data}/out", "--quiet", "--memory", "400MB")
    assert done.returncode == 0, done.stderr
    assert (run_dir_path(data / "out") / "report.html").exists()
    done = inside("dedup", "exact", f"{data}/in", f"{data}/one", "--quiet", "--memory", "400MB")
    assert done.returncode == 0, done.stderr
    assert len(list((data / "one").glob("*.jsonl"))) == 1
    done = inside("doctor")
    assert done.returncode == 0, done.stderr
    assert "set TMPDIR to one that can" in done.stdout


def test_with_a_home_that_cannot_be_written(data: Path) -> None:
    code = (
        "from tamis import Pipeline\n"
        "from tamis.stages.text.io import JsonlReader, JsonlWriter\n"
        f"Pipeline('p', stages=[JsonlReader({str(data / 'in')!r}), "
        f"JsonlWriter({str(data / 'out')!r})]).run(memory='400MB')\n"
    )
    done = run([sys.executable, "-P", "-c", code], cwd=str(data))
    assert done.returncode == 0, done.stderr
    assert "2 written" in done.stderr
    assert sorted(p.name for p in data.iterdir()) == ["in", "out", "out.tamis"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_as_an_ordinary_user_with_the_home_of_somebody_else(tmp_path: Path) -> None:
    """Where this interpreter is readable by others; a folder that only its owner may enter is as good as absent."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if shutil.which("setpriv") is None or run([*user, sys.executable, "-c", "import tamis, numpy"]).returncode:
        pytest.skip("another user cannot use this interpreter or this checkout")
    place = Path("/tmp") / f"tamis-other-user-{os.getpid()}"
    (place / "in").mkdir(parents=True)
    try:
        (place / "in/a.jsonl").write_text('{"text": "one document"}\n')
        os.chmod(place, 0o777)
        done = run([*user, *COMMAND, "filter", "gopher", f"{place}/in", f"{place}/out", "--quiet"], cwd=str(place))
        assert done.returncode == 0, done.stderr
        assert (place / "out").stat().st_uid == 65534
    finally:
        shutil.rmtree(place)
