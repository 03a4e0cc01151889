"""`tamis profile`: budgets and block sizes tried on a sample, and what this machine has learned from its runs."""

from __future__ import annotations

from tamis.cli.parsing.arguments import Commands

app = Commands(
    "profile",
    help="Try budgets and block sizes on a sample of the input: tamis profile RECIPE (tamis profile try --help). "
    "The other commands show what this machine has learned from its runs.",
    fallback="try",
)
app.add("try", "tamis.cli.profile.trying:try_")
app.add("list", "tamis.cli.profile.learned:list_")
app.add("show", "tamis.cli.profile.learned:show")
