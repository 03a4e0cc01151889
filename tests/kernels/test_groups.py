"""What the build of a package needs to compile kernels: numba, and nothing else that is installed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tamis.kernels.loading.library import all_groups, module_names


def test_modules_of_kernels_import_only_what_the_build_has() -> None:
    names = [name for group in all_groups() for name in module_names(group)]
    assert len(names) > 20
    wrong = []
    for name in names:
        source = Path(__file__).parents[2] / "src" / Path(*name.split(".")).with_suffix(".py")
        for node in ast.parse(source.read_text()).body:
            imported: list[str] = []
            if isinstance(node, ast.Import):
                imported = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            roots = {module.split(".")[0] for module in imported}
            wrong += [f"{name}: {root}" for root in roots - {"numpy", "numba", "tamis"} - set(sys.stdlib_module_names)]
    assert not wrong
