"""Cosmos-Embed1: clips and texts as vectors of one space.

The network is code that comes with its weights, so it runs only where the user allowed that. Weights are safetensors;
nothing is fetched while it runs, whatever the folder refers to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, torch
from tamis.errors import UsageError
from tamis.stages.text.models import folder as folders

if TYPE_CHECKING:
    from tamis.stages.text.models.device import TorchDevice

VARIANTS = {"224p": (224, 256), "336p": (336, 768), "448p": (448, 768)}  # side of an image, length of a vector
N_FRAMES = 8


def repository(variant: str) -> str:
    return f"nvidia/Cosmos-Embed1-{variant}"


class CosmosEmbed1:
    """The model on a device. Frames uint8 [clips, 8, height, width, 3] in, unit vectors out."""

    def __init__(self, folder: folders.ModelFolder, device: TorchDevice) -> None:
        self.device = device
        self.dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
        self._processor = _own(
            folder, "AutoProcessor", ("processor_config.json", "preprocessor_config.json", "config.json")
        )
        self._model = _own(folder, "AutoModel", ("config.json",), dtype=self.dtype).to(device.kind).eval()

    def videos(self, frames: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        inputs = self._processor(videos=np.ascontiguousarray(frames.transpose(0, 1, 4, 2, 3)), return_tensors="pt")
        return self._embed("get_video_embeddings", inputs, "visual_proj")

    def texts(self, texts: list[str]) -> np.ndarray[Any, Any]:
        return self._embed("get_text_embeddings", self._processor(text=texts, return_tensors="pt"), "text_proj")

    def _embed(self, method: str, model_inputs: Any, field: str) -> np.ndarray[Any, Any]:
        inputs = {k: self._placed(v) for k, v in dict(model_inputs).items()}
        with torch.inference_mode():
            features = getattr(getattr(self._model, method)(**inputs), field).float()
            vectors: np.ndarray[Any, Any] = torch.nn.functional.normalize(features, dim=-1).cpu().numpy()
        return vectors

    def _placed(self, value: Any) -> Any:
        value = value.to(self.device.kind)
        return value.to(self.dtype) if value.is_floating_point() else value


def _own(folder: folders.ModelFolder, kind: str, files: tuple[str, ...], **settings: Any) -> Any:
    """Return an object of the class that the model folder itself provides.

    Ids in front of the class (owner/name--file.Class) would cause a download from the hub: the file next to the
    weights is used.
    """
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    for name in files:
        path = folder.path / name
        auto_map = folders.read_json(path).get("auto_map", {}) if path.exists() else {}
        if isinstance(auto_map, dict) and auto_map.get(kind):
            reference = str(auto_map[kind]).rpartition("--")[2]
            model_class = get_class_from_dynamic_module(reference, str(folder.path), local_files_only=True)
            return model_class.from_pretrained(str(folder.path), local_files_only=True, **settings)
    raise UsageError(
        f"model folder {folder.path}: no {kind} in {' or '.join(files)}; expected the files of Cosmos-Embed1"
    )


def checked_folder(path: Path, allowed: bool, stage: str) -> folders.ModelFolder:
    """Return the model folder. Raise UsageError if its code may not run."""
    if not allowed:
        raise UsageError(
            f"{stage}: Cosmos-Embed1 is code that its folder brings along ({path}); if you trust its author, say "
            "trust_remote_code=True "
            "(--trust-remote-code)"
        )
    return folders.open_folder(path, trust_remote_code=True)
