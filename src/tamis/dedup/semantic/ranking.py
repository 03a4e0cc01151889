"""RankingStrategy: which of like documents is kept, by what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError, check_choice

STRATEGIES = ("sort", "random")


@dataclass
class RankingStrategy:
    """`sort`: by the number in one metadata column, the smallest (ascending) or largest first.

    `random`: by a hash with this seed.
    """

    metadata_cols: Sequence[str] = field(default_factory=list)
    ascending: bool | Sequence[bool] = True
    strategy: str = "sort"
    random_seed: int = 42

    def __post_init__(self) -> None:
        check_choice("RankingStrategy: strategy", self.strategy, STRATEGIES)
        if self.strategy == "sort" and len(self.metadata_cols) != 1:
            raise UsageError(
                f"RankingStrategy: give one column of numbers to sort by, got {list(self.metadata_cols)}; combine "
                "several into one column before"
            )

    @classmethod
    def metadata_based(
        cls, metadata_cols: Sequence[str], ascending: bool | Sequence[bool] = True, random_seed: int = 42
    ) -> RankingStrategy:
        return cls(list(metadata_cols), ascending, "sort", random_seed)

    @classmethod
    def random(cls, random_seed: int = 42) -> RankingStrategy:
        return cls([], True, "random", random_seed)

    def column(self) -> tuple[str | None, bool]:
        """Return the column to rank by (None: none), and whether the largest comes first."""
        if self.strategy == "random":
            return None, False
        ascending = self.ascending if isinstance(self.ascending, bool) else bool(next(iter(self.ascending), True))
        return self.metadata_cols[0], not ascending

    def rank_cluster(self, cluster_df: Any) -> Any:
        """Return a pandas frame with the documents of one cluster, best first.

        Users call this to see the order.
        """
        if self.strategy == "random":
            return cluster_df.sample(frac=1, random_state=self.random_seed, ignore_index=True)
        column, descending = self.column()
        return cluster_df.sort_values([column], ascending=not descending, ignore_index=True, kind="stable")
