"""WARC files: records with faults by offset, and the HTTP responses in them."""
