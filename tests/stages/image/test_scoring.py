"""Embedding and filters: against the library's own preprocessing and torch, one run looked at by many tests."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.image.deduplication.removal import ImageDuplicatesRemovalStage
from tamis.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from tamis.stages.image.filters import ImageAestheticFilterStage, ImageNSFWFilterStage, ImageSizeFilterStage
from tamis.stages.image.heads import AestheticHead, NsfwHead
from tamis.stages.image.io.image_reader import ImageReader, ImageReaderStage
from tamis.stages.image.io.image_writer import ImageWriterStage
from tamis.tasks import FileGroupTask
from tests.support import small_clip
from tests.support.optional import optional
from tests.support.run_dirs import run_dir_path
from tests.support.sample_images import jpeg, pixels, png, stored, tar

torch = optional("torch", reason="the extra `models` is not installed")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Run a pipeline as in NeMo Curator's guide, over good images, a small one, and one with damaged pixels."""
    folder = tmp_path_factory.mktemp("scoring")
    models = small_clip.models(folder / "models")
    members = {f"p{i}.jpg": jpeg(i, 64 + i, 48) for i in range(12)} | {"tiny.png": png(50, 8, 8)}
    members["hurt.png"] = _hurt(png(60, 64, 64))
    source = tar(folder / "s.tar", members)
    # Outside of a run: all scores, so that a limit can be chosen that some of them pass.
    (batch,) = ImageReaderStage().process(FileGroupTask("", [str(source)]))
    batch = ImageNSFWFilterStage(str(models), score_threshold=2.0).process(
        ImageEmbeddingStage(str(models)).process(batch)
    )
    scores = batch.column("nsfw_score").to_pylist()
    limit = float(np.median(scores))
    stages: list[Any] = [
        FilePartitioningStage(str(source), files_per_partition=1, file_extensions=[".tar"]),
        ImageReaderStage(dali_batch_size=4, verbose=False),
        ImageSizeFilterStage(min_side=32),
        ImageEmbeddingStage(str(models), model_inference_batch_size=5),
        ImageAestheticFilterStage(str(models), score_threshold=-100.0),
        ImageNSFWFilterStage(str(models), score_threshold=limit),
        ImageWriterStage(str(folder / "out")),
    ]
    result = Pipeline("scored", stages=stages).execute(InProcessExecutor())
    tables = [pq.read_table(p) for p in sorted((folder / "out").glob("*.parquet"))]
    return SimpleNamespace(
        limit=limit,
        scores=scores,
        folder=folder,
        models=models,
        members=members,
        result=result,
        rows=pa.concat_tables(tables).to_pylist(),
    )


def _hurt(data: bytes) -> bytes:
    """Damage the pixels, but neither the header nor the end."""
    at = data.index(b"IDAT") + 20
    return data[:at] + bytes(len(data) - at - 40) + data[-40:]


