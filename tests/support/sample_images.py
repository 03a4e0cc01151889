"""Images for tests, made here: small, and the same in every run."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def pixels(seed: int, width: int = 40, height: int = 30) -> np.ndarray[Any, Any]:
    """Return a smooth image that differs from seed to seed."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def stored(array: np.ndarray[Any, Any], kind: str = "JPEG", **how: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **how)
    return out.getvalue()


def jpeg(seed: int, width: int = 40, height: int = 30, **how: Any) -> bytes:
    return stored(pixels(seed, width, height), "JPEG", quality=90, **how)


def png(seed: int, width: int = 40, height: int = 30) -> bytes:
    return stored(pixels(seed, width, height), "PNG")


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as out:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


def members_of(path: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as opened:
        for info in opened.getmembers():
            file = opened.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
    return found
