"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.core.client is not part of Tamis: leave it out, with its start() and stop(): nothing has to be started before a run",
    name="tamis.core.client",
)
