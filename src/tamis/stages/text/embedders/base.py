"""Embeddings: tokenizer (CPU) -> model (GPU, or CPU where there is none).

Each document gets a list of numbers of length 1.

A folder that the library sentence-transformers saved says itself how tokens become one vector (modules.json,
1_Pooling); that is read here, and nothing of the library is needed. Any other encoder is pooled as `embedding_pooling`
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis._lazy import np, torch
from tamis.errors import UsageError
from tamis.sizes import check_integer, check_optional_integer
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice
from tamis.stages.text.models.model import ModelStage, Network, as_lists
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.stages.text.models.utils import TOKENS, format_name_with_suffix
from tamis.tasks import DocumentBatch

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
POOLINGS = {"mean_pooling": "mean", "last_token": "last", "cls_token": "first"}
_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_lasttoken": "last"}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid")


# What of from_pretrained is decided here: weights are safetensors of a folder that was looked at, in the precision that
# the device takes.
_DECIDED = (
    "weights_only", "use_safetensors", "local_files_only", "dtype", "torch_dtype", "low_cpu_mem_usage", "device_map",
    "subfolder", "revision", "variant", "cache_dir", "gguf_file", "from_tf", "from_flax", "state_dict",
)  # fmt: skip


def checked(transformers_init_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's settings for from_pretrained; refuse those that are not the user's to choose."""
    settings = dict(transformers_init_kwargs or {})
    if wrong := [name for name in _DECIDED if name in settings]:
        raise UsageError(
            f"transformers_init_kwargs: {', '.join(wrong)} cannot be chosen: weights are loaded from the safetensors "
            "of the model's own folder, in the "
            "precision of the device (autocast); leave it out"
        )
    return settings


class EmbeddingModelStage(ModelStage):
    """An encoder, pooled over the tokens of each text: the mean, or the last token."""

    columns_out = ("embedding_field",)

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        embedding_field: str = "embeddings",
        pooling: str = "mean_pooling",
        hf_token: str | None = None,
        model_inference_batch_size: int = 1024,
        has_seq_order: bool = True,
        padding_side: str = "right",
        autocast: bool = True,
        transformers_init_kwargs: dict[str, Any] | None = None,
        max_seq_length: int | None = None,
        trust_remote_code: bool = False,
        tokens_field: str = TOKENS,
    ) -> None:
        if pooling not in POOLINGS:
            raise UsageError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling!r}")
        super().__init__(
            model_identifier,
            cache_dir,
            hf_token,
            model_inference_batch_size,
            has_seq_order,
            padding_side,
            max_seq_length,
            autocast,
            False,
            trust_remote_code,
            tokens_field,
        )
        self.embedding_field, self.pooling = embedding_field, pooling
        self.transformers_init_kwargs = checked(transformers_init_kwargs)

    def how(self, folder: folders.ModelFolder) -> str:
        """Return how tokens are pooled into one vector."""
        return POOLINGS[self.pooling]

    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        from tamis.stages.text.models.networks import Encoder, load

        settings = {"trust_remote_code": self.trust_remote_code, **self.transformers_init_kwargs}
        model = load(folder, "AutoModel", **settings)
        encoder = Encoder(model, device, self._max_tokens, self.how(folder), self.autocast)
        return Embedder(encoder, self.layers(folder, device))

    def layers(self, folder: folders.ModelFolder, device: TorchDevice) -> list[Any]:
        """Return layers that follow the pooling."""
        return []

    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        return {self.embedding_field: as_lists([np.asarray(r, np.float32) for r in rows], np.float32)}


