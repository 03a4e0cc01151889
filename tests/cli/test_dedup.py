"""`tamis dedup`, and recipes with a workflow."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.cli.jobs.passes import print_documents as print_summary
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.solver_launcher import SolverLauncher
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    words = [f"word{i}" for i in range(60)]
    near = [*words[:30], "changed", *words[31:]]
    docs = [" ".join(words), " ".join(near), " ".join(words), "something else entirely, and on its own"]
    (folder / "a.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(docs)))
    return folder


def ids(folder: Path) -> list[int]:
    return [json.loads(line)["id"] for p in sorted(folder.glob("*.jsonl")) for line in p.read_text().splitlines()]


def run(*arguments: object) -> tuple[int, str]:
    told = tamis(*arguments)
    return told.exit_code, told.output


def test_exact_and_fuzzy(source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "exact", source, tmp_path / "exact", "--memory", "512MB", "--max-source-loss", "100%")
    assert code == 0, said
    assert ids(tmp_path / "exact") == [0, 1, 3]
    assert "duplicates" in said
    assert (run_dir_path(tmp_path / "exact") / "report.html").exists()
    code, said = run(
        "dedup",
        "fuzzy",
        source,
        tmp_path / "fuzzy",
        "--memory",
        "512MB",
        "--threshold",
        "0.6",
        "--bands",
        "40",
        "--rows",
        "3",
        "--json",
        "--keep",
        "first",
    )
    assert code == 0, said
    about = json.loads(said)
    assert ids(tmp_path / "fuzzy") == [0, 3]
    assert (about["n_documents"], about["n_equal"], about["n_similar"]) == (4, 1, 1)
    assert about["duplicates"] == str(run_dir_path(tmp_path / "fuzzy") / "duplicates")
    code, said = run("dedup", "exact", source, tmp_path / "exact", "--memory", "512MB")
    assert (code, "finished earlier" in said) == (0, True)
    code, said = run("resume", tmp_path / "exact")
    assert (code, "run the same command again" in said) == (2, True)


def test_what_cannot_be_read_is_reported_though_nothing_is_removed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(source / "a.jsonl", "ab") as file:
        file.write(b"{broken\n")

    def search() -> Any:
        found = RemoveExactDuplicates(input_path=str(source), output_path=str(tmp_path / "out"), perform_removal=False)
        return found.run(InProcessExecutor(), progress=False, quarantine_limit="100%")

    result = search()
    assert [result.summary[name] for name in ("n_documents", "n_quarantined", "n_bad_ranges")] == [4, 1, 0]
    about = {
        "status": result.status,
        "output": result.output,
        "duplicates": "",
        "scratch_bytes": 1,
        **result.record.cost(),
    }
    print_summary({**about, **result.summary}, result)
    said = capsys.readouterr().out
    assert ("quarantined" in said, f"quarantine: tamis quarantine {tmp_path}/out" in said) == (True, True)
    told = CliRunner().invoke(app, ["quarantine", str(tmp_path / "out"), "--json"])
    assert (told.exit_code, json.loads(told.stdout)["raw"]) == (0, "{broken")
    told = CliRunner().invoke(app, ["report", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert (
        f"only looked for duplicates; the table of them is in {run_dir_path(tmp_path / 'out')}/duplicates"
        in told.output
    )
    assert search().summary["n_quarantined"] == 1  # finished earlier


def test_what_a_first_pass_could_not_read_is_reported_by_the_call_that_continues(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(source / "b.jsonl.gz", "wb") as file:
        file.writelines(b'{"text": "%d"}\n' % i for i in range(20_000))
    os.truncate(source / "b.jsonl.gz", os.path.getsize(source / "b.jsonl.gz") - 100)
    how = {"input_path": str(source), "output_path": str(tmp_path / "out"), "perform_removal": False}
    settings: dict[str, Any] = {"progress": False, "quarantine_limit": "100%"}
    with monkeypatch.context() as stopped:
        stopped.setattr(SolverLauncher, "solve", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            RemoveExactDuplicates(**how).run(InProcessExecutor(), **settings)
    result = RemoveExactDuplicates(**how).run(InProcessExecutor(), **settings)
    assert (result.summary["n_quarantined"], result.summary["n_bad_ranges"]) == (0, 1)
    assert list((run_dir_path(tmp_path / "out") / "quarantine").iterdir())


def test_a_plan_writes_nothing(source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "fuzzy", source, tmp_path / "out", "--plan", "--memory", "8GB")
    assert code == 0, said
    assert "8 bytes x hashes x documents x bands per pass / bands" in said
    assert not (tmp_path / "out").exists()
    code, said = run("dedup", "exact", source, tmp_path / "out", "--plan", "--json", "--memory", "8GB")
    assert json.loads(said)["n_documents"] == 4
    assert not (tmp_path / "out").exists()


def test_a_plan_looks_at_the_scratch_folder_and_says_sizes_that_can_be_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.setattr(
        "tamis.dedup.planning.free_space", lambda folder: 700 if str(folder).endswith("small") else 10**12
    )

    def here(*arguments: object) -> tuple[int, str]:
        told = CliRunner().invoke(app, [*map(str, arguments), "--memory", "8GB"])
        return told.exit_code, " ".join(told.output.split())

    where = ("--scratch", tmp_path / "small")
    for command in (("dedup", "fuzzy", source, tmp_path / "out", "--plan"), ("plan", "dedup", "fuzzy", source)):
        code, said = here(*command, *where)
        assert code == 4
        assert "keys of about 4 documents need 704 B of free disk at least, there are 700 B" in said
    code, said = here("dedup", "exact", source, tmp_path / "out", "--plan", *where)
    assert (code, f"in {tmp_path / 'small'}; 700 B free" in said) == (0, True)
    code, said = here("dedup", "fuzzy", source, tmp_path / "out", "--plan")
    assert (code, "1 TB free" in said) == (0, True)


def test_recipes_with_a_workflow(source: Path, tmp_path: Path) -> None:
    sets = ["--set", f"input={source}", "--set", f"output={tmp_path / 'out'}", "--memory", "512MB"]
    code, said = run("plan", "dedup_fuzzy", *sets)
    assert (code, "about 4" in said) == (0, True)
    code, said = run("run", "dedup_exact", *sets)
    assert code == 0, said
    assert ids(tmp_path / "out") == [0, 1, 3]


MINE = """
from tamis.pipeline.workflow import WorkflowRunResult