def test_everything_is_accounted_for(ran: SimpleNamespace) -> None:
    ledger = ran.result.ledger
    assert ran.result.exit_code == 0
    assert ledger.problems() == []
    assert ledger.records.n == 14
    assert ledger.quarantined.n == 1
    dropped = {reason: t.n for book in ledger.stages for reason, t in book.dropped.items()}
    assert dropped["min_side"] == 1
    assert ledger.written.n == 14 - 1 - 1 - dropped.get("image_nsfw_filter", 0)
    assert len(ran.scores) == 13  # the small image, too
    assert 0 < dropped["image_nsfw_filter"] < 12
    entries = [
        json.loads(line)
        for path in (run_dir_path(ran.folder / "out") / "quarantine").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [(e["stage"], "damaged PNG" in e["reason"]) for e in entries] == [("image_embedding", True)]


def test_embeddings_are_those_of_the_library(ran: SimpleNamespace) -> None:
    import transformers

    model = transformers.CLIPModel.from_pretrained(ran.models / "openai" / "clip-vit-large-patch14").eval()
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    for row in ran.rows[:3]:
        i = int(row["original_member"][1:].split(".")[0])
        from PIL import Image

        image = Image.fromarray(_decoded(ran.members[f"p{i}.jpg"]))
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        side = small_clip.SIDE
        resized = image.resize((side, side), Image.Resampling.BICUBIC, box=(left, top, left + short, top + short))
        values = (np.asarray(resized) / 255 - mean) / std
        with torch.inference_mode():
            found = model.get_image_features(torch.from_numpy(values.transpose(2, 0, 1)[None]).float())
        found = getattr(found, "pooler_output", found)[0].numpy()
        assert np.allclose(row["embedding"], found / np.linalg.norm(found), atol=2e-3)
        assert abs(np.linalg.norm(row["embedding"]) - 1) < 1e-5


def _decoded(data: bytes) -> np.ndarray[Any, Any]:
    import simplejpeg

    return simplejpeg.decode_jpeg(data)


def test_scores_are_those_of_the_heads(ran: SimpleNamespace) -> None:
    weights = small_clip.aesthetic(ran.folder / "again")
    unsafe = small_clip.nsfw(ran.folder / "again" / "n.pth")
    for row in ran.rows:
        x = y = np.array(row["embedding"], np.float64)
        for n in (0, 2, 4, 6, 7):
            x = weights[f"layers.{n}.weight"] @ x + weights[f"layers.{n}.bias"]
        y = (y - unsafe["norm.mean"]) / np.sqrt(unsafe["norm.variance"])
        for n in (1, 2, 3, 4):
            y = unsafe[f"linear_{n}.weight"] @ y + unsafe[f"linear_{n}.bias"]
            y = np.maximum(y, 0) if n < 4 else 1 / (1 + np.exp(-y))
        assert row["aesthetic_score"] == pytest.approx(x[0], abs=1e-4)
        assert row["nsfw_score"] == pytest.approx(y[0], abs=1e-4)
        assert row["nsfw_score"] < ran.limit


def test_ids_of_duplicates_are_removed(ran: SimpleNamespace) -> None:
    ids = [row["image_id"] for row in ran.rows]
    (ran.folder / "gone").mkdir()
    pq.write_table(pa.table({"id": ids[:2]}), ran.folder / "gone" / "a.parquet")
    out = ran.folder / "left"
    stage = ImageDuplicatesRemovalStage(str(ran.folder / "gone"))
    reader = ImageReader(str(ran.folder / "s.tar"))
    result = Pipeline("removed", stages=[reader, stage, ImageWriterStage(str(out))]).execute(InProcessExecutor())
    assert (result.ledger.written.n, result.ledger.n_dropped) == (12, 2)
    left = {i for p in out.glob("*.parquet") for i in pq.read_table(p)["image_id"].to_pylist()}
    assert not left & set(ids[:2])


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    weights = small_clip.aesthetic(tmp_path / "a")
    with pytest.raises(UsageError, match=r"it has no weights 'layers\.7\.bias'"):
        AestheticHead({k: v for k, v in weights.items() if k != "layers.7.bias"}, "here")
    with pytest.raises(UsageError, match="do not follow each other"):
        NsfwHead({**small_clip.nsfw(tmp_path / "n.pth"), "linear_2.weight": np.zeros((3, 3), np.float32)}, "here")
    path = tmp_path / "evil.pth"
    torch.save({"a": _Evil()}, path)
    with pytest.raises(UsageError, match="holds no plain weights"):
        ImageNSFWFilterStage(weights_path=str(path)).setup()
    with pytest.raises(UsageError, match="there is no file"):
        ImageNSFWFilterStage(weights_path=str(tmp_path / "none.pth")).setup()
    with pytest.raises(UsageError, match=r"has no model\.safetensors"):
        ImageAestheticFilterStage(str(tmp_path)).setup()


def test_scaling_is_that_of_pillow_but_for_rounding() -> None:
    from PIL import Image

    from tamis.images.decode import fitted

    array = pixels(7, 90, 61)
    middle = Image.fromarray(array).crop((14, 0, 75, 61)).resize((48, 48), Image.Resampling.BICUBIC)
    found = fitted(array, 48)
    assert found.shape == (48, 48, 3)
    assert np.abs(found.astype(int) - np.asarray(middle)).max() <= 2


def test_an_activation_folded_into_weights_gives_the_same_vectors() -> None:
    import torch
    import transformers

    from tamis.stages.image.embedders.clip_vision import fold_quick_gelu

    torch.manual_seed(0)
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
    }
    model = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(**shape, projection_dim=8)).eval()
    seen = torch.randn(3, 3, 8, 8)
    with torch.inference_mode():
        before = model(pixel_values=seen).image_embeds
        fold_quick_gelu(model)
        after = model(pixel_values=seen).image_embeds
    assert any(isinstance(m, torch.nn.SiLU) for m in model.modules())
    assert torch.allclose(before, after, atol=1e-5)


class _Evil:
    def __reduce__(self) -> Any:
        return (print, ("loaded",))


def test_sixteen_bits_alpha_and_cmyk_have_pixels(tmp_path: Path) -> None:
    from PIL import Image

    from tamis.images.decode import decode

    deep = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    assert decode(stored(deep, "PNG"))[..., 0].tolist() == (deep >> 8).tolist()
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[0, 0] = (10, 20, 30, 255)
    assert decode(stored(clear, "PNG"))[0, :2].tolist() == [[10, 20, 30], [255, 255, 255]]
    four = np.asarray(Image.fromarray(pixels(3)).convert("CMYK"))
    import io

    out = io.BytesIO()
    Image.fromarray(four, "CMYK").save(out, "JPEG", quality=95)
    assert np.abs(decode(out.getvalue()).astype(int) - pixels(3)).mean() < 12
    assert decode(stored(pixels(4), "WEBP", lossless=True)).tolist() == pixels(4).tolist()


