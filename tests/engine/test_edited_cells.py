"""A stage that is edited in a cell of a notebook and run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.faults.fault_harness import documents, env, lines_of, write_lines

# Cells have no file: linecache knows them by a name, and __main__ has none.
NOTEBOOK = '''
import linecache, sys, types

main = types.ModuleType("__main__")
sys.modules["__main__"] = main


def run_cell(number, text):
    name = f"<cell {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), vars(main))


CELL = """
from dataclasses import dataclass
from tamis import Pipeline, ProcessingStage
from tamis.errors import RunConflict, StageError
from tamis.stages.text.filters import DocumentFilter, ScoreFilter
from tamis.stages.text.io import JsonlReader, JsonlWriter

LIMIT = 3

class Long(DocumentFilter):
    def __init__(self, minimum=0.12):
        super().__init__()
        self.minimum = minimum

    def score_document(self, text):
        return len(text) / 1000

    def keep_document(self, score):
        return score >= self.minimum

@dataclass
class Check(ProcessingStage):
    name: str = "check"
    n: int = 1

    def process(self, batch):
        assert batch.num_items > LIMIT, "too few"
        return batch

def run(*names):
    try:
        stages = [JsonlReader("in"), ScoreFilter(Long(MINIMUM)), Check(), JsonlWriter("out")]
        Pipeline("p", stages=stages).run(memory="512MB", progress=False)
        print("finished")
    except (RunConflict, StageError) as exc:
        print(type(exc).__name__, exc)
"""
run_cell(1, CELL.replace("MINIMUM", "0.01").replace("assert batch", "assert 0 > batch"))
main.run()
for number, (old, new) in enumerate(
    [("", ""), ("0.01", "0.05"), ("num_items > LIMIT", "num_items >= LIMIT"), ("LIMIT = 3", "LIMIT = 2"), ("", "")], 2
):
    run_cell(number, CELL.replace("MINIMUM", "0.01").replace(old, new) if old else CELL.replace("MINIMUM", "0.01"))
    main.run()
'''


def test_an_edited_cell_conflicts_only_with_what_is_committed_and_names_the_edit(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(30))
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env(),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed, finished, value, line, constant, again = done.stdout.splitlines()
    assert failed.startswith("StageError")
    assert finished == "finished", "nothing was committed by the run that failed"
    assert "minimum 0.01 -> 0.05." in value
    assert "`assert batch.num_items > LIMIT" in line
    assert "-> `assert batch.num_items >= LIMIT" in line
    assert "__main__.LIMIT 3 -> 2." in constant
    assert again == "finished"
    assert len(lines_of(tmp_path / "out")) == 30
