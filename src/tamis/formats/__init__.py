"""Read files into documents and write documents to files.

base.py defines a format, registry.py lists the formats; each is a module with the names of a protocol (jsonl/,
parquet/, arrow/, text/; images and videos are satellites). Shared by them: compression/ (compressed streams),
input_files/ (the files of an input), table_files.py and table_block.py (tables), schema/ (one schema over a run),
scratch/ (files between passes).
"""
