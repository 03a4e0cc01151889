"""Prompts of caption models, by name."""

from __future__ import annotations

from tamis.errors import UsageError

CAPTION = {
    "default": (
        "Describe this video in detail: the setting, the people or things in it, what they do and in which order it "
        "happens, how the camera "
        "moves, and the light. Say only what can be seen, in plain sentences."
    ),
    "av": (
        "This video was recorded from a vehicle. Describe what matters for driving safely: the road and its signs and "
        "signals, weather and "
        "light, other vehicles, cyclists and people on foot, what each of them does, and anything unexpected. Say "
        "only what can be seen."
    ),
    "av-surveillance": (
        "This video was recorded by a fixed camera that watches traffic. Describe the place, the traffic and its "
        "course, and every event that "
        "is out of the ordinary (a collision, a near miss, someone where they should not be), with its order in time. "
        "Say only what can be seen."
    ),
}
ENHANCE = {
    "default": (
        "Below is the caption of a video. Write it anew as one fluent, well ordered description. Keep every fact, add "
        "none, and answer with the "
        "description alone."
    ),
    "av-surveillance": (
        "Below is the caption of a video of traffic. Write it anew as a short report: place and conditions, course of "
        "events, anything out of the "
        "ordinary. Keep every fact, add none, and answer with the report alone."
    ),
}


def prompt_of(stage: str, variant: str, text: str | None, prompts: dict[str, str]) -> str:
    """Return the given text, or the known prompt named `variant`."""
    if text is not None:
        return text
    if variant not in prompts:
        raise UsageError(
            f"{stage}: prompt_variant must be one of {', '.join(prompts)}, got {variant!r}; or give prompt_text"
        )
    return prompts[variant]
