"""Parameters, ids, id files and results that deduplications share with NeMo Curator."""
