"""FuzzyDeduplicationWorkflow: find documents that are nearly the same, verify them, and remove all but one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tamis._dataclasses import dataclass
from tamis.dedup.fuzzy.gpu_sketch import choose
from tamis.dedup.fuzzy.stages import CandidateTexts, DocumentSketches, Sketch
from tamis.dedup.kinds import FUZZY
from tamis.dedup.nemo_compat.finding import FindingWorkflow
from tamis.dedup.normalization import NORMALIZATION_VERSION, check_mode
from tamis.dedup.passes import Passes
from tamis.dedup.solver_task import CompareCandidates
from tamis.errors import UsageError
from tamis.sizes import check_integer, check_optional_integer, parse_fraction

_GPU_WORKERS = 8  # on one device: each has half a gigabyte of it for CUDA itself


@dataclass
class FuzzyDeduplicationWorkflow(FindingWorkflow):
    """Finds documents that are nearly the same, and verifies each against one that stays.

    `run()` resumes where it stopped.

    `cache_path` is for what is stored between passes, the scratch folder. `output_path` gets `FuzzyDuplicateIds/`
    (Parquet with the column `_curator_dedup_id`) and `fuzzy_id_generator.json`, for TextDuplicatesRemovalWorkflow;
    `perform_removal=True` writes the documents that stay instead, in the same call.

    Documents whose sketches share one of `num_bands` bands of `minhashes_per_band` values are candidates; a candidate
    goes if the Jaccard similarity of its set of shingles and that of a document that stays is at least `threshold`
    (default: where half of all pairs share a band, 0.771 for 20 x 13; None: sharing a band is enough). Shingles are
    `char_ngrams` characters, or `word_ngrams` words. `bands_per_iteration`: make so many bands in one pass over the
    input. Fewer save disk (12 bytes per document and band), not memory, and read the input once more for each further
    pass: 1 takes six to eight times as long as all 20 at once. None: all, or as many as half of the free disk holds.
    `min_shingles`: shorter documents are compared by equality only. `keep`: the "longest" (then by content, so that the
    order of files does not matter), the "first", or the "best" by the column `keep_by`. `method="permutations"` is
    plain MinHash, for comparison.

    `index_path`: keep an index of what stays in this folder. `against`: an index that an earlier run kept; documents in
    it stay, and new ones that equal or resemble one of them go (similarity to them is estimated by signatures, their
    texts are not read). `append`: add what stays to that index. With an index all bands are made in one pass.
    `backend`: where sketches are made, with the same keys: "cpu", "gpu", or "auto" (whichever is faster here,
    measured).
    """

    cache_path: str | None = None
    output_path: str = ""
    input_path: Any = None
    input_filetype: str | None = "parquet"
    input_blocksize: str | int | None = "1GiB"
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    cache_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    perform_removal: bool = False
    seed: int = 42
    char_ngrams: int = 24
    num_bands: int = 20
    minhashes_per_band: int = 13
    use_64_bit_hash: bool = False
    bands_per_iteration: int | None = None
    lsh_num_output_partitions: int | None = None
    lsh_rmm_pool_size: str | int | None = "auto"
    lsh_spill_memory_limit: str | int | None = "auto"
    env_vars: Mapping[str, Any] | None = None
    use_async_memory: bool = True
    word_ngrams: int | None = None
    normalize_text: bool | str = False
    output_filetype: str | None = None
    threshold: float | str | None = "midpoint"
    min_shingles: int = 10
    keep: str = "longest"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    method: str = "fss"
    index_path: str | None = None
    against: str | None = None
    append: bool = False
    backend: str = "cpu"

    owner, kind, ids_folder = "FuzzyDeduplicationWorkflow", FUZZY, "FuzzyDuplicateIds"
    as_the_budget_allows = {"input_blocksize": "1GiB"}

    def __post_init__(self) -> None:
        if not self.output_path:
            raise UsageError(f"{self.owner}: output_path must name a folder")
        self._check()
        n = self.bands_per_iteration
        for name in ("num_bands", "minhashes_per_band", "char_ngrams"):
            check_integer(getattr(self, name), name, 1, 1000)
        check_optional_integer(self.word_ngrams, "word_ngrams", 1, 1000)
        check_optional_integer(self.lsh_num_output_partitions, f"{self.owner}: lsh_num_output_partitions")
        if self.threshold == "midpoint":
            self.threshold = round(self.sketch().midpoint, 4)
        elif self.threshold is not None:
            self.threshold = parse_fraction(self.threshold, "threshold")
        self._stage(0, self.num_bands)
        check_optional_integer(n, "bands_per_iteration", 1, self.num_bands)
        if self.index_options()["index"] is not None and n is not None and n < self.num_bands:
            raise UsageError(
                "bands_per_iteration: an index holds all bands, so they are made in one pass; leave it out"
            )

    def bands(self) -> tuple[int, int, int | None]:
        return self.num_bands, self.minhashes_per_band, self.bands_per_iteration

    def profile_parameters(self) -> dict[str, Any]:
        return {**super().profile_parameters(), "sketch": vars(self.sketch()), "threshold": self.threshold}

    def sketch(self) -> Sketch:
        unit, n = ("word", self.word_ngrams) if self.word_ngrams is not None else ("char", self.char_ngrams)
        return Sketch(n, unit, self.num_bands, self.minhashes_per_band, self.seed, self.use_64_bit_hash, self.method)

    def _stage(self, first: int, last: int) -> DocumentSketches:
        s = self.sketch()
        has_index = self.index_path is not None or self.against is not None
        return DocumentSketches(
            self.text_field,
            s.n,
            s.unit,
            s.bands,
            s.rows,
            s.seed,
            s.wide,
            s.method,
            self.normalize_text,
            self.min_shingles,
            self.keep,
            self.keep_by,
            first,
            last,
            has_index,
        )

    def passes(self) -> Passes:
        s = self.sketch()
        mode = check_mode(FUZZY.title, self.normalize_text)
        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "text_field": self.text_field,
            "normalize_text": mode,
            "sketch": vars(s).copy(),
            "normalization_version": NORMALIZATION_VERSION,
            "threshold": self.threshold,
            "min_shingles": self.min_shingles,
            "keep": self.keep,
            "keep_by": self.keep_by,
            "perform_removal": self.perform_removal,
            "bands_per_iteration": self.bands_per_iteration,
        }
        index = self.index_options()
        identity |= {k: v for k, v in index.items() if v is not None}
        how = {"normalize_text": mode, "normalization_version": NORMALIZATION_VERSION, **vars(s)}
        chosen = choose(self.backend, s, len(os.sched_getaffinity(0)))
        facts = {"sketched_on": f"{chosen.backend} ({chosen.why})"} if self.backend != "cpu" else {}
        threshold = float(self.threshold) if self.threshold is not None else None
        decision = CompareCandidates(
            threshold, s.n, s.unit, s.seed, self.keep, self.keep_by, self.text_field, mode, facts
        )
        return Passes(
            FUZZY.title,
            self._input().reader,
            [],
            self.output_path,
            decision,
            self._writer(),
            FUZZY,
            texts=(lambda places: CandidateTexts(places, self.text_field, mode)) if threshold is not None else None,
            threshold=threshold,
            max_source_loss=float(self.max_source_loss),
            identity=identity,
            choose=lambda work: self.num_bands if index["index"] is not None else self.plan(work=work).bands_per_pass,
            index_parameters=how,
            **index,
            keys_of=lambda per_pass: self._keys_of(per_pass, chosen.backend == "gpu"),
        )

    def _keys_of(self, per_pass: int, on_gpu: bool) -> list[Any]:
        n, names = self.num_bands, []
        for first in range(0, n, per_pass):
            last = min(first + per_pass, n)
            stage = self._stage(first, last)
            if on_gpu:
                stage = stage.on_gpu(min(_GPU_WORKERS, len(os.sched_getaffinity(0))), self.backend)
            names.append((stage, list(range(first + 1, last + 1))))
        return names


@dataclass
class RemoveFuzzyDuplicates(FuzzyDeduplicationWorkflow):
    """The same for commands and curations: input of any format, removal in the same call, no files of ids."""

    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    perform_removal: bool = True

    ids_folder = ""
    as_the_budget_allows = {}
