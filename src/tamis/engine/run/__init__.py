"""One run from beginning to end: what was asked for, what it reads, the loop, what it gives back.

What it leaves: output/; what it may use: budget/.
"""
