"""Parameters of readers and writers keep their positions, those that the original lacks included."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from tamis.stages.image.io import ImageReader, ImageWriterStage
from tamis.stages.text.io.reader import ArrowReader, DocumentReader, JsonlReader, ParquetReader, TextReader
from tamis.stages.text.io.writer import ArrowWriter, JsonlWriter, MegatronTokenizerWriter, ParquetWriter
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader

BEGIN = "file_paths files_per_partition blocksize fields read_kwargs"
ROWS = f"{BEGIN} file_extensions task_type _generate_ids _assign_ids storage_options limit name"
WRITER = "path file_extension write_kwargs fields name mode append_mode_implemented"
ORDER: dict[Any, str] = {
    JsonlReader: f"{BEGIN} task_type file_extensions _generate_ids _assign_ids name storage_options limit",
    ParquetReader: f"{BEGIN} file_extensions task_type _generate_ids _assign_ids name storage_options limit",
    DocumentReader: f"{BEGIN} task_type file_extensions _generate_ids _assign_ids storage_options limit name",
    ArrowReader: ROWS,
    TextReader: ROWS,
    ImageReader: ROWS,
    VideoReader: "input_video_path video_limit verbose name",
    JsonlWriter: WRITER,
    ParquetWriter: f"{WRITER} schema",
    ArrowWriter: f"{WRITER} schema",
    MegatronTokenizerWriter: "path file_extension write_kwargs name mode append_mode_implemented model_identifier "
    "cache_dir hf_token text_field "
    "tokenization_batch_size append_eod transformers_init_kwargs",
    ImageWriterStage: "output_dir images_per_tar verbose deterministic_name remove_image_data name mode max_tar_bytes",
    ClipWriterStage: "output_path input_path upload_clips dry_run generate_embeddings generate_previews "
    "generate_captions embedding_algorithm "
    "caption_models enhanced_caption_models verbose max_workers log_stats name",
}


@pytest.mark.parametrize("thing", ORDER, ids=lambda thing: thing.__name__)
def test_every_parameter_is_where_it_was(thing: Any) -> None:
    ours = list(inspect.signature(thing).parameters)
    assert ours[: len(ORDER[thing].split())] == ORDER[thing].split()  # new ones come behind them


def test_the_places_written_here_are_those_of_the_original() -> None:
    facts = json.loads((Path(__file__).parent / "surface.json").read_text())["names"]
    known = {n["name"]: [p.partition("=")[0] for p in n["params"] if not p.startswith("*")] for n in facts}
    compared = [thing for thing in ORDER if thing.__name__ in known]
    assert len(compared) >= 5
    for thing in compared:
        theirs = known[thing.__name__]
        assert ORDER[thing].split()[: len(theirs)] == theirs, thing


def test_readers_take_what_is_given_by_position(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for reader in (ArrowReader, TextReader, ImageReader):
        assert reader(str(tmp_path), None, None, None, None, [".txt"], "document", False, False, None, 3).limit == 3
    read = DocumentReader(str(tmp_path), None, None, None, None, "document", [".jsonl"], False, False, None, 3)
    assert (read.file_extensions, read.limit) == ([".jsonl"], 3)
