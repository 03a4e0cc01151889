"""`tamis video`: which options go together."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.cli.media.video import Wanted, make_recipe
from tamis.errors import UsageError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"caption_model": "qwen3"}, "--caption-model means nothing with --preset split; captions: --preset split"),
        ({"caption_prompt": "What?"}, "--caption-prompt means nothing with --preset split"),
        ({"caption_tokens": 9}, "--caption-tokens means nothing with --preset split"),
        ({"model_folder": "models"}, "--model-folder means nothing here"),
        ({"model_folder": "models", "min_motion": 0.1}, "--model-folder means nothing here"),
    ],
)
def test_options_that_nothing_would_follow_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_recipe("videos", "clips", Wanted(**given))


@pytest.mark.parametrize("given", [{"splitting": "transnetv2"}, {"min_aesthetic": 4.0}, {"preset": "split+caption"}])
def test_a_folder_of_models_is_for_what_uses_models(given: dict[str, Any]) -> None:
    assert "/models" in make_recipe("videos", "clips", Wanted(model_folder="/models", **given))


def test_captions_have_a_model_and_a_length_of_their_own() -> None:
    recipe = make_recipe("videos", "clips", Wanted(preset="split+caption"))
    assert 'model_variant: "qwen2.5"\n    max_output_tokens: 512\n' in recipe
