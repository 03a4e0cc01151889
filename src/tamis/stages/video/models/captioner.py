"""Vision-language chat models: images and a question in, an answer out.

Any model of transformers that answers about images.

Qwen2-VL and Qwen2.5-VL see a window as a video, in patches made by `patches_of` (numpy: the library's own
way needs torchvision), Qwen3-VL and all others as a row of images. Answers are
the likeliest ones, word by word, so that the same clip gets the same caption every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, torch
from tamis.stages.image.embedders.clip_vision import normalisation
from tamis.stages.text.models import folder as folders
from tamis.stages.text.pretrained import from_pretrained
from tamis.stages.video.models.writer import ChatModel
from tamis.video.windows import fit_sides

if TYPE_CHECKING:
    from numpy import ndarray


MODELS = {"qwen2.5": "Qwen/Qwen2.5-VL-7B-Instruct", "qwen3": "Qwen/Qwen3-VL-8B-Instruct"}
_AS_VIDEO = ("qwen2_vl", "qwen2_5_vl")
_AS_IMAGES = ("qwen3_vl", "qwen3_vl_moe")
_LEAST, _MOST, _TOTAL = 128, 768, 24_576  # squares of `factor` pixels: of a frame, of a frame, of all frames together
_LONGEST = 448  # side of an image for models whose own processor scales it further


@dataclass
class Question:
    """Frames (uint8, all of one size), the question about them, and their distance in time."""

    frames: ndarray[Any, Any]
    prompt: str
    seconds_per_frame: float


class Captioner(ChatModel):
    """A model that answers about images."""

    auto_class, lacks = "AutoModelForImageTextToText", "no model that answers about images"

    def _read_texts(self, folder: folders.ModelFolder) -> None:
        """Load Qwen's tokenizers, whose patches are made here; the model's own processor for others."""
        self.kind = str(folder.config.get("model_type", ""))
        self._processor: Any = None
        if self.kind in (*_AS_VIDEO, *_AS_IMAGES):
            super()._read_texts(folder)
            self._looks = normalisation(folder)
            return
        place = str(folder.path)
        self._processor = from_pretrained(
            "AutoProcessor", place, "a model that answers about images", local_files_only=True
        )
        self._tokenizer = self._processor.tokenizer

    def sides(self, height: int, width: int, n_frames: int) -> tuple[int, int]:
        """Return the size at which frames are to be decoded: height and width."""
        if self._processor is not None:
            scale = min(1.0, _LONGEST / max(height, width))
            return max(2, round(height * scale)), max(2, round(width * scale))
        vision = self._model.config.vision_config
        square = (factor := int(vision.patch_size) * int(vision.spatial_merge_size)) ** 2
        most = max(min(_MOST, _TOTAL / max(1, n_frames) * 2), _LEAST * 1.05)
        return fit_sides(height, width, factor, _LEAST * square, int(most * square))

    def answers(self, questions: Sequence[Question]) -> list[str]:
        """Answer all questions in one batch, with one answer for each."""
        if not questions:
            return []
        return self._answers(self._chat(questions) if self._processor is not None else self._patched(questions))

    def _chat(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the message for the model's own processor: images in the order of time, then the question."""
        from PIL import Image

        chats = [
            [
                {
                    "role": "user",
                    "content": [
                        *({"type": "image", "image": Image.fromarray(f)} for f in q.frames),
                        {"type": "text", "text": q.prompt},
                    ],
                }
            ]
            for q in questions
        ]
        inputs = self._processor.apply_chat_template(
            chats,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )
        return dict(inputs)

    def _patched(self, questions: Sequence[Question]) -> dict[str, Any]:
        vision, is_video = self._model.config.vision_config, self.kind in _AS_VIDEO
        merge, mark = int(vision.spatial_merge_size), "<|video_pad|>" if is_video else "<|image_pad|>"
        texts, pixels, grids, seconds = [], [], [], []
        for q in questions:
            shown = ""
            for part in [q.frames] if is_video else [f[None] for f in q.frames]:
                flat, grid = patches_of(
                    part, int(vision.patch_size), merge, int(vision.temporal_patch_size), *self._looks
                )
                pixels.append(flat)
                grids.append(grid)
                seconds.append(q.seconds_per_frame * int(vision.temporal_patch_size))
                shown += f"<|vision_start|>{mark * (int(np.prod(grid)) // merge**2)}<|vision_end|>"
            chat = [{"role": "user", "content": shown + q.prompt}]
            texts.append(self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        encoded = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        ids = encoded["input_ids"]
        kinds = (ids == self._tokenizer.convert_tokens_to_ids(mark)).long() * (2 if is_video else 1)
        name = "video" if is_video else "image"
        inputs = {
            "input_ids": ids,
            "attention_mask": encoded["attention_mask"],
            "mm_token_type_ids": kinds,
            "pixel_values_videos" if is_video else "pixel_values": torch.from_numpy(np.concatenate(pixels)),
            f"{name}_grid_thw": torch.tensor(grids),
        }
        if self.kind == "qwen2_5_vl":
            inputs["second_per_grid_ts"] = torch.tensor(seconds)
        return inputs


def find_model(
    model_dir: str, variant: str, known: dict[str, str], default_dir: str, find: Callable[..., Path] | None = None
) -> folders.ModelFolder:
    """Return the folder of a model: a known name below `model_dir` (or from the hub), or any hub id or folder.

    `variant`: the known name, hub id or folder. `find`: `pretrained.local` for callers that must not access the
    hub.
    """
    from tamis.stages.video.models.device import model_folder

    if variant in known:
        return folders.open_folder(model_folder(model_dir, known[variant], default_dir, find=find))
    return folders.open_folder((find or folders.fetch)(variant))


def patches_of(
    frames: np.ndarray[Any, Any], patch: int, merge: int, together: int, mean: Any, std: Any
) -> tuple[np.ndarray[Any, Any], tuple[int, int, int]]:
    """Return patches of frames in float32, and the grid (frames, rows, columns).

    Patches are [n, 3 * together * patch * patch]. Frames are uint8 [T, H, W, 3] whose sides are multiples of patch *
    merge. The last frame is repeated if their number is no multiple of `together`.
    """
    pixels = (frames.astype(np.float32) / 255.0 - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    if extra := -len(pixels) % together:
        pixels = np.concatenate([pixels, np.repeat(pixels[-1:], extra, 0)])
    t, high, wide = len(pixels) // together, pixels.shape[1] // patch, pixels.shape[2] // patch
    planes = pixels.transpose(0, 3, 1, 2)
    cut = planes.reshape(t, together, 3, high // merge, merge, patch, wide // merge, merge, patch)
    flat = cut.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(t * high * wide, 3 * together * patch * patch)
    return np.ascontiguousarray(flat), (t, high, wide)
