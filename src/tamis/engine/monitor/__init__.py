"""What is measured while a run goes on, and the database it is written to."""
