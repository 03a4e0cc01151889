"""Deciding by many workers: where one node would be the bottleneck, ranges of keys are looked at as partitions of a pass, on all nodes.

ranges.py    which ranges there are, and their files
stage.py     the stage that looks at one range and leaves what it finds in a file beside
found.py     what the deciding process makes of those files

The ranges cut the key space, so that a group of equal keys is never in two of them: what is found does not depend on how many there are, nor on who
looked at which. Only pairs of numbers go on from there to the one process that joins them.
"""
