"""Compile the kernels while the package is built.

Shared libraries go into the wheel, or beside the sources of an editable install.

TAMIS_BUILD_LEVELS says for which CPUs: nothing or "native" for this machine's, "all" for every level that this
machine's architecture has (the release build, `make wheel`), "none", or names such as "x86-64-v2,x86-64-v3". numba is
needed only here; the linker is the C compiler's where there is one, and that of the package ziglang where not.
Libraries that are there already, made from the same sources, are not made again.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs: nothing if no kernels are compiled."""
        if self.target_name != "wheel" or not self._levels():
            return []
        numba = self.metadata.core.optional_dependencies["compile"]
        return [*numba, *([] if self._ours("building.link").linker() else ["ziglang>=0.13"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        levels = self._levels()
        if self.target_name != "wheel" or not levels:
            return
        source = Path(self.root) / "src"
        editable = version == "editable"
        folder = source / "tamis" / "kernels" / "built" if editable else Path(self.root) / "build" / "kernels"
        try:
            made = self._compile(source, folder, levels)
        except subprocess.CalledProcessError as exc:
            if not editable:
                raise
            # A checkout works without: what is missing is compiled when it is first used.
            self.app.display_warning(f"the kernels could not be compiled now, they will be at first use ({exc})")
            return
        if editable:
            return
        for path in made:
            build_data["force_include"][str(path)] = f"tamis/kernels/built/{path.relative_to(folder)}"
        build_data["pure_python"] = False
        # The libraries ask the C library for no version of anything: any one that Python and Arrow run with will do.
        build_data["tag"] = f"py3-none-{os.environ.get('TAMIS_BUILD_PLATFORM', f'linux_{platform.machine()}')}"

    def _compile(self, source: Path, folder: Path, levels: list[str]) -> list[Path]:
        """Have the libraries of these levels and the tables in a folder; which files that are."""
        names = [self._ours("loading.library").file_name(group) for group in self._ours("loading.library").all_groups()]
        wanted = [folder / level / name for level in levels for name in names]
        for level in levels:
            n_jobs = len(os.sched_getaffinity(0))
            if not all((folder / level / name).is_file() for name in names):
                self._announce(level, n_jobs)
            self._run(source, "compile", "--level", level, "--folder", str(folder / level), "--jobs", str(n_jobs))
        self._run(source, "text._unicode", str(folder))
        made = [*wanted, *sorted(folder.glob("unicode-*"))]
        for path in made:
            path.chmod(0o644)
        return made

    def _announce(self, level: str, n_jobs: int) -> None:
        """Say what takes so long: on the terminal, too, because pip shows nothing of a build that succeeds."""
        building, library = self._ours("building.compile_process"), self._ours("loading.library")
        groups = library.all_groups()
        n_kernels = sum(building.n_kernels(name) for group in groups for name in library.module_names(group))
        seconds = math.ceil(n_kernels * building.KERNEL_S / min(n_jobs, len(groups)))
        line = f"compiling {n_kernels} kernels for {level}, about {seconds} s, once"
        self.app.display_info(line)
        with contextlib.suppress(OSError), open("/dev/tty", "w") as terminal:
            print(f"\n  {line}", file=terminal)

    def _run(self, source: Path, module: str, *arguments: str) -> None:
        # Not by PYTHONPATH: pip takes what an earlier editable install added out of it.
        code = (
            f"import sys; sys.path.insert(0, sys.argv.pop(1)); from tamis.kernels.{module} import main; "
            "sys.exit(main())"
        )
        subprocess.run([sys.executable, "-c", code, str(source), *arguments], check=True)

    def _levels(self) -> list[str]:
        levels = self._ours("loading.levels")
        asked = os.environ.get("TAMIS_BUILD_LEVELS", "") or "native"
        own = [level.name for level in levels.LEVELS if level.machine == platform.machine()]
        if asked == "none" or sys.platform != "linux":
            return []
        if asked == "native":
            return [level.name for level in levels.runnable(platform.machine(), levels.cpu_flags())[:1]]
        return own if asked == "all" else [name.strip() for name in asked.split(",") if levels.named(name.strip())]

    def _ours(self, name: str) -> Any:
        """Load a module of Tamis that imports nothing but the standard library."""
        import importlib

        source = str(Path(self.root) / "src")
        sys.path.insert(0, source)
        try:
            return importlib.import_module(f"tamis.kernels.{name}")
        finally:
            sys.path.remove(source)
