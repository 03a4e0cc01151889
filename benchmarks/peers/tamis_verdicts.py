"""Tamis' side of the comparison with datatrove: for each text the rule that drops it, and the value of every rule."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tamis.stages.text.filters.c4 import C4Quality
from tamis.stages.text.filters.fineweb import FineWebQuality
from tamis.stages.text.filters.gopher import GopherQuality, GopherRepetition
from tamis.stages.text.filters.rule_set import RuleSet
from tamis.stages.text.filters.statistics import measure

SETS = {made().name: made for made in (GopherQuality, GopherRepetition, C4Quality, FineWebQuality)}
# Rules that only say yes or no: there is no value to compare.
YES_OR_NO = ("empty", "lorem_ipsum", "curly_bracket")


def judged(made: RuleSet, texts: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """For each text the rule that drops it ("" where none does), and the value of every rule."""
    rules = made.filters()
    stats = measure(pa.array(texts, pa.large_string()), {name for rule in rules for name in rule.statistics})
    scores = [rule.score_from(stats) for rule in rules]
    keeps = np.array([rule.keep_scores(values) for rule, values in zip(rules, scores, strict=True)])
    found = []
    for i in range(len(texts)):
        first = next((rule.name for rule, keep in zip(rules, keeps[:, i], strict=True) if not keep), "")
        found.append((first, {rule.name: values[i].item() for rule, values in zip(rules, scores, strict=True)}))
    return found


def comparable(name: str, text: str, verdict: str, values: dict[str, float]) -> dict[str, float]:
    """Return the values that datatrove can be asked for.

    It divides by the number of words, for Gopher by that of words that are not only punctuation, has no most frequent
    n-gram where there are fewer words than n, and C4's rules look no further than the line that drops a document.
    """
    n_words = len(text.split())
    if n_words == 0 or values.get("gopher_short_doc") == 0 or (name == "c4_quality" and verdict in YES_OR_NO):
        return {}
    found = {}
    for rule, value in values.items():
        top = re.fullmatch(r"top_(\d+)_gram", rule)
        if rule not in YES_OR_NO and not (top and int(top[1]) > n_words):
            found[rule] = value
    return found
