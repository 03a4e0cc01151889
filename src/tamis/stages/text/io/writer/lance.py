"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.stages.text.io.writer.lance is not part of Tamis: write with ParquetWriter",
    name="tamis.stages.text.io.writer.lance",
)
