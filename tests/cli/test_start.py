"""The console script: a process is started before the arguments are read, used by the command, and gone with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tamis.cli.start import process_for
from tests.support.command import SRC


def started(tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC), "TAMIS_TEST_MARK": str(tmp_path)}
    return subprocess.Popen(
        [sys.executable, "-m", "tamis.cli.start", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def marked(tmp_path: Path) -> list[str]:
    """Return the processes that descend from what this test started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TAMIS_TEST_MARK") == str(tmp_path):
                found.append(process.name())
        except psutil.Error:
            pass
    return found


def gone(tmp_path: Path) -> bool:
    deadline = time.monotonic() + 20
    while marked(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not marked(tmp_path)


WARM, SERVER = "tamis.backends.warm_process", "tamis.backends.forkserver"


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["dedup", "fuzzy", "in", "out"], WARM),
        (["dedup", "exact", "in", "out", "--memory", "1GB"], WARM),
        (["dedup", "fuzzy", "--help"], ""),
        (["dedup", "exact", "in", "out", "--help"], ""),
        (["dedup", "index-list", "in", "out"], ""),
        (["filter", "gopher", "in", "out"], SERVER),
        (["filter", "--list"], ""),
        (["run", "recipe.yaml"], SERVER),
        (["run"], ""),
        (["run", "recipe.yaml", "--executor", "ray"], ""),
        (["curate", "in", "out"], WARM),
        (["curate", "in", "out", "--plan"], ""),
        (["curate", "in", "out", "--executor", "ray"], ""),
        (["curate", "--help"], ""),
        (["images", "in", "out"], WARM),
        (["video", "in", "out"], SERVER),
        (["classify", "model", "in", "out"], SERVER),
        (["plan", "recipe.yaml"], ""),
        ([], ""),
    ],
)
def test_which_commands(args: list[str], wanted: str) -> None:
    assert process_for(args) == wanted


@pytest.mark.parametrize(("command", "name"), [("dedup exact", "tamis-warm"), ("filter fineweb", "tamis-server")])
def test_the_process_is_the_one_that_the_command_uses(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": f"document {i % 50}"}) for i in range(100)]
    (tmp_path / "in/a.jsonl").write_text("\n".join(lines) + "\n")
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "numba.py").write_text("raise SystemExit('a file of the current folder was run')")
    env = {**os.environ, "PYTHONPATH": str(SRC), "TAMIS_TEST_MARK": str(tmp_path)}
    words = [*command.split(), str(tmp_path / "in"), str(tmp_path / "out"), "--json"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tamis.cli.start", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=folder,
    ) as run:
        seen: set[int] = set()
        while run.poll() is None:
            try:
                seen |= {p.pid for p in psutil.Process(run.pid).children() if p.name() == name}
            except psutil.Error:
                pass
            time.sleep(0.01)
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.returncode == 0, run.stderr.read()
        answer = json.loads(run.stdout.read())
        assert answer["n_duplicates"] == 50 if "dedup" in command else answer["status"] == "finished"
    assert len(seen) == 1
    assert gone(tmp_path)


@pytest.mark.parametrize("n_threads", [0, 1])
def test_no_process_is_forked_beside_other_threads(n_threads: int) -> None:
    code = (
        "import threading\n"
        "from tamis.backends.early import prepare, take\n"
        "end = threading.Event()\n"
        f"threads = [threading.Thread(target=end.wait) for _ in range({n_threads})]\n"
        "for thread in threads: thread.start()\n"
        f"prepare({WARM!r})\n"
        f"print(take({WARM!r}) is None)\n"
        "end.set()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{bool(n_threads)}\n", done.stderr


def test_a_command_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with started(
        tmp_path, "dedup", "exact", str(tmp_path / "absent"), str(tmp_path / "out"), "--no-such-option"
    ) as run:
        _, error = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "no-such-option" in error
    assert gone(tmp_path)
    assert not (tmp_path / "out").exists()


DAEMON = """
import os, time
from dataclasses import dataclass
from tamis.stages.base import ProcessingStage

@dataclass
class Daemon(ProcessingStage):
    name: str = "daemon"

    def process(self, task):
        if not os.path.exists("killed") and os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            os._exit(0)
        server = os.getppid()
        if not os.path.exists("killed"):
            open("killed", "w").close()
            time.sleep(0.3)
            os.kill(server, 9)
            time.sleep(600)
        return task
"""


def test_a_server_that_is_killed_leaves_no_daemon_of_a_stage(tmp_path: Path) -> None:
    (tmp_path / "daemons.py").write_text(DAEMON)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "recipe.yaml").write_text(
        "name: daemons\nstages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: in.jsonl\n"
        "  - _target_: daemons.Daemon\n  - _target_: tamis.stages.text.io.writer.JsonlWriter\n    path: out\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{tmp_path}", "TAMIS_TEST_MARK": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli.start", "run", "recipe.yaml", "--allow-module", "daemons", "--quiet"],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=100,
        check=False,
    )
    assert (tmp_path / "killed").exists()
    assert done.returncode == 0, done.stderr
    assert marked(tmp_path) == []


