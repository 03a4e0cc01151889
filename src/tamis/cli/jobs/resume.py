"""`tamis resume`: run again. What was committed is kept, only the rest is done."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Annotated

from tamis.cli.jobs.request import Request, load_saved
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit
from tamis.errors import UsageError
from tamis.stores.urls import absolute, is_bucket


def resume(
    target: Annotated[str, Argument(metavar="OUTPUT_OR_RECIPE", help="The output of an earlier run, or its recipe.")],
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    alerts: options.Alerts = None,
    allow_alert_sinks: options.AllowAlertSinks = False,
    *,
    work: options.Resuming,
) -> None:
    """Go on with a run that was interrupted; the same as its `tamis run` command again.

    Options given here win over those of the earlier command. Modules, files of alert rules, sinks and secrets must be given again.

    Example: tamis resume out/ --memory 4GB
    """
    from tamis.cli.jobs.run import perform

    settings = work.settings()
    if work.scratch is not None:
        settings["scratch"] = absolute(work.scratch)
    if alerts not in (None, "off"):
        alerts = os.path.abspath(alerts)  # named from here; the run may go on in another folder
    request = find_request(target, settings, tuple(allow_module or ()), options.parse_sets(set_))
    request = replace(request, alerts=alerts, allow_alert_sinks=allow_alert_sinks)
    raise Exit(perform(request, work.as_json, work.quiet))


def find_request(target: str, settings: dict[str, object], allow: tuple[str, ...], changes: dict[str, str]) -> Request:
    """The request behind an output folder (and the folder it was given in becomes the current one), or a recipe's."""
    if not is_bucket(target) and not os.path.isdir(target):
        return Request(target, changes, allow, settings)
    saved = load_saved(target)
    if any(name not in saved.secrets for name in changes):
        raise UsageError("--set goes with a recipe; an output folder is resumed with the values it was made with")
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
    try:
        os.chdir(saved.cwd)  # relative paths in the recipe mean what they meant
    except OSError as exc:
        raise UsageError(
            f"{target} was made in the folder {saved.cwd}, which cannot be entered: {exc.strerror}"
        ) from None
    return saved.request.with_options(settings, allow, changes)
