"""`tamis resume`: run a command again.

What was committed is kept, only the rest is done. And `tamis merge`, which main.py turns into the command with --merge.

The command that made an output is read from its run directory, which is this user's alone. A bucket has no such owner:
what it names on this machine must belong to this user (or the system), is printed, and no code is looked for in the
folder that it names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from tamis.cli.jobs.command_file import SavedCommand, load
from tamis.cli.jobs.jobs import CommandJob, Consent, RecipeJob, find_recipe
from tamis.cli.jobs.request import Request, run_dir_of_pipeline
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, echo
from tamis.cli.parsing.options import LAUNCH
from tamis.errors import RunConflict, UsageError
from tamis.files import user_name
from tamis.stores.options import command_line_options, remember_for_all
from tamis.stores.run_locations import named_output, output_of_run_dir, run_dir_of
from tamis.stores.urls import absolute, is_bucket


def resume(
    target: Annotated[
        str, Argument(metavar="OUTPUT_OR_RECIPE", help="Output or run directory of a run, or its recipe.")
    ],
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    allow_alert_sinks: options.AllowAlertSinks = False,
    trust_remote_code: options.TrustRemoteCode = False,
    *,
    work: options.ResumeOptions,
) -> None:
    """Resume a run that was interrupted; the same as its command again.

    Options given here override those of the earlier command. Modules, code of models, files of alert rules, sinks and
    secrets must be allowed or given again.

    Example: tamis resume out/ --memory 4GB
    """
    from tamis.cli.jobs.run import perform

    settings, launch = dict(work.settings), work.launch
    if "scratch" in settings:  # paths are relative to this folder; the run may continue in another one
        settings["scratch"] = absolute(str(settings["scratch"]))
    if launch.alerts not in (None, "off"):
        launch = replace(launch, alerts=os.path.abspath(str(launch.alerts)))
    target = named_output(target)
    output = absolute(target)
    is_output = _is_output(target)
    consent = Consent(tuple(allow_module or ()), trust_remote_code, allow_alert_sinks)
    request = find_request(target, Request(RecipeJob(target, options.parse_sets(set_)), settings, launch, consent))
    raise CommandExit(perform(check_output(request, output) if is_output else request))


def merge(
    command: Annotated[
        list[str] | None,
        Argument(
            metavar="COMMAND",
            help="run, filter, classify, curate, images, video or dedup, with the same arguments and options, but "
            "without --shard.",
        ),
    ] = None,
) -> None:
    """Join the parts that the same command made with --shard 0/N to --shard N-1/N, and finish it.

    The files and counts of all parts are combined into one run; duplicates across parts are removed now. The output is
    the same as that of one run without --shard.

    Example: tamis merge dedup fuzzy data/ unique/ --memory 4GB
    """
    raise UsageError(
        "tamis merge: say what to join: the command that made the shards, e.g. tamis merge filter gopher data/ clean/"
    )


def find_request(
    target: str, request: Request, recipe_option: str = "a recipe; an output folder is resumed"
) -> Request:
    """Return the saved command of an output folder, or `request`, that of a recipe.

    For an output folder, settings, launch options, consent and secrets of `request` are added, and the folder in which
    the command was given becomes the current one. `recipe_option`: what --set belongs to, for a message.
    """
    if not _is_output(target):
        _check_recipe(target)
        return request
    saved = load(target)
    assert isinstance(request.job, RecipeJob)
    job = _with_secrets(saved, request.job.overrides, target, recipe_option)
    missing = [m for m in saved.modules if m not in request.consent.modules]
    if missing:
        again = " ".join(f"--allow-module {m}" for m in missing)
        raise UsageError(f"{target} was made with code from {', '.join(missing)}; if you still trust it, add: {again}")
    resumed = [name for name, s in LAUNCH.items() if s.is_resumed and getattr(request.launch, name) is None]
    launch = replace(request.launch, **{name: getattr(saved.launch, name) for name in resumed})
    resumed_request = replace(request, job=job, settings={**saved.settings, **request.settings}, launch=launch)
    if is_bucket(target):
        _check_named(saved, target)
        resumed_request = replace(resumed_request, consent=replace(resumed_request.consent, module_folder=os.getcwd()))
    elif not command_line_options() and saved.storage:
        remember_for_all(list(saved.storage))
    try:
        os.chdir(saved.cwd)  # relative paths in the recipe mean what they meant
    except OSError as exc:
        raise UsageError(
            f"{target} was made in the folder {saved.cwd}, which cannot be entered: {exc.strerror}"
        ) from None
    return resumed_request


def _is_output(target: str) -> bool:
    """Return True if a target is an output, even one of which only the run directory is left, and not a recipe."""
    return is_bucket(target) or os.path.isdir(target) or os.path.isdir(run_dir_of(target))


def _check_recipe(name: str) -> None:
    try:
        exists = os.path.exists(find_recipe(name))
    except UsageError:
        exists = False
    if not exists:
        raise UsageError(
            f"there is no folder and no recipe called {name}; give the output folder of the run, or its recipe"
        )


def _with_secrets(saved: SavedCommand, values: Mapping[str, str], target: str, recipe_option: str) -> CommandJob:
    """Return the saved job with the secrets that the user gave again; raise UsageError for any that are missing."""
    if any(name not in saved.secrets for name in values):
        raise UsageError(f"--set goes with {recipe_option} with the values it was made with")
    missing = [name for name in saved.secrets if name not in values]
    if missing:
        again = " ".join(f"--set {shlex.quote(name)}=VALUE" for name in missing)
        raise UsageError(
            f"{target} was made with {' '.join(f'--set {n}=...' for n in missing)}, a secret, whose value is not "
            "saved; give it again: "
            f"{again} (or run the recipe itself; one with ${{env:NAME}} takes it from the environment)"
        )
    if not isinstance(saved.job, RecipeJob):
        return saved.job
    return replace(saved.job, overrides={**saved.job.overrides, **values})


def _check_named(saved: SavedCommand, target: str) -> None:
    """Print the local paths that a bucket names, and reject those that belong to another user.

    Only the user names stores.
    """
    job = saved.job
    for path in (*([job.recipe] if isinstance(job, RecipeJob) else []), saved.cwd):
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue  # reported when it is opened
        if owner not in (os.geteuid(), 0):
            raise RunConflict(
                f"{target} names {path}, which belongs to {user_name(owner)}, and anyone who can write to the bucket "
                "may have named it; "
                f"if you trust it, run the command itself: tamis run {shlex.quote(job.describe())}"
            )
    if saved.storage and not command_line_options():
        again = " ".join(f"--storage-option {shlex.quote(pair)}" for pair in saved.storage)
        raise UsageError(f"{target} was made with another way to reach s3://; if it is still right, add: {again}")
    overrides = job.overrides if isinstance(job, RecipeJob) else {}
    sets = "".join(f" --set {shlex.quote(f'{k}={v}')}" for k, v in overrides.items())
    echo(f"{target} resumes {job.describe()}{sets}, in the folder {saved.cwd}", err=True)


def check_output(request: Request, target: str) -> Request:
    """Return the request, verified to continue in `target`: its recipe may have been changed, or the folder moved."""
    expected = os.path.realpath(run_dir_of(target))
    workflow = request.workflow()
    if workflow is None:
        run_dir = run_dir_of_pipeline(*request.build())
    else:
        run_dir = run_dir_of(str(getattr(workflow[0], "output_path", "")))
    if os.path.realpath(run_dir) != expected:
        raise UsageError(
            f"{request.job.describe()} writes to {output_of_run_dir(run_dir)} now, not to {target}; run the command "
            "itself, or move the "
            "folder back to where it was made"
        )
    return request