class SentenceTransformerEmbeddingModelStage(EmbeddingModelStage):
    """Embeds with a sentence-transformers model, whose folder defines the pooling."""

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        embedding_field: str = "embeddings",
        hf_token: str | None = None,
        model_inference_batch_size: int = 1024,
        has_seq_order: bool = True,
        padding_side: str = "right",
        autocast: bool = True,
        transformers_init_kwargs: dict[str, Any] | None = None,
        max_seq_length: int | None = None,
        trust_remote_code: bool = False,
        tokens_field: str = TOKENS,
    ) -> None:
        super().__init__(
            model_identifier,
            cache_dir,
            embedding_field,
            "mean_pooling",
            hf_token,
            model_inference_batch_size,
            has_seq_order,
            padding_side,
            autocast,
            transformers_init_kwargs,
            max_seq_length,
            trust_remote_code,
            tokens_field,
        )

    def how(self, folder: folders.ModelFolder) -> str:
        return pooling_of(folder.path)

    def layers(self, folder: folders.ModelFolder, device: TorchDevice) -> list[Any]:
        return dense_layers(folder.path, device.kind)


class Embedder:
    """The pooled states of an encoder, after dense layers if the model has any, as vectors of length 1."""

    def __init__(self, encoder: Any, layers: Sequence[Any] = ()) -> None:
        self._encoder, self.packs, self.width, self.longest = encoder, encoder.packs, encoder.width, encoder.longest
        self._layers = list(layers)

    def prepare(self, texts: Any, batch: Any) -> Any:
        return self._encoder.prepare(texts, batch)

    def __call__(self, prepared: Any) -> Any:
        with torch.inference_mode():
            vectors = self._encoder.pooled(prepared)
            for layer in self._layers:
                vectors = layer(vectors)
            return torch.nn.functional.normalize(vectors, dim=-1)


def pooling_of(path: Path) -> str:
    """Return how a sentence-transformers folder pools, according to its modules.

    A model that adds layers of its own is refused.
    """
    listed = path / "modules.json"
    if not listed.exists():
        raise UsageError(
            f"model folder {path}: no modules.json, so it is no model of sentence-transformers; use "
            "use_sentence_transformer=False "
            "(--pooling mean) and choose the pooling"
        )
    modules = _read_list(listed)
    types = [str(m.get("type", "")) for m in modules]
    if custom := [name for name in types if not name.startswith("sentence_transformers.")]:
        raise UsageError(
            f"model folder {path}: modules.json names code of its own ({', '.join(custom)}), which is not run; "
            "expected modules of "
            "sentence_transformers: use use_sentence_transformer=False (--pooling mean) and choose the pooling, or "
            "another model"
        )
    kinds = [name.rpartition(".")[2] for name in types]
    if kinds[:2] != ["Transformer", "Pooling"] or any(k not in ("Dense", "Normalize") for k in kinds[2:]):
        raise UsageError(
            f"model folder {path}: expected Transformer, Pooling, Dense and Normalize in modules.json, got "
            f"{', '.join(kinds)}"
        )
    modes = folders.read_json(path / str(modules[1]["path"]) / "config.json")
    chosen = [name for name in modes if name.startswith("pooling_mode") and modes[name] is True]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        raise UsageError(
            f"model folder {path}: pooling by {', '.join(chosen) or 'nothing'} is not known; expected one of "
            f"{', '.join(_MODES)}"
        )
    return _MODES[chosen[0]]


def dense_layers(path: Path, device: str) -> list[Any]:
    """Return the dense layers of a sentence-transformers folder, in order, on a device."""
    from safetensors.torch import load_file

    layers = []
    for module in _read_list(path / "modules.json"):
        if not str(module.get("type", "")).endswith(".Dense"):
            continue
        inside = path / str(module["path"])
        if ".." in Path(str(module["path"])).parts or not inside.resolve().is_relative_to(path.resolve()):
            raise UsageError(f"model folder {path}: modules.json names {module['path']}, which is not inside of it")
        settings = folders.read_json(inside / "config.json")
        name = str(settings.get("activation_function", "")).rpartition(".")[2]
        if name not in _ACTIVATIONS:
            raise UsageError(
                f"model folder {path}: the activation {name or 'of a dense layer'} is not known; expected one of "
                f"{', '.join(_ACTIVATIONS)}"
            )
        try:
            weights = load_file(str(inside / "model.safetensors"))
            weight, bias = weights["linear.weight"].float(), weights.get("linear.bias")
        except (OSError, KeyError, ValueError) as exc:
            raise UsageError(f"model folder {path}: a dense layer has no weights in {inside}: {exc}") from None
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        linear.weight = torch.nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            linear.bias = torch.nn.Parameter(bias.float(), requires_grad=False)
        layers.append(torch.nn.Sequential(linear, getattr(torch.nn, name)()).to(device).eval())
    return layers


