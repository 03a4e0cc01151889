"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.deduplication.shuffle_utils is not part of Tamis: not needed: the workflows sort on disk",
    name="tamis.stages.deduplication.shuffle_utils",
)
