"""Verdicts of datatrove's filters, document by document: `python datatrove_verdicts.py DOCUMENTS OURS OUT`, all JSONL.

Runs in datatrove's own environment and needs nothing of Tamis. Every document is judged twice: with datatrove's own
tokenizer, and with words and sentences as Tamis splits them, which leaves the rules alone to differ. OURS holds Tamis'
values (agreement.py writes it); each is tried as the limit of datatrove's rule, which must keep the document at that
limit and drop it one float further, so the values are compared through datatrove's public parameters and exactly.
"""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.word_tokenizers import WordTokenizer

FILTERS = {
    "gopher_quality": GopherQualityFilter,
    "gopher_repetition": GopherRepetitionFilter,
    "c4_quality": C4QualityFilter,
    "fineweb_quality": FineWebQualityFilter,
}
# The parameters that switch every rule of a filter off, so that one can be tried alone.
OFF: dict[str, dict[str, Any]] = {
    "gopher_quality": dict.fromkeys(
        (
            "min_doc_words",
            "max_doc_words",
            "min_avg_word_length",
            "max_avg_word_length",
            "max_symbol_word_ratio",
            "max_bullet_lines_ratio",
            "max_ellipsis_lines_ratio",
            "max_non_alpha_words_ratio",
            "min_stop_words",
        )
    ),
    "gopher_repetition": {
        **dict.fromkeys(("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac")),
        "top_n_grams": (),
        "dup_n_grams": (),
    },
    "c4_quality": {},
    "fineweb_quality": {
        "line_punct_thr": 0.0,
        "short_line_thr": math.inf,
        "char_duplicates_ratio": math.inf,
        "new_line_ratio": math.inf,
    },
}
# Rule: its parameter, and whether that is the largest value kept (or the smallest).
PARAMETERS = {
    "gopher_short_doc": ("min_doc_words", False),
    "gopher_long_doc": ("max_doc_words", True),
    "gopher_below_avg_threshold": ("min_avg_word_length", False),
    "gopher_above_avg_threshold": ("max_avg_word_length", True),
    "gopher_too_many_hashes": ("max_symbol_word_ratio", True),
    "gopher_too_many_ellipsis": ("max_symbol_word_ratio", True),
    "gopher_too_many_bullets": ("max_bullet_lines_ratio", True),
    "gopher_too_many_end_ellipsis": ("max_ellipsis_lines_ratio", True),
    "gopher_below_alpha_threshold": ("max_non_alpha_words_ratio", False),
    "gopher_enough_stop_words": ("min_stop_words", False),
    "dup_para_frac": ("dup_para_frac", True),
    "dup_para_char_frac": ("dup_para_char_frac", True),
    "dup_line_frac": ("dup_line_frac", True),
    "dup_line_char_frac": ("dup_line_char_frac", True),
    "too_few_sentences": ("min_num_sentences", False),
    "line_punct_ratio": ("line_punct_thr", False),
    "short_line_ratio": ("short_line_thr", True),
    "char_dup_ratio": ("char_duplicates_ratio", True),
    "list_ratio": ("new_line_ratio", True),
}
SENTENCE_END = re.compile(r"[.?!]+[\"')\]]*(?=\s|$)")


class TamisSplitting(WordTokenizer):
    """Words and sentences as Tamis defines them."""

    def word_tokenize(self, text: str) -> list[str]:
        return text.split()

    def sent_tokenize(self, text: str) -> list[str]:
        return [text[a:b] for a, b in self.span_tokenize(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        ends = [m.end() for m in SENTENCE_END.finditer(text)]
        if text[ends[-1] if ends else 0 :].strip():
            ends.append(len(text))
        return list(zip([0, *ends], ends, strict=False))


SPLITTING = TamisSplitting()


def verdict(one: Any, text: str) -> str:
    """Return the rule that drops the text, "" if none does."""
    try:
        answer = one.filter(Document(text=text, id=""))
    except Exception as exc:  # what it does with a text that it cannot judge is a finding, not a failure of this script
        return f"raises {type(exc).__name__}"
    return "" if answer is True else answer[1]


def limited(name: str, rule: str, limit: float) -> Any:
    """Return datatrove's filter with one rule only, at this limit."""
    gram = re.fullmatch(r"top_(\d+)_gram|duplicated_(\d+)_n_grams", rule)
    if gram:
        top, duplicate = gram.groups()
        given: dict[str, Any] = (
            {"top_n_grams": ((int(top), limit),)} if top else {"dup_n_grams": ((int(duplicate), limit),)}
        )
    else:
        given = {PARAMETERS[rule][0]: limit}
    return FILTERS[name](**{**OFF[name], **given, "language": SPLITTING})


def same_value(name: str, rule: str, value: float, text: str) -> bool:
    """Whether the rule's value is ours: kept with our value as the limit, dropped one float beyond."""
    at_most = PARAMETERS.get(rule, ("", True))[1]
    # 0 would switch the rule off; the smallest float says as much as a limit.
    at = (value or math.ulp(0.0)) if at_most else value
    beyond = math.nextafter(value, -math.inf if at_most else math.inf)
    dropping = {rule}
    if rule == "gopher_too_many_ellipsis":  # it shares its parameter with the hashes, which are looked at first
        text = text.replace("#", "x")
        dropping |= {"gopher_too_many_hashes"} if value == 0 else set()
    return verdict(limited(name, rule, at), text) != rule and verdict(limited(name, rule, beyond), text) in dropping


def judge(text: str, ours: dict[str, dict[str, float]], own: dict[str, Any], split: dict[str, Any]) -> dict[str, Any]:
    return {
        "own": {name: verdict(one, text) for name, one in own.items()},
        "split": {name: verdict(one, text) for name, one in split.items()},
        "differs": [r for name, rules in ours.items() for r, v in rules.items() if not same_value(name, r, v, text)],
    }


def records(path: str) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        yield from map(json.loads, file)


def main() -> int:
    documents, values, out = sys.argv[1:]
    warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no words
    own = {name: kind() for name, kind in FILTERS.items()}
    split = {name: kind(language=SPLITTING) for name, kind in FILTERS.items()}
    with open(out, "w") as target:
        for document, ours in zip(records(documents), records(values), strict=True):
            found = judge(document["text"], ours["values"], own, split)
            target.write(json.dumps({"id": document["id"], **found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
