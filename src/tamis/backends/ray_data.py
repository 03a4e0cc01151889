"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    'tamis.backends.ray_data is not part of Tamis: leave the executor out: Pipeline.run() uses the local one, which starts workers by itself inside memory="..."',
    name="tamis.backends.ray_data",
)
