"""Networks of classifiers and embedders: token ids of a batch in, rows of numbers out.

The only file that loads weights.

Everything is loaded from a model's folder (folder.py), from safetensors, with the code of `transformers` itself.
Encoders of the kinds DeBERTa-v2/v3 and BERT run packed (packed_deberta.py, packed_bert.py), on CPU and GPU; any other
with padding and a mask. Heads are plain matrices next to the encoder. A model with code of its own (trust_remote_code)
runs its own `forward`, whatever its base class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, torch
from tamis.errors import TamisError, UsageError, optional
from tamis.stages.text.models import packed_bert, packed_deberta
from tamis.stages.text.models.batching import TokenBatch
from tamis.stages.text.models.cuda import moved, ready
from tamis.stages.text.models.custom_code import custom_code
from tamis.stages.text.models.device import GPU_WIDTH
from tamis.stages.text.models.folder import ModelFolder

if TYPE_CHECKING:
    from torch import Tensor

    from tamis.stages.text.models.device import TorchDevice

Tokens = Sequence["np.ndarray[Any, Any]"]
# Layers with a vector for each position, as the models of transformers call them.
_TABLES = ("position_embeddings", "wpe", "embed_positions", "positions_embed", "char_position_embeddings")
_MOST_IDS = 1 << 31  # of a model without a table of them (CANINE reads any character)


def need_torch(what: str) -> Any:
    """Import torch, or raise with the command that installs it; progress bars of the libraries are disabled."""
    torch, transformers = (optional(name, what, "models") for name in ("torch", "transformers"))
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return torch


class Encoder:
    """Hidden states of a model's last layer, pooled: [texts, width], float32, on the device.

    `pooling`: "first" (token), "mean" or "last" (over the tokens of a text). `precision`: "float32", or "bfloat16" on a
    GPU.
    """

    def __init__(self, model: Any, device: TorchDevice, max_tokens: int, pooling: str, half: bool) -> None:
        torch = need_torch("a model")
        self.device, self.pooling = device, pooling
        self.dtype = torch.bfloat16 if half and device.kind == "cuda" else torch.float32
        self.width = int(getattr(model.config, "hidden_size", GPU_WIDTH))
        self.longest = positions(model)
        self._packed: Any = None
        self._own: Any = None
        self._kind = packing(model)
        if self._kind is not None:
            self._packed = self._kind[1](model, device.kind, self.dtype, max_tokens)
        if self._packed is None or (device.kind == "cuda" and self._packed.not_fused):
            # Sequence by sequence would be slow on a GPU: without the kernel it is padded like any other.
            self._packed, self._own = None, model.to(device.kind, self.dtype).eval()

    def prepare(self, texts: Tokens, batch: TokenBatch) -> PackedTexts | PaddedTexts:
        """Prepare texts for `pooled`, without the device."""
        if self._kind is None or self._packed is None:
            return PaddedTexts(texts, batch, self.device.kind, longest=self.longest)
        packed = self._kind[0](texts, total=batch.n_tokens if self.device.kind == "cuda" else 0)
        return PackedTexts(packed.to_host(self.device.kind), ready(_rows_of(packed, self.pooling), self.device.kind))

    def pooled(self, texts: PackedTexts | PaddedTexts) -> torch.Tensor:
        with torch.inference_mode():
            if isinstance(texts, PackedTexts):
                return self._pool_packed(texts)
            ids, mask = texts.moved()
            hidden = output_of(self._own, "last_hidden_state", input_ids=ids, attention_mask=mask)[: texts.n].float()
            return pool(hidden, mask[: texts.n], self.pooling)

    @property
    def packs(self) -> bool:
        return self._packed is not None

    def _pool_packed(self, texts: PackedTexts) -> torch.Tensor:
        hidden, at = self._packed.encode(texts.packed), moved(texts.at, self.device.kind)
        if self.pooling == "mean":
            sums = torch.segment_reduce(hidden.float(), "sum", lengths=at, axis=0, unsafe=True)
            return sums[::2] / at[::2, None]
        return hidden[at].float()


@dataclass(frozen=True)
class PackedTexts:
    """Texts without padding, and which of their rows are wanted, as `_rows_of` says."""

    packed: Any
    at: Tensor


class PaddedTexts:
    """Texts as rows of one length, and which of their tokens are there.

    Rows beyond the texts hold one token: attention over no token at all is not a number. `longest`: no row is longer,
    for the model has no more positions.

    Values of the padding do not affect the states of the tokens, for they are masked. But some models find
    the end of a text, or its positions, by the id of their padding: they are given that (`pad`).
    """

    def __init__(
        self,
        texts: Tokens,
        batch: TokenBatch,
        device: str,
        side: str = "right",
        pad: int = 0,
        longest: int | None = None,
    ) -> None:
        self.n, self._device, self.pad = len(texts), device, pad
        length = batch.length if longest is None else min(batch.length, longest)
        ids, mask = np.full((batch.n_rows, length), pad, np.int64), np.zeros((batch.n_rows, length), np.int64)
        for row, text in enumerate(texts):
            at = slice(0, len(text)) if side == "right" else slice(length - len(text), length)
            ids[row, at], mask[row, at] = text, 1
        mask[len(texts) :, 0 if side == "right" else -1] = 1
        self._both = ready(ids, device), ready(mask, device)

    def moved(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Move token ids and mask to the device."""
        ids, mask = self._both
        return moved(ids, self._device), moved(mask, self._device)


