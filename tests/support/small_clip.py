"""A CLIP model of a few thousand weights, and heads that fit it, made on the disk for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 16
SIDE = 32


def clip(folder: Path, seed: int = 0) -> Path:
    """Make a full checkpoint, text tower included, as users have them, with random weights."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.CLIPConfig(
        text_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "vocab_size": 99,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": SIDE,
            "patch_size": 8,
        },
        projection_dim=WIDTH,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    return folder


def _linear(weights: dict[str, Any], name: str, out: int, width: int, rng: np.random.Generator) -> int:
    weights[f"{name}.weight"] = rng.normal(0, 1 / np.sqrt(width), (out, width)).astype(np.float32)
    weights[f"{name}.bias"] = rng.normal(0, 0.1, out).astype(np.float32)
    return out


def aesthetic(folder: Path, seed: int = 1) -> dict[str, Any]:
    from safetensors.numpy import save_file

    rng, weights, width = np.random.default_rng(seed), dict[str, Any](), WIDTH
    for n, out in ((0, 24), (2, 12), (4, 8), (6, 4), (7, 1)):
        width = _linear(weights, f"layers.{n}", out, width, rng)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    return weights


def nsfw(path: Path, seed: int = 2) -> dict[str, Any]:
    import torch

    rng, weights, width = np.random.default_rng(seed), dict[str, Any](), WIDTH
    for n, out in ((1, 8), (2, 16), (3, 8), (4, 1)):
        width = _linear(weights, f"linear_{n}", out, width, rng)
    weights["norm.mean"] = rng.normal(0, 0.1, WIDTH).astype(np.float32)
    weights["norm.variance"] = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({k: torch.from_numpy(v) for k, v in weights.items()}, path)
    return weights


def models(folder: Path) -> Path:
    """Make a folder with all three, where the stages look for them."""
    clip(folder / "openai" / "clip-vit-large-patch14")
    aesthetic(folder / "ttj" / "sac-logos-ava1-l14-linearMSE")
    nsfw(folder / "laion" / "clip-autokeras-binary-nsfw" / "clip_autokeras_binary_nsfw.pth")
    return folder
