"""Build a release, check it in a bare environment, and print the figures: `make release`.

    python tools/release.py [--out dist] [--levels all]

The wheel is built from the sdist, so that the sdist is known to be complete, with kernels for all CPU levels. Then the
wheel is installed into a new environment without the network (what it depends on is downloaded before), where a first
curation runs. Exit code 1 if a file has another version than `tamis.__version__`, if the changelog does not begin with
that version, if kernels are missing from the wheel or are compiled at the first run, or if installing or running takes
longer than `LIMITS` in the best of three attempts (seconds of the clock, or of the CPU where a busy machine makes them
more).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"install": 10.0, "first run": 1.0}
ATTEMPTS = 3
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HEADING = re.compile(r"^## \[?([^\]\s]+)\]?", re.MULTILINE)
_CLEARED = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "PIP_REQUIRE_VIRTUALENV")


class Wrong(Exception):
    """A release that must not be published."""


def source_version(root: Path) -> str:
    """Return the version of the sources; raise Wrong if the changelog begins with another."""
    match = _VERSION.search((root / "src/tamis/__init__.py").read_text(encoding="utf-8"))
    if match is None:
        raise Wrong("src/tamis/__init__.py has no __version__")
    heading = _HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if heading is None or heading[1] != match[1]:
        raise Wrong(f"CHANGELOG.md begins with {heading[1] if heading else 'no version'}, the package is {match[1]}")
    return match[1]


def check_sdist(path: Path, version: str) -> None:
    """Check the name of an sdist and that it has what a build reads, and nothing that is built."""
    if path.name != f"tamis-{version}.tar.gz":
        raise Wrong(f"{path.name} is not version {version}")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "src/tamis/__init__.py")
    if missing := [name for name in needed if name not in names]:
        raise Wrong(f"{path.name} lacks {', '.join(missing)}")
    if built := sorted(name for name in names if name.endswith((".so", ".pyc")) or "/built/" in name):
        raise Wrong(f"{path.name} has compiled files, such as {built[0]}")


def check_wheel(path: Path, version: str, levels: Sequence[str], n_groups: int) -> None:
    """Check the name of a wheel, its tags, and that it has every group of kernels for every CPU level."""
    if not path.name.startswith(f"tamis-{version}-py3-none-manylinux"):
        raise Wrong(f"{path.name} is not a wheel of version {version} for any Python on manylinux")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for level in levels:
        n = sum(f"kernels/built/{level}/" in name and name.endswith(".so") for name in names)
        if n != n_groups:
            raise Wrong(f"{path.name} has {n} of {n_groups} groups of kernels for {level}")


def seconds_of(command: Sequence[str | Path], folder: Path, env: dict[str, str]) -> float:
    """Run a command to its end and return its seconds, of the clock or of the CPU, whichever are fewer.

    Raise Wrong with its output if it fails.
    """
    began_s, cpu_s = time.perf_counter(), _cpu_of_children()
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return min(time.perf_counter() - began_s, _cpu_of_children() - cpu_s)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(out: Path, levels: str, folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheel into `out`; return their paths."""
    machine = platform.machine()
    env = {**os.environ, "TAMIS_BUILD_LEVELS": levels, "TAMIS_BUILD_PLATFORM": f"manylinux_2_17_{machine}"}
    shutil.rmtree(ROOT / "build" / "kernels", ignore_errors=True)
    built = folder / "built"
    took_s = seconds_of([sys.executable, "-m", "build", "-o", built, ROOT], folder, env)
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    print(f"built {sdist.name} ({_size(sdist)}) and {wheel.name} ({_size(wheel)}) in {took_s:.0f} CPU seconds")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(sdist, out)), Path(shutil.copy(wheel, out))


def check_bare(wheel: Path, version: str, folder: Path) -> dict[str, float]:
    """Install a wheel into new environments without network and cache, and curate; return the best seconds of each."""
    env = {key: value for key, value in os.environ.items() if key not in _CLEARED and not key.startswith("TAMIS_")}
    wheels = folder / "wheels"
    seconds_of([sys.executable, "-m", "pip", "download", "-q", "-d", wheels, wheel], folder, env)
    sizes = [path.stat().st_size for path in wheels.iterdir()]
    print(f"downloads: {sum(sizes) / 1e6:.0f} MB in {len(sizes)} files")
    best: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        place = folder / f"bare-{attempt}"
        (place / "home").mkdir(parents=True)
        bare = {**env, "HOME": str(place / "home"), "PIP_CACHE_DIR": str(place / "pip")}
        bare |= {"XDG_CACHE_HOME": str(place / "home/.cache"), "PATH": f"{place / 'venv/bin'}:{os.environ['PATH']}"}
        seconds_of([sys.executable, "-m", "venv", place / "venv"], place, bare)
        bin_ = place / "venv/bin"
        pip = [bin_ / "python", "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels]
        figures = {"install": seconds_of([*pip, wheels / wheel.name], place, bare)}
        shown = subprocess.run([bin_ / "tamis", "--version"], env=bare, capture_output=True, text=True, check=True)
        if shown.stdout.strip() != f"tamis {version}":
            raise Wrong(f"tamis --version prints {shown.stdout.strip()!r}, expected 'tamis {version}'")
        (place / "data").mkdir()
        lines = [json.dumps({"id": str(i), "text": f"Sentence {i} of a small corpus. " * 9}) for i in range(200)]
        (place / "data/a.jsonl").write_text("\n".join(lines) + "\n")
        command = [bin_ / "tamis", "curate", "data", "clean", "--memory", "512MB", "--quiet"]
        figures["first run"] = seconds_of(command, place, bare)
        if compiled := list(place.rglob("home/**/*.so")):
            raise Wrong(f"the first run compiled kernels: {compiled[0].name}")
        best = {name: min(s, best.get(name, s)) for name, s in figures.items()}
        shutil.rmtree(place)
    return best


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--levels", default="all", help="CPU levels, as TAMIS_BUILD_LEVELS takes them")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    from tamis.kernels.loading import library
    from tamis.kernels.loading.levels import LEVELS

    own = [level.name for level in LEVELS if level.machine == platform.machine()]
    try:
        version = source_version(ROOT)
        with tempfile.TemporaryDirectory(prefix="tamis-release-") as name:
            sdist, wheel = build(options.out.resolve(), options.levels, Path(name))
            check_sdist(sdist, version)
            check_wheel(
                wheel, version, own if options.levels == "all" else options.levels.split(","), len(library.all_groups())
            )
            figures = check_bare(wheel, version, Path(name))
        for what, limit_s in LIMITS.items():
            print(f"{what}: {figures[what]:.1f} s (limit {limit_s:g} s)")
        if slow := [what for what, limit_s in LIMITS.items() if figures[what] > limit_s]:
            raise Wrong(f"{' and '.join(slow)} took too long, also in the best of {ATTEMPTS} attempts")
    except Wrong as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    print(f"tamis {version} is ready: {sdist} {wheel}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
