"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.resumability_actor is not part of Tamis: not needed: every run goes on where it stopped",
    name="tamis.utils.resumability_actor",
)
