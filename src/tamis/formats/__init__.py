"""Files into documents and back.

base.py says what a format is, registry.py lists the formats; each has a folder with a `format.py` (jsonl/, parquet/,
arrow/, text/, video/, images/, webdataset/). Shared by them: compression/ (compressed streams), input_files/ (which
files an input means), columns/ (values in Arrow columns, and one type into another), schema/ (one schema over a run),
frames/ (batches as pandas frames, and back), scratch/ (files that one pass leaves for the next), table_block.py (an
Arrow table as the records behind a batch).
"""
