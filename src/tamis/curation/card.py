"""The dataset card: a README.md next to the data that describes it and lists its files for Hugging Face `datasets`.

Covers the stage that counts for it in the last pass, and its text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis._lazy import pc
from tamis.engine.schema import RecordedRule
from tamis.sizes import format_size
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

LICENCE_FIELDS = ("license", "licence", "license_type")
CHARS, LICENCE, LANGUAGE = "characters", "licence", "language"
_MAX_CHARS = 60
_MAX_VALUES = 100
DESCRIBE = "describe"  # the name of the stage that counts for the card
MARK = "<!-- written by tamis curate -->"
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
)
_CODE = re.compile(r"[a-z]{2,3}")


@dataclass
class Split:
    """A split of the output. `path`: of its files, with wildcards."""

    name: str
    path: str
    rows: int
    bytes: int


@dataclass
class TokensOnCard:
    """What a card tells of an output of token ids. `is_loaded`: `datasets` reads its files."""

    tokenizer: str
    sequence_length: int | None
    n_padding: int
    is_loaded: bool


def make_card(
    name: str,
    ledger: Any,
    rules: Sequence[RecordedRule],
    splits: Sequence[Split],
    lang: str | None,
    duplicate_labels: Collection[str] = (),
    remarks: Sequence[str] = (),
    tokens: TokensOnCard | None = None,
) -> str:
    """Return the text of the card.

    `rules`: as plan.json has them; `lang`: the one language kept, if so; `duplicate_labels`: of stages that remove
    duplicates; `remarks`: sentences on steps that were left out; `tokens`: of an output of token ids.
    """
    metrics: dict[str, float] = next((dict(b.metrics) for b in ledger.stages if b.name == DESCRIBE), {})
    languages = _counts(metrics, LANGUAGE)
    licences = _counts(metrics, LICENCE)
    codes = [lang] if lang else [c for c in languages if _CODE.fullmatch(c)]
    loaded = splits if tokens is None or tokens.is_loaded else []
    lines = ["---", *_head(name, codes, licences, ledger.written.n, loaded), "---", MARK, f"# {_plain(name)}", ""]
    n_duplicates = sum(t.n for b in ledger.stages if b.name in duplicate_labels for t in b.dropped.values())
    lines += [
        "| documents | |",
        "|---|---|",
        f"| read | {ledger.records.n:,} |",
        f"| dropped by a rule | {ledger.n_dropped - n_duplicates:,} |",
        f"| duplicates of others | {n_duplicates:,} |",
        f"| in quarantine | {ledger.quarantined.n:,} |",
        f"| **written** | **{ledger.written.n:,}** |",
        "",
    ]
    kind = "documents" if tokens is None or tokens.sequence_length is None else "sequences"
    lines += ["## Files", "", f"| split | {kind} | size |", "|---|---|---|"]
    lines += [f"| {s.name} | {s.rows:,} | {format_size(s.bytes)} |" for s in splits]
    if tokens is not None:
        lines += ["", "## Tokens", "", *_tokens(ledger, tokens)]
    lines += [
        "",
        "## Rules",
        "",
        "| step | rule | limits | documents dropped |",
        "|---|---|---|---|",
        *_rules(ledger, rules),
        "",
        *(f"{remark}.\n" for remark in remarks),
    ]
    lines += ["## Lengths", "", *_lengths(ledger, metrics), ""]
    for title, counts in (("Languages", languages), ("Licences", licences)):
        if counts:
            rows = [
                f"| {_plain(value)} | {n:,} |" for value, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
            ]
            lines += [f"## {title}", "", f"| {title.lower()[:-1]} | documents |", "|---|---|", *rows, ""]
    if not licences:
        lines += ["## Licences", "", "No document names a licence (fields `license`, `licence`, `license_type`).", ""]
    return "\n".join(lines)


def _head(
    name: str, codes: Sequence[str], licences: Mapping[str, int], n_documents: int, splits: Sequence[Split]
) -> list[str]:
    """Return the YAML head; strings are written as JSON, which YAML accepts."""
    size = next((label for limit, label in _SIZES if n_documents < limit), "n>1B")
    lines = [f"pretty_name: {json.dumps(name)}", "size_categories:", f"- {json.dumps(size)}"]
    if codes:
        lines += ["language:", *(f"- {json.dumps(code)}" for code in codes)]
    if len(licences) == 1:
        lines.append(f"license: {json.dumps(next(iter(licences)))}")
    if splits:
        lines += ["configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        lines += [f"  - split: {json.dumps(split.name)}", f"    path: {json.dumps(split.path)}"]
    return lines


def _tokens(ledger: Any, tokens: TokensOnCard) -> list[str]:
    metrics: dict[str, float] = next((dict(b.metrics) for b in ledger.stages if b.name == "tokenize"), {})
    name = os.path.basename(tokens.tokenizer.rstrip("/"))
    lines = [f"{int(metrics.get('tokens', 0)):,} tokens, by the tokenizer {_plain(name)}."]
    if tokens.sequence_length is not None:
        lines += ["", f"Sequences have {tokens.sequence_length:,} tokens; {tokens.n_padding:,} are padding."]
    counts = {key.removeprefix("tokens "): int(n) for key, n in metrics.items() if key.startswith("tokens ")}
    if counts:
        rows = sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
        lines += ["", "| of | tokens |", "|---|---|", *(f"| {_plain(key)} | {n:,} |" for key, n in rows)]
    return lines


def _rules(ledger: Any, rules: Sequence[RecordedRule]) -> list[str]:
    dropped = {(b.name, reason): t.n for b in ledger.stages for reason, t in b.dropped.items()}
    rows, listed = [], set()
    for rule in rules:
        key = (rule.stage, rule.name)
        limits = ", ".join(f"{rule.parameter(k)} {v}" for k, v in rule.limits.items() if v is not None)
        if key[1]:
            rows.append(f"| {_plain(key[0])} | {_plain(key[1])} | {_plain(limits)} | {dropped.get(key, 0):,} |")
            listed.add(key)
    others = {key: n for key, n in dropped.items() if key not in listed}
    return rows + [f"| {_plain(stage)} | {_plain(reason)} | | {n:,} |" for (stage, reason), n in others.items()]


def _lengths(ledger: Any, metrics: Mapping[str, float]) -> list[str]:
    histogram = ledger.lengths.get("out")
    bins = [b for b in histogram.bins() if b[0] is not None] if histogram is not None else []
    n = sum(b[2] for b in bins)
    if not n:
        return ["Nothing was written."]
    quantiles = []
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        n_before = share * n
        for low, high, count in bins:
            n_before -= count
            if n_before <= 0:
                quantiles.append(f"{share:.0%}: {format_size(low)} to {format_size(high if high is not None else low)}")
                break
    chars = int(metrics.get(CHARS, 0))
    mean = f" {chars:,} characters of text, {chars // n:,} per document." if chars else ""
    return [
        f"{n:,} documents, {format_size(ledger.written_bytes)} as written.{mean}",
        "",
        f"Records are so long: {', '.join(quantiles)}.",
    ]


def _counts(metrics: Mapping[str, float], kind: str) -> dict[str, int]:
    return {key.partition("=")[2]: int(n) for key, n in metrics.items() if key.startswith(f"{kind}=")}


def _plain(text: str) -> str:
    """Return text from data or recipes as one cell of a table."""
    return re.sub(r"([|<>`*_\[\]\\])", r"\\\1", text.replace("\n", " "))[:200]


# -- counting in the last pass ----------------------------------------------------------------------------------------
@dataclass(repr=False)
class Describe(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Counts characters of texts, licences where documents name one, and languages where a field has them.

    Changes nothing.
    """

    text_field: str = "text"
    language_fields: Sequence[str] = ("language",)
    name: str = DESCRIBE

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        self._log_metric(CHARS, float(pc.sum(pc.utf8_length(batch.texts(self.text_field))).as_py() or 0))
        columns = set(batch.get_columns())
        for kind, fields in ((LICENCE, LICENCE_FIELDS), (LANGUAGE, self.language_fields)):
            for field in [f for f in fields if f in columns]:
                self._log_metrics(counted(kind, batch.values(field)))
        return batch


def counted(kind: str, values: Sequence[Any]) -> dict[str, float]:
    """Count how often each value occurs; values that are not a short text count as others.

    >>> counted("language", ["en", "en", "[0.97, 'de']", None, 5])
    {'language=en': 2.0, 'language=de': 1.0, 'language=(others)': 1.0}
    """
    counts: dict[str, float] = {}
    for value in values:
        if value is None:
            continue
        name = value.rpartition(", '")[2].removesuffix("']") if isinstance(value, str) and value[:1] == "[" else value
        fits = isinstance(name, str) and 0 < len(name) <= _MAX_CHARS and name.isprintable()
        key = f"{kind}={name if fits and (len(counts) < _MAX_VALUES or f'{kind}={name}' in counts) else '(others)'}"
        counts[key] = counts.get(key, 0.0) + 1.0
    return counts
