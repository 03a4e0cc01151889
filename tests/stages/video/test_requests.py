"""What stages of videos request of a machine."""

from __future__ import annotations

import pytest

from tamis.stages.video.clipping.transnetv2_extraction import TransNetV2ClipExtractionStage
from tamis.stages.video.embedding.cosmos_embed1 import CosmosEmbed1EmbeddingStage
from tamis.stages.video.filtering.motion_filter import MotionVectorDecodeStage


@pytest.mark.parametrize("stage", [TransNetV2ClipExtractionStage, CosmosEmbed1EmbeddingStage])
def test_networks_request_16_gb_of_a_gpu(stage: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.video.models.device.count_gpus", lambda: 1)
    assert stage().resources.gpu_memory_gb == 16.0
    assert stage(gpu_memory_gb=12).resources.gpu_memory_gb == 12.0


def test_decoding_motion_requests_two_cores_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert MotionVectorDecodeStage().resources.cpus == 2.0
    assert MotionVectorDecodeStage(num_cpus_per_worker=3).resources.cpus == 3.0
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert MotionVectorDecodeStage().resources.cpus == 1.0
