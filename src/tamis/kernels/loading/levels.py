"""CPU levels: the instruction sets that there are compiled kernels for, and those that this CPU can run.

Pure but for `cpu_flags`. The levels v2, v3 and v4 are those of the x86-64 psABI; the highest one adds the byte
compression that all CPUs with AVX-512 since Ice Lake and Zen 4 have, and which unescaping and word splitting are
written for. Other CPUs have one level.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from dataclasses import dataclass

from tamis.errors import UsageError


@dataclass(frozen=True)
class CpuLevel:
    """`flags`: as /proc/cpuinfo names what a CPU must have; `cpu` and `features`: the same to LLVM."""

    name: str
    machine: str
    flags: frozenset[str]
    cpu: str
    features: str = ""


_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VBMI2 = _V4 | {"avx512vbmi", "avx512_vbmi2"}

LEVELS = (  # the best first
    CpuLevel("x86-64-v4-vbmi2", "x86_64", _VBMI2, "x86-64-v4", "+avx512vbmi,+avx512vbmi2"),
    CpuLevel("x86-64-v4", "x86_64", _V4, "x86-64-v4"),
    CpuLevel("x86-64-v3", "x86_64", _V3, "x86-64-v3"),
    CpuLevel("x86-64-v2", "x86_64", _V2, "x86-64-v2"),
    CpuLevel("aarch64", "aarch64", frozenset(), "generic"),
)
PYTHON = "python"  # TAMIS_KERNELS=python: no compiled kernels at all


def named(name: str) -> CpuLevel:
    for level in LEVELS:
        if level.name == name:
            return level
    raise UsageError(
        f"TAMIS_KERNELS: expected 'python' or a CPU level ({', '.join(level.name for level in LEVELS)}), got {name!r}"
    )


def runnable(machine: str, flags: Collection[str]) -> list[CpuLevel]:
    """Return the levels that a CPU with these flags can run, the best first.

    >>> [level.name for level in runnable("x86_64", _V3)]
    ['x86-64-v3', 'x86-64-v2']
    >>> runnable("x86_64", {"sse2"})
    []
    """
    return [level for level in LEVELS if level.machine == machine and level.flags <= set(flags)]


def chosen(machine: str, flags: Collection[str], asked: str = "") -> CpuLevel:
    """Return the level whose kernels are to be loaded: the best one, or the one requested."""
    can = runnable(machine, flags)
    if not asked and can:
        return can[0]
    if asked and named(asked) in can:
        return named(asked)
    lacks = "" if not asked else f" (it lacks {', '.join(sorted(named(asked).flags - set(flags))) or machine})"
    problem = f"this CPU cannot run those for {asked}" if asked else f"there are none for this CPU ({machine})"
    raise UsageError(
        f"kernels: {problem}{lacks}; it can run: {', '.join(level.name for level in can) or 'none'}. "
        "TAMIS_KERNELS=python runs them without compiling, slowly"
    )


def this_level() -> CpuLevel:
    """Return the level for this process, determined by TAMIS_KERNELS and the CPU."""
    return chosen(platform.machine(), cpu_flags(), os.environ.get("TAMIS_KERNELS", ""))


def runs_python() -> bool:
    """Return True if kernels are to run as the Python functions they are written as.

    Slow, but every step can be inspected.
    """
    return os.environ.get("TAMIS_KERNELS") == PYTHON


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the features that the first CPU has and the system enables.

    Without the file, returns those that every CPU of a current Linux distribution has.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file.read(20_000).splitlines():  # hundreds of CPUs would be a megabyte
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return _V2
