"""The two small networks that read a CLIP embedding: how pleasing an image is, and how likely it is not safe for work.

Plain matrices, in numpy: a batch of a thousand takes a millisecond. Weights that are missing, or of another shape, are
named.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tamis._lazy import np
from tamis.errors import UsageError

if TYPE_CHECKING:
    Floats = np.ndarray[Any, np.dtype[np.float32]]

_AESTHETIC_LAYERS = (0, 2, 4, 6, 7)
_NSFW_LAYERS = (1, 2, 3, 4)


class AestheticHead:
    """Aesthetic predictor: five linear layers without activations, which give one number from about 1 to 10.

    Inference leaves out the dropout between the layers.

    So all of it is one linear map, multiplied out (in float64) when it is loaded: a thousandth of the work.
    """

    def __init__(self, weights: Mapping[str, Any], where: str) -> None:
        layers = [_layer(weights, f"layers.{n}", where) for n in _AESTHETIC_LAYERS]
        _check_chain(layers, where)
        self.width = int(layers[0][0].shape[1])
        weight, bias = np.eye(self.width), np.zeros(self.width)
        for w, b in layers:
            weight, bias = w.astype(np.float64) @ weight, w.astype(np.float64) @ bias + b
        self._weight, self._bias = weight[0].astype(np.float32), np.float32(bias[0])

    def __call__(self, vectors: Floats) -> Floats:
        scores: Floats = vectors @ self._weight + self._bias
        return scores


class NsfwHead:
    """Normalised, three linear layers with ReLU and one with a sigmoid: a probability."""

    def __init__(self, weights: Mapping[str, Any], where: str) -> None:
        self._layers = [_layer(weights, f"linear_{n}", where) for n in _NSFW_LAYERS]
        _check_chain(self._layers, where)
        self._mean = _one(weights, "norm.mean", where).reshape(-1)
        self._deviation = np.sqrt(_one(weights, "norm.variance", where).reshape(-1))
        self.width = int(self._layers[0][0].shape[1])

    def __call__(self, vectors: Floats) -> Floats:
        vectors = ((vectors - self._mean) / self._deviation).astype(np.float32)
        for weight, bias in self._layers[:-1]:
            vectors = np.maximum(vectors @ weight.T + bias, 0)
        weight, bias = self._layers[-1]
        out: Floats = (1 / (1 + np.exp(-(vectors @ weight.T + bias).astype(np.float64))))[:, 0].astype(np.float32)
        return out


def _one(weights: Mapping[str, Any], name: str, where: str) -> Floats:
    if name not in weights:
        raise UsageError(f"{where}: it has no weights {name!r}; it has {', '.join(sorted(weights)[:5])}, ...")
    return np.asarray(weights[name], np.float32)


def _layer(weights: Mapping[str, Any], name: str, where: str) -> tuple[Floats, Floats]:
    return _one(weights, f"{name}.weight", where), _one(weights, f"{name}.bias", where)


def _check_chain(layers: list[tuple[Floats, Floats]], where: str) -> None:
    shapes = [w.shape for w, _ in layers]
    fits = all(len(s) == 2 for s in shapes) and all(a[0] == b[1] for a, b in pairwise(shapes))
    if not fits or shapes[-1][0] != 1:
        raise UsageError(f"{where}: layers of the shapes {shapes} do not follow each other")