class Mine:
    def run(self):
        return WorkflowRunResult("my flow", metadata={"n": 3})

class Bare:
    def run(self, memory=None, **rest):
        assert {"progress", "watch", "count_caller"} <= set(rest)
        return memory
"""


def test_a_workflow_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_flow_of_test.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "r.yaml").write_text("workflow: {_target_: my_flow_of_test.Mine}\n")
    allow = ("--allow-module", "my_flow_of_test")
    told = CliRunner().invoke(app, ["run", "r.yaml", *allow, "--memory", "1GB"])
    assert (told.exit_code, told.stdout) == (0, "my flow: finished\nn: 3\n")
    assert told.stderr == "memory is not used: `run` of this workflow has no such parameter\n"
    told = CliRunner().invoke(app, ["run", "r.yaml", *allow, "--json"])
    assert json.loads(told.stdout) == {
        "status": "finished",
        "exit_code": 0,
        "workflow": "my flow",
        "metadata": {"n": 3},
    }
    (tmp_path / "r.yaml").write_text("workflow: [{_target_: my_flow_of_test.Mine}, {_target_: my_flow_of_test.Bare}]\n")
    told = CliRunner().invoke(app, ["run", "r.yaml", *allow, "--memory", "1GB"])
    assert (told.exit_code, told.stdout) == (0, "Bare: finished\n")
    assert told.stderr == "memory is not used: `run` of Mine has no such parameter\n"
    sys.modules.pop("my_flow_of_test")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--normalize", "lower"], "normalize_text must be"),
        (["--keep", "best"], "goes with keep_by"),
        (["--max-source-loss", "200%"], "max_source_loss"),
    ],
)
def test_mistakes_are_one_line(source: Path, tmp_path: Path, more: list[str], message: str) -> None:
    code, said = run("dedup", "exact", source, tmp_path / "out", *more)
    assert code == 2
    assert message in said
    assert "Traceback" not in said


def test_input_that_is_not_there(tmp_path: Path) -> None:
    code, said = run("dedup", "exact", tmp_path / "nowhere", tmp_path / "out", "--memory", "512MB")
    assert code == 2
    assert "nowhere" in said


@pytest.mark.parametrize("option", [("--pooling", "mean_pooling"), ("--text-field", "body")])
def test_options_for_a_model_are_refused_without_one(option: tuple[str, str], source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "semantic", source, tmp_path / "out", *option)
    assert (code, f"error: {option[0]} goes with --model" in said) == (2, True)
    assert not (tmp_path / "out").exists()
