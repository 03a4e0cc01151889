"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.tasks.lance is not part of Tamis: export to Parquet, and read that with ParquetReader",
    name="tamis.tasks.lance",
)
