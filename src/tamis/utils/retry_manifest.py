"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.retry_manifest is not part of Tamis: not needed: every run goes on where it stopped",
    name="tamis.utils.retry_manifest",
)
