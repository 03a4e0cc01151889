"""Commands that messages suggest, quoted for a shell, so that no name of a file or document runs when one is pasted."""

from __future__ import annotations

import shlex


def command(name: str, *words: object) -> str:
    """Return a `tamis` command line that can be pasted; `name` may have several words ("dedup index-list").

    >>> command("why", "out", "doc-1"), command("why", "my out", "$(touch x)"), command("why", "out", "-v")
    ('tamis why out doc-1', "tamis why 'my out' '$(touch x)'", 'tamis why -- out -v')
    """
    texts = [str(w) for w in words]
    end = ["--"] if any(w.startswith("-") for w in texts) else []  # none of them is an option
    return " ".join(["tamis", name, *end, *map(shlex.quote, texts)])


def quoted(word: str) -> str:
    """Quote one word of such a command, for messages that give the rest of the command elsewhere."""
    return shlex.quote(word)
