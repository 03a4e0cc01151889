"""A run from start to end: settings, inputs, event loop, results.

What it leaves: output/; what it may use: budget/.
"""
