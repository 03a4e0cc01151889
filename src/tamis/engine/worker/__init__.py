"""What a worker does with a partition: read, apply the stages, write."""
