"""Module paths of the original one level deeper than here: `...modifiers.string.slicer` is `...modifiers.string`.

A module that stands for several of the original calls `register`, so that imports of these find it.
"""

from __future__ import annotations

import sys

DEEPER = {
    "tamis.stages.text.filters.fasttext": ("fasttext_filters",),
    "tamis.stages.text.filters.heuristic.code": ("code",),
    "tamis.stages.text.filters.heuristic.repetition": ("repetition",),
    "tamis.stages.text.filters.histogram": ("histogram",),
    "tamis.stages.text.filters.token": ("token_count",),
    "tamis.stages.text.modifiers.fasttext": ("fasttext_label",),
    "tamis.stages.text.modifiers.string": (
        "c4",
        "line_remover",
        "markdown_remover",
        "newline_normalizer",
        "quotation_remover",
        "slicer",
        "url_remover",
    ),
    "tamis.stages.text.modifiers.unicode": ("unicode_reformatter",),
}


def register(module: str) -> None:
    """Let the deeper paths of a module that is being imported find it.

    Python looks a name up again after it has imported the parent, which need not be a package then.
    """
    for name in DEEPER[module]:
        sys.modules[f"{module}.{name}"] = sys.modules[module]
