"""``satl embed``: from a table or a folder to features that a run can be trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from satl.features import read_features
from satl.models import Backbone


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with 24 pictures, a table of them and a weight file."""
    rng = np.random.default_rng(0)
    names = [f"{'a/' if number % 2 else ''}{number:02d}.png" for number in range(24)]
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for name in names:
        pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name)
    rows = [f"{name},{int(k % 2 == 0)},{'' if k % 3 else 0}\n" for k, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("image,cat,dog\n" + "".join(rows))
    torch.manual_seed(0)
    Backbone("satl_tiny").save_weights(tmp_path / "tiny.safetensors")
    return tmp_path


def test_a_table_and_a_folder_have_the_same_features(
    place: Path, satl: Callable[..., tuple[int, str, str]]
) -> None:
    common = ("--backbone", "satl_tiny", "--weights", place / "tiny.safetensors", "--part-size", 10)
    table = ("embed", place / "labels.csv", "--images", place / "photos", "-o", place / "one", *common)
    code, out, err = satl(*table, "--encoding", "blank")
    assert (code, err) == (0, "")
    assert out == f"{place / 'one'} has 24 pictures x 128 numbers.\n"
    code, out, _ = satl(*table, "--encoding", "blank")
    assert out == f"{place / 'one'} holds the features of all 24 pictures already; nothing was done.\n"
    assert satl("embed", place / "photos", "-o", place / "tiny.v2", *common)[0] == 0
    names = sorted(read_names(place / "one"))
    assert names == sorted(read_names(place / "tiny.v2"))
    one, two = (read_features(place / folder, names).take(np.arange(24)) for folder in ("one", "tiny.v2"))
    np.testing.assert_allclose(one, two, rtol=2e-3, atol=1e-3)  # other batches, another order of sums


def read_names(folder: Path) -> list[str]:
    return (folder / "ids.txt").read_text().split()


def test_broken_pictures_and_views(place: Path, satl: Callable[..., tuple[int, str, str]]) -> None:
    (place / "photos" / "00.png").write_bytes(b"")
    common = ("--backbone", "satl_tiny", "--weights", place / "tiny.safetensors", "--views", 3)
    code, out, err = satl("embed", place / "photos", "-o", place / "out", *common)
    assert code == 0
    assert out == f"{place / 'out'} has 23 pictures x 128 numbers, 3 views each.\n"
    assert err == (
        f"1 of 24 pictures cannot be read and are left out ({place / 'out' / 'broken.csv'} says why), such as 00.png.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("labels.csv",), "satl embed TABLE needs --images DIR, the folder of its pictures."),
        (("photos", "--images", "photos"), "is the folder of the pictures itself; leave --images out"),
        (
            ("labels.csv", "--images", "absent"),
            "--images absent: is no folder; give the folder of the pictures.",
        ),
        (("photos", "--pool", "token"), "--pool token: satl_tiny has no class token; use --pool mean."),
        (
            ("photos", "-o", "out.npz"),
            "--out out.npz: cannot be written as '.npz'; give the name of a folder, or end it in .parquet.",
        ),
        (("photos", "--weights", "absent.pth"), "backbone weights absent.pth do not exist"),
        (
            ("photos", "--backbone", "resnet18", "--stride-in-1x1"),
            "--stride-in-1x1: needs a ResNet with bottleneck blocks, and resnet18 is not one; leave it out.",
        ),
    ],
)
def test_mistakes_are_told(
    arguments: tuple[str, ...],
    message: str,
    place: Path,
    satl: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    common = ("--backbone", "satl_tiny", "--weights", "tiny.safetensors", "--encoding", "blank", "-o", "out")
    code, out, err = satl("embed", *arguments[:1], *common, *arguments[1:])
    assert (code, out) == (2, "")
    assert message in err
    assert not (place / "out").exists()
