"""Images: reading tars, decoding and scaling beside simplejpeg alone; the peak of a run over large ones.

CLIP on a GPU: gpu_media.py.

    python benchmarks/images.py [--small]

Images are made here: smooth colours with noise, as JPEG of quality 85. Without --small the page in docs/ is written
anew.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from figures import ROWS, exit_code, note, table, write_above_gpu
from measuring import TAMIS, measure

SIZES = {
    "500 x 375": (500, 375, 300),
    "640 x 480": (640, 480, 200),
    "1024 x 768": (1024, 768, 100),
    "1920 x 1080": (1920, 1080, 40),
    "4000 x 3000": (4000, 3000, 12),
}
SIDE = 224
_ROUNDS = 3
_TURNS = 10  # of both sides in each round, one after the other, so that whatever else runs here slows both down


def image(seed: int, width: int, height: int) -> bytes:
    import simplejpeg
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    noise = rng.integers(-8, 9, (height, width, 1), dtype=np.int16)
    pixels = np.clip(smooth + noise, 0, 255).astype(np.uint8)
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=85))


def make_tar(path: Path, n: int, width: int, height: int, distinct: int = 8) -> list[bytes]:
    """`n` images, of which so many are distinct (making them takes longer than reading them)."""
    made = [image(i, width, height) for i in range(min(n, distinct))]
    with tarfile.open(path, "w") as out:
        for i in range(n):
            info = tarfile.TarInfo(f"{i:06d}.jpg")
            info.size = len(made[i % len(made)])
            out.addfile(info, io.BytesIO(made[i % len(made)]))
    return made


def decoding(folder: Path, small: bool) -> None:
    """Images per second on one core: tar, decode and scale to 224, beside decode_jpeg of bytes in memory."""
    import simplejpeg

    from tamis.stages.image.pixels import square

    for name, (width, height, n) in SIZES.items():
        n = max(8, n // 5) if small else n
        path = folder / f"{width}.tar"
        made = make_tar(path, n, width, height)
        square((str(path), 512, len(made[0]), None), SIDE)  # what is loaded once
        rates = []
        for _ in range(_ROUNDS):
            bare_s = ours_s = 0.0
            rows = _places(str(path))
            for turn in range(_TURNS):
                here = range(n * turn // _TURNS, n * (turn + 1) // _TURNS)
                began = time.process_time()
                for i in here:
                    simplejpeg.decode_jpeg(made[i % len(made)])
                between = time.process_time()
                for _ in here:
                    square(next(rows), SIDE)
                bare_s, ours_s = bare_s + between - began, ours_s + time.process_time() - between
            rates.append((bare_s / ours_s, n / ours_s, n / bare_s))
        share, ours, bare = sorted(rates)[_ROUNDS // 2]
        note(
            "decode",
            f"{name}: tar + decode + scale to {SIDE}, simplejpeg's rate alone",
            f"{ours:,.0f}/s, {bare:,.0f}/s: {share:.2f}",
            share >= 0.8,
        )
        path.unlink()


def _places(path: str) -> Iterator[Any]:
    """Images of a tar one by one, as a stage finds them."""
    from tamis.images.format import describe, iter_rows

    for _, rows in iter_rows(path, 0, describe(path).n_rows):
        for where in zip(*(rows[c].to_pylist() for c in ("image_path", "offset", "length")), strict=True):
            yield (*where, None)


def walking(folder: Path, small: bool) -> None:
    """Rows per second from a tar, headers of images looked at."""
    from tamis.images.format import describe, iter_rows

    n = 2_000 if small else 20_000
    path = folder / "walk.tar"
    make_tar(path, n, 64, 48)
    list(iter_rows(str(path), 0, 1))  # what is loaded once
    began = time.process_time()
    found = sum(len(rows) for _, rows in iter_rows(str(path), 0, describe(str(path)).n_rows))
    note("read", f"rows of a tar of {n:,} images", f"{found / (time.process_time() - began):,.0f}/s", found == n)
    path.unlink()


def memory(folder: Path, small: bool) -> None:
    """Measure the peak of whole runs under 400 MB, the process tree seen from outside."""
    n = 12 if small else 36
    source = folder / "large"
    source.mkdir()
    make_tar(source / "a.tar", n, 4000, 3000, distinct=6)
    for preset in ("clean",):
        out = folder / f"out-{preset}"
        command = [TAMIS, "images", str(source), str(out), "--preset", preset, "--memory", "400MB", "--json", "--quiet"]
        found = measure(command)
        peak, said = found["peak_pss_mb"], found["said"]
        ok = found["rc"] == 0 and peak <= 400 and said.get("n_written") == 6
        note(
            "memory",
            f"tamis images --preset {preset}, {n} images of 12 megapixels, --memory 400MB",
            f"peak {peak:,.0f} MB, {found['wall_s']:.1f} s",
            ok,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="less data, no page")
    args = parser.parse_args()
    os.environ["TAMIS_PROFILES"] = "off"
    with tempfile.TemporaryDirectory(prefix="tamis-bench-") as name:
        for part in (walking, decoding, memory):
            part(Path(name), args.small)
    if not args.small:
        load = os.getloadavg()[0]
        head = (
            "Written by `make bench-images`: images made for it (JPEG, quality 85), one core for reading and "
            "decoding, two for runs."
        )
        write_above_gpu(
            "benchmarks-images.md", ["# Images", "", f"{head} Load of the machine: {load:.1f}.", "", *table(ROWS)]
        )
    return exit_code()


if __name__ == "__main__":
    sys.exit(main())
