"""The part of a CLIP model that looks at images: squares of bytes in, unit vectors out.

On a GPU in bfloat16: bytes go to the device from pinned memory without waiting, are normalised there, and the network
runs as one recorded graph, always over the same number of images. So threads that decode meanwhile do not get in
between its hundreds of kernels, and what an image gets does not depend on how many others there are with it. On a CPU
in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, torch
from tamis.errors import UsageError
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice

if TYPE_CHECKING:
    Floats = np.ndarray[Any, np.dtype[np.float32]]
    Squares = Sequence[np.ndarray[Any, Any]]

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_QUICK_GELU = 1.702
_SLOTS = 2  # batches under way: one that the device works on, one that is put together
_WARM_UP = 3  # times that a network runs before it is recorded: libraries choose and allocate then


class ClipVision:
    """Called with uint8 squares [side, side, 3], gives float32 [n, width].

    `at_once`: how many go through the network together.
    """

    def __init__(self, folder: folders.ModelFolder, device: TorchDevice, at_once: int = 32) -> None:
        from tamis.stages.text.models.networks import load

        self.device, self.at_once = device, at_once
        self.dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
        vision = folder.config.get("vision_config")
        if not isinstance(vision, dict) and folder.config.get("model_type") != "clip_vision_model":
            raise UsageError(
                f"model folder {folder.path}: no CLIP model (model_type {folder.config.get('model_type')!r})"
            )
        # Its attention in one kernel.
        model = load(folder, "CLIPVisionModelWithProjection", config=_config(folder), attn_implementation="sdpa")
        if device.kind == "cuda":
            fold_quick_gelu(model)
        self.model = model.to(device.kind, self.dtype)
        self.side = int(self.model.config.image_size)
        mean, std = normalisation(folder)
        self._scale = (torch.tensor(std) * 255).view(1, 3, 1, 1).to(device.kind)
        self._shift = (torch.tensor(mean) * 255).view(1, 3, 1, 1).to(device.kind)
        self._recorded: RecordedNetwork | None = None
        self._records = device.kind == "cuda"

    def __call__(self, squares: Squares) -> Floats:
        n = self.at_once
        return np.concatenate([self.begin(squares[i : i + n])() for i in range(0, len(squares), n)])

    def begin(self, squares: Squares) -> Callable[[], Floats]:
        """Start the network on at most `at_once` squares and return a function that waits for their vectors.

        At most two may be under way, and the first one is asked first. Where the device has no room for them all, the
        two halves go through one after the other.
        """
        try:
            if self._records:
                if self._recorded is None:
                    self._recorded = RecordedNetwork(self.forward, self.at_once, self.side)
                return self._recorded.begin(squares)
            vectors = self._eager(np.stack(squares))
            return lambda: vectors
        except Exception as exc:
            if not self.device.is_full(exc) or len(squares) < 2:
                raise
        self._recorded, self._records = None, False  # there was no room for all of them: from now on as many as fit
        self.device.release()
        half = len(squares) // 2
        both = np.concatenate([self.begin(squares[:half])(), self.begin(squares[half:])()])
        return lambda: both

    def forward(self, pixels: Any) -> Any:
        """Embed uint8 [n, side, side, 3] on the device as unit vectors in float32."""
        planes = ((pixels.permute(0, 3, 1, 2).float() - self._shift) / self._scale).to(self.dtype)
        return torch.nn.functional.normalize(self.model(pixel_values=planes).image_embeds.float(), dim=-1)

    def _eager(self, pixels: np.ndarray[Any, Any]) -> Floats:
        with torch.inference_mode():
            vectors: Floats = self.forward(torch.from_numpy(pixels).to(self.device.kind)).cpu().numpy()
            return vectors


class RecordedNetwork:
    """A function over `n` squares on the GPU, recorded once as a CUDA graph and played again for every batch.

    Fewer are filled up.
    """

    def __init__(self, forward: Callable[[Any], Any], n: int, side: int) -> None:
        with torch.inference_mode():
            self._in = torch.zeros(n, side, side, 3, dtype=torch.uint8, device="cuda")
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UP):
                    forward(self._in)
            torch.cuda.current_stream().wait_stream(aside)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._out = forward(self._in)
            self._slots = cycle([_Slot(self._in, self._out) for _ in range(_SLOTS)])

    def begin(self, squares: Squares) -> Callable[[], Floats]:
        slot, n = next(self._slots), len(squares)
        slot.done.synchronize()
        for row, square in enumerate(squares):
            slot.rows[row] = square
        with torch.inference_mode():
            self._in.copy_(slot.pixels, non_blocking=True)
            self._graph.replay()
            slot.vectors.copy_(self._out, non_blocking=True)
            slot.done.record()

        def wait() -> Floats:
            slot.done.synchronize()
            vectors: Floats = slot.vectors[:n].numpy().copy()
            return vectors

        return wait


class _Slot:
    """Pinned memory of one batch, in and out, and the event after its work on the device."""

    def __init__(self, pixels: Any, vectors: Any) -> None:
        self.pixels = torch.zeros(pixels.shape, dtype=pixels.dtype, pin_memory=True)
        self.vectors = torch.zeros(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        self.rows = self.pixels.numpy()
        self.done = torch.cuda.Event()


def fold_quick_gelu(model: Any) -> None:
    """Fold the factors of QuickGELU into the adjacent weights.

    x * sigmoid(1.702 x) is silu(1.702 x) / 1.702: with the factor in the weights on both sides it is one kernel instead
    of three, which at this width take half as long as a matrix product. Weights must still be in float32. Other
    activations are left as they are.
    """
    if getattr(model.config, "hidden_act", "") != "quick_gelu":
        return
    with torch.no_grad():
        for part in model.modules():
            if hasattr(part, "activation_fn") and hasattr(part, "fc1") and hasattr(part, "fc2"):
                part.fc1.weight.mul_(_QUICK_GELU)
                part.fc1.bias.mul_(_QUICK_GELU)
                part.fc2.weight.div_(_QUICK_GELU)
                part.activation_fn = torch.nn.SiLU()


def _config(folder: folders.ModelFolder) -> Any:
    """Return the configuration of the vision part; a full checkpoint stores its embedding width next to it."""
    import transformers

    config = folder.config
    vision = dict(config["vision_config"]) if isinstance(config.get("vision_config"), dict) else dict(config)
    if isinstance(config.get("projection_dim"), int):
        vision["projection_dim"] = config["projection_dim"]
    return transformers.CLIPVisionConfig(**vision)


def normalisation(folder: folders.ModelFolder) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each colour, from the folder, or OpenAI's."""
    path = folder.path / "preprocessor_config.json"
    config = folders.read_json(path) if path.exists() else {}
    mean, std = config.get("image_mean") or _MEAN, config.get("image_std") or _STD
    if len(mean) != 3 or len(std) != 3 or not all(isinstance(x, (int, float)) and x for x in (*mean, *std)):
        raise UsageError(f"{path}: image_mean and image_std must be three numbers each")
    return [float(x) for x in mean], [float(x) for x in std]
