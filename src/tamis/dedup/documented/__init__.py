"""What deduplications share with NeMo Curator's: parameters, ids and the files they are in, results. The work is done by the rooms beside."""
