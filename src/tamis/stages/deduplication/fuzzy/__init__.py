"""Near duplicates: documents whose sets of shingles overlap."""
