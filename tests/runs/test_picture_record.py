"""An id that stands for another picture, copies in two splits, an edited table: told before they spoil a number."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.conftest import call
from satl.errors import RunError, SatlWarning
from satl.images import FolderImages, pack_images, packed_images
from satl.images.picture_digests import UNREADABLE, file_digest, picture_digests
from satl.inference.run_evaluation import evaluate_run
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.runs.picture_record import PictureRecord
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, tiny_config, train

NUM = 60


def draw_picture(file: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def write_labels(data: Path, **other: str) -> None:
    """Write the table; ``other`` are rows that say something else, such as ``row3="test,1,1"``."""
    lines = ["image,split,cat,dog"]
    for row in range(NUM):
        split = "train" if row < 30 else "val" if row < 45 else "test"
        lines.append(f"{row}.png," + other.get(f"row{row}", f"{split},{row % 2},{row // 2 % 2}"))
    (data / "labels.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for row in range(NUM):
        draw_picture(tmp_path / "images" / f"{row}.png", row)
    write_labels(tmp_path)
    return tmp_path


def config_of(data: Path, *settings: str) -> RunConfig:
    return tiny_config(
        "data.scenes=null",
        "data.proportion=null",
        f"data.table={data / 'labels.csv'}",
        f"data.images={data / 'images'}",
        "data.encoding=complete",
        "images.store_size=32",
        "method.name=ignore",
        "training.batch_size=8",
        "training.epochs=2",
        "training.stage1_epochs=1",
        *settings,
    )


def doubts_of(run: Path) -> list[str]:
    """Return what an evaluation on the test images warns of, which its file must have as well."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate_run(run, "test")
    told = [str(one.message) for one in caught if issubclass(one.category, SatlWarning)]
    assert json.loads((run / "evaluation-test.json").read_text()).get("doubts", []) == told
    return told


def test_a_digest_is_of_the_size_and_three_pieces(tmp_path: Path) -> None:
    content = bytearray(np.random.default_rng(0).bytes(10_000))
    file = tmp_path / "a"
    file.write_bytes(content)
    first = file_digest(str(file))
    file.write_bytes(content)
    assert file_digest(str(file)) == first
    for place in (0, 5_100, 9_999):
        other = bytearray(content)
        other[place] ^= 1
        file.write_bytes(other)
        assert file_digest(str(file)) != first
    file.write_bytes(content + b"x")
    assert file_digest(str(file)) != first
    assert file_digest(str(tmp_path / "none")) == UNREADABLE != first


def test_a_store_and_its_folder_have_digests_of_their_own(data: Path) -> None:
    ids = [f"{row}.png" for row in range(NUM)]
    files = FolderImages(data / "images", ids, 32)
    pack_images(files, ids, data / "store")
    origin, digests = picture_digests(files)
    packed_origin, packed = picture_digests(packed_images(data / "store", ids[::-1]))
    assert (origin, packed_origin) == ("files", "store")
    assert len(set(digests.tolist())) == len(set(packed.tolist())) == NUM
    train(data / "run", config_of(data))
    record = PictureRecord.load(data / "run" / "pictures.npz")
    assert record is not None
    np.testing.assert_array_equal(record.digests, digests)
    stored = load_data(config_of(data, f"data.images={data / 'store'}"))
    assert record.changed(stored) == []  # nothing can be compared


def test_a_run_is_not_resumed_with_another_picture(data: Path) -> None:
    config = config_of(data, "training.checkpoint_steps=1")
    with pytest.raises(Killed):
        train(data / "run", config, KillAt(epoch=1, step=1))
    folder = RunFolder.open(data / "run")
    draw_picture(data / "images" / "3.png", 1003)
    with pytest.raises(
        RunError, match=r"1 of 60 images is not the picture that it was .*: 3\.png; restore them"
    ):
        Trainer.resume(load_data(config), folder)
    draw_picture(data / "images" / "3.png", 3)
    Trainer.resume(load_data(config), folder).fit()


def test_the_record_may_be_removed_and_may_not_be_damaged(data: Path) -> None:
    with pytest.raises(Killed):
        train(data / "run", config_of(data, "training.checkpoint_steps=1"), KillAt(epoch=1, step=1))
    draw_picture(data / "images" / "3.png", 1003)
    folder = RunFolder.open(data / "run")
    folder.pictures.write_bytes(folder.pictures.read_bytes()[:300])
    with pytest.raises(RunError, match=r"pictures\.npz: cannot be read"):
        Trainer.resume(load_data(config_of(data)), folder)
    folder.pictures.unlink()
    Trainer.resume(load_data(config_of(data)), folder).fit()


def test_an_evaluation_tells_other_pictures_and_an_edited_table(data: Path) -> None:
    train(data / "run", config_of(data))
    assert doubts_of(data / "run") == []
    draw_picture(data / "images" / "50.png", 1050)
    draw_picture(data / "images" / "3.png", 1003)  # of the split train: not measured
    (told,) = doubts_of(data / "run")
    assert told == "1 of 15 images is not the picture that it was when the run was started: 50.png."
    write_labels(data, row51="test,0,0")
    assert doubts_of(data / "run")[1].startswith("The table was edited since the run was started")


def test_training_pictures_that_the_table_calls_test_now_are_refused(data: Path) -> None:
    train(data / "run", config_of(data))
    write_labels(data, row3="test,1,1", row31="test,1,1")
    with pytest.raises(
        RunError, match=r"2 of the 17 images that the table calls test were trained or validated on: 3"
    ):
        evaluate_run(data / "run", "test")


def test_copies_in_two_splits_are_told_at_the_start_and_when_it_is_measured(data: Path) -> None:
    draw_picture(data / "images" / "50.png", 7)
    with pytest.warns(
        SatlWarning, match="1 of the 15 images of the split test have the content of an image of"
    ):
        train(data / "run", config_of(data))
    (told,) = doubts_of(data / "run")
    assert "such as '50.png' and '7.png'" in told


def test_a_completion_notes_other_pictures_and_labels(data: Path) -> None:
    train(data / "run", config_of(data))
    draw_picture(data / "images" / "3.png", 1003)
    done = call("complete", data / "run", "-o", data / "out", "--review-only")
    assert done.code == 0, done.err
    report = json.loads((data / "out" / "report.json").read_text())
    assert any("1 of 60 images is not the picture that it was" in note for note in report["notes"])


def test_a_completion_notes_labels_that_certificates_rest_on(data: Path) -> None:
    train(data / "run", config_of(data, "data.holdout=true", "data.holdout_fraction=0.5"))
    held_out = np.load(data / "run" / "held_out.npz")
    assert len(held_out.files) > 0
    write_labels(
        data, row0="train,1,1", row1="train,0,1"
    )  # both cells of row 0 and both of row 1 say otherwise
    done = call("complete", data / "run", "-o", data / "out")
    assert done.code == 0, done.err
    notes = json.loads((data / "out" / "report.json").read_text())["notes"]
    assert any(
        "4 cells that were known to the run say something else in the table now" in note for note in notes
    )
