"""`tamis curate IN OUT`: filters, duplicates and changes in one command, by a preset or a recipe with steps."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from tamis._dataclasses import dataclass
from tamis.cli.jobs import command_file
from tamis.cli.jobs.jobs import Consent, RecipeJob, find_recipe
from tamis.cli.jobs.launch import Launch, alert_lines
from tamis.cli.jobs.request import Request
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.engine.run.settings import SettingValue
from tamis.errors import TamisError, UsageError
from tamis.stores.run_locations import run_dir_of
from tamis.stores.urls import absolute, is_remote

if TYPE_CHECKING:
    from tamis.cli.jobs.results import CurationSummary, RunSummary, StageSummary
    from tamis.curation import CurationResult
    from tamis.engine.progress import Progress, ProgressState


def curate(
    source: options.Source,
    target: Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")],
    preset: Annotated[
        str,
        Option(
            metavar="NAME",
            help="web-english, web-multilingual, fineweb, fineweb2, books, code, minimal, or a recipe file with steps.",
        ),
    ] = "web-english",
    text_field: Annotated[str | None, Option(help="The field that holds the text. Default: text.")] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAME",
            help="Format of the output: parquet, arrow, jsonl, jsonl.zst, jsonl.gz, ... Default: as the input.",
        ),
    ] = None,
    shard_size: Annotated[
        str | None,
        Option(metavar="SIZE", help="Write files of about this size, measured before compression, e.g. 256MB."),
    ] = None,
    split: Annotated[
        str | None,
        Option(
            metavar="SHARES",
            help="Divide the documents into parts of these shares, by a hash of each text, e.g. "
            "train=99.9,validation=0.1.",
        ),
    ] = None,
    shuffle: Annotated[
        int | None,
        Option(min=0, metavar="SEED", help="Write the documents in a random order that this seed determines."),
    ] = None,
    tokenize: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Write token ids by the tokenizer in this folder, not documents; --format is then megatron, npy, raw, "
            "mds, parquet or arrow.",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None, Option(min=2, metavar="N", help="With --tokenize: write sequences of N tokens.")
    ] = None,
    packing: Annotated[
        Literal["concatenate", "best-fit"] | None,
        Option(help="With --sequence-length: how documents fill sequences. Default: concatenate."),
    ] = None,
    end_token: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="With --tokenize: the special token that ends each document, or none. Default: the tokenizer's.",
        ),
    ] = None,
    compression: Annotated[
        Literal["zstd", "none"] | None,
        Option(
            help="With --format mds: how shards are compressed. LocalDataset reads only those of none. Default: zstd."
        ),
    ] = None,
    blocklists: Annotated[
        str | None,
        Option(
            metavar="DIR", help="The folder with the lists of domains, URLs and words that the preset drops URLs by."
        ),
    ] = None,
    no_blocklists: Annotated[
        bool, Option("--no-blocklists", help="Run a preset that drops URLs by lists without any list.")
    ] = False,
    no_card: Annotated[bool, Option("--no-card", help="Do not write the README.md that describes the data.")] = False,
    plan: Annotated[
        bool,
        Option(
            "--plan",
            help="Show what would be done, how much each pass reads, writes and needs in memory, and what a mix will "
            "be, and stop.",
        ),
    ] = False,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    allow_alert_sinks: options.AllowAlertSinks = False,
    trust_remote_code: options.TrustRemoteCode = False,
    *,
    work: options.StagesOptions,
) -> None:
    """Clean a corpus in one command: filter documents, remove duplicates, change texts, and write one report.

    The steps come from a preset (tamis recipe show web-english prints one) or from a recipe with `steps:`. tamis why
    OUT DOCUMENT tells which step dropped a document. If it is interrupted, run the same command again: it continues
    where it stopped.

    Example: tamis curate data/ clean/ --preset web-english --memory 4GB
    """
    from tamis.curation.writing import make_writing

    tokens: dict[str, SettingValue] = {}
    if tokenize is not None:
        tokens = token_values(
            tokenize, format_ or "megatron", sequence_length, packing or "concatenate", end_token, compression
        )
        format_ = None
    elif any(value is not None for value in (sequence_length, packing, end_token, compression)):
        raise UsageError(
            "--sequence-length, --packing, --end-token and --compression are for token ids; give --tokenize FOLDER, too"
        )
    partition_by = work.get("partition_by")
    # A mistake is one of the option.
    make_writing(format_, shard_size, split, shuffle, tokens=tokens or None, partition_by=partition_by)
    _check_input(source)
    writing: dict[str, SettingValue] = {
        "format": format_,
        "shard_size": shard_size,
        "split": split,
        "shuffle": shuffle,
        "card": False if no_card else None,
        "partition_by": partition_by,
    }
    values: dict[str, SettingValue] = {"input": absolute(source), "output": absolute(target), "text_field": text_field}
    sets = options.parse_sets(set_)
    values["blocklists"] = _blocklists(blocklists, no_blocklists)
    if values["blocklists"] is None and "blocklists" not in sets:
        _refuse_without_lists(preset)
    job = RecipeJob(preset, sets, _recipe_values(values, writing, tokens))
    consent = Consent(tuple(allow_module or ()), trust_remote_code, allow_alert_sinks)
    request = Request(job, work.settings, work.launch, consent)
    workflow_and_settings = request.workflow()
    if workflow_and_settings is None or not hasattr(workflow_and_settings[0], "steps"):
        raise _without_steps(preset)
    if plan:
        from tamis.cli.plan.curation import show_plan

        # Nothing is started but to see a mix; `tamis plan` loads the stages, and models with them.
        show_plan(workflow_and_settings[0], work.launch.as_json, workflow_and_settings[1], may_run_trials=False)
        return
    raise CommandExit(perform(request))


def token_values(
    tokenizer: str,
    format_: str,
    sequence_length: int | None,
    packing: str,
    end_token: str | None,
    compression: str | None,
) -> dict[str, SettingValue]:
    """Return the options of an output of token ids as a recipe has them, in `write: tokens:`.

    Raises UsageError where there is no tokenizer, so that it is reported as one of the option.
    """
    from tamis.stages.text.tokens.tokenizer import tokenizer_path

    tokenizer_path(tokenizer)
    values: dict[str, SettingValue] = {
        "tokenizer": os.path.abspath(os.path.expanduser(tokenizer)),
        "format": format_,
        "sequence_length": sequence_length,
        "packing": packing,
        "end_token": end_token,
        "compression": compression,
    }
    return {name: value for name, value in values.items() if value is not None}


def _recipe_values(*sections: dict[str, SettingValue]) -> dict[str, SettingValue]:
    """Return the values that were given by their paths in a recipe: top level, `write:`, `write: tokens:`."""
    prefixes = ("", "write.", "write.tokens.")
    return {
        f"{prefix}{name}": value
        for prefix, section in zip(prefixes, sections, strict=True)
        for name, value in section.items()
        if value is not None
    }


def _check_input(source: str) -> None:
    """Raise UsageError for a path that does not exist, rather than one of the preset, which does not name it."""
    if not is_remote(source) and not set("*?[") & set(source) and not os.path.lexists(source):
        raise UsageError(f"no such input: {source}")


def _without_steps(preset: str) -> UsageError:
    from tamis.recipe.step_names import with_steps

    return UsageError(f"{preset} has no 'steps:'; tamis run runs it. For a curation: {', '.join(with_steps())}")


def _blocklists(folder: str | None, without: bool) -> SettingValue:
    """Return the setting `blocklists`: a folder, False for none at all, None for that of the preset."""
    if folder is not None and without:
        raise UsageError("give --blocklists or --no-blocklists, not both")
    if folder is not None:
        return absolute(folder)
    return False if without else None


def _refuse_without_lists(preset: str) -> None:
    """Raise UsageError for a preset that needs lists of URLs, none of which ships."""
    from tamis.yaml_text import read_text

    path = find_recipe(preset)
    if os.path.isfile(path) and re.search(r"^blocklists:\s*\?\?\?", read_text(path), re.MULTILINE):
        raise UsageError(
            f"{preset} drops URLs by lists, and none ships with Tamis: give --blocklists DIR with files named domains, "
            "urls, banned_words and so on (docs/guides/web.md), or --no-blocklists to go without"
        )


# -- running ----------------------------------------------------------------------------------------------------------
def perform(request: Request) -> int:
    """Run the curation of a request with progress shown, print what happened, and return the exit code."""
    from tamis.cli.terminal.show import print_json, report_failure

    try:
        about = execute(request)
    except TamisError as exc:
        return report_failure(exc, request.launch.as_json)
    if request.launch.as_json:
        print_json(about)
    else:
        print_result(about)
    return 0


def execute(request: Request) -> CurationSummary:
    """Run the curation of a request and return what happened as plain values."""
    from tamis.backends.alerting import OFF
    from tamis.cli.jobs.passes import attended
    from tamis.forecast import ranges

    workflow_and_settings = request.workflow()
    assert workflow_and_settings is not None
    curation, settings = workflow_and_settings
    run_dir = run_dir_of(curation.output_path)
    with attended(run_dir, settings, curation.name, Launch.of_request(request)) as (executor, show, watch):
        begun = show if settings.get("shard") is not None else _SaveFirst(show, request, run_dir)
        result = curation.run(executor, progress=begun, watch=watch, alerts=OFF, count_caller=True, **settings)
    if result.status == "finished":
        ranges.learn_command(result.seconds, result.prediction)
    about = described(result)
    about["alerts"] = watch.summary() if watch is not None else {}
    return about


@dataclass
class _SaveFirst:
    """Shows states of progress. At the first one the output belongs to this call, and the command is saved there."""

    show: Progress
    request: Request
    run_dir: str
    is_saved: bool = False

    def __call__(self, state: ProgressState) -> None:
        if not self.is_saved:
            command_file.save(self.request, self.run_dir)
            self.is_saved = True
        if state.get("phase") != "opened":
            self.show(state)


_OF_THE_OUTPUT = ("n_tokens", "n_sequences", "n_padding", "n_files", "written_bytes")


def described(result: CurationResult) -> CurationSummary:
    """Return a result as plain values: those of the last pass, which cover all steps, and those of the curation."""
    from tamis.cli.jobs.summary import as_dict, drops_of_run

    whole: dict[str, object] = {
        "status": result.status,
        "output": result.output,
        "deduplications": result.deduplications,
        "passes": [asdict(p) for p in result.record.passes] if result.record is not None else [],
        "scratch_bytes": result.scratch_bytes,
        "left_out": result.left_out,
    }
    if result.run is None:
        return cast("CurationSummary", {"exit_code": 0, "message": "", **result.about, **whole})
    about: Any = as_dict(result.run)
    about |= {name: n for name, n in result.about.items() if name in _OF_THE_OUTPUT}
    about |= whole
    if result.record is not None:
        about |= result.record.cost()
    about["prediction"] = result.prediction  # that of the last pass is of that alone
    about["drops"] = drops_of_run(result.run.ledger, run_dir_of(result.output))
    return cast("CurationSummary", about)


def print_result(about: CurationSummary) -> None:
    from tamis.cli.jobs.summary import print_summary
    from tamis.cli.terminal.show import print_lines
    from tamis.sizes import format_size

    if about["status"] == "shard":
        print_lines(
            [f"shard finished: {about['output']}; when all are, `tamis merge` with the same command joins them"]
        )
        return
    if about["status"] == "already":
        n = f"{about['n_written']:,} documents" if "n_written" in about else "everything"
        print_lines([f"finished earlier, nothing to do: {about['output']} holds {n} (--fresh starts over)"])
        return
    lines = []
    for curation_pass in about["passes"]:
        read, written = format_size(curation_pass["read_bytes"]), format_size(curation_pass["written_bytes"])
        moved = (
            f", read {read}, wrote {written}" if curation_pass["read_bytes"] or curation_pass["written_bytes"] else ""
        )
        lines.append(f"{curation_pass['title'] or curation_pass['label']}: {curation_pass['seconds']:.1f} s{moved}")
    scratch = f"scratch: {format_size(about['scratch_bytes'])}"
    left_out = [f"warning: {sentence}" for sentence in about["left_out"]]
    print_summary(
        cast("RunSummary", {**about, "stages": _shown_stages(about["stages"])}),
        [*_token_lines(about), *lines, scratch, *left_out, *alert_lines(about.get("alerts"))],
    )


def _shown_stages(stages: Sequence[StageSummary]) -> list[StageSummary]:
    """Return the stages without the one that counts for the card, which drops nothing.

    The tokens that it added up of what was written go to the stage that counted those of each document.
    """
    from tamis.curation.card import DESCRIBE, TOKENS

    written = sum(stage["metrics"].get(TOKENS, 0.0) for stage in stages if stage["name"] == DESCRIBE)
    shown = [stage for stage in stages if stage["name"] != DESCRIBE]
    counted = [stage["name"] for stage in shown if "tokens" in stage["metrics"] and stage["name"] != "tokenize"]
    return [
        {**stage, "metrics": {**stage["metrics"], TOKENS: written}} if stage["name"] in counted[:1] else stage
        for stage in shown
    ]


def _token_lines(about: CurationSummary) -> list[str]:
    if "n_sequences" not in about:
        return []
    share = about["n_padding"] / max(1, about["n_tokens"] + about["n_padding"])
    return [f"sequences: {about['n_sequences']:,}, {share:.2%} of their tokens are padding"]
