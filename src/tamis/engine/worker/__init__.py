"""The work on a partition: read, apply the stages, write."""
