"""C4LineCleaner, line by line in plain Python: the specification."""

from __future__ import annotations

import re

POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
END_MARKS = (".", "?", "!", '"', "'")
CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")


def clean(
    text: str,
    min_words_per_line: int = 3,
    max_word_length: int = 1000,
    terminal_punctuation: bool = True,
    drop_javascript_lines: bool = True,
    drop_policy_lines: bool = True,
    drop_lorem_ipsum: bool = True,
    drop_curly_bracket: bool = True,
    remove_citations: bool = False,
) -> str:
    kept = []
    for raw in text.splitlines():
        line = raw.strip()
        bare = CITATION.sub("", line)
        words = line.split()
        if terminal_punctuation and (not bare.endswith(END_MARKS) or bare.endswith("...")):
            continue
        if len(words) < min_words_per_line or max(map(len, words), default=0) > max_word_length:
            continue
        low = line.lower()
        if drop_lorem_ipsum and "lorem ipsum" in low:
            return ""
        if drop_javascript_lines and "javascript" in low:
            continue
        if drop_curly_bracket and "{" in line:
            return ""
        if drop_policy_lines and any(phrase in low for phrase in POLICY):
            continue
        kept.append(bare.strip() if remove_citations else line)
    return "\n".join(kept)
