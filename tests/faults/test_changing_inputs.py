"""Inputs that cannot be read, or that are not the same at the end of the run as at its beginning."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tamis import DocumentBatch
from tamis.errors import RunConflict
from tests.faults.fault_harness import (
    ROOT,
    assert_conserved,
    documents,
    env,
    execute,
    lines_of,
    quarantine,
    write_lines,
)
from tests.faults.fault_stages import TextStage

NOBODY = 65534


@dataclass(repr=False)
class Meddle(TextStage):
    """Changes another input file while the first partition is being processed, once."""

    what: str = ""
    path: str = ""
    name: str = "meddle"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        done = self.path + ".meddled"
        if not os.path.exists(done):
            with open(done, "w"):
                pass
            if self.what == "vanish":
                os.unlink(self.path)
            elif self.what == "grow":
                with open(self.path, "ab") as file:
                    file.write(b'{"id":-1,"text":"late"}\n')
            else:
                size = os.path.getsize(self.path)
                with open(self.path, "r+b") as file:
                    file.write(b'{"id":-2,"text":"' + b"z" * (size - 20) + b'"}\n')
                os.utime(self.path, ns=(1, 1))
        return task


@pytest.mark.parametrize("kind", ["plain", "gz"])
@pytest.mark.parametrize("what", ["vanish", "grow", "rewrite"])
def test_a_file_that_changes_during_the_run_is_named_and_the_rest_is_committed(
    tmp_path: Path, what: str, kind: str
) -> None:
    import gzip

    folder = tmp_path / "in"
    write_lines(folder / "a.jsonl", documents(600))
    victim = write_lines(folder / "b.jsonl", documents(600, 600))
    if kind == "gz":
        victim = folder / "b.jsonl.gz"
        (folder / "b.jsonl").unlink()
        victim.write_bytes(gzip.compress(b"\n".join(documents(600, 600)), mtime=0))
    write_lines(folder / "c.jsonl", documents(600, 1200))
    result = execute(
        folder,
        tmp_path / "out",
        [Meddle(what, str(victim))],
        local=what == "vanish",
        files_per_partition=1,
        settings={"workers": 1},
    )
    assert os.path.exists(str(victim) + ".meddled"), "the fault did not fire"
    assert_conserved(result)
    assert result.exit_code == 3
    assert "changed during the run" in result.message
    assert lines_of(tmp_path / "out") == [*documents(600), *documents(600, 1200)]
    (entry,) = quarantine(tmp_path / "out")
    assert entry["file"] == str(victim)
    assert ("cannot be read" if what == "vanish" else "changed during the run") in entry["reason"]
    with pytest.raises(RunConflict, match=r"b\.jsonl"):
        execute(folder, tmp_path / "out", [Meddle(what, str(victim))], local=False)


UNREADABLE = """
import os, sys
from tamis import LocalExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter

print("uid", os.geteuid())
try:
    Pipeline("p", stages=[JsonlReader(sys.argv[1]), JsonlWriter(sys.argv[2])]).execute(LocalExecutor(), memory="512MB")
except UsageError as exc:
    print("refused:", exc)
"""


def as_ordinary_user(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script without root's powers: directly, or as `nobody` when the tests run as root."""
    more = {"HOME": str(cwd), "TAMIS_CACHE_DIR": os.environ.get("TAMIS_CACHE_DIR", "") or str(cwd / "cache")}
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=env(**more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        **user,
    )


def can_be_nobody() -> bool:
    """Whether an ordinary user can start this Python and read the package at all (a private home folder forbids it)."""
    if os.geteuid() != 0:
        return True
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import tamis, numpy, tests.faults.fault_stages"],
            env=env(),
            cwd="/",
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def test_unreadable_file(tmp_path: Path) -> None:
    if not can_be_nobody():
        pytest.skip(f"an ordinary user cannot read {ROOT} or start this Python, and root can read everything")
    for parent in [tmp_path, *list(tmp_path.parents)[:2]]:
        os.chmod(parent, 0o755)
    work = tmp_path / "work"
    work.mkdir()
    write_lines(work / "in" / "a.jsonl", documents(100))
    secret = write_lines(work / "in" / "b.jsonl", documents(100, 100))
    write_lines(work / "in" / "c.jsonl", documents(100, 200))
    os.chmod(secret, 0)
    if os.geteuid() == 0:
        os.chown(work, NOBODY, NOBODY)
    done = as_ordinary_user(UNREADABLE, str(work / "in"), str(work / "out"), cwd=work)
    assert done.returncode == 0, done.stderr
    assert "uid 0" not in done.stdout
    assert f"refused: part of the input cannot be read: {secret}: Permission denied" in done.stdout
    assert not (work / "out").exists()
