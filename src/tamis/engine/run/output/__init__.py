"""What a run leaves: the run directory and its log, committed files, on disk or in a bucket.

Shards becoming one run again.
"""
