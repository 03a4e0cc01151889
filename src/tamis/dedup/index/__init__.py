"""Indexes of what earlier deduplications kept, and comparing new documents with them."""
