"""The tokens that each rule dropped, and those of the documents that were kept.

What a stage of the run counted (`count_tokens`, `tokenize`) is shown as it is. Tokens of documents that were dropped
before it, and those of runs without such a stage, are estimated by bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tamis.engine.ledger import DROPPED_TOKENS, StageBook
from tamis.observe.report.facts import Facts

BYTES_PER_TOKEN = 4  # of text in English, by the tokenizers of most models


class TokenFlow(NamedTuple):
    """Tokens of documents as they were read. `dropped`: by stage and rule; `note`: how the numbers were found."""

    dropped: Mapping[tuple[str, str], int]
    kept: int
    note: str


def token_flow(facts: Facts) -> TokenFlow:
    """Return the tokens of a run whose bytes are known."""
    read_bytes = facts.run.counts.read_bytes if facts.run.counts is not None else 0
    sizes = {(d.stage, d.reason): d.bytes for d in facts.run.drops}
    books = facts.ledger.stages if facts.ledger is not None else []
    at = next((i for i, book in enumerate(books) if book.metrics.get("tokens")), None)
    if at is None:
        dropped = {rule: _about(n / BYTES_PER_TOKEN) for rule, n in sizes.items()}
        kept = _about((read_bytes - sum(sizes.values())) / BYTES_PER_TOKEN)
        return TokenFlow(dropped, kept, f"An estimate: a token for each {BYTES_PER_TOKEN} bytes of the records.")
    earlier = {book.name for book in books[:at]}
    n_tokens = int(books[at].metrics["tokens"])
    n_bytes = read_bytes - sum(n for (stage, _), n in sizes.items() if stage in earlier)
    bytes_per_token = max(n_bytes / n_tokens, 1e-3)
    counted = _counted(books[at:])
    dropped = {rule: counted.get(rule, _about(n / bytes_per_token)) for rule, n in sizes.items()}
    later = sum(n for (stage, _), n in dropped.items() if stage not in earlier)
    note = f"Counted by {books[at].name}."
    if any(rule not in counted and n for rule, n in sizes.items()):
        note += f" Of documents that it did not count, an estimate: a token for each {bytes_per_token:.2g} bytes."
    return TokenFlow(dropped, max(n_tokens - later, 0), note)


def _counted(books: Sequence[StageBook]) -> dict[tuple[str, str], int]:
    """Return the tokens that stages counted of the documents they dropped, by stage and rule."""
    return {
        (book.name, key.removeprefix(DROPPED_TOKENS)): int(n)
        for book in books
        for key, n in book.metrics.items()
        if key.startswith(DROPPED_TOKENS)
    }


def _about(n: float) -> int:
    """Return an estimate with three digits.

    >>> _about(1_234_567), _about(12)
    (1230000, 12)
    """
    return int(float(f"{n:.3g}"))
