"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.backends.slurm_array is not part of Tamis: run one job per machine over its own part of the files; each has a run directory of its own",
    name="tamis.backends.slurm_array",
)
