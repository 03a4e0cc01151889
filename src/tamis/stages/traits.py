"""Promises of a stage to the engine and to the workflows that run it."""

from __future__ import annotations

from typing import NamedTuple


class StageTraits(NamedTuple):
    """Promises of a stage class, as its class attribute `traits`; none by default, so that nothing is assumed.

    A promise lets a run take a shortcut. One that does not hold changes results.
    """

    judges_input: bool = False
    """Documents that it quarantines are bad for every pass of a workflow, not only for its own."""

    keeps_results: bool = False
    """It may store results between the passes of a workflow (`keep_between_passes`) instead of computing them again."""

    only_adds: bool = False
    """It only adds columns: documents, and the fields that they had, stay as they are."""

    gives_documents: bool = False
    """It returns document batches, never another kind of task: after a GPU stage, another worker may write them."""

    removes_duplicates: bool = False
    """It drops duplicates of other documents, which are counted as such."""

    only_drops: bool = False
    """It drops documents and changes nothing else: a later pass may repeat its decisions without running it."""

    counts_tokens_in: str = ""
    """The parameter with the name of the field to which it adds the number of tokens of each document."""

    takes_all_files: bool = False
    """It must get all files of the input in one task."""

    lists_work: bool = False
    """As the first stage it makes one task of nothing but its settings for each piece of work (a URL). A run calls it
    once, before it starts, and each task is a partition: it is called with that task again, and returns it."""
