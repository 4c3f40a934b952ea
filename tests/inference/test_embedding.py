"""Features of pictures: those of the plain model, the same bytes after a kill, and nothing lost to broken files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from satl.errors import ConfigError, ImageError, RunError
from satl.features import read_features
from satl.features.feature_folder import FeatureFolder
from satl.inference import embedding as embedding_module
from satl.inference.embedder import Embedder, Embedding, views_of
from satl.inference.embedding import PartEmbedder, embed, embed_to_parquet, find_files
from satl.models import Backbone
from satl.runs.run_lock import RunLock

SIZE = 32
BOTTLENECK: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}
VIT_NAME = "vit_tiny_patch16_224"
VIT: dict[str, Any] = {"depth": 1, "embed_dim": 24, "num_heads": 3}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    torch.manual_seed(0)
    Backbone("satl_tiny", kwargs={"widths": [4, 6]}).save_weights(path)
    return path


@pytest.fixture
def tiny(weights: Path) -> Embedding:
    return Embedding("satl_tiny", weights, SIZE, kwargs={"widths": [4, 6]})


def pictures(folder: Path, count: int, side: int = SIZE) -> tuple[list[str], list[Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    files = []
    for number in range(count):
        files.append(folder / f"{number:03d}.png")
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(files[-1])
    return [file.name for file in files], files


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}


def plain_pixels(file: Path, mean: Any, std: Any) -> torch.Tensor:
    levels = torch.from_numpy(np.asarray(Image.open(file)).copy()).permute(2, 0, 1)[None].float() / 255
    mean, std = (torch.tensor(values)[None, :, None, None] for values in (mean, std))
    return (levels - mean) / std


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_vectors_are_those_of_the_plain_model(pool: Any, tmp_path: Path) -> None:
    name = VIT_NAME
    torch.manual_seed(0)
    whole = timm.create_model(name, img_size=SIZE, **VIT).eval()
    torch.save(whole.state_dict(), tmp_path / "vit.pth")
    ids, files = pictures(tmp_path / "images", 5)
    chosen = Embedding(name, tmp_path / "vit.pth", SIZE, pool, kwargs=VIT)
    result = embed(chosen, ids, files, tmp_path / "out", batch_size=2, part_rows=4)
    assert (result.rows, result.dim, result.broken, result.found) == (5, 24, (), 0)
    table = read_features(tmp_path / "out", ids)
    for row, file in enumerate(files):
        with torch.no_grad():
            tokens = whole.forward_features(plain_pixels(file, (0.5,) * 3, (0.5,) * 3))[0]
        expected = tokens[0] if pool == "token" else tokens[1:].mean(0)
        found = np.asarray(table.gather(torch.tensor([row]))).reshape(-1)
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-3, atol=2e-3)  # half precision
    made = json.loads((tmp_path / "out" / "features.json").read_text())["made_by"]
    assert (made["backbone"], made["size"], made["mean"], made["pool"]) == (name, SIZE, [0.5] * 3, pool)


def test_weights_of_a_first_resnet_are_used_as_they_were_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = timm.create_model("resnet26", **BOTTLENECK).eval()
    torch.save(plain.state_dict(), tmp_path / "v1.pth")
    for stage in (plain.layer2, plain.layer3, plain.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    ids, files = pictures(tmp_path / "images", 3)
    chosen = Embedding("resnet26", tmp_path / "v1.pth", SIZE, kwargs=BOTTLENECK, stride_in_1x1=True)
    embed(chosen, ids, files, tmp_path / "out")
    found = read_features(tmp_path / "out", ids).take(np.arange(3))[:, 0]
    taken = Embedder(chosen).input
    with torch.no_grad():
        pixels = torch.cat([plain_pixels(file, taken.mean, taken.std) for file in files])
        expected = plain.forward_features(pixels).mean(dim=(2, 3)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    with pytest.raises(ConfigError, match="holds features made in another way"):
        embed(replace(chosen, stride_in_1x1=False), ids, files, tmp_path / "out")


def test_views_are_the_whole_its_mirror_image_and_crops(tiny: Embedding, tmp_path: Path) -> None:
    images = torch.arange(2 * 3 * 64, dtype=torch.float32).reshape(2, 3, 8, 8)
    views = list(views_of(images, 12))
    assert torch.equal(views[0], images)
    assert torch.equal(views[1], images.flip(3))
    assert torch.equal(views[2], images[:, :, :6, :6])
    assert torch.equal(views[5], images[:, :, 2:, 2:])
    assert torch.equal(views[6], images[:, :, 1:7, 1:7])
    assert torch.equal(views[7], images[:, :, :6, :6].flip(3))
    assert len({view.numpy().tobytes() for view in views}) == 12

    ids, files = pictures(tmp_path / "images", 3, side=48)
    for count in (1, 2, 5):
        chosen = Embedding("satl_tiny", tiny.weights, SIZE, views=count, kwargs=tiny.kwargs)
        embed(chosen, ids, files, tmp_path / f"out{count}")
        arrays = list(FeatureFolder.open(tmp_path / f"out{count}").arrays())
        assert arrays[0].shape == (3, count, 6)
    assert np.abs(arrays[0][:, 0] - arrays[0][:, 1]).max() > 0


def test_a_killed_process_is_resumed_to_the_same_bytes(tiny: Embedding, tmp_path: Path) -> None:
    ids, files = pictures(tmp_path / "images", 40)
    embed(tiny, ids, files, tmp_path / "whole", batch_size=4, part_rows=8)
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from satl.inference import embedding as module\nfrom satl.inference.embedder import Embedder, Embedding\n"
        "vectors = Embedder.vectors\n"
        "def slow(self, pixels):\n    time.sleep(0.2)\n    return vectors(self, pixels)\n"
        "Embedder.vectors = slow\n"
        "weights, folder, out = map(Path, sys.argv[1:])\n"
        "files = sorted(folder.iterdir())\n"
        f"chosen = Embedding('satl_tiny', weights, {SIZE}, kwargs={{'widths': [4, 6]}})\n"
        "module.embed(chosen, [file.name for file in files], files, out, batch_size=4, part_rows=8)\n"
    )
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tiny.weights), str(tmp_path / "images"), str(out)]
    )
    try:
        deadline = time.monotonic() + 600
        while not (out / "features-00001.json").is_file():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "features.json").exists()
    before = {name: (out / name).stat().st_mtime_ns for name in ("features-00000.npy", "features-00001.npy")}
    seen: list[int] = []
    result = embed(
        tiny, ids, files, out, batch_size=4, part_rows=8, progress=lambda done, total: seen.append(done)
    )
    assert result.found == seen[0] >= 16
    assert seen[-1] == 40
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert content(out) == content(tmp_path / "whole")
    FeatureFolder.open(out).verify()
    again = embed(tiny, ids, files, out, batch_size=4, part_rows=8)
    assert again.found == 40


def test_other_settings_are_refused(tiny: Embedding, weights: Path, tmp_path: Path) -> None:
    ids, files = pictures(tmp_path / "images", 4)
    embed(tiny, ids, files, tmp_path / "out")
    torch.manual_seed(1)
    Backbone("satl_tiny", kwargs={"widths": [4, 6]}).save_weights(tmp_path / "other.safetensors")
    other = Embedding("satl_tiny", tmp_path / "other.safetensors", SIZE, kwargs=tiny.kwargs)
    with pytest.raises(
        ConfigError, match=r"holds features made in another way; give another folder, or pass force"
    ):
        embed(other, ids, files, tmp_path / "out")
    shutil.copy(weights, tmp_path / "same.safetensors")
    same = Embedding("satl_tiny", tmp_path / "same.safetensors", SIZE, kwargs=tiny.kwargs)
    assert embed(same, ids, files, tmp_path / "out").found == 4
    assert embed(other, ids, files, tmp_path / "out", force=True).found == 0


@pytest.mark.parametrize(
    ("name", "pool", "kwargs"), [("satl_tiny", "mean", {"widths": [4, 6]}), (VIT_NAME, "token", VIT)]
)
def test_bfloat16_rounds_and_is_part_of_how_features_were_made(
    name: str, pool: Any, kwargs: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    Backbone(name, kwargs=kwargs | ({"img_size": SIZE} if name == VIT_NAME else {})).save_weights(
        tmp_path / "w.safetensors"
    )
    ids, files = pictures(tmp_path / "images", 6)
    exact = Embedding(name, tmp_path / "w.safetensors", SIZE, pool, kwargs=kwargs)
    rounded = replace(exact, bfloat16=True)
    embed(exact, ids, files, tmp_path / "exact")
    embed(rounded, ids, files, tmp_path / "rounded")
    wanted, found = (
        read_features(tmp_path / each, ids).take(np.arange(6)).astype(np.float64)
        for each in ("exact", "rounded")
    )
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 1e-5 < error < 0.03
    assert "bfloat16" not in FeatureFolder.open(tmp_path / "exact").made_by
    assert FeatureFolder.open(tmp_path / "rounded").made_by["bfloat16"] is True
    with pytest.raises(ConfigError, match="made in another way"):
        embed(exact, ids, files, tmp_path / "rounded")


def test_broken_pictures_are_listed_and_tried_again(tiny: Embedding, tmp_path: Path) -> None:
    ids, files = pictures(tmp_path / "images", 40)
    good = files[3].read_bytes()
    files[3].write_bytes(b"no picture")
    files[30].unlink()
    result = embed(tiny, ids, files, tmp_path / "out", batch_size=4, part_rows=8)
    assert result.rows == 38
    assert [name for name, _ in result.broken] == ["003.png", "030.png"]
    listed = (tmp_path / "out" / "broken.csv").read_text().splitlines()
    assert listed[0] == "image,reason"
    assert "003.png" in listed[1]
    assert "is missing" in listed[2]
    assert FeatureFolder.open(tmp_path / "out").read_ids() == tuple(
        name for name in ids if name not in ("003.png", "030.png")
    )

    for file in files[8:12]:
        file.write_bytes(b"")
    with pytest.raises(
        ImageError, match=r"6 of 40 pictures cannot be read \(.*broken\.csv says why\), such as 003"
    ):
        embed(tiny, ids, files, tmp_path / "many", batch_size=4, part_rows=8)
    assert len((tmp_path / "many" / "broken.csv").read_text().splitlines()) == 7
    for file in files[8:12]:
        file.write_bytes(good)
    files[3].write_bytes(good)
    result = embed(tiny, ids, files, tmp_path / "many", batch_size=4, part_rows=8)
    assert (result.rows, [name for name, _ in result.broken], result.found) == (39, ["030.png"], 16)


def test_a_folder_of_broken_pictures_is_an_error(tiny: Embedding, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ImageError, match="none of the pictures can be read"):
        embed(tiny, ["a.png"], [tmp_path / "a.png"], tmp_path / "out")


def test_one_process_at_a_time(tiny: Embedding, tmp_path: Path) -> None:
    ids, files = pictures(tmp_path / "images", 2)
    (tmp_path / "out").mkdir()
    lock = RunLock(tmp_path / "out", "written")
    with pytest.raises(RunError, match=r"is being written by this process; wait for it"):
        embed(tiny, ids, files, tmp_path / "out")
    lock.release()
    assert embed(tiny, ids, files, tmp_path / "out").rows == 2


def test_a_parquet_file_holds_the_same(tiny: Embedding, tmp_path: Path) -> None:
    ids, files = pictures(tmp_path / "images", 5)
    embed(tiny, ids, files, tmp_path / "out", part_rows=2)
    result = embed_to_parquet(tiny, ids, files, tmp_path / "f.parquet", part_rows=2)
    assert (result.path, result.rows) == (tmp_path / "f.parquet", 5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.parquet", "images", "out"]
    rows = torch.arange(5)
    one, other = (read_features(tmp_path / name, ids).gather(rows) for name in ("out", "f.parquet"))
    assert np.array_equal(np.asarray(one), np.asarray(other))
    with pytest.raises(ConfigError, match="exists already"):
        embed_to_parquet(tiny, ids, files, tmp_path / "f.parquet")
    several = Embedding("satl_tiny", tiny.weights, SIZE, views=2, kwargs=tiny.kwargs)
    with pytest.raises(ConfigError, match=r"views=2: a Parquet file has one vector"):
        embed_to_parquet(several, ids, files, tmp_path / "g.parquet")


def test_decoding_runs_ahead_of_the_network(
    tiny: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the network is at the first batch, pictures of later ones, of the next part too, are decoded."""
    ids, files = pictures(tmp_path / "images", 8)
    decoded: list[str] = []
    ahead: list[int] = []
    decode, vectors = Embedder.decode, Embedder.vectors

    def count(self: Embedder, file: str, pixels: Any) -> str | None:
        decoded.append(file)
        return decode(self, file, pixels)

    def look(self: Embedder, pixels: torch.Tensor) -> Any:
        deadline = time.monotonic() + 600
        while not ahead and len(decoded) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        ahead.append(len(decoded))
        return vectors(self, pixels)

    monkeypatch.setattr(Embedder, "decode", count)
    monkeypatch.setattr(Embedder, "vectors", look)
    embed(tiny, ids, files, tmp_path / "out", batch_size=2, part_rows=4)
    assert ahead[0] == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": 13}, "views=13: is not between 1 and 12"),
        ({"pool": "token"}, "pool='token': satl_tiny has no class token; use pool='mean'"),
        ({"backbone": "satl_tini", "kwargs": {}}, "did you mean 'satl_tiny'"),
        ({"weights": Path("absent.pth")}, "absent.pth do not exist"),
    ],
)
def test_what_cannot_be_made_is_told_before_there_is_a_folder(
    change: dict[str, Any], message: str, tiny: Embedding, tmp_path: Path
) -> None:
    ids, files = pictures(tmp_path / "images", 1)
    chosen = Embedding(**{**tiny.__dict__, **change})
    with pytest.raises(ConfigError) as raised:
        embed(chosen, ids, files, tmp_path / "out")
    assert message in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_size_that_does_not_fit_is_told(tmp_path: Path) -> None:
    kwargs = {**VIT, "dynamic_img_size": True}
    torch.save(timm.create_model("vit_tiny_patch16_224", **kwargs).state_dict(), tmp_path / "vit.pth")
    with pytest.raises(ConfigError, match=r"^size=50: .* set it to a multiple of 16, such as 48\.$"):
        Embedder(Embedding("vit_tiny_patch16_224", tmp_path / "vit.pth", 50, kwargs=kwargs))


