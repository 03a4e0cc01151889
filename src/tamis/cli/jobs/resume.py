"""`tamis resume`: run again. What was committed is kept, only the rest is done.

The command that made an output is read from its run directory, which is this user's alone. One in a bucket belongs to nobody: what it
names on this machine must be this user's (or the system's), is told, and no code is looked for in the folder that it names.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Annotated

from tamis.cli.jobs.request import Request, Saved, find_recipe, load_saved, run_dir_of
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, echo
from tamis.errors import RunConflict, UsageError
from tamis.files import user_name
from tamis.stores.options import command_line_options, remember_for_all
from tamis.stores.run_locations import local_output_dir
from tamis.stores.urls import absolute, is_bucket


def resume(
    target: Annotated[str, Argument(metavar="OUTPUT_OR_RECIPE", help="The output of an earlier run, or its recipe.")],
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    alerts: options.Alerts = None,
    allow_alert_sinks: options.AllowAlertSinks = False,
    trust_remote_code: options.TrustRemoteCode = False,
    *,
    work: options.Resuming,
) -> None:
    """Go on with a run that was interrupted; the same as its `tamis run` command again.

    Options given here win over those of the earlier command. Modules, code of models, files of alert rules, sinks and secrets must be allowed or given again.

    Example: tamis resume out/ --memory 4GB
    """
    from tamis.cli.jobs.run import perform

    settings = work.settings()
    if work.scratch is not None:
        settings["scratch"] = absolute(work.scratch)
    if alerts not in (None, "off"):
        alerts = os.path.abspath(alerts)  # named from here; the run may go on in another folder
    place = absolute(target)  # named from here, too
    is_output = is_bucket(target) or os.path.isdir(target)
    request = find_request(target, settings, tuple(allow_module or ()), options.parse_sets(set_))
    request = replace(request, alerts=alerts, allow_alert_sinks=allow_alert_sinks, trust_remote_code=trust_remote_code)
    raise Exit(perform(in_place(request, place) if is_output else request, work.as_json, work.quiet))


def find_request(
    target: str, settings: dict[str, object], allow: tuple[str, ...], changes: dict[str, str],
    goes_with: str = "a recipe; an output folder is resumed",
) -> Request:  # fmt: skip
    """Return the request stored with an output folder, or that of a recipe.

    For an output folder, the folder in which the request was given becomes the current one. `goes_with`: in a
    message, what changes are for.
    """
    if not is_bucket(target) and not os.path.isdir(target):
        _check_recipe(target)
        return Request(target, changes, allow, settings)
    saved = load_saved(target)
    if any(name not in saved.secrets for name in changes):
        raise UsageError(f"--set goes with {goes_with} with the values it was made with")
    unknown = [name for name in saved.secrets if name not in changes]
    if unknown:
        again = " ".join(f"--set {shlex.quote(name)}=VALUE" for name in unknown)
        raise UsageError(
            f"{target} was made with {' '.join(f'--set {n}=...' for n in unknown)}, a secret, whose value is not kept; give it again: "
            f"{again} (or run the recipe itself; one with ${{env:NAME}} takes it from the environment)"
        )
    missing = [m for m in saved.modules if m not in allow]
    if missing:
        again = " ".join(f"--allow-module {m}" for m in missing)
        raise UsageError(f"{target} was made with code from {', '.join(missing)}; if you still trust it, add: {again}")
    request = saved.request.with_options(settings, allow, changes)
    if is_bucket(target):
        _check_named(saved, target)
        request = replace(request, modules_in=os.getcwd())
    elif not command_line_options() and saved.storage:
        remember_for_all(saved.storage)
    try:
        os.chdir(saved.cwd)  # relative paths in the recipe mean what they meant
    except OSError as exc:
        raise UsageError(
            f"{target} was made in the folder {saved.cwd}, which cannot be entered: {exc.strerror}"
        ) from None
    return request


def _check_recipe(name: str) -> None:
    try:
        there = os.path.exists(find_recipe(name))
    except UsageError:
        there = False
    if not there:
        raise UsageError(
            f"there is no folder and no recipe called {name}; give the output folder of the run, or its recipe"
        )


def _check_named(saved: Saved, target: str) -> None:
    """Report the local paths that a bucket names, and reject those that belong to another user.

    Stores are named by the user alone.
    """
    for path in (saved.request.recipe, saved.cwd):
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue  # who opens it says so
        if owner not in (os.geteuid(), 0):
            raise RunConflict(
                f"{target} names {path}, which belongs to {user_name(owner)}, and whoever can write to the bucket may have named it; "
                f"if you trust it, run the recipe itself: tamis run {shlex.quote(saved.request.recipe)}"
            )
    if saved.storage and not command_line_options():
        again = " ".join(f"--storage-option {shlex.quote(pair)}" for pair in saved.storage)
        raise UsageError(f"{target} was made with another way to reach s3://; if it is still right, add: {again}")
    sets = "".join(f" --set {shlex.quote(f'{k}={v}')}" for k, v in saved.request.overrides.items())
    echo(f"{target} goes on with the recipe {saved.request.recipe}{sets}, in the folder {saved.cwd}", err=True)


def in_place(request: Request, target: str) -> Request:
    """Return the same request, verified to continue in `target` and nowhere else.

    Its recipe may have been changed, or the folder moved. Earlier versions did not save --shard; it is inferred
    from the name of the folder.
    """
    from tamis.engine.run.shard import NAME

    home = os.path.realpath(os.path.join(local_output_dir(target), "_tamis"))
    place = _run_dir(request)
    name = NAME.fullmatch(os.path.basename(target.rstrip("/")))
    if os.path.realpath(place) != home and name is not None and "shard" not in request.settings:
        request = request.with_options({"shard": f"{int(name[1])}/{int(name[2])}"}, request.allow)
        place = _run_dir(request)
    if os.path.realpath(place) != home:
        raise UsageError(
            f"{request.recipe} writes to {os.path.dirname(place)} now, not to {target}; run the recipe itself (tamis run), or move the "
            "folder back to where it was made"
        )
    return request


def _run_dir(request: Request) -> str:
    found = request.workflow()
    if found is None:
        return run_dir_of(*request.build())
    return os.path.join(local_output_dir(str(getattr(found[0], "output_path", ""))), "_tamis")
