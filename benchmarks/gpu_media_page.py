"""Write the figures of gpu_media.py into benchmarks-images.md and benchmarks-video.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures import DOCS, GPU_SECTION, table, write_page

Row = tuple[str, str, str, str]
_GOAL = 1500.0  # images a second, from tars to tars


def write_pages(figures: Mapping[str, Any]) -> None:
    """Sections of parts that were not measured stay as they are."""
    for name, rows in (("benchmarks-images.md", image_rows(figures)), ("benchmarks-video.md", video_rows(figures))):
        if rows:
            before = (DOCS / name).read_text().partition(GPU_SECTION)[0]
            write_page(name, [before.rstrip(), *GPU_SECTION.rstrip().split("\n"), "", _head(figures), "", *table(rows)])
            print(f"docs/{name}: {len(rows)} rows")


def _head(figures: Mapping[str, Any]) -> str:
    on = figures.get("machine", {})
    return (
        f"Written by `python benchmarks/gpu_media.py` on {on.get('gpu') or 'no GPU'} with {on.get('cores')} cores, "
        f"torch {on.get('torch')}; random weights, bf16 (CLIP) and fp16 (TransNetV2)."
    )


def _good(figures: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the figures of a part; none if it failed or did not run."""
    found = figures.get(part) or {}
    return {} if "error" in found else found


def image_rows(figures: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    if d := _good(figures, "decode"):
        what = f"{d['images']}, tar to squares of 224: one core, {d['cores']} cores; simplejpeg alone on one"
        rows.append(
            (
                "decode",
                what,
                f"{d['squares_per_s']:,.0f}/s, {d['squares_per_s_all_cores']:,.0f}/s; {d['simplejpeg_per_s']:,.0f}/s",
                "",
            )
        )
    if m := _good(figures, "clip-model"):
        sizes = sorted(int(k.rpartition("_")[2]) for k in m if k.startswith("per_s_"))
        told = ", ".join(f"{m[f'per_s_{n}']:,.0f}/s ({n})" for n in sizes)
        share = f"; {m['tflops']:.0f} TFLOP/s" if "tflops" in m else ""
        rows.append(("CLIP-L", "network alone, squares given (batch)", told + share, ""))
        rows.append(
            (
                "CLIP-L",
                "the same, kernel by kernel instead of recorded",
                f"{m[f'eager_per_s_{sizes[0]}']:,.0f}/s ({sizes[0]})",
                "",
            )
        )
    for part, what in (
        ("clip", "tars to tars with embeddings"),
        ("quality", "the same with aesthetic and NSFW filters"),
    ):
        if r := _good(figures, part):
            warm = r.get("warm", {})  # figures that were measured before runs told it have none
            rate = warm.get("documents_per_s") or r["per_s"]
            busy = 100 * warm["gpu_busy"] if "gpu_busy" in warm else r["busy_after_warm_up"]
            rows.append(
                (
                    "run",
                    f"{r['n']:,} images, {what}",
                    f"{rate:,.0f}/s, GPU busy {busy:.0f} %; {r['seconds']:.0f} s with the start",
                    "yes" if rate >= _GOAL else "NO",
                )
            )
            if heads := r.get("heads_alone_per_s"):
                rows.append(
                    (
                        "heads",
                        "by themselves, one core",
                        ", ".join(f"{k.removesuffix('_score')} {v:,.0f}/s" for k, v in heads.items()),
                        "",
                    )
                )
    return rows


def video_rows(figures: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    if m := _good(figures, "transnet-model"):
        rows.append(
            (
                "TransNetV2",
                "network alone, frames a second; in float32",
                f"{m['frames_per_s']:,.0f}, {m['float32_frames_per_s']:,.0f}",
                "",
            )
        )
    if t := _good(figures, "transnet"):
        if "one_video_times" in t:
            rows.append(
                (
                    "TransNetV2",
                    "one video of 720p, decoded on one core",
                    f"{t['one_video_times']:.1f} times real time",
                    "",
                )
            )
            rows.append(
                (
                    "TransNetV2",
                    "of which decoding and scaling alone",
                    f"{t['decoding_and_scaling_times']:.1f} times real time",
                    "",
                )
            )
        run = t["run"]
        busy = run.get("busy_after_warm_up", run["busy"])
        rows.append(
            (
                "run",
                f"{run['n']} videos of 720p, {run['videos_s']:,.0f} s together, split at cuts and written",
                f"{run['times_real_time']:,.0f} times real time, start included; GPU busy {busy:.0f} %",
                "",
            )
        )
    return rows