def with_streams(redirected: str, *args: str, module: str = "start") -> tuple[int, str]:
    """Exit code and stderr of a command whose streams a shell redirects."""
    command = f"exec {sys.executable} -m tamis.cli.{module} {' '.join(args)} {redirected}"
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=env, timeout=60, check=False)
    return done.returncode, done.stderr


FULL = (1, "error: what this command prints cannot be written: No space left on device\n")


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["filter", "--list"], ["doctor"]])
def test_what_cannot_be_printed_is_reported_in_a_line_and_by_the_exit_code(args: list[str]) -> None:
    assert with_streams(">/dev/full", *args) == FULL


def test_closed_streams_are_no_error() -> None:
    assert with_streams(">/dev/null", "--version") == (0, "")
    assert with_streams(">&-", "--help") == (0, "")
    assert with_streams("<&- >&- 2>&-", "--help", module="main") == (0, "")
    assert with_streams(">&-", "filter", "--no-such-option")[0] == 2


def test_a_job_without_stdout_is_done_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "some words"}\n' * 3)
    place = [str(tmp_path / "in.jsonl"), str(tmp_path / "out"), "--memory", "400MB", "--quiet"]
    code, told = with_streams("<&- >&-", "dedup", "exact", *place)
    assert code == 0, told
    assert "".join(p.read_text() for p in (tmp_path / "out").glob("*.jsonl")) == '{"text": "some words"}\n'


def test_exit_functions_are_called_before_the_end() -> None:
    code = (
        "import atexit, sys; from tamis.cli import start; sys.argv = ['tamis', 'filter', '--no-such-option'];"
        "atexit.register(print, 'called'); start.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    assert (done.returncode, done.stdout) == (2, "called\n")


def test_a_reader_that_is_gone_is_no_fault_to_tell_of() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli.start", "filter", "--list"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def loaded(*args: str) -> set[str]:
    """Modules of Tamis that a command has imported at its end."""
    code = (
        "import sys\nimport tamis.cli.start as start\n"
        "start._end = lambda code: print(*[m for m in sys.modules if m.startswith('tamis.')], "
        "file=sys.stderr)\nstart.main()"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


# What lists of commands and options follow from: registries, and the declarations of settings.
DECLARATIONS = {
    f"tamis.{module}"
    for module in (
        "errors",
        "terminal",
        "sizes",
        "stores",
        "stores.urls",
        "engine",
        "engine.run",
        "engine.run.settings",
        "engine.run.shard",
        "engine.supervisor",
        "engine.units",
        "backends",
        "backends.registry",
        "_dataclasses",
        "_satellites",
        "dedup",
        "dedup.kinds",
        "formats",
        "formats.compression",
        "formats.compression.codecs",
    )
}


def test_pages_of_help_load_what_prints_them() -> None:
    cli = {f"tamis.cli{m}" for m in ("", ".start", ".main", ".parsing", ".terminal", ".terminal.streams")}
    printing = cli | {f"tamis.cli.parsing.{m}" for m in ("arguments", "options", "help")} | DECLARATIONS
    assert loaded("filter", "--help") - printing <= {"tamis.cli.jobs", "tamis.cli.jobs.filter"}
    rooms = {m.split(".")[1] for m in loaded("--help") - DECLARATIONS}
    assert rooms <= {"cli", "errors", "files", "hints", "secrets", "sizes", "stores", "terminal"}


def test_no_page_of_help_loads_what_its_command_works_with() -> None:
    """All pages in one process: what any of them imports is there at the end."""
    code = (
        "import sys\nfrom tamis.cli.main import app\nfrom tamis.cli.parsing.arguments import Commands\n"
        "def pages(commands, *path):\n"
        "    for name in commands:\n"
        "        app([*path, name, '--help'])\n"
        "        member = commands[name]\n"
        "        if isinstance(member, Commands):\n"
        "            pages(member, *path, name)\n"
        "pages(app)\n"
        "print(*[m for m in sys.modules if m.startswith('tamis.')], file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.count("usage: tamis")) == (0, done.stdout.count("Show this page.")), (
        done.stderr
    )
    assert "usage: tamis profile show" in done.stdout
    rooms = {module.split(".")[1] for module in set(done.stderr.split()) - DECLARATIONS}
    assert rooms <= {"cli", "errors", "files", "hints", "secrets", "sizes", "stores", "terminal"}
