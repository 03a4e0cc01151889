"""Arguments and options that several commands of `tamis dedup` have, and what these do with a workflow."""

from __future__ import annotations

from typing import Annotated, Any

from tamis._dataclasses import dataclass
from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")]
Keep = Annotated[
    str,
    Option(
        metavar="WHICH", help="Which document of a group stays: the first, the longest, or the best (by --keep-by)."
    ),
]
MaxLoss = Annotated[
    str,
    Option(
        metavar="SHARE",
        help="Stop before anything is removed if a source (an input folder or file) would lose more than this share "
        "of its documents.",
    ),
]
FindOnly = Annotated[bool, Option("--find-only", help="Only write the table of duplicates; remove nothing.")]

Index = Annotated[
    str | None,
    Option(
        metavar="DIR",
        help="Keep an index of the documents that stay in this folder, for --against in later runs.",
    ),
]
Plan = Annotated[
    bool,
    Option(
        help="Show what it would take (passes, memory, disk), and stop. Exit code 4 if the memory budget is too small."
    ),
]
Append = Annotated[bool, Option(help="Add the documents that stay to the index of --against.")]


@dataclass(frozen=True)
class DuplicateOptions:
    """Options of the kinds that compare whole texts: exact and fuzzy."""

    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text"
    normalize: Annotated[
        str,
        Option(
            metavar="MODE",
            help="Which differences do not count: none (all count), strip (white space at the ends), nfc (Unicode "
            "composition), casefold (case, white space and Unicode forms) or alphanumeric (all but letters and "
            "digits, and case).",
        ),
    ] = "none"
    keep_by: Annotated[
        str | None,
        Option(
            metavar="FIELD", help="With --keep best: a field with a number; the document with the highest one stays."
        ),
    ] = None
    max_source_loss: MaxLoss = "95%"
    find_only: FindOnly = False
    index: Index = None
    against: Annotated[
        str | None,
        Option(
            metavar="DIR",
            help="Compare with the index of an earlier run: documents that match something in it are removed.",
        ),
    ] = None
    append: Append = False
    plan: Plan = False

    @property
    def workflow_arguments(self) -> dict[str, Any]:
        """The arguments of the workflow that these options set."""
        return {
            "text_field": self.text_field,
            "normalize_text": self.normalize,
            "keep_by": self.keep_by,
            "perform_removal": not self.find_only,
            "max_source_loss": self.max_source_loss,
            "index_path": self.index,
            "against": self.against,
            "append": self.append,
        }


def plan_or_run(workflow: Any, plan: bool, work: options.JobOptions) -> None:
    """Show what a deduplication would take, or run it."""
    if plan:
        from tamis.cli.plan.dedup import show
        from tamis.cli.plan.machine import this_machine

        show(
            workflow,
            work.get("memory"),
            work.get("workers"),
            this_machine(),
            None,
            work.launch.as_json,
            work.get("scratch"),
        )
        return
    raise CommandExit(perform_with(workflow.run, work))
