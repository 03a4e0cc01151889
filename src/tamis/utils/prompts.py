"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.prompts is not part of Tamis: keep prompts in the script", name="tamis.utils.prompts"
)
