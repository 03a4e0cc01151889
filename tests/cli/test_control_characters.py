"""Names from data and run directories cannot steer the terminal: no command prints a control character of theirs."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from tamis.backends.progress import ProgressDisplay
from tamis.cli.main import app
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.schema import EventKind, RunFacts
from tamis.pipeline.pass_progress import print_line
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path
from tests.support.strict_exposition import parse

EVIL = "e\x1b[2J\x07\x9b31m\r\u202e"
RECIPE = """\
name: {name}
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {path}
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj:
      _target_: tamis.stages.text.filters.WordCountFilter
      min_words: 2
    score_field: {name}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {output}
settings:
  memory: 4GB
  workers: 1
"""


def unsafe(text: str) -> set[str]:
    """Control and format characters in a text, apart from line ends."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of a file with control characters in its name, in a bad line and in the database."""
    root = tmp_path_factory.mktemp("names")
    (root / f"in {EVIL}").mkdir()
    lines = [json.dumps({"id": f"id {EVIL}", "text": "one"}), json.dumps({"id": "b", "text": "one two"}), f"{{{EVIL}"]
    (root / f"in {EVIL}" / f"file {EVIL}.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode())
    for output in (f"out {EVIL}", f"other {EVIL}"):
        values = {"name": EVIL, "path": str(root / f"in {EVIL}"), "output": str(root / output)}
        recipe = RECIPE.format(**{name: json.dumps(value) for name, value in values.items()})
        (root / "recipe.yaml").write_text(recipe)
        done = CliRunner().invoke(app, ["run", str(root / "recipe.yaml"), "--quarantine-limit", "100%"])
        assert done.exit_code == 0, done.output
        assert not unsafe(done.output)
    db = RunDatabase(str(run_dir_path(root / f"out {EVIL}") / "run.sqlite"))
    db.about(RunFacts(name=EVIL, run_id=EVIL, host=EVIL))
    db.event(EventKind.REMEDY, {"text": EVIL})
    db.alert(EVIL, EVIL, EVIL)
    db.put("stages", stage=EVIL, position=0, n_in=1, n_out=1, n_dropped=0, in_bytes=1, seconds=0.0, cpu_s=0.0)
    db.put("gpus", gpu=0, name=EVIL, used_bytes=1, total_bytes=1, ours_bytes=1, processes="{}")
    db.replace("nodes", [(0, EVIL, 1.0, 1, 1, 1, 1, 1, 1, 1, 0)])
    db.close()
    return root


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["metrics", "OUT", "--once"], 0),
        (["top", "OUT", "--once"], 0),
        (["top", "OUT", "--once", "--json"], 0),
        (["why", "OUT", f"id {EVIL}"], 0),
        (["why", "OUT", f"none {EVIL}"], 2),
        (["quarantine", "OUT"], 0),
        (["quarantine", "OUT", "--json"], 0),
        (["diff", "OUT", "OTHER"], 0),
        (["report", "OUT"], 0),
        (["inspect", "IN"], 0),
        (["inspect", "IN", "--json"], 0),
        (["inspect", f"none {EVIL}"], 2),
        (["plan", "ROOT/recipe.yaml"], 0),
        (["run", "ROOT/recipe.yaml"], 0),
        (["recipe", "show", "ROOT/recipe.yaml"], 0),
        (["run", f"none {EVIL}.yaml"], 2),
        (["filter", EVIL, "IN", "OUT"], 2),
        (["filter", "gopher", "IN", "OUT"], 5),
        (["dedup", "exact", "IN", "IN", "--json"], 5),
        ([EVIL], 2),
        (["top", "OUT", f"--{EVIL}"], 2),
    ],
)
def test_no_command_prints_control_characters_of_names(folder: Path, command: list[str], code: int) -> None:
    paths = {"OUT": f"{folder}/out {EVIL}", "OTHER": f"{folder}/other {EVIL}", "IN": f"{folder}/in {EVIL}"}
    typed = [paths.get(word, word.replace("ROOT", str(folder))) for word in command]
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == code, done.output
    assert done.exception is None, done.output
    assert done.output
    assert not unsafe(done.output), done.output


def test_metrics_with_control_characters_are_valid(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["metrics", f"{folder}/out {EVIL}", "--once"]).stdout
    stages = {dict(labels)["stage"] for labels in parse(shown)["tamis_stage_seconds_total"]}
    assert "e\\x1b[2J\\x07\\x9b31m\\r\\u202e" in stages


def test_progress_lines_show_control_characters_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay() as shown:
        shown.note(EVIL)
        shown.show({"phase": "compiling", "done": 1, "of": EVIL, "seconds_left": 1})
    print_line(EVIL)
    assert capsys.readouterr().err.count("e\\x1b[2J\\x07\\x9b31m\\r\\u202e") == 3
