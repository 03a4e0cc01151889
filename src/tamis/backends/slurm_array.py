"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.backends.slurm_array is not part of Tamis: give each job of the array `--shard I/N`, then `tamis merge` (docs/stores.md, examples/slurm-array.sh)",
    name="tamis.backends.slurm_array",
)
