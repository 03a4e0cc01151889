"""Compiling a group of kernels in a copy of the package without others: stored, tried before use, found again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tamis.kernels
from tamis.errors import BudgetError, install_command
from tamis.kernels.building import link
from tamis.kernels.loading.library import HERE, all_groups, module_names

KERNELS = """
from tamis.kernels.language import types
from tamis.kernels.language.jit import helper, kernel

@helper
def twice(x):
    return 2 * x

@kernel(
    types.void(
        *(types.F64_OUT, types.boolean, types.uint8, types.uint16),
        *(types.uint32, types.uint64, types.int32, types.int64),
        *(types.float32, types.float64, types.U16_IN, types.I32_IN),
    )
)
def collect(out, a, b, c, d, e, f, g, h, i, words, numbers):
    out[0], out[1], out[2], out[3], out[4] = a, twice(b), twice(c), twice(d), e
    out[5], out[6], out[7], out[8] = twice(f), twice(g), twice(h), twice(i)
    out[9], out[10], out[11] = words[words.size - 1], numbers[0], numbers.size

@kernel(types.boolean(types.int64))
def is_odd(x):
    return x % 2 == 1

@kernel(types.int64(types.int64))
def minus(x):
    return -x
"""
CALLS = """
import numpy as np
from tamis.kernels.probe.all import collect, is_odd, minus
out, words, numbers = np.zeros(12), np.array([7, 65535], np.uint16), np.array([-5, 6, 7], np.int32)
collect(out, True, 200, 60000, 4_000_000_000, 1 << 63, -7, -(1 << 40), 0.5, -1.25, words, numbers)
print(out.tolist(), is_odd(3), is_odd(4), minus(1 << 62), minus(-3))
"""
NUMBERS = [1, 400, 120000, 8e9, 2.0**63, -14, -(2.0**41), 1.0, -2.5, 65535, -5, 3]
ANSWER = f"{[float(x) for x in NUMBERS]} True False {-(1 << 62)} 3\n"
SAYS = "compiling 3 kernels for this CPU, which were edited or not built for it: once, about 2 s ...\n"
NEEDED = ("__init__", "compile", "building/*", "loading/*", "language/__init__", "language/jit", "language/types")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    kernels = tmp_path / "package" / "tamis" / "kernels"
    (kernels / "probe").mkdir(parents=True)
    (kernels.parent / "__init__.py").write_text("")
    for name in ("errors", "files"):
        (kernels.parent / f"{name}.py").write_text((HERE.parent / f"{name}.py").read_text())
    for source in [source for pattern in NEEDED for source in HERE.glob(f"{pattern}.py")]:
        copy = kernels / source.relative_to(HERE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(source.read_text())
    (kernels / "probe" / "__init__.py").write_text("")
    (kernels / "probe" / "all.py").write_text(KERNELS)
    return tmp_path / "package"


def run(package: Path, base: Path, *arguments: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "TAMIS_CACHE_DIR": str(base)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_compiled_at_first_use_and_kept(package: Path, tmp_path: Path) -> None:
    """Every kind of number arrives; a damaged file is compiled again; edited kernels are noticed."""
    base = tmp_path / "cache"
    assert run(package, base, "-c", CALLS) == (0, ANSWER, SAYS)
    assert run(package, base, "-c", CALLS) == (0, ANSWER, "")
    (path,) = base.glob("kernels-*/probe-*.so")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert run(package, base, "-c", CALLS) == (0, ANSWER, SAYS)
    assert path.read_bytes() == data  # the same sources give the same bytes
    source = package / "tamis" / "kernels" / "probe" / "all.py"
    source.write_text(source.read_text().replace("return -x", "return 1000 - x"))
    assert run(package, base, "-c", CALLS)[1].endswith(f"{1000 - (1 << 62)} 1003\n")


def test_without_a_usable_folder_kernels_still_work(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(package, tmp_path / "file", "-c", CALLS) == (0, ANSWER, SAYS)
    status, _, says = run(package, tmp_path / "file", "-m", "tamis.kernels.compile", "probe")
    assert status == 1
    assert "set TAMIS_CACHE_DIR to a folder of your own" in says


def test_code_that_gives_a_wrong_answer_is_not_used(package: Path, tmp_path: Path) -> None:
    """Another process calls it first, and what it rejects is not there afterwards."""
    canary = package / "tamis" / "kernels" / "loading" / "canary.py"
    canary.write_text(canary.read_text() + "\n_records = _text = _sketch = lambda: (1, 2)\n")
    text = canary.read_text().replace('"text": _text', '"probe": lambda: (1, 2)')
    canary.write_text(text)
    status, _, says = run(package, tmp_path / "cache", "-c", CALLS)
    assert status == 1
    assert "the compiled library of group 'probe' is invalid" in says
    assert "answers 1, expected 2" in says
    assert list((tmp_path / "cache").glob("kernels-*/*")) == []


def test_what_cannot_be_compiled_says_why(package: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "import sys; from tamis.kernels import compile\n"
        "import os; os.environ.update(compile.environment(compile.this_level())); sys.exit(compile.main(['probe']))"
    )
    status, _, says = run(package, tmp_path / "cache", "-c", code)
    assert (status, says) == (1, f"kernels: compiling them needs numba: {install_command('compile')}\n")
    source = package / "tamis" / "kernels" / "probe" / "all.py"
    source.write_text(source.read_text().replace("return -x", "return -x.nothing"))
    status, _, says = run(package, tmp_path / "cache", "-c", CALLS)
    assert status == 1
    assert "kernels cannot be compiled" in says
    assert "compiling tamis.kernels.probe.all failed" in says


def test_too_little_memory_ends_in_a_message(package: Path, tmp_path: Path) -> None:
    status, _, says = run(package, tmp_path / "cache", "-m", "tamis.kernels.compile", "--limit", "40000000", "probe")
    assert status == 1
    assert "emory" in says


def test_every_module_with_kernels_is_compiled_with_its_group() -> None:
    names = [name for group in all_groups() for name in module_names(group)]
    modules = {f"tamis.kernels.{'.'.join(p.relative_to(HERE).with_suffix('').parts)}" for p in HERE.rglob("*.py")}
    with_kernels = {
        name for name in modules if "\n@kernel(" in (HERE.joinpath(*name.split(".")[2:])).with_suffix(".py").read_text()
    }
    assert with_kernels <= set(names)
    assert len(with_kernels) > 15


def test_without_a_compiler_the_linker_of_a_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link.shutil, "which", lambda name: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: object())
    assert link.linker() == [sys.executable, "-m", "ziglang", "ld.lld", "-shared"]
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tamis.errors.TamisError, match=r"no linker here; install a C compiler .* pip install ziglang"):
        link.shared_library(b"")
    monkeypatch.setattr(link.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "ld" else None)
    assert link.linker() == ["ld", "-shared"]


@pytest.mark.slow
def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "TAMIS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tamis.kernels.compile", "--again"]
    pair = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0][:8] for process in pair] == ["kernels:", "kernels:"]
    assert [process.returncode for process in pair] == [0, 0]
    assert len(list(tmp_path.glob("kernels-*/*.so"))) == 3


def test_a_budget_without_room_for_compiling_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.engine.run.compiling import compile_missing
    from tamis.kernels.loading import library

    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "BUILT", tmp_path / "built")
    with pytest.raises(
        BudgetError,
        match=r"kernels must be compiled first, which takes 165 MB.*python -m tamis.kernels.compile",
    ):
        compile_missing(["records"], 150_000_000, count_caller=False)


def test_scipy_is_left_out_where_it_is_installed() -> None:
    """Keep numba from loading scipy, which takes more memory than compiling has at first use."""
    code = (
        "import sys; from tamis.kernels.compile import _leave_scipy_out as leave; leave(); import numba; "
        "print(sorted(m for m in sys.modules if m.startswith('scipy.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
