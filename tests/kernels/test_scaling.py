"""Scaling: equal to a slow twin to the bit, and to the exact result but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tamis.kernels.pixels.scaling import scaled_square, weights_of

Array = np.ndarray[Any, Any]


def room(name: str, n: int) -> Array:
    return np.full(n, 171, np.uint8)  # whatever was there


def middle(image: Array) -> Array:
    height, width = image.shape[:2]
    short = min(height, width)
    return image[(height - short) // 2 :, (width - short) // 2 :][:short, :short]


def twin(image: Array, side: int) -> Array:
    """Pixel by pixel: 14 bits below the point of a weight, 7 of brightness, products rounded to 6."""
    square = middle(image).astype(np.int64) << 7
    starts, weights, n = weights_of(len(square), side)
    for _ in range(2):
        sums = np.zeros((side, *square.shape[1:]), np.int64)
        for y in range(side):
            for k in range(n):
                sums[y] += (square[starts[y] + k] * int(weights[y * n + k]) + (1 << 14)) >> 15
        square = (np.clip(sums, 0, 255 << 6) << 1).swapaxes(0, 1)
    return ((square + 64) >> 7).astype(np.uint8)


def exact(image: Array, side: int) -> Array:
    """In floating point, as a matrix: the cubic of Keys, as wide as the scale."""
    square = middle(image).astype(np.float64)
    scale = len(square) / side
    wide = max(1.0, scale)
    at = np.abs(np.arange(len(square)) + 0.5 - (np.arange(side)[:, None] + 0.5) * scale) / wide
    weights = np.where(
        at < 1, 1.5 * at**3 - 2.5 * at**2 + 1, np.where(at < 2, -0.5 * at**3 + 2.5 * at**2 - 4 * at + 2, 0)
    )
    weights /= weights.sum(1, keepdims=True)
    down = np.clip(np.einsum("ij,jkc->ikc", weights, square), 0, 255)
    return np.clip(np.einsum("ij,kjc->kic", weights, down), 0, 255)


@pytest.mark.parametrize(
    ("height", "width", "side"),
    [
        (375, 500, 224),
        (90, 61, 48),
        (61, 90, 48),
        (48, 48, 48),
        (40, 33, 70),
        (5, 3, 40),
        (1, 1, 8),
        (700, 650, 33),
        (32, 900, 31),
    ],
)
def test_a_square_is_that_of_the_twin_and_nearly_the_exact_one(height: int, width: int, side: int) -> None:
    rng = np.random.default_rng(height)
    image = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    found = scaled_square(image, side, room)
    assert found.shape == (side, side, 3)
    assert np.array_equal(found, twin(image, side))
    away = np.abs(found - exact(image, side))
    assert away.max() < 0.8
    assert away.mean() < 0.27  # rounding to whole levels alone is 0.25


@pytest.mark.parametrize("level", [0, 1, 127, 254, 255])
def test_one_colour_stays_what_it_is(level: int) -> None:
    for shape in ((900, 1200), (300, 200), (17, 40)):
        assert (scaled_square(np.full((*shape, 3), level, np.uint8), 64, room) == level).all()


def test_an_image_that_does_not_lie_in_one_piece_is_scaled_the_same() -> None:
    image = np.random.default_rng(0).integers(0, 256, (120, 160, 3)).astype(np.uint8)
    assert np.array_equal(scaled_square(image[:, ::2], 40, room), scaled_square(image[:, ::2].copy(), 40, room))
