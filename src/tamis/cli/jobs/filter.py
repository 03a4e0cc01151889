"""`tamis filter`: published rule sets over files, without writing a recipe.

`--list` shows every set, filter and default.
"""

from __future__ import annotations

from typing import Annotated, Any

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.errors import UsageError


def filter_(
    sets: Annotated[
        str | None,
        Argument(metavar="SET", help="A set of rules, or several joined by +, e.g. gopher+c4; --list shows them."),
    ] = None,
    source: Annotated[
        str | None, Argument(metavar="IN", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")
    ] = None,
    target: Annotated[str | None, Argument(metavar="OUT", help="The folder for the documents that pass.")] = None,
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    list_: Annotated[bool, Option("--list", help="Show every set, filter and default, and stop.")] = False,
    *,
    work: options.OnePassOptions,
) -> None:
    """Keep the documents that pass a published set of rules.

    The output has the format of the input. If it is interrupted, run the same command again: it continues where it
    stopped.

    Example: tamis filter gopher data/ clean/ --memory 1GB
    """
    if list_:
        _print_list()
        return
    if sets is None or source is None or target is None:
        raise UsageError(
            "expected SET IN OUT, e.g. tamis filter gopher data/ clean/; tamis filter --list shows the sets"
        )
    from tamis.cli.jobs.jobs import FilterJob, location
    from tamis.cli.jobs.request import Request
    from tamis.cli.jobs.run import perform

    job = FilterJob(sets, location(source), location(target), text_field)
    raise CommandExit(perform(Request(job, work.settings, work.launch)))


def _print_list() -> None:
    from tamis.cli.terminal.show import print_table
    from tamis.stages.text.filters.catalogue import limits, list_filters, rule_sets

    for name, stages in rule_sets().items():
        rows = [(rule.name, limits(rule), _about(rule)) for stage in stages for rule in stage().filters()]
        print_table(f"{name} ({len(rows)} rules)", ["rule", "keeps", "of"], rows)
    rows = [(info.name, info.parameters, info.about) for info in list_filters()]
    print_table("Filters", ["filter", "defaults", "score"], rows)


def _about(one: Any) -> str:
    if hasattr(one, "statistic") and hasattr(one, "per"):
        return str(one.statistic) + (f" / {one.per}" if one.per else "")
    return (type(one).__doc__ or "").strip().splitlines()[0]
