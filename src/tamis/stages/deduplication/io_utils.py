"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.deduplication.io_utils is not part of Tamis: not needed: the workflows read and write by themselves",
    name="tamis.stages.deduplication.io_utils",
)
