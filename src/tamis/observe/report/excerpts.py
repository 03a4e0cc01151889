"""Excerpts of documents as HTML: text with what a rule counted marked, and two texts with their differences marked.

Every character is escaped; nothing of a document becomes markup.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from tamis.engine.samples import DocumentSample, Excerpt, SampleOutcome
from tamis.observe.charts.svg import text, visible
from tamis.sizes import format_size

_SIMILARITY = re.compile(r'"similarity": ([0-9.]+)')
_SNIPPET = 150
_TAG = re.compile(r"<[A-Z_0-9]+(?::[0-9a-f]+)?>")  # what redactors leave: position and kind
_MAX_DIFF = 3000  # characters of each side that are compared
_WORD = re.compile(r"[^\s]+ ?|\s+")  # with the space after it: spaces alone would match each other everywhere


def marked(value: str, marks: Iterable[tuple[int, int]]) -> str:
    """Return text for HTML with ranges marked.

    >>> marked("a <b> c", [(2, 5)])
    'a <mark>&lt;b&gt;</mark> c'
    """
    parts, done = [], 0
    for start, end in sorted(marks):
        start = max(start, done)
        if start >= end:
            continue
        parts += [visible(value[done:start]), f"<mark>{visible(value[start:end])}</mark>"]
        done = end
    return "".join([*parts, visible(value[done:])])


def whole(excerpt: Excerpt) -> str:
    """Return an excerpt, with an ellipsis where the text continues."""
    before = "… " if excerpt.start else ""
    after = " …" if excerpt.start + len(excerpt.text) < excerpt.n_chars else ""
    return before + marked(excerpt.text, excerpt.marks or _redactions(excerpt.text)) + after


def snippet(excerpt: Excerpt) -> str:
    """Return one line of an excerpt: around its first mark, or its beginning."""
    marks = excerpt.marks[:1]
    start = max(0, marks[0][0] - _SNIPPET // 3) if marks else 0
    end = start + _SNIPPET
    shown = excerpt.text[start:end]
    inside = [(a - start, min(b, end) - start) for a, b in excerpt.marks if start <= a < end]
    flat = re.sub(r"\s", " ", shown)
    before = "… " if start or excerpt.start else ""
    return before + marked(flat, inside) + (" …" if end < len(excerpt.text) else "")


def _redactions(value: str) -> list[tuple[int, int]]:
    """Return where a redactor has put a tag for what it removed."""
    return [m.span() for m in _TAG.finditer(value)]


def difference(before: str, after: str) -> tuple[str, str]:
    """Return two texts for HTML, in each of which what the other does not have is marked.

    >>> difference("one two", "one three")
    ('one <del>two</del>', 'one <ins>three</ins>')
    """
    a, b = (_WORD.findall(value[:_MAX_DIFF]) for value in (before, after))
    left, right = [], []
    words_a, words_b = ([word.removesuffix(" ") for word in words] for words in (a, b))
    for kind, a1, a2, b1, b2 in difflib.SequenceMatcher(None, words_a, words_b).get_opcodes():
        old, new = visible("".join(a[a1:a2])), visible("".join(b[b1:b2]))
        left.append(old if kind == "equal" or not old else f"<del>{old}</del>")
        right.append(new if kind == "equal" or not new else f"<ins>{new}</ins>")
    return "".join(left), "".join(right)


def block(html: str) -> str:
    """Return text that scrolls, by keys, too."""
    return f'<pre tabindex="0">{html}</pre>'


def side_by_side(left: tuple[str, str], right: tuple[str, str]) -> str:
    """Return two texts, each with its title, next to each other."""
    sides = "".join(f"<div><b>{title}</b>{block(html)}</div>" for title, html in (left, right))
    return f'<div class="two">{sides}</div>'


def document(sample: DocumentSample, paths: Mapping[int, str], is_open: bool = False) -> str:
    """Return a document that can be unfolded: what became of it, its name, a line of it; then the excerpt."""
    excerpt = sample.excerpt or Excerpt()
    rule = f'<span class="dim of-rule">{text(sample.rule, 100)}</span> ' if sample.rule else ""
    value = shown_value(sample.value) if sample.value else ""
    about = f'{rule}<span class="dim">{text(value, 100)}</span>'
    body = block(whole(excerpt))
    if sample.outcome is SampleOutcome.CHANGED and sample.before is not None:
        old, new = difference(sample.before.text, excerpt.text)
        body = side_by_side(("before", old), ("after", new))
    where = f"{paths.get(sample.file, '')}:{sample.offset}" if sample.file >= 0 else ""
    groups = ", ".join(f"{name} {value}" for name, value in sample.groups.items())
    foot = " · ".join(part for part in (where, groups, format_size(sample.n_bytes)) if part)
    return (
        f'<details class="doc" data-outcome="{sample.outcome}" data-rule="{_attribute(sample.stage, sample.rule)}"'
        f'{" open" if is_open else ""}><summary><b class="o-{sample.outcome}">{sample.outcome}</b> '
        f'<code>{text(sample.id or where, 80)}</code> {about}<br><span class="line">{snippet(excerpt)}</span></summary>'
        f'{body}<p class="dim">{text(foot, 500)}</p></details>'
    )


def _attribute(stage: str, rule: str) -> str:
    return text(f"{stage}:{rule}" if stage else "", 400).replace('"', "&quot;")


def shown_value(value: str) -> str:
    """Return a measured value with few digits.

    >>> shown_value("0.12084592145015106"), shown_value("[0.61, 'en']")
    ('0.12085', "[0.61, 'en']")
    """
    if value.startswith('{"kept"'):
        similarity = _SIMILARITY.search(value)
        return f"similarity {similarity[1]}" if similarity else ""
    try:
        return f"{float(value):.5g}" if "." in value or "e" in value else value[:80]
    except ValueError:
        return value[:80]


def rows_of(samples: Sequence[DocumentSample], paths: Mapping[int, str]) -> str:
    return "".join(document(s, paths) for s in samples)
