"""Solve for the number of times that the documents of each group are written to reach a target of tokens. Pure.

Weights of groups become epochs: how often all documents of a group are written, 0 to `max_epochs`. An epoch of 2.3 is
two copies of each document and a third one of documents with 30 % of the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.errors import UsageError

OTHERS = "*"
_SHOWN = 8


@dataclass(frozen=True)
class MixRule:
    """The rule of a mix: one of the first five fields says how groups are weighed.

    `epochs`: of each value. `shares`: of each value, of the target. `curve`: epochs of the lowest and of the highest
    value, which are numbers; those between follow (`power`). `temperature`: shares are tokens to this power. `unimax`:
    equal shares, as far as `max_epochs` allows. `target`: tokens; epochs of a table or a curve are scaled to it.
    """

    epochs: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    power: float = 1.0
    temperature: float | None = None
    unimax: bool = False
    target: int | None = None
    max_epochs: float = 7.0


def epochs_of(rule: MixRule, names: Sequence[str], tokens: Sequence[int]) -> list[float]:
    """Return the epochs of each group; raise UsageError where no such mix exists.

    >>> epochs_of(MixRule(unimax=True, target=100, max_epochs=4), ["a", "b"], [10, 200])
    [4.0, 0.3]
    >>> epochs_of(MixRule(temperature=0.5, target=30), ["a", "b"], [100, 400])
    [0.1, 0.05]
    """
    if rule.target is not None and sum(tokens) * rule.max_epochs < rule.target:
        raise UsageError(
            f"mix: the target is {rule.target:,} tokens, and {rule.max_epochs:g} epochs of all documents that are left "
            f"are {int(sum(tokens) * rule.max_epochs):,}; lower target, or raise max_epochs"
        )
    if rule.epochs or rule.curve:
        wanted = _of_table("epochs", rule.epochs, names) if rule.epochs else _on_curve(rule, names)
        if rule.target is not None:
            total = sum(w * t for w, t in zip(wanted, tokens, strict=True))
            if not total:
                raise UsageError("mix: all documents that are left have an epoch of 0; give one of them more")
            wanted = [w * rule.target / total for w in wanted]
    else:
        assert rule.target is not None
        wanted = [amount / t if t else 0.0 for amount, t in zip(_amounts(rule, names, tokens), tokens, strict=True)]
    return _checked(rule, names, tokens, wanted)


def _amounts(rule: MixRule, names: Sequence[str], tokens: Sequence[int]) -> list[float]:
    """Return the tokens of each group in the mix."""
    target = float(rule.target or 0)
    if rule.shares:
        shares = _of_table("shares", rule.shares, names)
        missing = [name for name in rule.shares if rule.shares[name] and name not in (*names, OTHERS)]
        if missing:
            raise UsageError(
                f"mix: shares names {_listed(missing)}, of which no document is left; there are {_listed(names)}"
            )
        return [target * share / sum(shares) for share in shares]
    if rule.temperature is not None:
        powers = [t**rule.temperature if t else 0.0 for t in tokens]
        return [target * p / sum(powers) for p in powers]
    amounts, left = [0.0] * len(tokens), target
    # The smallest groups first: what they cannot give is left to the others.
    order = sorted(range(len(tokens)), key=lambda i: (tokens[i], i))
    for position, i in enumerate(order):
        amounts[i] = min(rule.max_epochs * tokens[i], left / (len(order) - position))
        left -= amounts[i]
    return amounts


def _of_table(what: str, table: Mapping[str, float], names: Sequence[str]) -> list[float]:
    missing = [name for name in names if name not in table]
    if missing and OTHERS not in table:
        raise UsageError(f"mix: {what} says nothing of {_listed(missing)}; add them, or {OTHERS!r} for all others")
    return [float(table.get(name, table.get(OTHERS, 0.0))) for name in names]


def _on_curve(rule: MixRule, names: Sequence[str]) -> list[float]:
    try:
        values = [float(name) if name else None for name in names]
    except ValueError:
        raise UsageError(f"mix: curve needs numbers, as buckets are, and the field has {_listed(names)}") from None
    known = [v for v in values if v is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    first, last = rule.curve
    return [
        0.0 if v is None else first + (last - first) * ((v - low) / (high - low) if high > low else 1.0) ** rule.power
        for v in values
    ]


def _checked(rule: MixRule, names: Sequence[str], tokens: Sequence[int], wanted: list[float]) -> list[float]:
    over = [
        f"{name or 'documents without a value'} ({epochs:.3g} epochs of {n:,} tokens)"
        for name, epochs, n in zip(names, wanted, tokens, strict=True)
        if epochs > rule.max_epochs * (1 + 1e-9)
    ]
    if over:
        raise UsageError(
            f"mix: the target cannot be reached with at most {rule.max_epochs:g} epochs: {_listed(over)}; lower "
            "target, raise max_epochs, or give these a smaller weight"
        )
    return wanted


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) if " " not in n else n for n in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
