"""The dataset card: a README.md next to the data that describes it and lists its files for Hugging Face `datasets`.

Covers the stage that counts for it in the last pass, and its text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pc
from tamis.dedup.quantiles.stages import weights_of
from tamis.engine.schema import RecordedRule
from tamis.sizes import format_size
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

LICENCE_FIELDS = ("license", "licence", "license_type")
CHARS, LICENCE, LANGUAGE, FIELD = "characters", "licence", "language", "field"
TOKENS, WRITTEN = "tokens written", "written"
BYTES_PER_TOKEN = 4  # of English text with current vocabularies
_BAR, _BAR_CHARS, _MAX_BARS = "█", 40, 24
_PLACEHOLDERS: dict[str, Any] = {"number": 0, "boolean": True, "list": [], "object": {}}
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
    """Facts of the card about an output of token ids. `is_loaded`: `datasets` reads its files."""

    tokenizer: str
    sequence_length: int | None
    n_padding: int
    is_loaded: bool


@dataclass(frozen=True)
class Provenance:
    """Provenance of a data set. `command`: makes it again, "" if a program made it; `version`: of Tamis."""

    sources: Sequence[str] = ()
    command: str = ""
    version: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # of the first document: names and types
    tokenizer: str = ""  # that counted the tokens; "" for a quarter of the bytes


def make_card(
    name: str,
    ledger: Any,
    rules: Sequence[RecordedRule],
    splits: Sequence[Split],
    lang: str | None,
    duplicate_labels: Collection[str] = (),
    remarks: Sequence[str] = (),
    tokens: TokensOnCard | None = None,
    provenance: Provenance | None = None,
) -> str:
    """Return the text of the card. It contains no text of any document.

    `rules`: as plan.json has them; `lang`: the one language kept, if so; `duplicate_labels`: of stages that remove
    duplicates; `remarks`: sentences on steps that were left out; `tokens`: of an output of token ids.
    """
    metrics: dict[str, float] = next((dict(b.metrics) for b in ledger.stages if b.name == DESCRIBE), {})
    provenance = provenance or Provenance()
    languages = _counts(metrics, LANGUAGE)
    licences = _counts(metrics, LICENCE)
    codes = [lang] if lang else [c for c in languages if _CODE.fullmatch(c)]
    loaded = splits if tokens is None or tokens.is_loaded else []
    lines = ["---", *_head(name, codes, licences, ledger.written.n, loaded), "---", MARK, f"# {_plain(name)}", ""]
    n_duplicates = sum(t.n for b in ledger.stages if b.name in duplicate_labels for t in b.dropped.values())
    lines += [_introduction(ledger, metrics, provenance), ""]
    lines += [
        "| documents | |",
        "|---|---|",
        f"| read | {ledger.records.n:,} |",
        f"| dropped by a rule | {ledger.n_dropped - n_duplicates:,} |",
        f"| duplicates of others | {n_duplicates:,} |",
        f"| in quarantine | {ledger.quarantined.n:,} |",
        f"| **written** | **{ledger.written.n:,}** |",
        "",
        *_chart(ledger),
    ]
    lines += _use(loaded, _fields(metrics, provenance))
    lines += _files(splits, tokens)
    if tokens is not None:
        lines += ["", "## Tokens", "", *_tokens(ledger, tokens)]
    lines += _sources(provenance)
    lines += ["", "## Rules", "", *_rules(ledger, rules)]
    lines += [f"{remark}.\n" for remark in remarks]
    lines += ["## Lengths", "", *_lengths(ledger, metrics, sum(split.bytes for split in splits)), ""]
    lines += [*_values("Languages", languages), *_values("Licences", licences)]
    if not licences:
        lines += ["## Licences", "", "No document names a licence (fields `license`, `licence`, `license_type`).", ""]
    if provenance.command:
        lines += ["## Make it again", "", "```sh", _code(provenance.command), "```", ""]
    return "\n".join(lines)


def _sources(provenance: Provenance) -> list[str]:
    if not provenance.sources:
        return []
    return ["", "## Sources", "", *(f"- `{_code(path)}`" for path in provenance.sources[:_MAX_VALUES])]


def _introduction(ledger: Any, metrics: Mapping[str, float], provenance: Provenance) -> str:
    """Return what the data set is, in a sentence."""
    n = ledger.records.n
    share = f" ({ledger.written.n / n:.1%})" if n else ""
    by = f" with Tamis {provenance.version}" if provenance.version else ""
    sentence = f"{ledger.written.n:,} of {n:,} documents{share}, curated{by}."
    if (n_tokens := int(metrics.get(TOKENS, 0))) and not any(book.name == "tokenize" for book in ledger.stages):
        by = f"by the tokenizer {_plain(provenance.tokenizer)}" if provenance.tokenizer else "a quarter of its bytes"
        sentence += f" {'' if provenance.tokenizer else 'About '}{n_tokens:,} tokens, {by}."
    return sentence


def _chart(ledger: Any) -> list[str]:
    """Return a bar for the documents that each stage left, as text that every viewer shows.

    Those in quarantine are left out after reading: most of them are records that cannot be read.
    """
    steps, left = [("read", ledger.records.n)], ledger.records.n
    if ledger.quarantined.n:
        left -= ledger.quarantined.n
        steps.append(("without quarantine", left))
    for book in ledger.stages:
        if n := sum(t.n for t in book.dropped.values()):
            left -= n
            steps.append((book.name, max(left, 0)))
    steps.append(("written", ledger.written.n))
    most = max(n for _, n in steps)
    if not most or len(steps) < 3:
        return []
    width = min(max(len(name) for name, _ in steps[:_MAX_BARS]), 40)
    rows = [f"{_code(name)[:width]:<{width}}  {n:>12,}  {_BAR * round(_BAR_CHARS * n / most)}" for name, n in steps]
    rows = [*rows[: _MAX_BARS - 1], rows[-1]] if len(rows) > _MAX_BARS else rows
    return ["Documents left by each step:", "", "```text", *(row.rstrip() for row in rows), "```", ""]


def _use(splits: Sequence[Split], fields: Mapping[str, str]) -> list[str]:
    """Return how to load the data set, and the fields of a document, without the values of any."""
    if not splits:
        return []
    lines = ["## Use", "", "```python", "from datasets import load_dataset", ""]
    lines += [f'documents = load_dataset("path/of/this/folder", split="{_code(splits[0].name)}")', "```", ""]
    if fields:
        example = {name: _PLACEHOLDERS.get(kind, "...") for name, kind in fields.items()}
        shown = json.dumps(example, ensure_ascii=False, indent=1).replace("`", "'")  # stays inside of the block
        lines += ["A document has the fields", "", "```json", shown, "```", ""]
    return lines


def _fields(metrics: Mapping[str, float], provenance: Provenance) -> dict[str, str]:
    """Return the fields of documents: those of the first one, then others, the most frequent first."""
    counts = _counts(metrics, FIELD)
    others = sorted((name for name in counts if name not in provenance.fields), key=lambda name: (-counts[name], name))
    return {**dict(list(provenance.fields.items())[:_MAX_VALUES]), **dict.fromkeys(others, "")}


def _code(text: str) -> str:
    """Return text that stays inside of a block of code, in one line."""
    return "".join(c if c.isprintable() else " " for c in text).replace("`", "'")[:1000]


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


def _files(splits: Sequence[Split], tokens: TokensOnCard | None) -> list[str]:
    kind = "documents" if tokens is None or tokens.sequence_length is None else "sequences"
    rows = [f"| {s.name} | {s.rows:,} | {format_size(s.bytes)} |" for s in splits]
    return ["## Files", "", f"| split | {kind} | size |", "|---|---|---|", *rows]


def _values(title: str, counts: Mapping[str, int]) -> list[str]:
    """Return the table of the values of a field, the most frequent first; nothing if no document has any."""
    if not counts:
        return []
    values = sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
    rows = [f"| {_plain(value)} | {n:,} |" for value, n in values]
    return [f"## {title}", "", f"| {title.lower()[:-1]} | documents |", "|---|---|", *rows, ""]


def _rules(ledger: Any, rules: Sequence[RecordedRule]) -> list[str]:
    """Return the rules with the documents that each dropped; those that dropped none follow folded."""
    active, idle = _rule_rows(ledger, rules)
    lines = ["| step | rule | limits | documents dropped |", "|---|---|---|---|", *active, ""] if active else []
    if idle:
        head = f"<details><summary>{len(idle):,} {'rule' if len(idle) == 1 else 'rules'} that dropped nothing</summary>"
        lines += [head, "", "| step | rule | limits |", "|---|---|---|", *idle, "", "</details>", ""]
    return lines


def _rule_rows(ledger: Any, rules: Sequence[RecordedRule]) -> tuple[list[str], list[str]]:
    """Return rows of the rules that dropped documents, and of those that dropped none."""
    dropped = {(b.name, reason): t.n for b in ledger.stages for reason, t in b.dropped.items()}
    active, idle, listed = [], [], set()
    for rule in rules:
        key = (rule.stage, rule.name)
        limits = ", ".join(f"{rule.parameter(k)} {v}" for k, v in rule.limits.items() if v is not None)
        if key[1]:
            row = f"| {_plain(key[0])} | {_plain(key[1])} | {_plain(limits)} |"
            if n := dropped.get(key, 0):
                active.append(f"{row} {n:,} |")
            else:
                idle.append(row)
            listed.add(key)
    others = {key: n for key, n in dropped.items() if key not in listed}
    return active + [f"| {_plain(stage)} | {_plain(reason)} | | {n:,} |" for (stage, reason), n in others.items()], idle


def _lengths(ledger: Any, metrics: Mapping[str, float], n_bytes: int) -> list[str]:
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
        f"{n:,} documents, {format_size(n_bytes)} as written.{mean}",
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
    """Counts characters and tokens of texts, licences where documents name one, and languages where a field has them.

    Changes nothing. `tokens_field`: the number of tokens; None: a quarter of the bytes. `bucket_fields`: of these the
    documents with each value are counted, too.
    """

    text_field: str = "text"
    language_fields: Sequence[str] = ("language",)
    name: str = DESCRIBE
    tokens_field: str | None = None
    bucket_fields: Sequence[str] = ()

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        self._log_metric(CHARS, float(pc.sum(pc.utf8_length(batch.texts(self.text_field))).as_py() or 0))
        self._log_metric(TOKENS, float(self._tokens(batch)))
        names = batch.get_columns()
        columns = set(names)
        for name in [f for f in self.bucket_fields if f in columns]:
            values, counts = np.unique(np.array(batch.values(name), object).astype(str), return_counts=True)
            self._log_metrics({f"{WRITTEN} {name}={v}": float(n) for v, n in zip(values, counts, strict=True)})
        fields_here = [f"{FIELD}={name}" for name in names[:_MAX_VALUES] if len(name) <= _MAX_CHARS]
        self._log_metrics(dict.fromkeys(fields_here, batch.num_items))
        for kind, fields in ((LICENCE, LICENCE_FIELDS), (LANGUAGE, self.language_fields)):
            for name in [f for f in fields if f in columns]:
                self._log_metrics(counted(kind, batch.values(name)))
        return batch

    def _tokens(self, batch: DocumentBatch) -> int:
        weights = weights_of(batch, "tokens", self.text_field, self.tokens_field)
        return int(weights.sum())


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
