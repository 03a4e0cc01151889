"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.deduplication.fuzzy.minhash is not part of Tamis: FuzzyDeduplicationWorkflow does all steps in one call",
    name="tamis.stages.deduplication.fuzzy.minhash",
)
