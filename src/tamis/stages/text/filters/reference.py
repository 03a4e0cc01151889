"""The reference of filters as Markdown, made from the filters themselves: python -m tamis.stages.text.filters.reference > docs/filters.md"""

from __future__ import annotations

import importlib
from typing import Any

from tamis.stages.text.filters import catalogue
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.sets import SETS
from tamis.stages.text.filters.statistics import known_statistics

_HEAD = '''# Filters

Made by `python -m tamis.stages.text.filters.reference`; a test keeps it true.

```bash
tamis filter gopher data/ clean/ --memory 1GB     # a published set of rules, or several: gopher+c4
tamis filter --list                               # every set, filter and default
```

A filter has a score and a rule that keeps or drops by it. `ScoreFilter` applies one filter or a chain, in order; a document goes with
the first that drops it, and the report counts documents by that filter. `Score` only adds the score as a column, `Filter` only looks at a
column that is there.

```python
from tamis import Pipeline
from tamis.stages.text.filters import DocumentFilter, ScoreFilter, StatisticFilter
from tamis.stages.text.filters.heuristic import NumbersFilter, WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


class Shouting(DocumentFilter):
    """A filter of one's own: two methods in plain Python."""

    def score_document(self, text: str) -> float:
        return sum(map(str.isupper, text)) / max(len(text), 1)

    def keep_document(self, score: float) -> bool:
        return score <= 0.5


chain = [
    WordCountFilter(min_words=2),
    NumbersFilter(),
    StatisticFilter("brackets per word", "bracket_chars", per="words", maximum=0.5),  # a rule without code
    Shouting(),
]
stages = [JsonlReader("data/"), ScoreFilter(chain, score_field=["n_words", None, None, None]), JsonlWriter("clean/")]
Pipeline("filtered", stages=stages).run(memory="1GB")
```

- The filters that ship with Tamis compare *statistics*, which compiled code counts once per batch for the whole chain, in passes over the
  text; each pass runs only over documents that are left when it is needed. Filters in plain Python see only what is left.
- `score_batch(texts)` is an optional method of a filter that scores a whole Arrow array at once.
- A null text, a missing field and a value that is no text are scored as the empty text; a filter of one's own gets `""` for them, or None if it
  sets `accepts_null = True`. Functions get values as JSON says them, whatever stands beside them ([values.md](values.md)).
- Characters are code points; words are what `str.split()` gives (`lang="zh"` and `lang="ja"`: a segmenter's words); lines are those that are not
  blank; paragraphs are separated by `\\n\\n`.
- Random choices (`FastTextQualityFilter`) are a function of the text and a seed: a rerun, in whatever batches, chooses the same.
- Nothing is downloaded, except a tokenizer that is named by `hf_model_name`.

## What differs from the originals

- Every filter has a score for empty, blank and null texts (table below). Where there is nothing to divide by, a share gets the score that drops.
- `FastTextLangId` reads scores as data; `FastTextQualityFilter` draws per document; `HistogramFilter` uses a table of alphabets and scripts that
  ships with Tamis (85 languages) instead of a download; comments of code are found by scanners, so code that does not compile has a score.
- `PerExtensionFilter` has a table of its own with one limit for most languages (lines of 1000 characters, 25 % letters); pass `metadata_file` for others.
- Gopher, C4 and FineWeb follow datatrove, but words are split at whitespace where it uses a tokenizer, and C4's sentences end at `.`, `?` or `!` before
  whitespace where it uses a trained splitter. `C4Quality` drops documents and never changes a text.
'''


def reference() -> str:
    """Return the whole reference page."""
    return "\n".join([_HEAD, *_sets(), *_filters(), *_nothing(), *_statistics()]) + "\n"


def _sets() -> list[str]:
    lines = ["## Sets", "", "| set | stages | rules |", "|---|---|---|"]
    for name, parts in SETS.items():
        stages = ", ".join(
            f"`{part.__module__.removeprefix('tamis.stages.text.filters.')}.{part.__name__}`" for part in parts
        )
        rules = ", ".join(f"{one.name} {limits(one)}" for part in parts for one in part().filters())
        lines.append(f"| `{name}` | {stages} | {rules} |")
    return [*lines, ""]


def _filters() -> list[str]:
    lines = [
        "## Filters",
        "",
        "Modules are under `tamis.stages.text.filters`.",
        "",
        "| filter | parameters | score |",
        "|---|---|---|",
    ]
    for entry in catalogue.filters():
        module = entry.module.removeprefix("tamis.stages.text.filters.")
        lines.append(f"| `{module}.{entry.name}` | `{entry.parameters}` | {entry.about.replace('|', '')} |")
    return [*lines, ""]


_EXAMPLES: dict[str, dict[str, Any]] = {
    "SubstringFilter": {"substring": "x", "position": "any"},
    "GeneralCommentToCodeFilter": {"language": "text/x-c"},
    "PerExtensionFilter": {"lang": "python", "extension": "py"},
}
# What needs a model to be asked.
_BY_MODEL = {
    "TokenizerFertilityFilter": "-1 without tokens: dropped",
    "TokenCountFilter": "as many as the tokenizer says",
    "FastTextQualityFilter": "0 where the model knows nothing of the text",
    "FastTextLangId": "[0.0, 'unknown']: dropped",
}


def _nothing() -> list[str]:
    """Scores of texts in which there is nothing, with the defaults."""
    lines = ["## Empty, blank and null texts", "", '| filter | `""` and null | `"   "` |', "|---|---|---|"]
    for entry in catalogue.filters():
        if entry.name in _BY_MODEL:
            lines.append(f"| {entry.name} | {_BY_MODEL[entry.name]} | the same |")
            continue
        one = getattr(importlib.import_module(entry.module), entry.name)(**_EXAMPLES.get(entry.name, {}))
        lines.append(f"| {entry.name} | {_verdict(one, '')} | {_verdict(one, '   ')} |")
    return [*lines, ""]


def _verdict(one: DocumentFilter, text: str) -> str:
    score = one.score_document(text)
    return f"{score:g}: {'kept' if one.keep_document(score) else 'dropped'}"


def _statistics() -> list[str]:
    lines = ["## Statistics", "", "What `StatisticFilter` can compare.", "", "| name | meaning |", "|---|---|"]
    for name, sentence in known_statistics().items():
        lines.append(f"| `{name}` | {sentence.replace('|', '')} |")
    return lines


def limits(one: DocumentFilter) -> str:
    """Return what a rule keeps, in human-readable form.

    >>> from tamis.stages.text.filters.heuristic import NumbersFilter, WordCountFilter
    >>> limits(NumbersFilter()), limits(WordCountFilter(2, 5))
    ('<= 0.15', '>= 2, <= 5')
    """
    values = one.thresholds()
    sides = [(">=", getattr(one, "at_least", None)), ("<=", getattr(one, "at_most", None))]
    return ", ".join(f"{sign} {values[name]:g}" for sign, name in sides if name is not None and name in values)


if __name__ == "__main__":
    print(reference(), end="")
