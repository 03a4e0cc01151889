"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.distributed_utils is not part of Tamis: leave it out: there is no cluster to start",
    name="tamis.utils.distributed_utils",
)
