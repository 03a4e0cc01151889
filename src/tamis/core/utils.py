"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.core.utils is not part of Tamis: not needed: there is no cluster to start", name="tamis.core.utils"
)