def test_workers_of_a_cluster_make_the_same(tiny: Embedding, tmp_path: Path) -> None:
    """A worker gets only the job and its parts, and builds the network itself."""
    ids, files = pictures(tmp_path / "images", 10)
    embed(tiny, ids, files, tmp_path / "here", batch_size=4, part_rows=4)

    def elsewhere(job: Any, parts: Any) -> Any:
        worker = PartEmbedder(job, 1)
        yield from (worker.embed(part) for part in reversed(parts))

    embed(tiny, ids, files, tmp_path / "there", batch_size=4, part_rows=4, embed_parts=elsewhere)
    assert content(tmp_path / "here") == content(tmp_path / "there")

    def another(job: Any, parts: Any) -> Any:
        changed = embedding_module.EmbeddingJob(**{**job.__dict__, "version": "0"})
        yield PartEmbedder(changed, 1).embed(parts[0])

    with pytest.raises(RunError, match="install the same version on all of them"):
        embed(tiny, ids, files, tmp_path / "other", embed_parts=another)


def test_files_of_a_table(tmp_path: Path) -> None:
    pictures(tmp_path / "images", 2)
    found = find_files(tmp_path / "images", ["000.png", "001", "002"])
    assert [file.name for file in found] == ["000.png", "001.png", "002"]
    shutil.copy(tmp_path / "images" / "000.png", tmp_path / "images" / "000.jpg")
    with pytest.raises(ImageError, match="image id '000' matches 2 files"):
        find_files(tmp_path / "images", ["000"])
    with pytest.raises(ImageError, match="is no folder"):
        find_files(tmp_path / "absent", ["000"])


def test_a_kill_after_the_parquet_file_leaves_nothing_for_long(
    tiny: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, files = pictures(tmp_path / "images", 5)
    target = tmp_path / "made" / "f.parquet"
    target.parent.mkdir()

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(embedding_module, "remove_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            embed_to_parquet(tiny, ids, files, target, part_rows=4)
    first = target.read_bytes()
    assert len(list(target.parent.iterdir())) == 2
    with pytest.raises(ConfigError, match="exists already"):
        embed_to_parquet(tiny, ids, files, target, part_rows=4)
    assert list(target.parent.iterdir()) == [target]
    assert target.read_bytes() == first
