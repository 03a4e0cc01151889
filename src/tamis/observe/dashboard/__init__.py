"""The dashboard: a small web page on a run, served by a process of its own that reads only the run directory.

Standard library only: the process counts in the memory budget of the run, and everything together must stay small.
"""
