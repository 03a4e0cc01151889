"""Outputs and the run directories next to them: what removing, moving and naming one of them means."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.errors import RunConflict
from tests.faults.fault_harness import documents, execute, lines_of, write_lines
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis

N = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in" / "a.jsonl", documents(N)).parent


def dedup(source: Path, output: Path) -> str:
    return RemoveExactDuplicates(str(output), str(source)).run(InProcessExecutor(), memory="512MB").status


def test_an_output_has_nothing_but_data(source: Path, tmp_path: Path) -> None:
    result = execute(source, tmp_path / "out", local=False)
    assert sorted(os.listdir(tmp_path / "out")) == sorted(file.name for file in result.files)
    assert sorted(os.listdir(tmp_path)) == ["in", "out", "out.tamis"]


def test_a_run_whose_output_was_removed_starts_over(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(source, out, local=False)
    shutil.rmtree(out)
    assert execute(source, out, local=False).status == "finished"
    assert len(lines_of(out)) == N
    assert execute(source, out, local=False).status == "already"


def test_a_deduplication_whose_output_was_removed_starts_over(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert dedup(source, out) == "finished"
    whole = lines_of(out)
    shutil.rmtree(out)
    assert dedup(source, out) == "finished"
    assert lines_of(out) == whole
    assert dedup(source, out) == "already"


def test_an_output_that_is_emptied_is_no_output_that_was_removed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(source, out, local=False)
    shutil.rmtree(out)
    out.mkdir()
    with pytest.raises(RunConflict, match=r"was committed by this run and is gone; restore it, or start over"):
        execute(source, out, local=False)
    assert execute(source, out, local=False, settings={"fresh": True}).status == "finished"


def test_an_output_without_its_run_directory_is_data_of_others(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(source, out, local=False)
    before = lines_of(out)
    shutil.rmtree(tmp_path / "out.tamis")
    with pytest.raises(RunConflict, match="already holds data that Tamis did not write"):
        execute(source, out, local=False, settings={"fresh": True})
    assert lines_of(out) == before


def test_both_can_be_moved(source: Path, tmp_path: Path) -> None:
    execute(source, tmp_path / "out", local=False)
    (tmp_path / "disk").mkdir()
    for name in ("out", "out.tamis"):
        (tmp_path / name).rename(tmp_path / "disk" / name.replace("out", "moved"))
    assert execute(source, tmp_path / "disk" / "moved", local=False).status == "already"


def test_a_folder_that_is_not_a_run_directory_is_left_alone(source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "out.tamis" / "precious.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for run in (lambda: execute(source, tmp_path / "out", local=False), lambda: dedup(source, tmp_path / "out")):
        with pytest.raises(RunConflict, match=r"already holds 'precious.txt'; .* create .*/out/_tamis to keep the log"):
            run()
    assert os.listdir(tmp_path / "out.tamis") == ["precious.txt"]
    (tmp_path / "out" / "_tamis").mkdir(parents=True)
    assert execute(source, tmp_path / "out", local=False).status == "finished"
    assert (tmp_path / "out" / "_tamis" / "plan.json").exists()
    assert mine.read_text() == "mine"


def test_a_run_directory_is_no_output(source: Path, tmp_path: Path) -> None:
    execute(source, tmp_path / "out", local=False)
    with pytest.raises(RunConflict, match=r"out.tamis is the run directory of .*/out; give another output"):
        execute(source, tmp_path / "out.tamis", local=False)


def test_the_folder_that_contains_an_output_is_read_without_it(source: Path, tmp_path: Path) -> None:
    execute(source, source / "inner", local=False)
    assert sorted(os.listdir(source)) == ["a.jsonl", "inner", "inner.tamis"]
    assert len(execute(source, tmp_path / "out", local=False).files) == 1
    assert len(lines_of(tmp_path / "out")) == N


def test_commands_take_the_run_directory_for_the_output(source: Path, tmp_path: Path) -> None:
    out, run_dir = tmp_path / "out", tmp_path / "out.tamis"
    done = tamis("filter", "gopher", source, out, "--memory", "512MB", "--quiet")
    assert done.exit_code == 0, done.output

    def agrees(*arguments: object) -> dict[str, object]:
        by_output, by_run_dir = (
            CliRunner().invoke(app, [str(place if a == "OUT" else a) for a in arguments])
            for place in (out, f"{run_dir}/")
        )
        assert (by_output.exit_code, by_run_dir.exit_code) == (0, 0), by_output.output + by_run_dir.output
        assert by_run_dir.stdout == by_output.stdout
        return json.loads(by_output.stdout) if by_output.stdout.startswith("{") else {}

    agrees("why", "OUT", f"{source}/a.jsonl:0", "--json")
    agrees("quarantine", "OUT")
    agrees("rethreshold", "OUT", "gopher_short_doc=10", "--json")
    assert agrees("diff", "OUT", "OUT", "--json")["changes"] == []
    assert agrees("report", "OUT", "--json")["report"] == f"{run_dir}/report.html"
    assert CliRunner().invoke(app, ["top", str(run_dir), "--once"]).exit_code == 0
    again = tamis("resume", run_dir, "--json")
    assert (again.exit_code, json.loads(again.stdout)["status"]) == (0, "already")
