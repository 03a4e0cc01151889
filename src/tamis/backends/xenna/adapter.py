"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.backends.xenna.adapter is not part of Tamis: not needed: stages run in the engine's own worker loop, on one machine or many (docs/cluster.md)",
    name="tamis.backends.xenna.adapter",
)
