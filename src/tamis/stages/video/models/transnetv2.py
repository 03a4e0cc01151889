"""TransNetV2: the probability that a frame belongs to a transition between shots (Souček and Lokoč, 2020), in torch.

Frames of 27 x 48 in windows of 100; of each window the middle 50 count, so that every frame is judged with 25 before
and behind it. Three stacks of convolutions that look 1, 2, 4 and 8 frames ahead and back; beside them how alike frames
are to the 50 before and behind them, by learned features and by colour. Names of the weights are those of the public
weight file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tamis._lazy import np, torch
from tamis.errors import UsageError, optional

HEIGHT, WIDTH = 27, 48
WINDOW, STEP, EDGE = 100, 50, 25
REPOSITORY = "Sn4kehead/TransNetV2"
WEIGHTS = "transnetv2-pytorch-weights.pth"
_LOOKUP = 101  # frames that a frame is compared with: itself, and 50 on each side


def network() -> Any:
    """Return the network with random weights, in float32, ready for inference. Raise MissingExtra without torch."""
    torch = optional("torch", "TransNetV2", "models")
    from torch import nn
    from torch.nn import functional

    class SeparableConv(nn.Module):  # type: ignore[misc,unused-ignore]
        """A convolution over the image, then one over time, `dilation` frames apart."""

        def __init__(self, n_in: int, n_out: int, dilation: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [
                    nn.Conv3d(n_in, 2 * n_out, (1, 3, 3), padding=(0, 1, 1), bias=False),
                    nn.Conv3d(
                        2 * n_out, n_out, (3, 1, 1), dilation=(dilation, 1, 1), padding=(dilation, 0, 0), bias=False
                    ),
                ]
            )

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    class DilatedBlock(nn.Module):  # type: ignore[misc,unused-ignore]
        """Four parallel convolutions, dilated in time by 1, 2, 4 and 8."""

        def __init__(self, n_in: int, n_out: int, is_active: bool) -> None:
            super().__init__()
            self.Conv3D_1, self.Conv3D_2 = SeparableConv(n_in, n_out, 1), SeparableConv(n_in, n_out, 2)
            self.Conv3D_4, self.Conv3D_8 = SeparableConv(n_in, n_out, 4), SeparableConv(n_in, n_out, 8)
            self.bn = nn.BatchNorm3d(4 * n_out, eps=1e-3)
            self._is_active = is_active

        def forward(self, x: Any) -> Any:
            x = torch.cat([self.Conv3D_1(x), self.Conv3D_2(x), self.Conv3D_4(x), self.Conv3D_8(x)], dim=1)
            x = self.bn(x)
            return functional.relu(x) if self._is_active else x

    class DilatedStack(nn.Module):  # type: ignore[misc,unused-ignore]
        """Two blocks with a skip connection around the second, then pooling that halves both sides of the image."""

        def __init__(self, n_in: int, n_out: int) -> None:
            super().__init__()
            self.DDCNN = nn.ModuleList([DilatedBlock(n_in, n_out, True), DilatedBlock(4 * n_out, n_out, False)])
            self.pool = nn.AvgPool3d((1, 2, 2))

        def forward(self, x: Any) -> Any:
            first = self.DDCNN[0](x)
            return self.pool(functional.relu(self.DDCNN[1](first)) + first)

    def around(vectors: Any) -> Any:
        """Return how similar each frame is to those around it: [B, T, 101], 0 beyond the ends.

        `vectors`: unit length, [B, T, n].
        """
        n, t, side = vectors.shape[0], vectors.shape[1], _LOOKUP // 2
        alike = functional.pad(torch.bmm(vectors, vectors.transpose(1, 2)), (side, side))
        at = torch.arange(_LOOKUP, device=vectors.device)[None, :] + torch.arange(t, device=vectors.device)[:, None]
        return alike.gather(2, at[None].expand(n, t, _LOOKUP))

    class FrameSimilarity(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.projection, self.fc = nn.Linear(448, 128), nn.Linear(_LOOKUP, 128)

        def forward(self, features: list[Any]) -> Any:
            x = torch.cat([f.mean(dim=(3, 4)) for f in features], dim=1).transpose(1, 2)
            return functional.relu(self.fc(around(functional.normalize(self.projection(x), dim=2))))

    class ColorHistograms(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(_LOOKUP, 128)

        def forward(self, frames: Any) -> Any:
            """Compare color histograms of uint8 [B, T, H, W, 3]: three bits of each color give 512 bins."""
            n, t = frames.shape[:2]
            deep = (frames.int() >> 5).reshape(n * t, -1, 3)
            bins = (deep[..., 0] << 6) + (deep[..., 1] << 3) + deep[..., 2]
            counts = torch.zeros(n * t, 512, device=frames.device)
            counts.scatter_add_(1, bins.long(), torch.ones_like(bins, dtype=torch.float32))
            return functional.relu(self.fc(around(functional.normalize(counts, dim=1).reshape(n, t, 512))))

    class TransNetV2(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.SDDCNN = nn.ModuleList([DilatedStack(3, 16), DilatedStack(64, 32), DilatedStack(128, 64)])
            self.frame_sim_layer, self.color_hist_layer = FrameSimilarity(), ColorHistograms()
            self.fc1 = nn.Linear(4608 + 128 + 128, 1024)
            self.cls_layer1, self.cls_layer2 = nn.Linear(1024, 1), nn.Linear(1024, 1)  # the second is another output

        def forward(self, frames: Any) -> Any:
            """Compute probabilities [B, T] of uint8 frames [B, T, 27, 48, 3]."""
            x = frames.permute(0, 4, 1, 2, 3).to(self.fc1.weight.dtype) / 255.0
            features = []
            for stack in self.SDDCNN:
                x = stack(x)
                features.append(x)
            x = x.permute(0, 2, 3, 4, 1).flatten(2)
            x = torch.cat([self.color_hist_layer(frames), self.frame_sim_layer(features), x], dim=2)
            return torch.sigmoid(self.cls_layer1(functional.relu(self.fc1(x))))[..., 0]

    return TransNetV2().eval()


def load_weights(path: Path) -> Any:
    """Return the network with the weights of a file.

    The format is safetensors, or torch's own, read without executing anything in it.
    """
    from tamis.stages.image.models import read_weights

    if not path.is_file():
        raise UsageError(f"there is no file {path}; TransNetV2's weights are {WEIGHTS} of {REPOSITORY}")
    weights = read_weights(path)
    model = network()
    try:
        model.load_state_dict({k: torch.from_numpy(v.copy()).reshape(v.shape) for k, v in weights.items()})
    except RuntimeError as exc:
        raise UsageError(f"{path}: these are no weights of TransNetV2: {str(exc).splitlines()[0]}") from None
    return model


def windows(frames: Iterable[np.ndarray[Any, Any]]) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Yield (100 frames, number of the middle ones that belong to the video) over a video, one frame at a time.

    The first frame is repeated before the start, the last after the end. At most 150 frames are held.
    """
    window: list[Any] = []
    n_new = 0  # frames of the video that no window gave yet, of those in `held`
    last = None
    for frame in frames:
        if last is None:
            window = [frame] * EDGE
        window.append(frame)
        last = frame
        n_new += 1
        if len(window) == WINDOW:
            yield np.stack(window), STEP
            window = window[STEP:]
            n_new -= STEP
    while n_new > 0:
        window += [last] * (WINDOW - len(window))
        yield np.stack(window), min(STEP, n_new)
        window = window[STEP:]
        n_new -= STEP


def scenes_of(probabilities: Iterable[float], threshold: float) -> list[tuple[int, int]]:
    """Return the runs of frames between transitions, as (first, end); frames of a transition belong to none.

    >>> scenes_of([0.1, 0.1, 0.9, 0.1, 0.1], 0.5), scenes_of([0.1, 0.2], 0.5), scenes_of([0.9, 0.9], 0.5)
    ([(0, 2), (3, 5)], [(0, 2)], [])
    """
    scenes, start = [], None
    n = 0
    for n, p in enumerate(probabilities, 1):
        if p > threshold:
            if start is not None:
                scenes.append((start, n - 1))
            start = None
        elif start is None:
            start = n - 1
    if start is not None:
        scenes.append((start, n))
    return scenes
