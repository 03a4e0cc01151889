"""File-writing stage of ClipWriterStage: each clip as a video of its own, with its metadata as JSON.

Files are made under a name of their own first, and get their final ones when all of a batch are there: whatever is
killed, partial clips are never visible, and no clips of a damaged video remain. Names follow from
video and span, so that a repeated attempt replaces its own files and nothing is there twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.memory import meter
from tamis.sizes import check_integer
from tamis.stages.video.video_stage import SPAN, VideoStage, good_rows, plain_rows
from tamis.stores.run_locations import run_dir_of
from tamis.stores.urls import absolute, is_bucket, is_remote, path_of, split_s3
from tamis.tasks import DocumentBatch
from tamis.video.cutting import COPY, copy_cut
from tamis.video.decoding import check_shows
from tamis.video.encoding import Encoding, encode_span
from tamis.video.opening import VideoFault

_PART = ".part"
_MOST_NAME_BYTES = 220  # file systems take 255, and endings are appended
_FOLDERS = ("clips", "metas", "previews", "ce1_embd_parquet", "processed_videos", "processed_clip_chunks")
_SENT = "clips-being-sent"  # in the run directory: files until they are in a bucket
_VIDEO_FACTS = (
    "size_bytes",
    "duration_s",
    "n_frames",
    "fps",
    "width",
    "height",
    "codec",
    "audio_codec",
    "bit_rate_k",
)
EMBEDDING, PREVIEW = "cosmos_embed1_embedding", "preview"
# Columns that each kind of output needs.
_NEEDS = {"embeddings": EMBEDDING, "previews": PREVIEW, "captions": "captions"}
_NOT_IN_JSON = (PREVIEW, EMBEDDING)  # stored in files of their own


@dataclass(repr=False)
class ClipFilesStage(VideoStage):
    """Writes the clips that came so far.

    Adds clip_path, clip_bytes and clip_sha256; a clip that cannot be read or decoded goes to quarantine.

    Caller: ClipWriterStage, whose parameters these are.
    """

    output_path: str
    input_path: str | None = None
    upload_clips: bool = True
    dry_run: bool = False
    max_workers: int = 6
    verbose: bool = False
    log_stats: bool = False
    parts: Sequence[str] = field(default_factory=tuple)  # written with clips: embeddings, previews, captions
    caption_model: str = "caption"  # what captions are called in the JSON of a clip
    enhanced_model: str = "enhanced_caption"
    name: str = "clip_files"

    def __post_init__(self) -> None:
        check_integer(self.max_workers, f"{self.name}: max_workers")

    def inputs(self) -> Any:
        return ["data"], ["id", *SPAN, *(_NEEDS[part] for part in self.parts)]

    def outputs(self) -> Any:
        return ["data"], [] if self.dry_run else ["clip_path", "clip_bytes", "clip_sha256"]

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Remove the half-written files of workers that an earlier call lost."""
        self._remove_unfinished()

    def teardown(self) -> None:
        """Remove the half-written files of workers that were killed during this run."""
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        """Remove the half-written files of killed workers.

        Files that other nodes and shards are writing here at the moment are not removed.
        """
        if is_bucket(self.output_path):
            folders = [os.path.join(run_dir_of(self.output_path), _SENT)]
        else:
            folders = [os.path.join(self.output_path, name) for name in _FOLDERS]
        for top in folders:
            for folder, _, names in os.walk(top):
                for name in names:
                    if _is_unfinished(name):
                        files.remove(os.path.join(folder, name))

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        if self.dry_run:
            return batch
        names = batch.get_columns()
        if missing := [part for part in self.parts if _NEEDS[part] not in names]:
            raise UsageError(
                f"{self.name}: there are no {missing[0]} to write; put the stage that makes them before it"
            )
        written = _Written(self.output_path, self.max_workers)
        try:
            results = [self._row_or_fault(row, written) for row in plain_rows(batch)]
            batch, files = good_rows(self, batch, results)
            for row in files:
                self._write_sidecars(row, written)
            self._videos(files, written)
            if "embeddings" in self.parts:
                self._embeddings(files, written)
            written.publish()
        finally:
            written.clean()
        for name, kind in (
            ("clip_path", pa.large_string()),
            ("clip_bytes", pa.int64()),
            ("clip_sha256", pa.large_string()),
        ):
            batch = batch.with_column(name, pa.array([row[name] for row in files], kind))
        if "previews" in self.parts:  # written: the table need not hold them, too
            batch = batch.drop_columns([PREVIEW])
        self._log_metrics({"clips_written": len(files), "clip_seconds": sum(r["end_s"] - r["start_s"] for r in files)})
        if self.log_stats or self.verbose:
            print(f"{self.name}: {len(files)} clips written, {len(results) - len(files)} damaged", flush=True)
        return batch

    def _row_or_fault(self, row: dict[str, Any], written: _Written) -> dict[str, Any] | VideoFault:
        """Write the clip of a row, and return the row with the columns of its file, or what is wrong with it."""
        if (wrong := self._wrong_name(row)) is not None:
            return wrong
        try:
            return {**row, **(self._clip(row, written) if self.upload_clips else _NO_CLIP)}
        except VideoFault as exc:
            written.drop_last()
            return exc

    def _wrong_name(self, row: dict[str, Any]) -> VideoFault | None:
        """Return the fault of a name that is not plain: names come from records and could lead out of the output."""
        if not _is_plain_name(row["id"]):
            return VideoFault(
                f"its id is no name of a file: {row['id']!r:.100}; expected letters and digits, as a splitter gives"
            )
        frames = [row.get("first_frame"), row.get("end_frame")]
        if "previews" in self.parts and not all(isinstance(n, (int, float)) for n in frames):
            return VideoFault(f"its frames are no numbers: {frames!r:.100}")
        return None

    # -- one clip -----------------------------------------------------------------------------------------------------
    def _clip(self, row: dict[str, Any], written: _Written) -> dict[str, Any]:
        how = Encoding(row.get("encoder") or COPY, row.get("encoder_threads") or 1, row.get("encoder_bit_rate_k"))
        extension = how.extension(row["codec"], row["audio_codec"])
        final = os.path.join(self._folder("clips"), f"{row['id']}.{extension}")
        part, video = written.new(final), path_of(row["path"])
        if how.encoder == COPY:
            copy_cut(video, row["start_s"], row["end_s"], part, extension)
            check_shows(part)  # what was copied was not looked at
        else:
            encode_span(video, row["start_s"], row["end_s"], part, extension, how)
        with open(part, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "clip_path": final[len(self.output_path) + 1 :],
            "clip_bytes": os.path.getsize(part),
            "clip_sha256": digest,
        }

    def _write_sidecars(self, row: dict[str, Any], written: _Written) -> None:
        """Write the metadata of a clip, as JSON, and its preview."""
        if "previews" in self.parts:
            name = f"{row['first_frame']}_{row['end_frame']}.webp"
            with files.create(written.new(self._folder("previews", row["id"], name))) as out:
                out.write(row[PREVIEW])
        plain = {k: v for k, v in row.items() if k not in _NOT_IN_JSON}
        if "captions" in self.parts:
            better = row.get("enhanced_captions") or [None] * len(row["captions"])
            plain["windows"] = [
                {
                    "start_frame": w["start_frame"],
                    "end_frame": w["end_frame"],
                    self.caption_model: c,
                    self.enhanced_model: e,
                }
                for w, c, e in zip(row["caption_windows"], row["captions"], better, strict=True)
            ]
        written.text(os.path.join(self._folder("metas", "v0"), f"{row['id']}.json"), plain)

    def _embeddings(self, rows: Sequence[dict[str, Any]], written: _Written) -> None:
        """Write ids and vectors of the clips, for a search; in one file, named after them."""
        from tamis.formats.parquet import format as parquet

        if rows:
            table = pa.table(
                {
                    "id": pa.array([row["id"] for row in rows], pa.large_string()),
                    "embedding": pa.array([row[EMBEDDING] for row in rows], pa.list_(pa.float32())),
                }
            )
            name = hashlib.blake2b("".join(row["id"] for row in rows).encode(), digest_size=12).hexdigest()
            parquet.write_table(table, written.new(self._folder("ce1_embd_parquet", f"{name}.parquet")))

    def _videos(self, rows: Sequence[dict[str, Any]], written: _Written) -> None:
        """Write a summary of each video and of this part of it."""
        of: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            of.setdefault(row["path"], []).append(row)
        for path, clips in of.items():
            name, first = self._relative(path), clips[0]
            chunk = {
                "video": path,
                "clips": [c["id"] for c in clips],
                "seconds": sum(c["end_s"] - c["start_s"] for c in clips),
            }
            part = hashlib.blake2b("".join(chunk["clips"]).encode(), digest_size=4).hexdigest()
            written.text(self._folder("processed_clip_chunks", f"{name}_{part}.json"), chunk)
            facts = {name: first.get(name) for name in _VIDEO_FACTS}
            written.text(self._folder("processed_videos", f"{name}.json"), {"video": path, **facts})

    def _relative(self, path: str) -> str:
        """Return the name of a video below the input folder.

        For a video elsewhere, return its file name and a hash of its path.
        """
        if self.input_path:
            inside = _below(path_of(path), absolute(self.input_path))
            longest = max(len(os.fsencode(name)) for name in inside.split("/"))
            if not inside.startswith("..") and longest <= _MOST_NAME_BYTES:
                return inside if inside != "." else os.path.basename(path)
        path_hash = hashlib.blake2b(path.encode(), digest_size=4).hexdigest()
        return f"{os.path.basename(path)[: _MOST_NAME_BYTES // 4]}-{path_hash}"

    def _folder(self, *names: str) -> str:
        return os.path.join(self.output_path, *names)


