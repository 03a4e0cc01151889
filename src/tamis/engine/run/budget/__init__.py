"""The budget and GPUs of a run and how they are divided, its forecast, and the record of settings."""
