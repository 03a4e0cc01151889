"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.core.serve is not part of Tamis: serve the model with another tool, and call it from a stage of your own",
    name="tamis.core.serve",
)
