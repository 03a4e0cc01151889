"""Key comparison by many workers: where one node would be the bottleneck, a pass on all nodes searches ranges of keys.

ranges.py    the ranges and their files
passes.py    the passes, and the stage that searches a range and writes its result
search.py    the search of one range, in a worker
results.py   the results, and how the solver takes them over

The ranges cut the key space, so that a group of equal keys is always within one of them: the result depends neither on
their number nor on the worker that searched them. Only pairs of numbers go from there to the one process that joins
them.
"""
