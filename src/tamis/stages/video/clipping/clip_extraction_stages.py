"""FixedStrideExtractorStage cuts videos into clips of one length.

ClipTranscodingStage says how clips are to be written.
"""

from __future__ import annotations

import sys
from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.memory.gpu import count_gpus
from tamis.stages.base import DropRule
from tamis.stages.resources import Resources
from tamis.stages.video.clipping.splitting import CLIP_COLUMNS, split_rows
from tamis.stages.video.video_stage import VideoStage, only_default, own_cpus
from tamis.tasks import DocumentBatch
from tamis.tasks.lineage import NOTE_METRIC
from tamis.video.cutting import COPY
from tamis.video.encoding import NVENC, Encoding, choose_encoder, encoding_need
from tamis.video.spans import fixed_spans

ENCODING_COLUMNS = ["encoder", "encoder_threads", "encoder_bit_rate_k"]
_CHUNK_S = 8  # seconds that a clip is taken to have where clips are counted into chunks


@dataclass(repr=False)
class FixedStrideExtractorStage(VideoStage):
    """Clips of `clip_len_s` seconds, one every `clip_stride_s`.

    The last of a video ends with it, and goes if it is shorter than `min_clip_length_s`; a video that has no clip is
    dropped. `limit_clips`: the first so many of each video; 0 or less: all.
    """

    clip_len_s: float
    clip_stride_s: float
    min_clip_length_s: float
    limit_clips: int
    verbose: bool = False
    name: str = "fixed_stride_extractor"
    columns_in = ("path", "duration_s", "fps", "n_frames")
    columns_out = CLIP_COLUMNS

    def __post_init__(self) -> None:
        for name in ("clip_len_s", "clip_stride_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{self.name}: {name} must be more than 0 seconds, got {getattr(self, name)!r}")
        if self.min_clip_length_s > self.clip_len_s:
            raise UsageError(
                f"{self.name}: no clip of {self.clip_len_s:g} s can have min_clip_length_s={self.min_clip_length_s:g}"
            )

    def rules(self) -> list[DropRule]:
        limits = {"min_clip_length_s": self.min_clip_length_s}
        return [DropRule(self.name, "duration_s", limits, at_least="min_clip_length_s")]

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        durations = batch.values("duration_s")
        spans = [
            fixed_spans(d, self.clip_len_s, self.clip_stride_s, self.min_clip_length_s, self.limit_clips)
            for d in durations
        ]
        gone = [i for i, of in enumerate(spans) if not of]
        limits = {"min_clip_length_s": self.min_clip_length_s}
        self._note_drops(batch.serial[gone], self.name, [durations[i] for i in gone], limits)
        self._say(f"{sum(map(len, spans))} clips of {batch.num_items} videos")
        return split_rows(batch, spans)


@dataclass(repr=False)
class ClipTranscodingStage(VideoStage):
    """Chooses how clips are encoded.

    With an encoder (libx264, libx265, libvpx-vp9, libsvtav1, libaom-av1, mpeg4, h264_nvenc: those that this machine
    has), or as they are in the video (`encoder="copy"`, a hundred times as fast). Audio is always copied. h264_nvenc
    needs a GPU (data centre cards such as A100, H100 and H200 have none): if it cannot be opened, libx264 encodes,
    which the report and the column `encoder` show.

    The writer encodes, and only clips that remain: encoding is the dearest step by far, so clips that a filter drops
    are never encoded, and nothing is encoded twice. Memory is reserved here, from the size of the frame: a video that
    cannot be encoded inside the budget is reported before its clips are processed. `encoder_threads`: other numbers
    than one may give other bytes. `use_input_bit_rate`: the bit rate of the video instead of constant quality.
    `num_clips_per_chunk`: later stages take so many clips (of 8 seconds) at a time.
    """

    num_cpus_per_worker: float = 6.0
    encoder: str = "h264_nvenc"
    encoder_threads: int = 1
    encode_batch_size: int = 16
    nb_streams_per_gpu: int = 3
    use_hwaccel: bool = False
    use_input_bit_rate: bool = False
    num_clips_per_chunk: int = 32
    ffmpeg_verbose: bool = False
    verbose: bool = False
    name: str = "clip_transcoding"
    ray_data_num_cpus: float | None = None
    columns_out = ENCODING_COLUMNS

    def __post_init__(self) -> None:
        only_default(
            self.name,
            encode_batch_size=(self.encode_batch_size, 16),
            use_hwaccel=(self.use_hwaccel, False),
            ray_data_num_cpus=(self.ray_data_num_cpus, None),
        )
        if self.encoder_threads < 1 or self.num_clips_per_chunk < 1 or self.nb_streams_per_gpu < 1:
            raise UsageError(
                f"{self.name}: encoder_threads, num_clips_per_chunk and nb_streams_per_gpu must be at least 1"
            )
        self._chosen: tuple[str, str] | None = None
        if self.encoder == NVENC and count_gpus() > 0:
            self.resources = Resources(cpus=1.0, gpus=1.0 / self.nb_streams_per_gpu)
        else:
            self.resources = own_cpus(self.num_cpus_per_worker, 6.0)

    def ray_stage_spec(self) -> dict[str, Any]:
        return {"is_fanout_stage": True}

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Report an unavailable encoder before any video is opened."""
        encoder, why = choose_encoder(self.encoder, self.encoder_threads)
        if why:
            print(f"{self.name}: {why}: {encoder} encodes", file=sys.stderr, flush=True)

    def setup(self, worker_metadata: Any = None) -> None:
        if self.ffmpeg_verbose:
            from tamis.video.opening import library

            av = library()
            av.logging.set_level(av.logging.VERBOSE)

    def process_rows(self, batch: DocumentBatch) -> list[DocumentBatch]:
        from tamis.video import memory_needed

        n = batch.num_items
        if self._chosen is None:
            self._chosen = choose_encoder(self.encoder, self.encoder_threads)
        encoder, why = self._chosen
        if why:
            self._log_metrics({f"{NOTE_METRIC}{why}: clips for {encoder}": n})
        how = Encoding(encoder, self.encoder_threads)
        for width, height, pixels in {
            *zip(*(batch.values(c) for c in ("width", "height", "pixel_format")), strict=True)
        }:
            what = f"writing clips of {width} x {height} with {encoder}"
            memory_needed.reserve(encoding_need(how, width, height, pixels or ""), what)
        rates = batch.values("bit_rate_k") if self.use_input_bit_rate and encoder != COPY else [None] * n
        batch = batch.with_column("encoder", pa.array([encoder] * n, pa.large_string()))
        batch = batch.with_column("encoder_threads", pa.array([self.encoder_threads] * n, pa.int32()))
        batch = batch.with_column("encoder_bit_rate_k", pa.array(rates, pa.int64()))
        return self._chunks(batch)

    def _chunks(self, batch: DocumentBatch) -> list[DocumentBatch]:
        lengths = np.array(batch.values("end_s")) - np.array(batch.values("start_s"))
        of = (np.cumsum(np.maximum(1, lengths.astype(np.int64))) - 1) // (_CHUNK_S * self.num_clips_per_chunk)
        return [batch.filter(of == k) for k in np.unique(of)] or [batch]
