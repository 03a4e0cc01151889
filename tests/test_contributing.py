"""The guides of CONTRIBUTING.md run: their diffs apply to a copy of the sources, their programs pass there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
GUIDES: dict[str, str] = dict(re.findall(r"^### (Add [^\n]+|Change [^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
# What a newcomer most often adds; each has a guide.
EXPECTED = [
    "filter in Python",
    "filter with a new statistic",
    "format",
    "compression",
    "kind of deduplication",
    "run option",
    "field of the report",
    "alert",
    "model architecture",
    "executor",
]


def test_every_usual_change_has_a_guide() -> None:
    assert [name for name in EXPECTED if not any(name in title for title in GUIDES)] == []


@pytest.mark.parametrize("title", GUIDES)
def test_a_guide_runs_as_it_stands(title: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall(GUIDES[title])
    assert blocks, "a guide shows code"
    source = ROOT / "src"
    if any(kind == "diff" for kind, _ in blocks):
        source = tmp_path / "src"
        shutil.copytree(ROOT / "src", source)  # with its bytecode: each copy would be compiled anew
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    lines = [json.dumps({"id": i, "text": "word " * i, "url": f"https://example.org/{i // 2}"}) for i in range(10)]
    (work / "data" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (work / "data" / "b.jsonl").write_text(
        '{"id": 10, "text": null}\n{"id": 11, "text": "the last one of these documents"}\n'
    )
    # Kernels of the copy are interpreted: compiling them takes a minute and is tested elsewhere.
    kernels = {"TAMIS_KERNELS": "python"} if "src/tamis/kernels" in GUIDES[title] else {}
    env = {**os.environ, "PYTHONPATH": str(source), "TAMIS_PROFILES": "off", **kernels}

    def call(*command: str, text: str | None = None, cwd: Path = work) -> None:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=env, cwd=cwd, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    for i, (kind, text) in enumerate(blocks):
        name = re.match(r"# ([\w/]+\.py)\n", text)
        if kind == "diff":
            call("git", "apply", "--whitespace=nowarn", "-", text=text, cwd=tmp_path)
        elif kind == "python" and name is not None:  # a module that the next blocks use
            (work / name[1]).parent.mkdir(exist_ok=True)
            (work / name[1]).write_text(text)
        elif kind == "python":
            (work / f"block{i}.py").write_text(text)
            call(sys.executable, f"block{i}.py")
        elif kind == "console":
            for line in re.findall(r"^\$ tamis (.*)$", text, re.M):
                call(sys.executable, "-m", "tamis.cli.start", *line.split())
