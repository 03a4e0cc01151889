"""Results of runs without a writer: there while the program lives, gone when it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tamis.engine.run.output.temporary import remove_abandoned, temporary_output

SCRIPT = """
import os, sys
from tamis import InProcessExecutor, Pipeline
from tamis.stages.text.io.reader import JsonlReader

found = Pipeline("p", stages=[JsonlReader(sys.argv[1])]).run(InProcessExecutor())
assert found[0].to_pyarrow(["text"])["text"].to_pylist() == ["a", "b"]
if os.fork() == 0:
    sys.exit(0)  # the end of a fork is not the end of the program
os.wait()
assert os.path.exists(found[0].path)
print(len(os.listdir(os.environ["TMPDIR"])))
if sys.argv[2] == "fail":
    raise SystemExit(3)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("how", "code", "n_left"), [("fail", 3, 0), ("kill", -9, 1)])
def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, how: str, code: int, n_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "in.jsonl"), how],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "1\n"), done.stderr
    left = list(temporary.iterdir())
    assert len(left) == n_left
    for folder in left:  # what a killed program leaves goes with the next one
        remove_abandoned(str(temporary))
        assert folder.exists()  # young
        os.utime(folder, (time.time() - 100,) * 2)
        remove_abandoned(str(temporary))
        assert not folder.exists()


def test_what_is_in_use_or_no_folder_of_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = Path(temporary_output()).parent
    other = tmp_path / "tamis-results-0123456789abcdef"
    other.mkdir()
    other.chmod(0o777)
    plain = tmp_path / "tamis-results-of-mine"
    plain.mkdir()
    for folder in (mine, other, plain):
        os.utime(folder, (time.time() - 100,) * 2)
    remove_abandoned(str(tmp_path))
    assert all(folder.exists() for folder in (mine, other, plain))
