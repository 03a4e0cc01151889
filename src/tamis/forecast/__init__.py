"""What a run will take: models of earlier runs, profiles of machines, ranges."""
