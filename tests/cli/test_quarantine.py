"""`tamis quarantine`: listing, and running again after a fix."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tamis.cli.jobs import command_file
from tamis.cli.jobs.jobs import RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.main import app
from tamis.cli.parsing.options import LaunchOptions
from tamis.cli.runs.quarantine import _open_ends, collect
from tamis.observe.quarantine import QuarantineEntry, read_entries
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"
RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.DocumentReader
    file_paths: in
  - _target_: picky_stage.Picky
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
settings: {memory: 512MB, quarantine_limit: 100%}
"""
PICKY = """
from tamis import ProcessingStage

class Picky(ProcessingStage):
    name = "picky"
    def process(self, task):
        if 7 in task.column("n").to_pylist():
            raise ValueError("seven")
        return task
"""


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return run_python("-m", "tamis.cli.start", *args, env=env, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": i}) for i in range(20)]
    (tmp_path / "in/a.jsonl").write_bytes("\n".join([*lines, "{broken"]).encode() + b"\n\xff\n")
    (tmp_path / "picky_stage.py").write_text(PICKY)
    (tmp_path / "r.yaml").write_text(RECIPE)
    done = tamis("run", "r.yaml", "--allow-module", "picky_stage", "--json", cwd=tmp_path)
    about = json.loads(done.stdout)
    assert (about["n_written"], about["n_quarantined"]) == (19, 3)
    return tmp_path


def test_listing(place: Path) -> None:
    done = tamis("quarantine", "out", "--json", cwd=place)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        (e["offset"], e["length"], e["reason"], e["stage"], e["raw"])
        for e in sorted(entries, key=lambda e: e["offset"])
    ] == [
        (63, 8, "error: ValueError: seven", "picky", '{"n": 7}'),
        (190, 7, "not valid JSON", "", "{broken"),
        (198, 1, "not valid UTF-8", "", "\\xff"),
    ]
    assert {e["file"] for e in entries} == {str(place / "in/a.jsonl")}
    one = tamis("quarantine", "out", "--reason", "SEVEN", cwd=place)
    assert "1 entry shown, 0 more" in one.stdout
    few = tamis("quarantine", "out", "--limit", "1", cwd=place)
    assert "1 entry shown, 2 more" in few.stdout
    assert "nothing in quarantine" in tamis("quarantine", "out", "--reason", "nowhere", cwd=place).stdout


def test_retry_after_a_fix(place: Path) -> None:
    before = tamis("quarantine", "out", "--retry", "--allow-module", "picky_stage", cwd=place)
    assert before.returncode == 3
    assert "3 records retried: 0 written, 0 dropped by stages, 3 failed again" in before.stdout
    (place / "picky_stage.py").write_text(PICKY.replace("7 in", "77 in"))
    after = tamis("quarantine", "out", "--retry", "--allow-module", "picky_stage", cwd=place)
    assert after.returncode == 3
    assert "3 records retried: 1 written, 0 dropped by stages, 2 failed again" in after.stdout
    assert f"documents: {place}/out-retry" in after.stdout
    assert [p.read_text() for p in (place / "out-retry").glob("*.jsonl")] == ['{"n": 7}\n']
    seven = tamis(
        "quarantine",
        "out",
        "--retry",
        "--reason",
        "seven",
        "--into",
        "sevens",
        "--allow-module",
        "picky_stage",
        cwd=place,
    )
    assert seven.returncode == 0
    assert [p.read_text() for p in (place / "sevens").glob("*.jsonl")] == ['{"n": 7}\n']
    assert sum(1 for _ in read_entries(run_dir_path(place / "out") / "quarantine")) == 3


def test_retry_never_writes_into_something_else(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "mine/data.txt").write_text("precious")
    for into, code in (("mine", 5), ("out", 2), ("in", 5)):
        done = tamis("quarantine", "out", "--retry", "--into", into, "--allow-module", "picky_stage", cwd=place)
        assert (into, done.returncode) == (into, code)
    assert (place / "mine/data.txt").read_text() == "precious"
    assert len(list((place / "out").glob("*.jsonl"))) > 0


def test_modules_must_be_allowed_again(place: Path) -> None:
    done = tamis("quarantine", "out", "--retry", cwd=place)
    assert (done.returncode, "--allow-module picky_stage" in done.stderr) == (2, True)


