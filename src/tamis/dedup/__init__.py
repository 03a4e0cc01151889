"""Workflows of several passes: deduplication, removal by ids, joining of segments.

Each kind has a package with its stages (which make keys of documents, or remove documents, inside the engine's runs),
its solver (which decides between two passes, out of core, in a separate process) and its workflow (what users call;
the public paths are in stages/deduplication and stages/text). Shared modules, in the order in which to read them:

workflow.py          one workflow from beginning to end, composed of the parts below
passes.py, kinds.py  what a workflow is to do, and the registry of kinds
output_directory.py  the output: lock, fresh start, record that everything is done
work_directory.py    files between passes: in the run directory, in scratch or in a bucket
state.py             typed values that passes and the solver leave for each other
pass_runner.py       executes pipelines and tasks; checks that the input stays the same
key_comparison.py    the usual procedure: keys, decision, removal; others are in the procedure.py of a kind
solver_task.py       steps of the solver; solver_launcher.py starts it, solver.py performs them
records.py           record files of a pass by position; decisions.py writes tables, position_table.py reads them
"""