def _is_plain_name(name: Any) -> bool:
    r"""Return True if an output file may have this name.

    >>> [_is_plain_name(n) for n in ("974bdbaa-c98d", "a b.1", "../a", "/a", ".a", "", "a\0", "x" * 300, None)]
    [True, True, False, False, False, False, False, False, False]
    """
    if not isinstance(name, str) or not name or name.startswith(".") or any(c in name for c in "/\\\0"):
        return False
    return len(name.encode("utf-8", "surrogatepass")) <= _MOST_NAME_BYTES and name.isprintable()


def _below(path: str, folder: str) -> str:
    """Return the name of a video relative to a folder; one that begins with .. if it is stored elsewhere.

    Keys of a bucket are arbitrary: a//b or a/../b would lead out of the folder that the name is used in, and
    count as elsewhere.
    """
    if is_remote(path) or is_remote(folder):
        start = f"{folder.rstrip('/')}/"
        inside = path[len(start) :] if path.startswith(start) else ""
        return ".." if any(name in ("", ".", "..") for name in inside.split("/")) else inside
    return os.path.relpath(path, folder)


_NO_CLIP = {"clip_path": None, "clip_bytes": None, "clip_sha256": None}


_ENDING = re.compile(r"\.([0-9a-f]{8})-([0-9]+)\.[^.]*" + re.escape(_PART))


