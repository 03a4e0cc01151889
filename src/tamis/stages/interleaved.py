"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.interleaved is not part of Tamis: text with pictures is not here yet", name="tamis.stages.interleaved"
)
