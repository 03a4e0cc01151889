"""`tamis dedup`: the command of each kind of deduplication, removal by ids, and indexes."""

from __future__ import annotations

from tamis.cli.parsing.arguments import Commands
from tamis.dedup.kinds import KINDS

app = Commands("dedup", help="Find duplicate documents and remove all but one of each.")
for name in (kind.name for kind in KINDS.values() if kind.is_deduplication):
    app.add(name, f"tamis.cli.dedup.{name}:{name}")
app.add("remove", "tamis.cli.dedup.remove:remove")
app.add("index-list", "tamis.cli.dedup.index:index_list")
app.add("index-remove", "tamis.cli.dedup.index:index_remove")
