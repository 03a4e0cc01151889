"""The output of a run: run directory, commit log, committed files, on disk or in a bucket.

Shards becoming one run again.
"""
