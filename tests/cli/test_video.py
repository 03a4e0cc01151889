"""`tamis video`: which options go together."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.cli.media.video_job import VideoJob, VideoOptions
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
        VideoJob("videos", "clips", VideoOptions(**given)).stages()


@pytest.mark.parametrize("given", [{"splitting": "transnetv2"}, {"min_aesthetic": 4.0}, {"preset": "split+caption"}])
def test_a_folder_of_models_is_for_what_uses_models(given: dict[str, Any]) -> None:
    stages = VideoJob("videos", "clips", VideoOptions(model_folder="/models", **given)).stages()
    assert "/models" in [parameters.get("model_dir") for _, parameters in stages]


def test_captions_have_a_model_and_a_length_of_their_own() -> None:
    stages = dict(VideoJob("videos", "clips", VideoOptions(preset="split+caption")).stages())
    (captions,) = [p for name, p in stages.items() if name.endswith("CaptionGenerationStage")]
    assert (captions["model_variant"], captions["max_output_tokens"]) == ("qwen2.5", 512)