def _read_list(path: Path) -> list[dict[str, Any]]:
    import json

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [dict(m) for m in document]
    except (OSError, ValueError, TypeError) as exc:
        raise UsageError(f"model file {path} cannot be read: {exc}") from None


def resolve(model_identifier: str, cache_dir: str | None = None) -> str:
    """Return the model to load; the default model comes from an installed package if it is not on this machine.

    No network is needed for that.
    """
    if model_identifier != DEFAULT_MODEL:
        return model_identifier
    try:
        return str(pretrained.local(model_identifier, cache_dir))
    except FileNotFoundError:
        return str(folders.bundled_embedder())


@dataclass(repr=False)
class EmbeddingCreatorStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Adds an embedding of each text: a list of numbers of length 1; null for a document without a text.

    The default model needs no network: it comes with the extra `models`. `use_sentence_transformer=False` takes any
    encoder and pools it by `embedding_pooling` (mean_pooling, last_token or cls_token).
    """

    model_identifier: str = DEFAULT_MODEL
    use_sentence_transformer: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    cache_dir: str | None = None
    max_chars: int | None = None
    max_seq_length: int | None = None
    padding_side: str = "right"
    embedding_pooling: str = "mean_pooling"
    model_inference_batch_size: int = 1024
    autocast: bool = True
    sort_by_length: bool = True
    hf_token: str | None = None
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = field(default=False, kw_only=True)
    columns_in = ("text_field",)
    columns_out = ("embedding_field",)

    def __post_init__(self) -> None:
        self.name = format_name_with_suffix(self.model_identifier, "_embedder")
        if self.embedding_pooling not in POOLINGS:
            raise UsageError(
                f"embedding_pooling: expected one of {', '.join(POOLINGS)}, got {self.embedding_pooling!r}"
            )
        checked(self.transformers_init_kwargs)
        check_integer(self.model_inference_batch_size, "model_inference_batch_size")
        check_optional_integer(self.max_chars, "max_chars")
        check_optional_integer(self.max_seq_length, "max_seq_length")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = resolve(self.model_identifier, self.cache_dir)
        longest = self.max_seq_length
        if longest is None and self.use_sentence_transformer and Path(folder).is_dir():
            longest = folders.sentence_settings(Path(folder)).max_tokens
        common: dict[str, Any] = {
            "cache_dir": self.cache_dir,
            "embedding_field": self.embedding_field,
            "hf_token": self.hf_token,
            "model_inference_batch_size": self.model_inference_batch_size,
            "has_seq_order": self.sort_by_length,
            "padding_side": self.padding_side,
            "autocast": self.autocast,
            "transformers_init_kwargs": self.transformers_init_kwargs,
            "max_seq_length": longest,
            "trust_remote_code": self.trust_remote_code,
        }
        model: EmbeddingModelStage
        if self.use_sentence_transformer:
            model = SentenceTransformerEmbeddingModelStage(folder, **common)
        else:
            model = EmbeddingModelStage(folder, pooling=self.embedding_pooling, **common)
        tokenizer = TokenizerStage(
            folder,
            self.cache_dir,
            self.hf_token,
            self.text_field,
            self.max_chars,
            longest,
            self.padding_side,
            self.sort_by_length,
            trust_remote_code=self.trust_remote_code,
        )
        if self.use_sentence_transformer:
            tokenizer.read_as_sentences()  # of a hub id: its files may not be here yet
        for stage, suffix in ((tokenizer, "_tokenizer"), (model, "_model")):
            stage.name = format_name_with_suffix(self.model_identifier, suffix)
        return [tokenizer, model]
