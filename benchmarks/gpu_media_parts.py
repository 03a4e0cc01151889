"""The parts of gpu_media.py: each measures one thing and returns its figures.

As a script: what machine this is, as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_parts.end_to_end import from_database
from tamis.stores.run_locations import run_dir_of

try:
    import cloudpickle  # noqa: F401
except ImportError:  # all stages here can be imported: plain pickle is enough
    sys.modules["cloudpickle"] = pickle

SIDE = 224
CLIP_L = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": SIDE,
    "patch_size": 14,
    "projection_dim": 768,
    "hidden_act": "quick_gelu",
}
TINY = {**CLIP_L, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
CLIP_L_GFLOP = 162.0  # of one image: 24 layers over 257 tokens, and the patches
CARD_TFLOPS = 790.0  # bf16, measured on an H200
IMAGE = (640, 480)
_BATCHES = (32, 64, 128)
_AESTHETIC = ((0, 1024, 768), (2, 128, 1024), (4, 64, 128), (6, 16, 64), (7, 1, 16))
_NSFW = ((1, 64, 768), (2, 512, 64), (3, 256, 512), (4, 1, 256))


_BEGAN_S = time.perf_counter()


def say(what: str) -> None:
    """For whoever reads what a part said when it was ended half-way."""
    print(f"{time.perf_counter() - _BEGAN_S:.1f} s: {what}", flush=True)


def machine() -> dict[str, Any]:
    """Print the device and compile missing kernels, so that no part waits for that."""
    import torch

    from tamis.kernels.loading.native import load_all

    began = time.perf_counter()
    for group in ("records", "pixels"):
        load_all(group)
    kernels_s = round(time.perf_counter() - began, 1)

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    found: dict[str, Any] = {
        "gpu": gpu,
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "kernels_s": kernels_s,
    }
    for name in ("simplejpeg", "PIL", "av", "transformers"):
        try:
            found[name] = getattr(__import__(name), "__version__", "?")
        except Exception as exc:
            found[name] = f"missing: {exc}"[:200]
    return found


# -- images -----------------------------------------------------------------------------------------------------------
def decode(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure images per second from a tar to squares of 224, beside simplejpeg alone.

    On one core, with four threads, on all cores.
    """
    import simplejpeg

    from images import make_tar

    n, cores = (60 if given.small else 600), len(os.sched_getaffinity(0))
    made = make_tar(folder / "a.tar", n, *IMAGE, distinct=32)
    rows = places_in(folder / "a.tar")
    squares_of(rows[:8])

    def rate(work: Any, times: int = 1) -> float:
        began = time.perf_counter()
        work()
        return round(times * n / (time.perf_counter() - began), 1)

    figures = {
        "images": f"{IMAGE[0]} x {IMAGE[1]}",
        "bytes_each": len(made[0]),
        "cores": cores,
        "simplejpeg_per_s": rate(lambda: [simplejpeg.decode_jpeg(made[i % len(made)]) for i in range(n)]),
        "squares_per_s": rate(lambda: squares_of(rows)),
    }
    with ThreadPoolExecutor(4) as pool:
        figures["squares_per_s_4_threads"] = rate(lambda: list(pool.map(squares_of, [rows[i::4] for i in range(4)])))
    with multiprocessing.get_context("spawn").Pool(cores) as processes:
        processes.map(squares_of, [rows[:4]] * cores, chunksize=1)  # what is loaded once
        figures["squares_per_s_all_cores"] = rate(lambda: processes.map(squares_of, [rows] * cores, chunksize=1), cores)
    return figures


def places_in(tar: Path) -> list[Any]:
    from tamis.images.format import describe, iter_rows

    columns = ("image_path", "offset", "length")
    return [
        (*where, None)
        for _, rows in iter_rows(str(tar), 0, describe(str(tar)).n_rows)
        for where in zip(*(rows[c].to_pylist() for c in columns), strict=True)
    ]


def squares_of(rows: list[Any]) -> int:
    from tamis.stages.image.pixels import square

    return sum(square(where, SIDE).shape[0] == SIDE for where in rows)


