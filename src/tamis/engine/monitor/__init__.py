"""What is measured while a run is in progress, and the database it is written to."""
