"""`tamis doctor`: what this machine offers, what Tamis will enforce and how, what is installed."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

from tamis.cli.parsing.arguments import CommandExit, Option
from tamis.errors import TamisError
from tamis.stores.urls import is_bucket

_LOW_DISK_BYTES = 5 * 10**9
_LEGS = {
    "RLIMIT_DATA": "each worker has a cap (RLIMIT_DATA, moved while it runs): an allocation beyond it fails at once",
    "watchdog": "a watchdog reads the memory of every process many times a second and stops workers before the budget "
    "is reached",
    "gate": "shared memory, mapped files and children of a stage wait for the supervisor's yes (seccomp) and count in "
    "the worker's cap",
}


def doctor(
    memory: Annotated[str | None, Option(help="Check this budget instead of the one found.")] = None,
    scratch: Annotated[
        str | None, Option(metavar="DIR", help="The scratch folder, or s3://bucket/path, that you mean to use.")
    ] = None,
    check_script: Annotated[
        Path | None,
        Option(
            help="A script, notebook or YAML recipe for NeMo Curator: say what of it works here. It is read, never run."
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Show memory limits, cores, disk, GPUs, installed extras, and what will be enforced.

    With --check-script it lists every import and parameter of NeMo Curator in a script, what behaves otherwise, and
    what to use for what is not here; exit code 1 if there is any.

    Example: tamis doctor --memory 2GB
    """
    from tamis.cli.terminal.show import print_json

    if check_script is not None:
        _check_script(check_script, as_json)
        return
    report = examine(memory, scratch)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _check_script(path: Path, as_json: bool) -> None:
    from tamis.cli.doctor.script_check import MISSING, check_script
    from tamis.cli.terminal.show import print_json, print_lines, print_table

    uses = check_script(path)
    counts = uses["counts"]
    if as_json:
        print_json(uses)
    elif not uses["findings"]:
        print_lines([f"{path} imports nothing of nemo_curator or tamis"])
    else:
        rows = [(str(f["line"]), f["what"], f["verdict"], f["note"]) for f in uses["findings"]]
        print_table(f"{path}", ["line", "use", "here", "note"], rows)
        print_lines([", ".join(f"{n} {verdict}" for verdict, n in counts.items())])
        if not counts[MISSING]:
            print_lines(["Replace nemo_curator by tamis, and run it."])
    if counts[MISSING]:
        raise CommandExit(1)


def examine(memory: str | None = None, scratch: str | None = None) -> dict[str, Any]:
    """Collect everything that `tamis doctor` reports, as plain JSON values."""
    from tamis import __version__
    from tamis.memory.budget import describe_limits, find_budget

    budget = find_budget(memory, os.environ)
    report: dict[str, Any] = {
        "tamis": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "budget": {"bytes": budget.bytes, "source": budget.source, "why": budget.why},
        "limits": describe_limits(),
        "disk": disks(scratch),
        "gpus": gpus(),
        **packages(),
        "kernels": kernels(),
    }
    report["advice"] = advice(report) + bucket_advice(scratch)
    return report


def bucket_advice(scratch: str | None) -> list[str]:
    """Return what is wrong with a scratch location in a bucket.

    The bucket is tested by writing and removing one object there. Raise UsageError if `scratch` cannot be such
    a location.
    """
    if scratch is None or "://" not in scratch:
        return []
    from tamis.stores.scratch_files import check_writable, new_scratch_url

    url = new_scratch_url(scratch, "tamis-")
    try:
        check_writable(url)
    except TamisError as exc:
        return [f"scratch: {exc}"]
    return []


def disks(scratch: str | None) -> list[dict[str, Any]]:
    """Return the disks of the working folder and of the scratch folder.

    The disk of a scratch location in a bucket is unknown; the output's disk holds the data on its way to the
    bucket.
    """
    from tamis.memory.machine import filesystem

    rows = []
    places: list[tuple[str, Path | None]] = [
        ("working folder", Path.cwd()),
        ("scratch", Path(scratch) if scratch else None),
    ]
    if scratch is None or is_bucket(scratch):
        with contextlib.suppress(FileNotFoundError):  # none can be written to; `advice` says so
            places[-1] = ("scratch" if scratch is None else "temporary files", Path(tempfile.gettempdir()))
    for what, path in places:
        if path is None:
            continue
        folder = path.absolute()
        while not folder.exists():
            folder = folder.parent
        usage = shutil.disk_usage(folder)
        kind = filesystem(folder)
        rows.append(
            {"what": what, "path": str(path), "free_bytes": usage.free, "total_bytes": usage.total, "filesystem": kind}
        )
    return rows


def gpus(proc: Path = Path("/proc/driver/nvidia/gpus")) -> list[dict[str, Any]]:
    """Return NVIDIA GPUs: from the driver's library, else their names from /proc."""
    from tamis.memory.nvml import Nvml, NvmlError

    # No driver, or a GPU that it lost.
    with contextlib.suppress(NvmlError, OSError), contextlib.closing(Nvml()) as nvml:
        return [{"name": nvml.name(d), "memory_bytes": nvml.memory(d)[1]} for d in nvml.devices()]
    return [{"name": _model(path), "memory_bytes": None} for path in sorted(proc.glob("*/information"))]


def _model(information: Path) -> str:
    match = re.search(r"^Model:\s*(.+)$", information.read_text(errors="replace"), re.MULTILINE)
    return match.group(1).strip() if match else "NVIDIA GPU"


