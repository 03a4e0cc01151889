"""tamis doctor: complete, plain JSON, and useful advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.doctor import command as doctor
from tamis.cli.main import app
from tamis.memory.machine import filesystem
from tamis.memory.nvml import NvmlError
from tests.support.cli_runner import CliRunner


def test_json_has_every_part() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--memory", "2GB"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["budget"]["bytes"] == 2_000_000_000
    assert {"limits", "disk", "gpus", "dependencies", "extras", "kernels", "advice", "python"} <= found.keys()
    assert found["limits"]["n_cores"] >= 1
    assert [disk["what"] for disk in found["disk"]] == ["working folder", "scratch"]


def test_text_says_how_the_budget_is_enforced() -> None:
    result = CliRunner().invoke(app, ["doctor", "--memory", "2GB"])
    assert result.exit_code == 0, result.output
    assert "Memory budget: 2 GB" in result.output
    assert "RLIMIT_DATA" in result.output
    assert "watchdog" in result.output
    assert "cgroup" not in result.output.partition("Limits")[0]  # none is made


def test_a_wrong_size_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["doctor", "--memory", "lots"])
    assert result.exit_code == 2
    assert "'lots'" in result.stderr


def test_filesystem_of_a_path(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("d / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\nx /tmp/a\\040b xfs rw 0 0\n")
    kinds = [filesystem(Path(p), str(mounts)) for p in ("/home", "/tmp/x", "/tmp/a b/c", "/tmpfoo")]
    assert kinds == ["ext4", "tmpfs", "xfs", "ext4"]
    assert filesystem(Path("/"), str(tmp_path / "none")) == "unknown"


def test_scratch_that_does_not_exist_yet(tmp_path: Path) -> None:
    rows = doctor.disks(tmp_path / "a" / "b")
    assert rows[1]["path"] == str(tmp_path / "a" / "b")
    assert rows[1]["total_bytes"] > 0


def test_gpus_from_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.memory.nvml._LIBRARY", "libthat-is-not-there.so")
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "information").write_text("Model: \t NVIDIA X1\nIRQ: 1\n")
    assert doctor.gpus(tmp_path) == [{"name": "NVIDIA X1", "memory_bytes": None}]
    assert doctor.gpus(tmp_path / "none") == []

    class Lost:
        """A driver that has lost its GPU."""

        def devices(self) -> list[int]:
            raise NvmlError("nvmlDeviceGetHandleByIndex_v2: error 15")

        def close(self) -> None:
            pass

    monkeypatch.setattr("tamis.memory.nvml.Nvml", Lost)
    assert doctor.gpus(tmp_path)[0]["name"] == "NVIDIA X1"


def test_packages_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [
        "pytest>=8",
        "nosuchpackage-a>=1",
        "pytest>=8; extra == 'fine'",
        'nosuchpackage-b[x]>=2; extra == "broken"',
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: declared)
    found = doctor.packages()
    assert found["dependencies"]["pytest"] == pytest.__version__
    assert found["dependencies"]["nosuchpackage-a"] is None
    assert found["extras"] == {
        "fine": {"installed": True, "missing": []},
        "broken": {"installed": False, "missing": ["nosuchpackage-b"]},
    }


def test_advice() -> None:
    found: dict[str, Any] = {
        "dependencies": {"numpy": "2.0", "xxhash": None},
        "kernels": {"ready": False, "cache_dir": None},
        "disk": [{"what": "scratch", "path": "/s", "filesystem": "tmpfs", "free_bytes": 10**9}],
    }
    assert doctor.advice(found) == [
        "missing: xxhash; run: pip install xxhash",
        "no folder for compiled kernels is writable, so every run compiles them; set TAMIS_CACHE_DIR to one that is",
        "scratch /s is tmpfs: what is written there is memory and counts against the budget",
        "scratch /s has only 1 GB free",
    ]
    found = {"dependencies": {"a": "1"}, "kernels": {"ready": True, "cache_dir": None}, "disk": []}
    assert doctor.advice(found) == []
