"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.deduplication.exact.identification is not part of Tamis: ExactDeduplicationWorkflow does all steps in one call",
    name="tamis.stages.deduplication.exact.identification",
)
