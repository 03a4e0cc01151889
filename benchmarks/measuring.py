"""Measure a command with its whole process tree, by the shared tool or by a small sampler."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tamis.memory import meter

SHARED = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[2] / "shared"))
TOOL = SHARED / "tools" / "measure.py"
TAMIS = str(Path(sys.executable).with_name("tamis"))  # the command of the environment that this runs in


def measure(
    command: list[str], timeout_s: float = 900, env: dict[str, str] | None = None, pss_interval_s: float = 0.1
) -> dict[str, Any]:
    """wall_s, cpu_s, peak_pss_mb, rc, and what the command printed last, as JSON, under "said".

    Modules are compiled once, as where they are installed, whatever the environment says.
    """
    env = {k: v for k, v in (os.environ if env is None else env).items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.NamedTemporaryFile() as log:
        if TOOL.exists():
            tool = [
                sys.executable,
                str(TOOL),
                "--interval",
                "0.05",
                "--pss-interval",
                str(pss_interval_s),
                "--timeout",
                str(timeout_s),
                "--log",
                log.name,
            ]
            out = subprocess.run([*tool, "--", *command], capture_output=True, text=True, check=True, env=env).stdout
            result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        else:
            result = _sample(command, log.name, timeout_s, env)
        text = Path(log.name).read_text(errors="replace").strip()
    last = text.splitlines()[-1] if text else ""
    if last == "}" and "{\n" in text:  # an object over several lines
        last = text[text.index("{\n") :]
    try:
        result["said"] = json.loads(last)
    except ValueError:
        result["said"] = {"error": text[-500:]}
    return result


def _sample(command: list[str], log: str, timeout_s: float, env: dict[str, str] | None) -> dict[str, Any]:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = 0
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        while process.poll() is None:
            peak = max(peak, meter.tree_pss([process.pid, *meter.descendants(process.pid)]))
            if time.monotonic() - began > timeout_s:
                process.kill()
            time.sleep(0.1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "cpu_s": round(cpu, 2),
        "peak_pss_mb": round(peak / 1e6, 1),
        "rc": process.returncode,
    }
