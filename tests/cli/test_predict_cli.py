from __future__ import annotations

import csv
import errno
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from satl.inference.decision_thresholds import same_threshold
from satl.inference.prediction import write_predictions
from satl.inference.recogniser import Recogniser
from satl.scenes import make_scenes

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder tree of four pictures; the test images of the run are the first ones drawn after 88."""
    pixels, _ = make_scenes(4, size=32, start=88)
    names = ("b.png", "a.png", "deep/er/c.PNG", "deep/d.webp")
    for name, image in zip(names, pixels, strict=True):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, lossless=True)
    (tmp_path / "pictures" / "notes.txt").write_text("not an image")
    return tmp_path / "pictures"


def test_predictions_are_those_of_the_evaluation(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path
) -> None:
    from satl.runs.data import load_data

    out_file = tmp_path / "out.csv"
    code, out, err = satl("predict", tiny_run, folder / "b.png", folder / "a.png", "-o", out_file)
    assert (code, err) == (0, "")
    assert "Wrote 2 images x 24 classes" in out
    recogniser = Recogniser.load(tiny_run)
    data = load_data(recogniser.config)
    expected = recogniser.probabilities(data.source, data.rows("test")[:2])
    with out_file.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["image", "label", "probability", "present"]
    assert [row["image"] for row in rows[::24]] == [str(folder / "b.png"), str(folder / "a.png")]
    assert [row["label"] for row in rows[:24]] == list(recogniser.classes)
    found = np.array([float(row["probability"]) for row in rows]).reshape(2, 24)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert [row["present"] for row in rows] == [str(int(value >= 0.5)) for value in expected.flatten()]


def test_every_class_can_have_a_threshold_of_its_own(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_file, cuts = tmp_path / "out.csv", tmp_path / "cuts.csv"
    classes = Recogniser.load(tiny_run).classes
    limits = {name: number / len(classes) for number, name in enumerate(classes)}
    lines = [f"{name},{limit}" for name, limit in list(limits.items())[:-1]] + [f"{classes[-1]},"]
    cuts.write_text("class,threshold\n" + "\n".join(lines) + "\n")
    limits[classes[-1]] = 2.0
    code, out, err = satl("predict", tiny_run, folder, "-o", out_file, "--thresholds", cuts)
    assert (code, err) == (0, "")
    assert f"1 of 24 classes has no threshold and is never present: {classes[-1]}\n" in out
    with out_file.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["present"] for row in rows} == {"0", "1"}
    for row in rows:
        assert int(row["present"]) == (float(row["probability"]) >= limits[row["label"]])
    monkeypatch.setattr("satl.inference.prediction.predict_files", None)  # the work would fail
    cuts.write_text("class,threshold\nghost,0.5\n")
    code, _, err = satl("predict", tiny_run, folder, "-o", tmp_path / "o.csv", "--thresholds", cuts)
    assert (code, err.count("\n")) == (2, 1)
    assert "row 1 is about class 'ghost', which the run does not have" in err
    code, _, err = satl("predict", tiny_run, folder, "-o", out_file, "--force", "--thresholds", out_file)
    assert code == 2
    assert "out.csv" in err


def test_jsonl_of_a_folder_in_order_with_another_threshold(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path
) -> None:
    out_file = tmp_path / "out.jsonl"
    options = ("--threshold", "0.2", "--checkpoint", "last", "--batch-size", "3")
    assert satl("predict", tiny_run, folder, "-o", out_file, *options)[0] == 0
    rows = [json.loads(line) for line in out_file.read_text().splitlines()]
    assert [row["image"] for row in rows] == ["a.png", "b.png", "deep/d.webp", "deep/er/c.PNG"]
    for row in rows:
        assert len(row["probabilities"]) == 24
        assert row["present"] == [name for name, value in row["probabilities"].items() if value >= 0.2]
    assert any(row["present"] for row in rows)


def test_orientation_colours_and_odd_names(satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path) -> None:
    image = Image.open(folder / "a.png")
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 270 degrees
    turned.save(folder / "turned, [odd] ü.png", exif=exif)
    image.convert("L").save(folder / "grey.jpg")
    files = [folder / name for name in ("a.png", "turned, [odd] ü.png", "grey.jpg")]
    assert satl("predict", tiny_run, *files, "-o", tmp_path / "o.jsonl")[0] == 0
    first, second, third = (json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines())
    assert second["image"] == str(files[1])
    assert first["probabilities"] == second["probabilities"] != third["probabilities"]


def test_an_older_file_is_replaced_only_when_asked_and_as_a_whole(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "o.csv").write_text("old")
    code, _, err = satl("predict", tiny_run, folder / "a.png", "-o", tmp_path / "o.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "o.csv: exists already; give another name, or pass --force to overwrite it." in err
    assert (tmp_path / "o.csv").read_text() == "old"
    assert satl("predict", tiny_run, folder / "a.png", "-o", tmp_path / "o.csv", "--force")[0] == 0
    assert (tmp_path / "o.csv").read_text().startswith("image,label")
    (folder / "broken.png").write_bytes((folder / "b.png").read_bytes()[:100])
    before = (tmp_path / "o.csv").read_text()
    code, _, err = satl("predict", tiny_run, folder, "-o", tmp_path / "o.csv", "--force")
    assert code == 2
    assert "broken.png" in err
    assert (tmp_path / "o.csv").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "pictures"]


def test_what_only_looks_like_an_image(satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "deep").rename(folder / "deep.png")
    assert satl("predict", tiny_run, folder, "-o", tmp_path / "o.jsonl")[0] == 0
    names = [json.loads(line)["image"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert names == ["a.png", "b.png", "deep.png/d.webp", "deep.png/er/c.PNG"]
    (folder / "lost.png").symlink_to("nowhere.png")
    code, _, err = satl("predict", tiny_run, folder, "-o", tmp_path / "p.jsonl")
    assert code == 2
    assert err == f"error: image file '{folder / 'lost.png'}' is missing; replace it or leave it out.\n"


def test_a_folder_that_may_not_be_read_is_told_and_not_left_out(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def refused(path: Path | str = ".") -> object:
        if Path(path) == folder / "deep":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    code, _, err = satl("predict", tiny_run, folder, "-o", tmp_path / "o.csv")
    assert code == 2
    assert (
        err
        == f"error: {folder / 'deep'}: cannot be read (Permission denied); make it readable or leave it out.\n"
    )
    code, _, err = satl("predict", tiny_run, folder / ("long" * 100), "-o", tmp_path / "o.csv")
    assert code == 2
    assert "cannot be read (File name too long); make it readable or leave it out." in err
    assert not (tmp_path / "o.csv").exists()


def test_a_name_that_no_file_can_hold_is_told_before_the_work(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satl.inference.prediction.predict_files", None)  # the work would fail
    (folder / "a.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    code, _, err = satl("predict", tiny_run, folder, "-o", tmp_path / "o.csv")
    assert code == 2
    assert err == (
        "error: image file b'caf\\xe9.png' has a name that is not UTF-8; rename it or leave it out.\n"
    )
    assert not (tmp_path / "o.csv").exists()


def test_an_image_that_is_given_twice_is_looked_at_once(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path
) -> None:
    code, out, _ = satl(
        "predict", tiny_run, folder / "a.png", folder, folder / "deep", "-o", tmp_path / "o.csv"
    )
    assert code == 0
    assert "Wrote 4 images x 24 classes" in out


def test_writing_takes_no_more_memory_for_more_images(tmp_path: Path) -> None:
    probabilities = np.full((1000, 300), 0.5, dtype=np.float32)
    write = write_predictions(tmp_path / "o.csv", same_threshold(0.5, 300))
    names, classes = [f"{n}.png" for n in range(1000)], [f"class {n}" for n in range(300)]
    tracemalloc.start()
    try:
        write(names, classes, probabilities)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < probabilities.size  # as Python's numbers all of them would take 32 times that
    assert sum(1 for _ in (tmp_path / "o.csv").open()) == 1 + probabilities.size


def test_what_is_read_is_never_overwritten(satl: Satl, tiny_run: Path, folder: Path) -> None:
    odd = folder / "image.csv"
    (folder / "a.png").rename(odd)
    for image, out in ((odd, odd), (odd, tiny_run / "thresholds.csv"), (odd, tiny_run / "metrics.jsonl")):
        before = out.read_bytes()
        code, printed, err = satl("predict", tiny_run, image, "-o", out, "--force")
        assert (code, printed) == (2, "")
        assert f"--out {out}: belongs to the inputs and would be overwritten; give another name." in err
        assert out.read_bytes() == before


def test_the_place_is_tried_before_the_work(
    satl: Satl, tiny_run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satl.inference.prediction.predict_files", None)  # the work would fail
    for out, words in (
        ("/proc/x.csv", "cannot be written (No such file or directory)"),
        (folder / "b.png" / "x.csv", f"{folder / 'b.png'} is a file, not a folder"),
    ):
        code, printed, err = satl("predict", tiny_run, folder, "-o", out)
        assert (code, printed) == (2, "")
        assert err == f"error: --out {out}: {words}; give another place.\n"


def test_predictions_of_a_folder_fit_the_table_of_its_images(
    satl: Satl, tiny_run: Path, folder: Path, tmp_path: Path
) -> None:
    scores, labels = tmp_path / "scores.csv", tmp_path / "labels.csv"
    assert satl("predict", tiny_run, folder, "-o", scores)[0] == 0
    classes = Recogniser.load(tiny_run).classes
    names = ("a.png", "b.png", "deep/d.webp", "deep/er/c.PNG")
    lines = [f"{name},{','.join(['yes', 'no', ''] * (len(classes) // 3))}" for name in names]
    labels.write_text("\n".join([f"image,{','.join(classes)}", *lines]) + "\n")
    code, out, err = satl("thresholds", "--scores", scores, "--labels", labels, "--rule", "semantic")
    assert (code, err) == (0, "")
    assert "scores.csv: 4 images" in out
    both = tmp_path / "both.csv"
    assert satl("predict", tiny_run, folder / "deep", folder / "a.png", "-o", both)[0] == 0
    with both.open() as file:
        found = list(dict.fromkeys(row["image"] for row in csv.DictReader(file)))
    assert found == [str(folder / name) for name in ("deep/d.webp", "deep/er/c.PNG", "a.png")]
