"""Module paths of the original one level deeper than here: `...modifiers.string.slicer` is `...modifiers.string`.

A module that replaces several of the original calls `register`, so that imports of these find it.
"""

from __future__ import annotations

import sys


def register(module: str, *names: str) -> None:
    """Let the paths `names` below a module that is being imported find it.

    Python looks a name up again after it has imported the parent, which need not be a package then.
    """
    for name in names:
        sys.modules[f"{module}.{name}"] = sys.modules[module]
