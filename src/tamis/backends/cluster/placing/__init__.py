"""Ways to have Ray start an agent on every node: plain actors, Ray Data, Cosmos Xenna. Imported by the placer (placer.py), nowhere else."""