def _rows_of(packed: Any, pooling: str) -> np.ndarray[Any, Any]:
    """Return the row counts for "mean" pooling, else the first or the last row of each text.

    For "mean": the number of rows of a text, the number of rows between it and the next, and so on.
    """
    spans = np.array(packed.spans, np.int64).reshape(-1, 2)
    begins, lengths = spans[:, 0], spans[:, 1]
    if pooling != "mean":
        return begins if pooling == "first" else begins + lengths - 1
    between = np.append(begins[1:], len(packed.tokens)) - begins - lengths
    return np.stack([lengths, between], 1).reshape(-1)


def packing(model: Any) -> tuple[Any, Any] | None:
    """Return how texts are packed for this kind of model, and what runs them packed.

    None for a model that is run with padding.
    """
    if custom_code(model):
        return None
    if not packed_deberta.why_not(model.config):
        return packed_deberta.pack, packed_deberta.PackedDeberta
    if not packed_bert.why_not(model.config):
        return packed_bert.pack, packed_bert.PackedBert
    return None


def output_of(model: Any, name: str, **inputs: Any) -> Any:
    """Call a model and return one of its outputs; raise UsageError where custom code returns none of that name."""
    result = model(**inputs)
    value = getattr(result, name, None)
    if value is None:
        raise UsageError(
            f"{type(model).__name__}: forward returned {type(result).__name__} without {name}; expected an output of "
            f"transformers (ModelOutput) with {name}: fix the code in the model's folder, or use another model"
        )
    return value


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Pool the hidden states of each text's own tokens (padded on the right) into one row per text."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)
    last = mask.sum(1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), last]


def positions(model: Any) -> int | None:
    """Return how many tokens a loaded model has positions for; None if they are computed, not a table.

    Tables of the RoBERTa kind begin after the position of the padding; those of the BART kind have an offset.
    Some are longer than the list of positions next to them (Nystromformer, YOSO, MRA).
    """
    if getattr(model.config, "position_embedding_type", None) not in (None, "absolute"):  # an unused table
        return None
    problems = []
    for name, table in model.named_modules():
        around, _, own = name.rpartition(".")
        if own in _TABLES and isinstance(table, torch.nn.Embedding):
            spare = getattr(table, "offset", 0) if table.padding_idx is None else table.padding_idx + 1
            problems.append(table.num_embeddings - spare)
            listed = getattr(model.get_submodule(around), "position_ids", None)
            problems += [] if listed is None else [listed.shape[-1]]
    return min(problems, default=None)