def packages() -> dict[str, Any]:
    """Return the versions of the core dependencies, and per extra the missing ones, as the package declares them."""
    from importlib.metadata import PackageNotFoundError, requires, version

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    try:
        declared = requires("tamis") or []
    except PackageNotFoundError:
        declared = []
    core: dict[str, str | None] = {}
    extras: dict[str, dict[str, Any]] = {}
    for line in declared:
        match = re.match(r"([A-Za-z0-9._-]+)", line)
        if match is None:
            continue
        name = match.group(1)
        extra = re.search(r"extra\s*==\s*[\"']([^\"']+)[\"']", line)
        if extra is None:
            core[name] = installed(name)
        else:
            state = extras.setdefault(extra.group(1), {"installed": True, "missing": []})
            if installed(name) is None:
                state["missing"].append(name)
                state["installed"] = False
    return {"dependencies": core, "extras": extras}


def kernels() -> dict[str, Any]:
    """Return the CPU level of the loaded kernels, whether they are ready, and where a checkout caches its own."""
    from tamis.kernels.loading import cache, levels, library
    from tamis.kernels.loading.library import all_groups

    if levels.runs_python():
        return {"level": levels.PYTHON, "ready": True, "cache_dir": None}
    level = levels.this_level().name
    folder = cache.new_folder(level)
    return {
        "level": level,
        "ready": library.are_ready(all_groups()),
        "cache_dir": None if folder is None else str(folder),
    }


def advice(report: dict[str, Any]) -> list[str]:
    """Return the remedies to suggest to the user for these findings."""
    from tamis.sizes import format_size

    lines = []
    missing = [name for name, version in report["dependencies"].items() if version is None]
    if not report["dependencies"]:
        lines.append("tamis is not installed as a package; run: pip install -e .")
    if missing:
        lines.append(f"missing: {', '.join(missing)}; run: pip install {' '.join(missing)}")
    if not report["kernels"]["ready"] and report["kernels"]["cache_dir"] is None:
        lines.append(
            "no folder for compiled kernels is writable, so every run compiles them; set TAMIS_CACHE_DIR to one that is"
        )
    elif not report["kernels"]["ready"]:
        lines.append(
            "kernels were edited, or there are none for this CPU: the first run compiles them, or run: python -m "
            "tamis.kernels.compile"
        )
    if report["disk"] and not any(disk["what"] in ("scratch", "temporary files") for disk in report["disk"]):
        lines.append("no folder for temporary files can be written to; set TMPDIR to one that can")
    for disk in report["disk"]:
        if disk["filesystem"] == "tmpfs":
            lines.append(
                f"{disk['what']} {disk['path']} is tmpfs: what is written there is memory and counts against the budget"
            )
        if disk["free_bytes"] < _LOW_DISK_BYTES:
            lines.append(f"{disk['what']} {disk['path']} has only {format_size(disk['free_bytes'])} free")
    return lines


def _print(report: dict[str, Any]) -> None:
    from tamis.cli.terminal.show import print_lines, print_table
    from tamis.sizes import format_size

    print_lines([f"tamis {report['tamis']}, Python {report['python']}, {report['platform']}", ""])
    print_lines([f"Memory budget: {format_size(report['budget']['bytes'])}. {report['budget']['why']}", ""])
    limits = dict(report["limits"])
    legs = limits.pop("enforcement", [])
    print_lines(["How it is enforced:", *(f"* {_LEGS.get(leg, leg)}" for leg in legs), ""])
    rows = [(key.replace("_bytes", "").replace("_", " "), _value(key, value)) for key, value in _flat(limits)]
    print_table("Limits", ["limit", "value"], rows)
    print_table(
        "Disk",
        ["", "folder", "free", "of", "type"],
        [
            (d["what"], d["path"], format_size(d["free_bytes"]), format_size(d["total_bytes"]), d["filesystem"])
            for d in report["disk"]
        ],
        right=(2, 3),
    )
    if report["gpus"]:
        print_table(
            "GPUs", ["name", "memory"], [(g["name"], _value("memory_bytes", g["memory_bytes"])) for g in report["gpus"]]
        )
    else:
        print_lines(["GPUs: none", ""])
    versions = ", ".join(f"{name} {version or 'MISSING'}" for name, version in report["dependencies"].items())
    print_lines([f"Dependencies: {versions or 'unknown'}", ""])
    extras = [
        (name, "yes" if state["installed"] else "no", "" if state["installed"] else f"pip install 'tamis[{name}]'")
        for name, state in sorted(report["extras"].items())
    ]
    if extras:
        print_table("Extras (in a checkout: pip install '.[NAME]')", ["extra", "installed", "to install"], extras)
    state = "ready" if report["kernels"]["ready"] else "not compiled yet"
    print_lines([f"Kernels: {state}, for {report['kernels']['level']}"])
    print_lines(f"* {line}" for line in report["advice"])


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key} ") if isinstance(value, dict) else [(prefix + key, value)]
    return rows


def _value(key: str, value: Any) -> str:
    from tamis.sizes import format_size

    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if "bytes" in key and isinstance(value, int):
        return format_size(value)
    if isinstance(value, dict):
        return " ".join(_value(name, item) for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(_value(key, item) for item in value) or "none"
    return str(value)
