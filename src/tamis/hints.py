"""Commands that messages suggest, quoted for a shell: what data or a file is called must never run when a hint is pasted."""

from __future__ import annotations

import shlex


def command(name: str, *words: object) -> str:
    """A `tamis` command line as one may paste it; `name` may be of several words ("dedup index-list").

    >>> command("why", "out", "doc-1"), command("why", "my out", "$(touch x)"), command("why", "out", "-v")
    ('tamis why out doc-1', "tamis why 'my out' '$(touch x)'", 'tamis why -- out -v')
    """
    given = [str(w) for w in words]
    end = ["--"] if any(w.startswith("-") for w in given) else []  # none of them is an option
    return " ".join(["tamis", name, *end, *map(shlex.quote, given)])


def quoted(word: str) -> str:
    """One word of such a command, for where the rest of it is said elsewhere."""
    return shlex.quote(word)
