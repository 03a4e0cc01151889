"""Workflows of several passes with files between them: deduplication (exact, fuzzy, lines), removal by ids, joining of
segments.

Each kind has a room of its own with its stages (which make keys of documents, or remove documents, inside the engine's
runs), its solver (which decides between two passes, out of core, in a process of its own) and its workflow (what users
call; the public paths are in stages/deduplication and stages/text). What they share lies here: workflow.py drives the
passes of every kind in an output that is held (held_output.py), solver.py is the deciding process, records.py reads the
record files of a pass by position, decisions.py writes down what goes and why, as tables that stages look their
documents up in (position_table.py, removal.py).
"""
