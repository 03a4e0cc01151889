"""`tamis images`: from tars and folders to tars without damaged, small and repeated images.

And the same from Python with all steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor
from tamis.cli.main import app
from tamis.curation import Curation, ExactImageDuplicates, SemanticImageDuplicates
from tamis.dedup.images.hashing import ImageHashes
from tamis.errors import MissingExtra
from tamis.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from tamis.stages.image.filters import ImageAestheticFilterStage, ImageNSFWFilterStage, ImageSizeFilterStage
from tamis.stages.image.io import ImageReader, ImageWriterStage
from tests.support import small_clip
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path
from tests.support.sample_images import jpeg, members_of, pixels, png, stored, tar


def damaged(data: bytes) -> bytes:
    """Header and end stay; the pixels do not decode."""
    at = data.index(b"IDAT") + 20
    return data[:at] + bytes(len(data) - at - 40) + data[-40:]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images, three of them twice; one too small; one damaged; one that is text.

    The same pixels as PNG and WebP.
    """
    folder = tmp_path_factory.mktemp("images") / "in"
    folder.mkdir()
    members = {f"p{i}.jpg": jpeg(i % 12, 100, 80) for i in range(15)}
    tar(
        folder / "a.tar",
        members | {"tiny.png": png(99, 10, 10), "hurt.png": damaged(png(60, 64, 64)), "t.jpg": b"text"},
    )
    (folder / "x.png").write_bytes(png(70, 90, 90))
    (folder / "y.webp").write_bytes(stored(pixels(70, 90, 90), "WEBP", lossless=True))
    return folder


@pytest.fixture(scope="module")
def cleaned(images: Path) -> SimpleNamespace:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    out = images.parent / "out"
    told = CliRunner().invoke(app, ["images", str(images), str(out), "--memory", "4GB", "--json", "--quiet"])
    assert told.exit_code == 0, told.output
    return SimpleNamespace(out=out, about=json.loads(told.stdout))


@pytest.mark.parametrize("library", ["simplejpeg", "PIL.Image"])
@pytest.mark.parametrize("stage", [ImageHashes(), ImageEmbeddingStage()], ids=["hashes", "embedding"])
def test_without_the_libraries_no_image_is_called_damaged(
    stage: Any, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"reading images needs .* pip install 'tamis\[image\]'"):
        stage.setup_on_node()


def test_clean_leaves_each_image_once(cleaned: SimpleNamespace) -> None:
    about = cleaned.about
    assert (about["n_records"], about["n_written"], about["n_dropped"], about["n_quarantined"]) == (20, 13, 5, 2)
    drops = {d["reason"]: d["documents"] for d in about["drops"]}
    assert drops == {"min_side": 1, "duplicate": 4}
    found = {n: d for p in cleaned.out.glob("*.tar") for n, d in members_of(p).items()}
    assert len(set(found.values())) == len(found) == 13
    assert about["read_bytes"] > 10_000  # of images, not of the rows that lead to them


def test_why_and_quarantine_and_the_same_command_again(cleaned: SimpleNamespace, images: Path) -> None:
    (ids,) = [d["examples"] for d in cleaned.about["drops"] if d["reason"] == "min_side"]
    told = CliRunner().invoke(app, ["why", str(cleaned.out), ids[0]])
    assert told.exit_code == 0
    assert "min_side" in told.stdout
    assert "10" in told.stdout
    (ids,) = [d["examples"] for d in cleaned.about["drops"] if d["reason"] == "duplicate"]
    told = CliRunner().invoke(app, ["why", str(cleaned.out), ids[0]])
    assert "- member: p0.jpg" in told.stdout
    assert "+ member: p12.jpg" in told.stdout
    told = CliRunner().invoke(app, ["quarantine", str(cleaned.out), "--json"])
    assert "a damaged PNG" in told.stdout
    assert "no image: it begins with" in told.stdout
    told = CliRunner().invoke(app, ["images", str(images), str(cleaned.out), "--memory", "4GB"])
    assert "finished earlier, nothing to do" in told.stdout


def test_options_that_a_preset_has_no_use_for_are_refused(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["images", str(tmp_path), str(tmp_path / "o"), "--eps", "0.1"])
    assert (told.exit_code, "--eps means nothing with --preset clean" in told.stderr) == (2, True)
    told = CliRunner().invoke(app, ["images", str(tmp_path), str(tmp_path / "o"), "--preset", "best"])
    assert (told.exit_code, "expected one of clean, embed, quality, full" in told.stderr) == (2, True)


def test_the_plan_of_the_full_preset(images: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    told = CliRunner().invoke(
        app,
        [
            "images",
            str(images),
            str(tmp_path / "o"),
            "--preset",
            "full",
            "--model-dir",
            str(models),
            "--plan",
            "--json",
        ],
    )
    assert told.exit_code == 0, told.output
    plan = json.loads(told.stdout)
    assert [p["name"] for p in plan["passes"]] == [
        "keys for remove_exact_image_duplicates",
        "keys for remove_semantic_image_duplicates",
        "write",
    ]
    (remark,) = plan["remarks"]
    assert remark.startswith("image_embedding: what it makes is kept on the disk between passes")


@pytest.mark.slow  # torch is loaded
def test_all_steps_in_one_curation_from_python(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = str(small_clip.models(tmp_path / "models"))
    decoded: list[Any] = []
    embedded = ImageEmbeddingStage._embedded
    monkeypatch.setattr(
        ImageEmbeddingStage, "_embedded", lambda self, found: decoded.append(found) or embedded(self, found)
    )
    steps = [
        ImageReader(str(images)),
        ImageSizeFilterStage(min_side=32),
        ExactImageDuplicates(),
        ImageEmbeddingStage(models),
        ImageAestheticFilterStage(models, score_threshold=-100.0),
        ImageNSFWFilterStage(models, score_threshold=2.0),
        SemanticImageDuplicates(eps=0.9, n_clusters=1),  # all of these look alike to a network that knows nothing
        ImageWriterStage(str(tmp_path / "out")),
    ]
    result = Curation(steps, card=False).run(InProcessExecutor(), memory="2GB")
    ledger = result.run.ledger
    assert ledger.problems() == []
    assert (ledger.records.n, ledger.quarantined.n) == (20, 2)
    dropped = {book.name: sum(t.n for t in book.dropped.values()) for book in ledger.stages}
    assert dropped["remove_exact_image_duplicates"] == 4
    assert dropped["remove_semantic_image_duplicates"] >= 10
    assert sum(map(len, decoded)) == 13  # once each: the last pass goes by what was kept
    rows = pa.concat_tables([pq.read_table(p) for p in (tmp_path / "out").glob("*.parquet")]).to_pylist()
    assert len(rows) == ledger.written.n == 20 - 2 - 1 - 4 - dropped["remove_semantic_image_duplicates"]
    assert all(len(row["embedding"]) == small_clip.WIDTH for row in rows)
    assert not (run_dir_path(tmp_path / "out") / "curation").exists()
