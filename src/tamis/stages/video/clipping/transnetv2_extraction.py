"""TransNetV2ClipExtractionStage: clips that begin and end where the video is cut."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis._lazy import np, torch
from tamis.errors import UsageError, check_choice
from tamis.stages.base import DropRule
from tamis.stages.video.clipping.splitting import CLIP_COLUMNS, split_rows
from tamis.stages.video.models import transnetv2 as model
from tamis.stages.video.models.device import gpu_memory, torch_device, weights_file
from tamis.stages.video.video_stage import NetworkStage
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video.decoding import Frames
from tamis.video.opening import VideoFault
from tamis.video.spans import Span, scene_spans

_MODES = ("stride", "truncate")
_GPU_WINDOWS = 8  # that a GPU processes at once; a core takes them one by one


@dataclass(repr=False)
class TransNetV2ClipExtractionStage(NetworkStage):
    """Splits videos at cuts, detected by TransNetV2: frames with a transition probability above `threshold`.

    A scene longer than `max_length_s` is cut into pieces of that length ("stride") or ends there ("truncate"); `crop_s`
    is taken off both ends of each; clips below `min_length_s` are left out. `entire_scene_as_clip`: a video without any
    cut is one scene, else it has no clips. `limit_clips`: the first so many of a video, -1 for all. A video without
    clips is dropped.

    `model_dir`: the folder of transnetv2-pytorch-weights.pth (itself, or below Sn4kehead/TransNetV2); None: the hub's
    cache, or the hub. Decoding, scaling to 27 x 48 and the network are one step over 150 frames at a time, so that a
    video of any length fits.
    """

    model_dir: str | None = None
    threshold: float = 0.4
    min_length_s: float | None = 2.0
    max_length_s: float | None = 10.0
    max_length_mode: str = "stride"
    crop_s: float | None = 0.5
    entire_scene_as_clip: bool = True
    gpu_memory_gb: float = 10
    limit_clips: int = -1
    verbose: bool = False
    name: str = "transnetv2_clip_extraction"
    _network: Any = field(default=None, init=False)
    _device: Any = field(default=None, init=False)
    loaded: ClassVar[tuple[str, ...]] = ("_network", "_device")
    columns_in = ("path", "duration_s", "fps", "n_frames")
    columns_out = CLIP_COLUMNS

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: max_length_mode", self.max_length_mode, _MODES)
        if not 0 <= self.threshold < 1:
            raise UsageError(f"{self.name}: threshold must be a probability, got {self.threshold!r}")
        if self.max_length_s is not None and self.max_length_s < (self.min_length_s or 0.0):
            raise UsageError(
                f"{self.name}: max_length_s={self.max_length_s:g} is below min_length_s={self.min_length_s:g}"
            )
        self.resources = gpu_memory(self.gpu_memory_gb, 10)

    def rules(self) -> list[DropRule]:
        return [
            DropRule(self.name, "longest_scene_s", {"min_length_s": self.min_length_s or 0.0}, at_least="min_length_s")
        ]

    # -- life cycle ---------------------------------------------------------------------------------------------------
    def _fetch(self) -> None:
        path = weights_file(self.model_dir, model.REPOSITORY, _NAMES)
        if self.resources.requires_gpu:
            model.load_weights(path)  # report an invalid file before any worker starts

    def _load(self) -> None:
        self._device = torch_device(self.name, self.resources)
        network = model.load_weights(weights_file(self.model_dir, model.REPOSITORY, _NAMES))
        self._network = network.to(self._device.kind)

    # -- work ---------------------------------------------------------------------------------------------------------
    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        self.setup()
        columns = map(path_of, batch.values("path")), batch.values("duration_s")
        batch, scenes = self._of_each(batch, columns, self.scenes)
        spans = [self._clips(of) for of in scenes]
        gone = [i for i, of in enumerate(spans) if not of]
        longest = [max((b - a for a, b in scenes[i]), default=0.0) for i in gone]
        self._note_drops(batch.serial[gone], self.name, longest, {"min_length_s": self.min_length_s or 0.0})
        self._say(f"{sum(map(len, scenes))} scenes, {sum(map(len, spans))} clips of {batch.num_items} videos")
        return split_rows(batch, spans)

    def scenes(self, path: str, duration_s: float) -> list[Span]:
        """Return the scenes of a video, in seconds; raise VideoFault if nothing can be decoded."""
        times = array("d")
        frames = Frames(path)

        def small() -> Iterator[np.ndarray[Any, Any]]:
            for at_s, frame in frames:
                times.append(at_s)
                yield frame.reformat(
                    width=model.WIDTH, height=model.HEIGHT, format="rgb24", interpolation="BICUBIC"
                ).to_ndarray()

        probabilities = array("f", self._probabilities(small()))
        if not times:
            raise VideoFault(frames.fault or "none of its frames can be decoded")
        scenes = model.scenes_of(probabilities, self.threshold)
        if not self.entire_scene_as_clip and scenes == [(0, len(times))]:
            return []
        return [(times[a], times[b] if b < len(times) else max(duration_s, times[-1])) for a, b in scenes]

    def _probabilities(self, frames: Iterator[np.ndarray[Any, Any]]) -> Iterator[float]:
        most = _GPU_WINDOWS if self._device.kind == "cuda" else 1
        under_way: Callable[[], list[float]] | None = None
        waiting: list[tuple[Any, int]] = []
        for window in model.windows(frames):
            waiting.append(window)
            if len(waiting) == most:  # frames are decoded while the network looks at those before
                begun = self._begin(waiting)
                yield from under_way() if under_way is not None else ()
                under_way, waiting = begun, []
        yield from under_way() if under_way is not None else ()
        if waiting:
            yield from self._begin(waiting)()

    def _begin(self, windows: list[tuple[Any, int]]) -> Callable[[], list[float]]:
        """Start the network on windows, and return a function that waits for the probabilities."""
        pixels = torch.from_numpy(np.stack([window for window, _ in windows]))
        with torch.inference_mode():
            # Half precision: twice as fast, and its probabilities differ in the fourth digit.
            if self._device.kind == "cuda":
                with torch.autocast("cuda", torch.float16):
                    logits = self._network(pixels.pin_memory().to("cuda", non_blocking=True))
            else:
                logits = self._network(pixels)

        def wait() -> list[float]:
            rows = logits.float().cpu().numpy()
            return [
                p for row, (_, n) in zip(rows, windows, strict=True) for p in row[model.EDGE : model.EDGE + n].tolist()
            ]

        return wait

    def _clips(self, scenes: list[Span]) -> list[Span]:
        clips = scene_spans(scenes, self.min_length_s or 0.0, self.max_length_s, self.max_length_mode, self.crop_s)
        return clips[: self.limit_clips] if self.limit_clips > 0 else clips


_NAMES = (model.WEIGHTS, "transnetv2.safetensors", "model.safetensors")
