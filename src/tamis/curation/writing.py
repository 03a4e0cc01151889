"""Options for the output of a curation: format, size of files, splits, order. Applied by packer.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError, check_choice
from tamis.formats.hive import check_names
from tamis.sizes import parse_size
from tamis.stages.text.io.formats import file_types
from tamis.stages.text.tokens.options import TokenOptions, token_options

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True)
class Writing:
    """`file_type`: one of `file_types()` (stages/text/io/formats.py), None: as the input.

    `file_bytes`: files of about this size before compression, None: as the partitions of the last pass come. `split`:
    shares by name, of which documents get one by the hash of their text. `shuffle`: a seed, None: the order of the
    input. `card`: a README.md that describes the data set. `tokens`: token ids are written, not documents.
    `partition_by`: fields whose values name folders; `file_bytes` is then the size of files in each.
    """

    file_type: str | None = None
    file_bytes: int | None = None
    split: dict[str, float] = field(default_factory=dict)
    shuffle: int | None = None
    card: bool = True
    tokens: TokenOptions | None = None
    partition_by: list[str] = field(default_factory=list)

    @property
    def is_packed(self) -> bool:
        """True if files are rewritten after the last pass."""
        tokens = self.tokens
        needs_all = tokens is not None and (tokens.sequence_length is not None or tokens.format == "mds")
        is_sized = self.file_bytes is not None and not self.partition_by
        return needs_all or is_sized or bool(self.split) or self.shuffle is not None

    def to_dict(self) -> dict[str, Any]:
        """Return a plain structure, as identities store it."""
        return asdict(self)


def make_writing(
    file_type: Any = None,
    shard_size: Any = None,
    split: Any = None,
    shuffle: Any = None,
    card: Any = True,
    tokens: Any = None,
    partition_by: Any = None,
) -> Writing:
    """Parse the writing options as users give them.

    `shard_size`: e.g. "256MB"; `split`: "train=99.9,validation=0.1" or a mapping; `shuffle`: a seed, True for 0.
    `tokens`: TokenOptions or a mapping of them. `partition_by`: names of fields, as a list or with commas.
    """
    tokens = token_options(tokens)
    if tokens is not None and file_type is not None:
        raise UsageError(
            f"format: with a tokenizer token ids are written; give the format of tokens, not {file_type!r}"
        )
    if file_type is not None:
        check_choice("format", file_type, file_types())
    if not isinstance(card, bool):
        raise UsageError(f"card: expected true or false, got {card!r}")
    shares = parse_split(split)
    if shares and tokens is not None and tokens.format == "mds":
        raise UsageError(
            "split: shards of mds have one index; write each split with a run of its own, or another format"
        )
    fields = list(check_names(partition_by, "partition_by"))
    if fields and (shares or _seed(shuffle) is not None or tokens is not None):
        raise UsageError(
            "partition_by: folders by field go with format and shard_size, not with split, shuffle or tokens; write "
            "those with a run of their own"
        )
    return Writing(file_type, _file_bytes(shard_size), shares, _seed(shuffle), card, tokens, fields)


def _file_bytes(size: Any) -> int | None:
    if size is None:
        return None
    n_bytes = parse_size(size, "shard_size")
    if n_bytes < 1000:
        raise UsageError(f"shard_size: expected at least 1kB, got {size!r}")
    return n_bytes


def _seed(shuffle: Any) -> int | None:
    if shuffle is None or shuffle is False:
        return None
    if shuffle is True:
        return 0
    if not isinstance(shuffle, int) or not 0 <= shuffle < 1 << 63:
        raise UsageError(f"shuffle: expected a seed, a whole number from 0, got {shuffle!r}")
    return shuffle


def parse_split(value: Any) -> dict[str, float]:
    """Parse shares by name, which sum up to one.

    >>> parse_split("train=99.9,validation=0.1")
    {'train': 0.999, 'validation': 0.001}
    """
    if value is None or value == {}:
        return {}
    wrong = UsageError(f"split: expected shares that sum up to 100, e.g. train=99.9,validation=0.1, got {value!r}")
    shares: dict[str, float] = {}
    for name, share in _named_shares(value):
        try:
            number = float(str(share).rstrip("%"))
        except ValueError:
            raise wrong from None
        if not _NAME.fullmatch(name) or name in shares:
            raise UsageError(
                "split: names are letters, digits and _, a letter first, at most 40 of them, each given once, got "
                f"{name!r} in {value!r}"
            )
        if not 0 < number <= 100:
            raise wrong
        shares[name] = number
    if not shares or abs(sum(shares.values()) - 100) > 1e-6:
        raise wrong
    return {name: round(number / 100, 12) for name, number in shares.items()}


def _named_shares(value: Any) -> list[tuple[str, Any]]:
    """Return pairs of names and shares, from a mapping or from text; none for anything else."""
    if isinstance(value, Mapping):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",")]
        return [(name.strip(), share.strip()) for name, _, share in parts]
    return []


def cuts_of(split: Mapping[str, float]) -> list[int]:
    """Return the 64-bit hash at which each split ends; the last split has no end.

    >>> cuts_of({"train": 0.5, "validation": 0.5}) == [1 << 63]
    True
    """
    total, cuts = 0.0, []
    for share in list(split.values())[:-1]:
        total += share
        cuts.append(min(int(total * (1 << 64)), (1 << 64) - 1))
    return cuts
