"""`tamis tokenize IN OUT`: documents become token ids, in files that trainers read.

A curation whose only step leaves out documents without text (the recipe `tokenize`): resumed, planned and reported
like any other.
"""

from __future__ import annotations

from typing import Annotated, Literal

from tamis.cli.jobs.curate import perform, token_values
from tamis.cli.jobs.jobs import RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.engine.run.settings import SettingValue
from tamis.stores.urls import absolute

TokenFormat = Literal["megatron", "npy", "raw", "mds", "parquet", "arrow"]


def tokenize(
    source: options.Source,
    target: Annotated[str, Argument(metavar="OUT", help="The folder for the token ids.")],
    tokenizer: Annotated[
        str, Option(metavar="FOLDER", help="A folder with a tokenizer.json, or a .tiktoken file of a known name.")
    ],
    format_: Annotated[
        TokenFormat,
        Option(
            "--format",
            help="Format of the output: megatron (.bin and .idx), npy or raw (an array, and where documents begin), "
            "mds (mosaicml-streaming), parquet, arrow.",
        ),
    ] = "megatron",
    sequence_length: Annotated[
        int | None, Option(min=2, metavar="N", help="Write sequences of N tokens instead of documents.")
    ] = None,
    packing: Annotated[
        Literal["concatenate", "best-fit"],
        Option(
            help="How documents fill sequences: one after the other, cut at the end of each; or whole where they fit, "
            "with padding."
        ),
    ] = "concatenate",
    end_token: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="The special token that ends each document, or none. Default: the end-of-sequence token of the "
            "tokenizer.",
        ),
    ] = None,
    compression: Annotated[
        Literal["zstd", "none"] | None,
        Option(help="Of shards of mds: StreamingDataset reads both, LocalDataset only those of none. Default: zstd."),
    ] = None,
    text_field: Annotated[str | None, Option(help="The field that holds the text. Default: text.")] = None,
    shard_size: Annotated[str | None, Option(metavar="SIZE", help="Write files of about this size, e.g. 1GB.")] = None,
    split: Annotated[
        str | None,
        Option(
            metavar="SHARES",
            help="Divide the documents into parts of these shares, by a hash of each text, e.g. "
            "train=99.9,validation=0.1.",
        ),
    ] = None,
    shuffle: Annotated[
        int | None,
        Option(min=0, metavar="SEED", help="Put all documents into a random order that this seed determines."),
    ] = None,
    *,
    work: options.StagesOptions,
) -> None:
    """Turn documents into token ids, in files that trainers read.

    Documents without text are left out, and counted. If it is interrupted, run the same command again: it continues
    where it stopped. To filter and tokenize in one run: tamis curate IN OUT --tokenize FOLDER.

    Example: tamis tokenize data/ tokens/ --tokenizer models/mine --format npy --memory 1GB
    """
    from tamis.curation.writing import make_writing

    tokens = token_values(tokenizer, format_, sequence_length, packing, end_token, compression)
    writing: dict[str, SettingValue] = {"shard_size": shard_size, "split": split, "shuffle": shuffle}
    make_writing(**writing, tokens=tokens)  # so that a mistake is reported as one of the option
    values: dict[str, SettingValue] = {"input": absolute(source), "output": absolute(target), "text_field": text_field}
    values |= {f"write.{name}": value for name, value in writing.items()}
    values |= {f"write.tokens.{name}": value for name, value in tokens.items()}
    job = RecipeJob("tokenize", {}, {name: value for name, value in values.items() if value is not None})
    raise CommandExit(perform(Request(job, work.settings, work.launch)))