# -- loading ----------------------------------------------------------------------------------------------------------
def load(folder: ModelFolder, what: str, half: bool = False, **settings: Any) -> Any:
    """Load a `transformers` model by the name of its Auto class, on the CPU, from safetensors alone.

    In float32 or, with `half`, in bfloat16: half the memory of this machine, for models that are used in that
    precision anyway.
    """
    torch = need_torch(f"the model {folder.path}")
    import transformers

    kind = getattr(transformers, what)
    with load_errors(folder):
        return kind.from_pretrained(
            str(folder.path),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.bfloat16 if half else torch.float32,
            low_cpu_mem_usage=True,
            **settings,
        ).eval()


def load_encoder(folder: ModelFolder, prefix: str, base: ModelFolder | None = None) -> Any:
    """Load the encoder inside a model that was saved with `prefix` before the names of its weights.

    Its shape is that of config.json or, if that has none, of `base`, the model that config.json names as its
    base.
    """
    need_torch(f"the model {folder.path}")
    import transformers

    encoder_config = folder.config if "hidden_size" in folder.config else base.config if base is not None else {}
    with load_errors(folder):
        config = transformers.AutoConfig.for_model(**{"model_type": "deberta-v2", **encoder_config})
        weights = {k.removeprefix(prefix): v for k, v in weights_of(folder, prefix).items()}
        kind = transformers.MODEL_MAPPING[type(config)]
        model, loading_info = kind.from_pretrained(None, config=config, state_dict=weights, output_loading_info=True)
        keys = (*loading_info["missing_keys"], *loading_info.get("mismatched_keys", ()))
        wrong = [str(k) for k in keys if "pooler" not in str(k)]
        if wrong:
            raise ValueError(f"weights are missing or of another shape: {', '.join(sorted(wrong)[:3])}")
        return model.eval()


