"""The peak that a command tells is the one that somebody outside sees, loading and ending included."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tamis.observe.series import open_series
from tests.support.command import SRC
from tests.support.outside import Seen, measured
from tests.support.run_dirs import run_dir_path

RECIPE = """
stages:
  - {{_target_: tamis.stages.text.io.reader.JsonlReader, file_paths: {folder}/in}}
  - {{_target_: tamis.stages.text.io.writer.JsonlWriter, path: {folder}/out}}
"""

pytestmark = pytest.mark.own_processes


_TRIES = 4
"""Programs beside this one that load or leave the same libraries move what its pages count, within a moment and with
nothing to see in the processes of the run: a comparison that such a moment fell into is made again.
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seen, Path]:
    """Return a copy job of little data: nothing in it takes as much memory as loading the libraries."""
    for _ in range(_TRIES):
        folder = tmp_path_factory.mktemp("peak")
        seen = _copy(folder)
        if seen.status != 0 or _is_told(seen):
            break
    return seen, run_dir_path(folder / "out")


def _copy(folder: Path) -> Seen:
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text('{"text": "a few words"}\n' * 2000)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))
    command = [sys.executable, "-m", "tamis.cli.start", "run", str(recipe), "--memory", "512MB", "--json"]
    return measured(command, PYTHONPATH=os.pathsep.join([str(SRC), *sys.path]))


def _is_told(seen: Seen) -> bool:
    """Who looks from outside may miss a short peak on a busy machine; what it has seen must have been told."""
    return 0.97 * seen.peak_bytes <= json.loads(seen.output)["peak_bytes"] <= 1.1 * seen.peak_bytes


def test_what_is_reported_is_what_was_seen_from_outside(copied: tuple[Seen, Path]) -> None:
    seen, _ = copied
    assert seen.status == 0, seen.output
    assert _is_told(seen), (seen.peak_bytes, json.loads(seen.output)["peak_bytes"])


def test_the_manifest_and_the_run_database_tell_the_same(copied: tuple[Seen, Path]) -> None:
    seen, run_dir = copied
    told = json.loads(seen.output)["peak_bytes"]
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert manifest["peak_bytes"] == told
    with open_series(run_dir) as series:
        assert max(t.peak_bytes for t in series.totals()) == pytest.approx(told, rel=0.01)


def test_the_command_itself_is_counted_and_leaves_no_process(copied: tuple[Seen, Path]) -> None:
    seen, _ = copied
    assert json.loads(seen.output)["caller_bytes"] == 0
    assert seen.left == []