def clip_model(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure the network alone on given squares: as Tamis runs it, and as transformers does."""
    import torch

    from tamis.stages.image.embedders.clip_vision import ClipVision
    from tamis.stages.text.models import folder as folders
    from tamis.stages.text.models.device import TorchDevice

    folder = models_folder(given)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    place = folders.open_folder(folder / "openai" / "clip-vit-large-patch14")
    squares = list(np.random.default_rng(0).integers(0, 256, (max(_BATCHES), SIDE, SIDE, 3), np.uint8))
    figures: dict[str, Any] = {"device": kind}
    vectors: dict[str, Any] = {}
    for n in _BATCHES[:1] if given.small else _BATCHES:
        network = ClipVision(place, TorchDevice(kind), n)
        vectors["ours"] = network(squares[:n])[:8]
        figures[f"per_s_{n}"] = round(streamed(network, squares[:n], 0.2 if given.small else 3.0), 1)
        if n == _BATCHES[0]:
            figures["recorded"] = network._recorded is not None
        del network
    plain = ClipVision(place, TorchDevice(kind), _BATCHES[0])
    plain._records = False
    figures[f"eager_per_s_{_BATCHES[0]}"] = round(
        streamed(plain, squares[: _BATCHES[0]], 0.2 if given.small else 2.0), 1
    )
    vectors["eager"] = plain(squares[: _BATCHES[0]])[:8]
    figures["recorded_differs_from_eager"] = float(np.abs(vectors["ours"] - vectors["eager"]).max())
    figures["cosine_to_float32"] = float((on_cpu(place, squares[:4]) * vectors["ours"][:4]).sum(1).min())
    best = max(v for k, v in figures.items() if k.startswith("per_s_"))
    if not given.small:
        figures["tflops"] = round(best * CLIP_L_GFLOP / 1e3, 1)
        figures["share_of_card"] = round(best * CLIP_L_GFLOP / 1e3 / CARD_TFLOPS, 3)
    return figures


def streamed(network: Any, squares: list[Any], seconds: float) -> float:
    """Images a second with one batch always under way, as the stage asks."""
    network.begin(squares)()
    under_way, n, began = network.begin(squares), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        following = network.begin(squares)
        under_way()
        under_way, n = following, n + len(squares)
    return n / (time.perf_counter() - began)


def on_cpu(place: Any, squares: list[Any]) -> Any:
    from tamis.stages.image.embedders.clip_vision import ClipVision
    from tamis.stages.text.models.device import TorchDevice

    return ClipVision(place, TorchDevice("cpu"), len(squares))(squares)


def clip(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Tars in, tars and embeddings out, by the product."""
    return _run_charts(folder, given, [])


def quality(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure the same with the aesthetic and the NSFW filter, and these two alone."""
    from tamis.stages.image.filters import ImageAestheticFilterStage, ImageNSFWFilterStage

    models = str(models_folder(given))
    heads = [ImageAestheticFilterStage(models, score_threshold=-1e9), ImageNSFWFilterStage(models, score_threshold=2.0)]
    vectors = np.random.default_rng(0).standard_normal((4096, 768)).astype(np.float32)
    alone = {}
    for head in heads:
        head.setup()
        began = time.perf_counter()
        head._scores(vectors)
        alone[head.score_field] = round(len(vectors) / (time.perf_counter() - began), 1)
        head._head = None
    return {**_run_charts(folder, given, heads), "heads_alone_per_s": alone}


def _run_charts(folder: Path, given: argparse.Namespace, filters: list[Any]) -> dict[str, Any]:
    import pyarrow.parquet as pq

    from images import make_tar
    from tamis.memory.gpu import count_gpus
    from tamis.pipeline import Pipeline
    from tamis.stages.image.embedders import ImageEmbeddingStage
    from tamis.stages.image.io import ImageReader, ImageWriterStage

    n = 240 if given.small else given.images
    source, out = folder / "in", folder / "out"
    source.mkdir()
    models = models_folder(given)
    say("models are there")
    n_tars = max(1, n // 2000)
    make_tar(source / "000.tar", n // n_tars, *IMAGE, distinct=48)
    for k in range(1, n_tars):  # an image of one name is another one here, whatever it shows
        os.link(source / "000.tar", source / f"{k:03d}.tar")
    say("tars are there")
    stages = [
        ImageReader(str(source)),
        ImageEmbeddingStage(str(models)),
        *filters,
        ImageWriterStage(str(out)),
    ]
    return {
        **_timed(
            Pipeline("images", stages=stages),
            n // n_tars * n_tars,
            lambda: [(p.stat().st_mtime, pq.ParquetFile(p).metadata.num_rows) for p in out.glob("*.parquet")],
            Path(run_dir_of(out)),
        ),
        "on_gpu": bool(count_gpus()),
        "batch": stages[1].model_inference_batch_size,
    }


def _timed(pipeline: Any, n: int, written: Any, run_dir: Path) -> dict[str, Any]:
    """Measure a run in documents per second: in all, between its first and last tenth, and once warm.

    Warm: from when every worker on a GPU was set up, as the run database records it.
    """
    busy = Busy()
    busy.start()
    began = time.perf_counter()
    result = pipeline.execute(memory=f"{max(3, min(64, int(total_memory() * 0.6 / 1e9)))}GB")
    seconds = time.perf_counter() - began
    say("the run is done")
    done, marks = 0, []
    for at, rows in sorted(written()):
        done += rows
        marks.append((at, done))
    inside = [m for m in marks if 0.1 * done <= m[1] <= 0.9 * done]
    steady = 0.0
    if len(inside) > 1 and inside[-1][0] > inside[0][0]:
        steady = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
    return {
        "n": n,
        "written": result.ledger.written.n,
        "seconds": round(seconds, 1),
        "per_s": round(n / seconds, 1),
        "per_s_steady": round(steady, 1),
        **busy.end(),
        "warm": from_database(run_dir),
    }


class Busy(threading.Thread):
    """How busy the GPU is, as nvidia-smi says every 0.2 s, from the first busy moment to the last."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen: list[float] = []
        self._process: Any = None
        if shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(self) -> None:
        for line in self._process.stdout if self._process else ():
            if line.strip().isdecimal():
                self._seen.append(float(line))

    def end(self) -> dict[str, float]:
        if self._process:
            self._process.terminate()
        at = [i for i, share in enumerate(self._seen) if share > 0]
        used = self._seen[at[0] : at[-1] + 1] if at else [0.0]
        later = used[len(used) // 5 :]  # the first fifth warms up
        return {"busy": round(sum(used) / len(used), 1), "busy_after_warm_up": round(sum(later) / len(later), 1)}


def total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def models_folder(given: argparse.Namespace) -> Path:
    """Made once for all parts, in a process of its own: torch stays out of the one that starts a run."""
    folder = Path(given.place) / "models"
    if not folder.exists():
        work = (
            "import sys; from pathlib import Path; import gpu_media_parts as p; p.build_models(Path(sys.argv[1]), "
            "sys.argv[2] == '1')"
        )
        subprocess.run([sys.executable, "-c", work, str(folder), str(int(given.small))], check=True)
    return folder


def build_models(folder: Path, small: bool) -> None:
    """CLIP ViT-L/14 and the two heads with random weights, in the layouts of the public files."""
    import torch
    import transformers
    from safetensors.torch import save_file

    from tamis.stages.image.models import AESTHETIC, CLIP, NSFW

    torch.manual_seed(0)
    for name in (CLIP, AESTHETIC, NSFW):
        (folder / name).mkdir(parents=True, exist_ok=True)
    config = transformers.CLIPVisionConfig(**(TINY if small else CLIP_L))
    transformers.CLIPVisionModelWithProjection(config).save_pretrained(folder / CLIP)
    say("CLIP is there")
    linear = {f"layers.{k}.weight": torch.randn(a, b) / b**0.5 for k, a, b in _AESTHETIC}
    linear |= {f"layers.{k}.bias": torch.zeros(a) for k, a, _ in _AESTHETIC}
    save_file(linear, folder / AESTHETIC / "model.safetensors")
    safe = {f"linear_{k}.weight": torch.randn(a, b) / b**0.5 for k, a, b in _NSFW}
    safe |= {f"linear_{k}.bias": torch.zeros(a) for k, a, _ in _NSFW}
    safe |= {"norm.mean": torch.zeros(768), "norm.variance": torch.ones(768)}
    torch.save(safe, folder / NSFW / "clip_autokeras_binary_nsfw.pth")


# -- videos -----------------------------------------------------------------------------------------------------------
def transnet_model(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure the network alone on frames of 27 x 48: frames per second in float32 and as the stage asks."""
    import torch

    from tamis.stages.video.clipping import transnetv2_extraction as stages

    stage = video_stage(folder)
    kind = stage._device.kind
    n = 1 if kind == "cpu" else stages._GPU_WINDOWS
    frames = np.random.default_rng(0).integers(0, 256, (n, 100, 27, 48, 3), np.uint8)
    windows = [(one, 50) for one in frames]

    def rate(ask: Any) -> float:
        ask()
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < (0.5 if given.small else 3.0):
            ask()
            done += 50 * n
        return round(done / (time.perf_counter() - began), 1)

    def plain() -> Any:
        with torch.inference_mode():
            return stage._network(torch.from_numpy(frames).to(kind)).float().cpu()

    figures = {
        "device": kind,
        "windows": n,
        "frames_per_s": rate(lambda: stage._begin(windows)()),
        "float32_frames_per_s": rate(plain),
    }
    told = np.array(stage._begin(windows)()).reshape(n, 50)
    figures["differs_from_float32"] = float(np.abs(told - plain().numpy()[:, 25:75]).max())
    return figures


def video_stage(folder: Path) -> Any:
    import torch

    from tamis.stages.video.clipping.transnetv2_extraction import TransNetV2ClipExtractionStage

    write_weights(folder)
    stage = TransNetV2ClipExtractionStage(str(folder), threshold=0.95)
    stage.setup()
    if torch.cuda.is_available() and stage._device.kind != "cuda":
        raise RuntimeError("there is a GPU, but the stage did not take it")
    return stage


def write_weights(folder: Path) -> None:
    import torch

    from tamis.stages.video.models import transnetv2

    torch.manual_seed(0)
    torch.save(transnetv2.network().state_dict(), folder / transnetv2.WEIGHTS)


def transnet(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure 720p in times real time: one video on one core and the GPU, and a run from files to clips.

    Decoding alone.
    """
    from video import make_video

    seconds, n_videos = (6, 2) if given.small else (given.video_seconds, given.videos)
    videos = folder / "videos"
    videos.mkdir()
    first = make_video(videos / "000.mp4", 1280, 720, seconds)
    for k in range(1, n_videos):
        os.link(first, videos / f"{k:03d}.mp4")
    say("videos are there")
    alone = (
        "import sys, json, gpu_media_parts as p; print(json.dumps(p.one_video(sys.argv[1], float(sys.argv[2]), "
        "sys.argv[3])))"
    )
    asked = subprocess.run(
        [sys.executable, "-c", alone, first, str(seconds), str(folder)], capture_output=True, text=True, check=False
    )
    figures: dict[str, Any] = {"one_video_error": f"ended with {asked.returncode}: {asked.stderr[-2500:]}"}
    if not asked.returncode:
        figures = json.loads(asked.stdout.strip().splitlines()[-1])
    print(json.dumps(figures), flush=True)  # kept, should the run not end in time
    write_weights(folder)
    return {**figures, **_run_videos(folder, videos, n_videos, seconds)}


def one_video(video: str, seconds: float, folder: str) -> dict[str, Any]:
    from tamis.stages.video.models import transnetv2
    from tamis.video.decoding import Frames

    stage = video_stage(Path(folder))

    def times(work: Any) -> float:
        began = time.perf_counter()
        work()
        return round(seconds / (time.perf_counter() - began), 2)

    def small() -> int:
        frames = (
            frame.reformat(width=transnetv2.WIDTH, height=transnetv2.HEIGHT, format="rgb24", interpolation="BICUBIC")
            for _, frame in Frames(video)
        )
        return sum(frame.to_ndarray().shape[0] > 0 for frame in frames)

    times(partial(stage.scenes, video, seconds))
    return {
        "device": stage._device.kind,
        "video_s": seconds,
        "one_video_times": times(partial(stage.scenes, video, seconds)),
        "decoding_and_scaling_times": times(small),
        "decoding_times": times(lambda: sum(1 for _ in Frames(video))),
    }


def _run_videos(folder: Path, videos: Path, n_videos: int, seconds: float) -> dict[str, Any]:
    from tamis.pipeline import Pipeline
    from tamis.stages.video.clipping.clip_extraction_stages import ClipTranscodingStage
    from tamis.stages.video.clipping.transnetv2_extraction import TransNetV2ClipExtractionStage
    from tamis.stages.video.io.clip_writer import ClipWriterStage
    from tamis.stages.video.io.video_reader import VideoReader

    out = folder / "clips"
    stages = [
        VideoReader(str(videos)),
        TransNetV2ClipExtractionStage(str(folder), threshold=0.95),
        ClipTranscodingStage(encoder="copy"),
        ClipWriterStage(str(out), str(videos), True, False, False, False, False),
    ]
    told = _timed(
        Pipeline("videos", stages=stages),
        n_videos,
        lambda: [(p.stat().st_mtime, 1) for p in (out / "clips").glob("*")],
        Path(run_dir_of(out)),
    )
    last = max((p.stat().st_mtime for p in (out / "clips").glob("*")), default=0.0)
    first = min((p.stat().st_mtime for p in (out / "clips").glob("*")), default=0.0)
    return {
        "run": {
            **told,
            "videos_s": n_videos * seconds,
            "times_real_time": round(n_videos * seconds / told["seconds"], 1),
            "clips_written_within_s": round(last - first, 1),
        }
    }


if __name__ == "__main__":
    print(json.dumps(machine()))
