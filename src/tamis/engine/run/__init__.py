"""One run: its inputs, its directory, what is committed, its settings, its end."""
