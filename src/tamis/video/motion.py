"""Motion of a clip: the codec's motion vectors on a grid of 8 x 8 pixels, and two scores of their mean over time.

score 1, global mean: mean over frames and pixels of |vector| / (height + width), 0 where there is none. score 2, per
patch: the same over time only, then shrunk 256 times in both directions (bilinear, as image libraries do without
smoothing), and the least of these patches: below its threshold something in the frame never moves.

Blocks of all codecs with motion vectors begin at multiples of 8, so the grid gives what a sum over single pixels gives
(a twin in the tests does that), in a sixty-fourth of the memory: 4K takes 1 MB. Cells that the frame's edge cuts count
by the pixels they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis._lazy import np

CELL = 8
PATCH = 256
TOO_SMALL = "resolution_too_small"
NO_VECTORS = "no_motion_vectors"


@dataclass(frozen=True)
class Motion:
    """Motion of one clip. Without data both scores are -1, and `error` says why."""

    global_mean: float = -1.0
    per_patch_min_256: float = -1.0
    n_frames: int = 0
    error: str | None = None


class MotionMap:
    """Sums vectors of one frame after another."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.n_frames = 0
        self._shape = -(-height // CELL), -(-width // CELL)
        self._total = np.zeros(self._shape)

    def add(self, vectors: np.ndarray[Any, Any]) -> None:
        """Add vectors in FFmpeg's layout: w, h, dst_x, dst_y (the middle of a block), motion_x, motion_y, motion_scale.

        Of several for a block the last counts.
        """
        self._total += self.cells(vectors)
        self.n_frames += 1

    def cells(self, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return |vector| / (height + width) of each cell."""
        length = np.hypot(vectors["motion_x"].astype(np.float64), vectors["motion_y"].astype(np.float64))
        length /= np.maximum(vectors["motion_scale"].astype(np.float64), 1.0)
        left = (vectors["dst_x"].astype(np.int64) - vectors["w"] // 2) // CELL
        top = (vectors["dst_y"].astype(np.int64) - vectors["h"] // 2) // CELL
        n_wide, n_high = np.maximum(1, vectors["w"] // CELL), np.maximum(1, vectors["h"] // CELL)
        grid = np.zeros(self._shape)
        rows, columns, order, values = [], [], [], []
        for dy in range(int(n_high.max(initial=1))):
            for dx in range(int(n_wide.max(initial=1))):
                indices = np.flatnonzero((n_high > dy) & (n_wide > dx))
                rows.append(top[indices] + dy)
                columns.append(left[indices] + dx)
                order.append(indices)
                values.append(length[indices])
        y, x = np.concatenate(rows), np.concatenate(columns)
        inside = (y >= 0) & (y < self._shape[0]) & (x >= 0) & (x < self._shape[1])
        by_vector = np.argsort(np.concatenate(order)[inside], kind="stable")
        grid[y[inside][by_vector], x[inside][by_vector]] = np.concatenate(values)[inside][by_vector]
        return grid / (self.height + self.width)

    def motion(self) -> Motion:
        if not self.n_frames:
            return Motion(error=NO_VECTORS)
        mean = self._total / self.n_frames
        high = np.minimum(CELL, self.height - CELL * np.arange(self._shape[0]))
        wide = np.minimum(CELL, self.width - CELL * np.arange(self._shape[1]))
        global_mean = float((mean * high[:, None] * wide[None, :]).sum() / (self.height * self.width))
        # The middle of a patch is between pixels 127 and 128, in cells 15 and 16 of its 32.
        middle = PATCH // 2 // CELL
        y = np.arange(self.height // PATCH) * (PATCH // CELL) + middle
        x = np.arange(self.width // PATCH) * (PATCH // CELL) + middle
        patches = sum(mean[np.ix_(y - dy, x - dx)] for dy in (0, 1) for dx in (0, 1)) / 4.0
        return Motion(global_mean, float(np.min(patches)), self.n_frames)


def n_examined_frames(seconds: float, target_fps: float, share: float) -> int:
    """Return how many frames with motion vectors of a clip are examined.

    >>> n_examined_frames(10.0, 2.0, 0.5), n_examined_frames(60.0, 2.0, 0.5)
    (10, 60)
    """
    return max(10, round(target_fps * seconds * share))
