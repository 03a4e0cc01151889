"""TokenCountFilter: limits the number of tokens."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass
from typing import Any

from tamis import _deep_paths
from tamis.errors import UsageError
from tamis.secrets import Secret
from tamis.stages.text.filters.doc_filter import BoundedFilter
from tamis.stages.text.pretrained import IF_TRUSTED, from_pretrained, tokenizer_fingerprint


@dataclass
class TokenCountFilter(BoundedFilter):
    """Number of tokens, by a tokenizer (anything with `encode(text)`) or by the name of a Hugging Face model.

    A model that is not in the local cache is downloaded, because its name is an explicit request. Needs the extra
    `models`. Code that comes with a model is refused, unless `transformers_init_kwargs` has `trust_remote_code=True`.
    """

    tokenizer: Any = None
    hf_model_name: str | None = None
    hf_token: InitVar[str | None] = None
    min_tokens: float = 0
    max_tokens: float = math.inf
    transformers_init_kwargs: dict[str, Any] | None = None
    _name = "token_count"
    at_least = "min_tokens"
    at_most = "max_tokens"

    def __post_init__(self, hf_token: str | None) -> None:
        super().__post_init__()
        if (self.tokenizer is None) == (self.hf_model_name is None):
            raise UsageError("TokenCountFilter: give either tokenizer or hf_model_name")
        if self.tokenizer is not None and not callable(getattr(self.tokenizer, "encode", None)):
            raise UsageError(f"TokenCountFilter: tokenizer has no encode method: {type(self.tokenizer).__name__}")
        if "local_files_only" in (self.transformers_init_kwargs or {}):
            raise UsageError("TokenCountFilter: local_files_only cannot be passed in transformers_init_kwargs")
        self._loaded: Any = None
        self._token = None if hf_token is None else Secret(hf_token)

    def model_check_or_download(self) -> None:
        """Fetch the tokenizer once per machine: the only method that may use the network."""
        if self.hf_model_name is not None:
            self._from_pretrained(local_files_only=False)

    def load_tokenizer(self) -> None:
        """Load the tokenizer in a worker, from the local cache."""
        self._loaded = self.tokenizer if self.tokenizer is not None else self._from_pretrained(local_files_only=True)

    def _from_pretrained(self, local_files_only: bool) -> Any:
        settings = {"token": self._token, **(self.transformers_init_kwargs or {}), "local_files_only": local_files_only}
        return from_pretrained(
            "AutoTokenizer",
            str(self.hf_model_name),
            "TokenCountFilter(hf_model_name=...)",
            if_code=IF_TRUSTED,
            **settings,
        )

    def model_fingerprint(self) -> str | None:
        if self.hf_model_name is None:
            return ""
        return tokenizer_fingerprint(self.hf_model_name, self.transformers_init_kwargs or {})

    def score_document(self, text: str) -> int:
        if self._loaded is None:
            self.load_tokenizer()
        return len(self._loaded.encode(text))


_deep_paths.register(__name__, "token_count")