def test_no_run_here(tmp_path: Path) -> None:
    done = tamis("quarantine", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: . holds no run of Tamis; give the output folder of a run\n")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the output of a run that quarantined two records, as it is stored: no run is made."""
    monkeypatch.chdir(tmp_path)
    run_dir = run_dir_path(tmp_path / "out")
    (run_dir / "quarantine").mkdir(parents=True, mode=0o755)
    for folder in (run_dir, run_dir / "quarantine"):
        folder.chmod(0o755)
    kept = {"file": "in/a.jsonl", "offset": 0, "length": 9, "unit": "bytes", "reason": "r", "stage": "", "n": 1}
    lines = [json.dumps({**kept, "raw": text}) for text in ('{"n": 7}', '{"n": 8}')]
    (run_dir / "quarantine/q-0.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_retry_of_a_run_on_a_cluster_or_of_a_part(small: Path) -> None:
    """Records are few: they go through this machine alone, and all of them."""
    (small / "r.yaml").write_text(RECIPE.replace("  - _target_: picky_stage.Picky\n", ""))
    request = Request(
        RecipeJob(str(small / "r.yaml")), {"shard": "0/2", "workers": 1}, LaunchOptions("ray", "nowhere:1")
    )
    command_file.save(request, str(run_dir_path(small / "out")))
    said = CliRunner().invoke(app, ["quarantine", "out", "--retry", "--memory", "4GB"])  # this process counts, too
    assert (said.exit_code, "2 records retried: 2 written" in said.output) == (0, True), said.output
    assert [p.read_text() for p in (small / "out-retry").glob("*.jsonl")] == ['{"n": 7}\n{"n": 8}\n']


def test_values_for_a_retry_go_with_a_recipe(place: Path) -> None:
    done = tamis("quarantine", "out", "--retry", "--set", "x=1", "--allow-module", "picky_stage", cwd=place)
    said = (
        "--set goes with --recipe; records otherwise go through the recipe of the run with the values it was made with"
    )
    assert (done.returncode, said in done.stderr) == (2, True)


def test_retry_by_the_name_of_a_shipped_recipe_with_open_ends(small: Path) -> None:
    said = CliRunner().invoke(app, ["quarantine", "out", "--retry", "--recipe", "copy", "--memory", "4GB"])
    assert (said.exit_code, "2 records retried: 2 written" in said.output) == (0, True), said.output


def test_only_what_a_retry_replaces_is_filled_in(small: Path) -> None:
    (small / "r.yaml").write_text(
        "from: ???\nto: ???\nfield: ???\n"
        + RECIPE.replace("file_paths: in", "file_paths: ${from}")
        .replace("picky_stage.Picky", "tamis.stages.text.modules.AddId\n    id_field: ${field}")
        .replace("path: out", "path: ${to}/${field}")
    )
    assert _open_ends(str(small / "r.yaml")) == {"from": "retry", "to": "retry"}
    again = ["quarantine", "out", "--retry", "--recipe", "r.yaml"]
    said = CliRunner().invoke(app, again)
    assert (said.exit_code, "field: has no value yet; set it with --set field=..." in said.output) == (2, True)
    said = CliRunner().invoke(app, [*again, "--set", "field=id", "--set", "x=1"])
    assert "unknown top-level field 'x'" in said.output
    assert "--set go with --retry" in CliRunner().invoke(app, ["quarantine", "out", "--set", "field=id"]).output


def test_retry_of_a_deduplication_or_a_curation_says_what_to_do(small: Path) -> None:
    (run_dir_path(small / "out") / "dedup.json").write_text("{}")
    said = CliRunner().invoke(app, ["quarantine", "out", "--retry"])
    assert (
        said.exit_code,
        "was not made by tamis run, filter or classify, and --retry works for these" in said.output,
    ) == (2, True)
    (small / "in").mkdir()
    (small / "in/a.jsonl").write_text('{"text": "a"}\n')
    (small / "c.yaml").write_text("input: in\noutput: out\nsteps: [text]\n")
    command_file.save(Request(RecipeJob(str(small / "c.yaml"))), str(run_dir_path(small / "out")))
    said = CliRunner().invoke(app, ["quarantine", "out", "--retry"])
    assert (said.exit_code, "(--recipe RECIPE), or repair the input files" in said.output) == (2, True), said.output


def test_a_quarantine_that_cannot_be_read_is_not_called_empty(small: Path) -> None:
    (run_dir_path(small / "out") / "quarantine/q-0.jsonl").write_text("{\n")
    for more in ([], ["--json"]):
        said = CliRunner().invoke(app, ["quarantine", "out", *more])
        assert (said.exit_code, said.stdout) == (1, "")
        assert said.stderr == "error: quarantine/q-0.jsonl holds a line that is no entry\n"
    (run_dir_path(small / "out") / "quarantine/q-0.jsonl").unlink()
    (run_dir_path(small / "out") / "quarantine").rmdir()
    (run_dir_path(small / "out") / "quarantine").write_text("")
    said = CliRunner().invoke(app, ["quarantine", "out"])
    assert (said.exit_code, said.stderr) == (1, "error: quarantine/ cannot be read: Not a directory\n")


def entry(**changes: object) -> QuarantineEntry:
    plain: dict[str, object] = {
        "file": "",
        "offset": 0,
        "length": 0,
        "unit": "bytes",
        "reason": "",
        "stage": "",
        "n": 1,
        "raw": None,
        "raw_path": None,
    }
    return QuarantineEntry(**{**plain, **changes})  # type: ignore[arg-type]


def test_collecting(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    source.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    (tmp_path / "0.raw").write_bytes(b'{"c":\r\n3}')
    entries = [
        entry(raw=b'{"raw": 0}'),
        entry(file=str(source), offset=9, length=8),
        entry(raw_path=tmp_path / "0.raw"),
        entry(file=str(source), offset=9, length=8, unit="rows"),
        entry(file=str(tmp_path / "gone"), length=3),
        entry(raw=b"the rest of a damaged stream", n=0),
    ]
    assert collect(iter(entries), tmp_path / "x" / "out.jsonl") == (3, 3)
    assert (tmp_path / "x/out.jsonl").read_bytes() == b'{"raw": 0}\n{"b": 2}\n{"c":  3}\n'


def test_damaged_entries_are_skipped_and_lead_nowhere(tmp_path: Path) -> None:
    good = {"file": "f", "offset": 1, "length": 2, "unit": "bytes", "reason": "r", "stage": "", "n": 1}
    lines = [
        json.dumps({**good, "raw_file": "../../etc/passwd"}),
        "{",
        '{"file": 1}',
        json.dumps({**good, "raw_base64": "/w=="}),
    ]
    (tmp_path / "quarantine-0.jsonl").write_text("\n".join(lines))
    problems: list[str] = []
    found = list(read_entries(tmp_path, problems))
    assert [e.raw_path for e in found] == [tmp_path / "quarantine-0.passwd", None]
    assert found[1].start_of_raw(10) == "\\xff"
    assert len(problems) == 2