def weights_of(folder: ModelFolder, prefix: str) -> dict[str, Any]:
    """Return the tensors whose names begin with `prefix`.

    They are copies: mapped files would count against every worker.
    """
    from safetensors import safe_open

    tensors = {}
    with load_errors(folder):
        for part in folder.weights:
            with safe_open(str(part), framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    if name.startswith(prefix):
                        tensors[name] = file.get_tensor(name).clone().float()
    return tensors


def linear(weights: Mapping[str, Any], name: str, folder: ModelFolder) -> tuple[Any, Any]:
    """Return the matrix and the bias of one layer."""
    try:
        return weights[f"{name}.weight"], weights[f"{name}.bias"]
    except KeyError as exc:
        raise UsageError(
            f"model folder {folder.path}: its weights have no {exc}; it is a model of another kind"
        ) from None


@contextlib.contextmanager
def load_errors(folder: ModelFolder) -> Iterator[None]:
    """Convert errors of libraries that load a model to UsageError; TamisError and lack of memory pass through."""
    from tamis.failures import is_memory_failure

    try:
        yield
    except TamisError:
        raise
    except Exception as exc:
        if is_memory_failure(exc):
            raise
        raise UsageError(
            f"model folder {folder.path} cannot be loaded ({type(exc).__name__}: {str(exc).strip()[:300]}); "
            "expected a model whose config.json and safetensors belong together "
            f"(model_type: {folder.config.get('model_type', 'none')})"
        ) from None


# -- whole networks ---------------------------------------------------------------------------------------------------
class HeadedEncoder:
    """An encoder, pooled, with linear heads over it, side by side: [texts, outputs of all heads]."""

    def __init__(
        self,
        folder: ModelFolder,
        device: TorchDevice,
        max_tokens: int,
        half: bool,
        *,
        prefix: str,
        heads: Sequence[str],
        pooling: str,
        base: ModelFolder | None = None,
    ) -> None:
        torch = need_torch(f"the model {folder.path}")
        if folder.config.get("auto_map"):
            raise UsageError(
                f"model folder {folder.path} runs code of its own (auto_map in config.json), and this classifier "
                "reads an encoder with "
                f"the layers {', '.join(heads)} without it; classify with the folder itself "
                "(DistributedDataClassifier), or remove auto_map"
            )
        self._encoder = Encoder(load_encoder(folder, prefix, base), device, max_tokens, pooling, half)
        layers = [linear(weights_of(folder, f"{name}."), name, folder) for name in heads]
        self.sizes, self.longest = [len(bias) for _, bias in layers], self._encoder.longest
        self._weight = torch.cat([w for w, _ in layers]).to(device.kind)
        self._bias = torch.cat([b for _, b in layers]).to(device.kind)
        self.packs, self.width, self.n_outputs = self._encoder.packs, self._encoder.width, len(self._bias)

    def prepare(self, texts: Tokens, batch: TokenBatch) -> Any:
        return self._encoder.prepare(texts, batch)

    def __call__(self, prepared: Any) -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.linear(self._encoder.pooled(prepared), self._weight, self._bias)


class SequenceClassifier:
    """A model of AutoModelForSequenceClassification.

    A DeBERTa or BERT runs packed, followed by its own pooler and classifier.

    Any other is padded at the side where it reads a text as it reads it alone (`padding_side` is for code that a folder
    has: its inputs are unknown).
    """

    def __init__(
        self,
        folder: ModelFolder,
        device: TorchDevice,
        max_tokens: int,
        half: bool,
        trust_remote_code: bool = False,
        padding_side: str = "right",
    ) -> None:
        model = load(folder, "AutoModelForSequenceClassification", trust_remote_code=trust_remote_code)
        self.n_outputs = int(model.config.num_labels)
        self._device, self.longest = device, positions(model)
        self._side = _side(model, padding_side)
        self._encoder: Encoder | None = None
        inner = getattr(model, "deberta", None) or getattr(model, "bert", None)
        # DeBERTa's is next to the encoder, BERT's inside.
        pooler = getattr(model, "pooler", None) or getattr(inner, "pooler", None)
        if inner is not None and pooler is not None and packing(model) is not None:
            self._encoder = Encoder(inner, device, max_tokens, "first", half)
            self._pooler, self._head = pooler.to(device.kind).eval(), model.classifier.to(device.kind).eval()
        else:
            dtype = need_torch("a model").bfloat16 if half and device.kind == "cuda" else model.dtype
            self._own = model.to(device.kind, dtype)
            text_config = model.config.get_text_config()
            self._configs = [model.config, text_config]  # one and the same, but for models of several parts
            self._n_ids = int(getattr(text_config, "vocab_size", None) or _MOST_IDS)
            own = getattr(text_config, "pad_token_id", None)
            self._pad = own if isinstance(own, int) and 0 <= own < self._n_ids else None
        self.packs, self.width = self._encoder is not None, int(getattr(model.config, "hidden_size", GPU_WIDTH))

    def prepare(self, texts: Tokens, batch: TokenBatch) -> Any:
        if self._encoder is not None:
            return self._encoder.prepare(texts, batch)
        pad = self._pad if self._pad is not None else _unused(texts, self._n_ids)
        return PaddedTexts(texts, batch, self._device.kind, self._side, pad, self.longest)

    def __call__(self, prepared: Any) -> torch.Tensor:
        with torch.inference_mode():
            if self._encoder is not None:
                return self._head(self._pooler(self._encoder.pooled(prepared)[:, None])).float()
            ids, mask = prepared.moved()
            for config in self._configs:  # where a model looks for the mark by which it finds the end of each text
                config.pad_token_id = prepared.pad
            return output_of(self._own, "logits", input_ids=ids, attention_mask=mask)[: prepared.n].float()


def _side(model: Any, name: str) -> str:
    """Return the side on which texts of a classifier are padded.

    "right" by default: positions are then those of a text alone, and a causal model never looks there. "left"
    if the model reads its score at the last position of a row (XLNet, whose positions are distances). `name`
    for a model that is not defined in transformers.
    """
    if not type(model).__module__.startswith("transformers."):
        return name
    reads_last = hasattr(model, "sequence_summary") and getattr(model.config, "summary_type", None) == "last"
    return "left" if reads_last else "right"


def _unused(texts: Tokens, n_ids: int) -> int:
    """Return a token id that none of these texts ends with."""
    last = {int(text[-1]) for text in texts}
    return next(i for i in range(n_ids) if i not in last) if len(last) < n_ids else 0