def test_heads_of_the_public_shapes(tmp_path: Path) -> None:
    """Public heads load: 1024, 128, 64, 16, 1 and 64, 512, 256, 1 rows over 768 numbers, in their file layouts."""
    from safetensors.numpy import save_file

    from tamis.stages.image.models import AESTHETIC, NSFW

    rng = np.random.default_rng(0)

    def layers(name: str, numbers: tuple[int, ...], rows: tuple[int, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for n, out, width in zip(numbers, rows, (768, *rows), strict=False):
            made[f"{name}{n}.weight"] = (rng.normal(size=(out, width)) / width**0.5).astype(np.float32)
            made[f"{name}{n}.bias"] = rng.normal(size=out).astype(np.float32)
        return made

    for repository in (AESTHETIC, NSFW):
        (tmp_path / repository).mkdir(parents=True)
    pleasing = layers("layers.", (0, 2, 4, 6, 7), (1024, 128, 64, 16, 1))
    save_file(pleasing, tmp_path / AESTHETIC / "model.safetensors")
    safe = layers("linear_", (1, 2, 3, 4), (64, 512, 256, 1))
    safe |= {"norm.mean": np.zeros((1, 768), np.float32), "norm.variance": np.full((1, 768), 4.0, np.float32)}
    torch.save({k: torch.from_numpy(v) for k, v in safe.items()}, tmp_path / NSFW / "clip_autokeras_binary_nsfw.pth")
    vectors = rng.normal(size=(3, 768)).astype(np.float32)
    one, two = ImageAestheticFilterStage(str(tmp_path)), ImageNSFWFilterStage(str(tmp_path))
    for stage in (one, two):
        stage.setup()
    x = vectors
    for n in (0, 2, 4, 6, 7):
        x = x @ pleasing[f"layers.{n}.weight"].T + pleasing[f"layers.{n}.bias"]
    assert np.allclose(one._scores(vectors), x[:, 0], atol=1e-4)
    y = vectors / 2
    for n in (1, 2, 3, 4):
        y = y @ safe[f"linear_{n}.weight"].T + safe[f"linear_{n}.bias"]
        y = np.maximum(y, 0) if n < 4 else 1 / (1 + np.exp(-y))
    assert np.allclose(two._scores(vectors), y[:, 0], atol=1e-5)


def test_threads_decode_ahead_and_keep_the_order() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tamis.images.decode import MAX_BUFFER_BYTES, ThreadBuffers
    from tamis.images.faults import ImageFault
    from tamis.stages.image.pixels import each

    scratch = ThreadBuffers()

    def make(where: Any) -> int:
        if where[1] == 7:
            raise ImageFault("no image")
        held = scratch.bytes("a", 1000)  # each thread has its own: what is put there stays until it is read
        held[:] = where[1]
        return int(held.max())

    found: list[Any] = [("", i, 0, None) for i in range(23)]
    with ThreadPoolExecutor(3) as pool:
        chunks = list(each(found, make, 4, pool))
    assert [len(c) for c in chunks] == [4, 4, 4, 4, 4, 3]
    flat = [one for chunk in chunks for one in chunk]
    assert [i for i, one in enumerate(flat) if isinstance(one, ImageFault)] == [7]
    assert all(one == i for i, one in enumerate(flat) if i != 7)
    kept = scratch.bytes("b", 5000)
    assert kept.base is scratch.bytes("b", 60_000).base
    assert len(scratch.bytes("b", MAX_BUFFER_BYTES + 1)) == MAX_BUFFER_BYTES + 1
    assert scratch.bytes("b", 10).base is kept.base


def test_on_a_gpu_fewer_images_get_the_same_vectors(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from tamis.stages.image.embedders.clip_vision import ClipVision
    from tamis.stages.text.models import folder as folders
    from tamis.stages.text.models.device import TorchDevice

    place = folders.open_folder(small_clip.clip(tmp_path / "clip"))
    squares = list(np.random.default_rng(0).integers(0, 256, (5, small_clip.SIDE, small_clip.SIDE, 3), np.uint8))
    network = ClipVision(place, TorchDevice("cuda"), 4)
    assert np.array_equal(network(squares)[:1], network(squares[:1]))
    wanted = ClipVision(place, TorchDevice("cpu"), 4)(squares)
    assert (network(squares) * wanted).sum(1).min() > 0.999
