"""A strict reader of Prometheus' text format (0.0.4); any deviation is an AssertionError."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)")
Labels = tuple[tuple[str, str], ...]


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """Return the samples by name and sorted labels.

    Every family has HELP and TYPE before its samples, and all of them together.
    """
    assert text.endswith("\n")
    found: dict[str, dict[Labels, float]] = {}
    helped: set[str] = set()
    kinds: dict[str, str] = {}
    current = ""
    for line in text.removesuffix("\n").split("\n"):
        assert line, "an empty line"
        assert "\r" not in line
        if line.startswith("# HELP "):
            name, _, said = line.removeprefix("# HELP ").partition(" ")
            assert re.fullmatch(_NAME, name), line
            assert said, f"{name} is not explained"
            assert name not in helped, f"{name} is explained twice"
            assert re.fullmatch(r"(?:[^\\]|\\\\|\\n)*", said), line
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == current, "TYPE follows HELP"
            assert kind in ("counter", "gauge")
            kinds[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            name, inside, value = match.groups()
            assert name == current, f"{name} stands among samples of {current}"
            assert name in kinds, f"{name} has no TYPE"
            assert (kinds[name] == "counter") == name.endswith("_total")
            labels = _labels(inside or "")
            family = found.setdefault(name, {})
            assert labels not in family, f"twice: {line}"
            family[labels] = float(value)
    assert helped == set(kinds) == set(found), "a family without samples"
    return found


def _labels(inside: str) -> Labels:
    labels: dict[str, str] = {}
    at = 0
    while at < len(inside):
        match = _LABEL.match(inside, at)
        assert match, inside
        assert match[1] not in labels, inside
        labels[match[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])
        at = match.end()
        assert not (match[3] == "," and at == len(inside)), inside
    return tuple(sorted(labels.items()))
