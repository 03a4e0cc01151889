"""Rule sets by name, for the command line: `gopher`, `c4+fineweb`, ..."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from tamis.errors import UsageError
from tamis.stages.text.filters.c4 import C4Quality
from tamis.stages.text.filters.fineweb import FineWebQuality
from tamis.stages.text.filters.gopher import GopherQuality, GopherRepetition
from tamis.stages.text.filters.heuristics import HeuristicEnglish, HeuristicNonEnglish
from tamis.stages.text.filters.rule_set import RuleSet

Made = Callable[..., RuleSet]

SETS: dict[str, tuple[Made, ...]] = {
    "gopher": (GopherQuality, GopherRepetition),
    "gopher-quality": (GopherQuality,),
    "gopher-repetition": (GopherRepetition,),
    "c4": (C4Quality,),
    "fineweb": (FineWebQuality,),
    "heuristic-english": (HeuristicEnglish,),
    "heuristic-non-english": (HeuristicNonEnglish,),
}


def find_sets(names: str) -> list[Made]:
    """Return the stages of one set, or of several joined by +, each once.

    >>> [made.__name__ for made in find_sets("gopher-quality+c4+gopher")]
    ['GopherQuality', 'C4Quality', 'GopherRepetition']
    """
    found: dict[Made, None] = {}
    for name in names.split("+"):
        key = name.strip().replace("_", "-")
        if key not in SETS:
            near = difflib.get_close_matches(key, SETS, 1)
            raise UsageError(
                f"no such set of filters: {name.strip()!r}{f'; did you mean {near[0]}?' if near else ''}; "
                f"known: {', '.join(SETS)}"
            )
        found.update(dict.fromkeys(SETS[key]))
    return list(found)
