"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.backends.failed_task_markers is not part of Tamis: not needed: the run directory records what failed, and the same command goes on",
    name="tamis.backends.failed_task_markers",
)
