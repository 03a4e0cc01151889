"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.math is not part of Tamis: use the filters for text and a stage of your own", name="tamis.stages.math"
)
