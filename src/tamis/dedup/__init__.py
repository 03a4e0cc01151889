"""Deduplication between the passes: grouping keys out of core, choosing what stays, writing down why.

Stages (stages/deduplication) make keys of documents and remove documents, inside the engine's runs. What lies between is here:
it reads the record files of a pass by position, never holds more than its share of the budget, and is fast enough for one
process (sorting keys takes a hundredth of the time of making them). It can be repeated at any time with the same result.
"""
