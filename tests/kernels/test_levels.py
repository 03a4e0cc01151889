"""Which compiled kernels a CPU gets: by its flags, by TAMIS_KERNELS, and that those of every level give the same."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import tamis
from tamis.errors import UsageError
from tamis.kernels.loading import levels
from tamis.kernels.loading.library import all_groups

SOURCE = str(Path(tamis.__file__).resolve().parents[1])
# As /proc/cpuinfo shows them: a Nehalem of 2008, a Haswell of 2013, a Skylake server of 2017, an EPYC of 2022.
NEHALEM = "fpu cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2 sse2"
HASWELL = NEHALEM + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
SKYLAKE = HASWELL + " avx512f avx512bw avx512cd avx512dq avx512vl"
EPYC = SKYLAKE + " avx512vbmi avx512_vbmi2 avx512_bitalg sha_ni"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(NEHALEM, "x86-64-v2"), (HASWELL, "x86-64-v3"), (SKYLAKE, "x86-64-v4"), (EPYC, "x86-64-v4-vbmi2")],
)
def test_the_best_level_that_a_cpu_can_run(flags: str, expected: str) -> None:
    assert levels.chosen("x86_64", flags.split()).name == expected


@pytest.mark.parametrize("masked", ["avx2", "bmi2", "fma"])
def test_a_cpu_without_avx2_or_the_like_gets_what_it_can_run(masked: str) -> None:
    flags = set(EPYC.split()) - {masked}
    assert levels.chosen("x86_64", flags).name == "x86-64-v2"


def test_a_lower_level_can_be_requested_and_a_higher_one_is_refused() -> None:
    assert levels.chosen("x86_64", EPYC.split(), "x86-64-v2").name == "x86-64-v2"
    with pytest.raises(
        UsageError,
        match=r"this CPU cannot run those for x86-64-v4 \(it lacks avx512bw, .*it can run: x86-64-v3, x86-64-v2",
    ):
        levels.chosen("x86_64", HASWELL.split(), "x86-64-v4")
    with pytest.raises(UsageError, match=r"TAMIS_KERNELS: expected 'python' or a CPU level .* got 'fast'"):
        levels.chosen("x86_64", EPYC.split(), "fast")


def test_a_cpu_without_any_level_is_described() -> None:
    with pytest.raises(UsageError, match=r"none for this CPU \(riscv64\).*TAMIS_KERNELS=python"):
        levels.chosen("riscv64", [])
    assert levels.chosen("aarch64", []).name == "aarch64"


def test_flags_are_those_of_the_first_cpu(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor : 0\nflags\t\t: {HASWELL}\n\nprocessor : 1\nflags\t\t: {EPYC}\n")
    assert levels.cpu_flags(str(path)) == frozenset(HASWELL.split())
    assert levels.chosen("x86_64", levels.cpu_flags(str(tmp_path / "absent"))).name == "x86-64-v2"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", [level.name for level in levels.runnable(platform.machine(), levels.cpu_flags())[1:]])
def test_every_kernel_gives_the_same_at_every_level(level: str, tmp_path: Path) -> None:
    """Compares with this CPU's own level, which the twins are compared with in all other tests."""
    settings = {**os.environ, "PYTHONPATH": SOURCE, "TAMIS_CACHE_DIR": str(tmp_path / "cache"), "TAMIS_KERNELS": level}
    command = [sys.executable, "-m", "tamis.kernels.compile", "--jobs", "2", "--level", level]
    subprocess.run(command, env=settings, check=True, capture_output=True)
    found = {}
    for how in (level, ""):
        environment = {**settings, "TAMIS_KERNELS": how} if how else {**os.environ, "PYTHONPATH": SOURCE}
        script = str(Path(__file__).with_name("every_kernel.py"))
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        found[how] = json.loads(done.stdout)
    assert len(all_groups()) == 3
    assert found[level]["not called"] == []
    assert found[level]["found"] == found[""]["found"]
