"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.text.experimental is not part of Tamis: call the model from a stage of your own",
    name="tamis.stages.text.experimental",
)
