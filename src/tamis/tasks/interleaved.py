"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.tasks.interleaved is not part of Tamis: text with pictures is not here yet", name="tamis.tasks.interleaved"
)