def _writer() -> str:
    """Return the machine and process as part of the name of a file that is being written."""
    machine = hashlib.blake2b(os.uname().nodename.encode(), digest_size=4).hexdigest()
    return f"{machine}-{os.getpid()}"


def _is_unfinished(name: str) -> bool:
    """Return True if a file was begun on this machine by a process that is gone."""
    ending = _ENDING.search(name) if name.startswith(".") else None
    return ending is not None and ending[1] == _writer().partition("-")[0] and not meter.is_alive(int(ending[2]))


class _Written:
    """Files of one batch: made under names of their own, given their final ones all together."""

    def __init__(self, output: str, n_threads: int) -> None:
        self._n_threads, self._output = n_threads, output
        self._bucket, self._prefix = None, ""
        if is_bucket(output):
            from tamis.stores.s3 import Bucket

            name, self._prefix = split_s3(output)
            self._bucket = Bucket(name)
        self._parts: dict[str, str] = {}  # final name -> the one it has now

    def new(self, final: str) -> str:
        """Return a path to write to, in the folder of the final one; for a bucket in the local folder of the run."""
        folder = os.path.dirname(final) if self._bucket is None else os.path.join(run_dir_of(self._output), _SENT)
        os.makedirs(folder, exist_ok=True)
        part = files.unguessable(folder, f".{os.path.basename(final)[:40]}.{_writer()}.") + _PART
        self._parts[final] = part
        return part

    def text(self, final: str, value: dict[str, Any]) -> None:
        with files.create(self.new(final)) as out:
            out.write(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n")

    def drop_last(self) -> None:
        """Discard the file that was begun last."""
        _, part = self._parts.popitem()
        files.remove(part)

    def publish(self) -> None:
        """Sync all files and move them to their final paths.

        Syncing waits for the disk, so several files are synced at once.
        """
        with ThreadPoolExecutor(self._n_threads) as pool:
            list(pool.map(lambda pair: self._finish(pair[1], pair[0]), list(self._parts.items())))
        self._parts = {}

    def _finish(self, part: str, final: str) -> None:
        if self._bucket is None:
            files.finish(part, final)
            return
        from tamis.stores.uploads import put_file

        put_file(self._bucket, self._prefix + final[len(self._output) :], part)
        files.remove(part)

    def clean(self) -> None:
        for part in self._parts.values():
            files.remove(part)
