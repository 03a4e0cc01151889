"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.utils.lance is not part of Tamis: export to Parquet", name="tamis.utils.lance")
