from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli.conftest import Outcome
from satl.images import packed_images
from satl.images.store import PIXELS
from training.tiny import TINY, assert_same_run

Satl = Callable[..., Outcome]


@pytest.fixture(scope="module")
def store(satl: Satl, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw store of the pictures; do not change it."""
    path = tmp_path_factory.mktemp("packed") / "store"
    outcome = satl(
        "pack", pictures / "labels.csv", "--images", pictures, "--size", 32, "-o", path, "--kind", "raw"
    )
    assert outcome.code == 0
    return path


def test_packed_once_then_nothing_to_do(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    command = ("pack", pictures / "labels.csv", "--images", pictures, "--size", 48, "-o", tmp_path / "store")
    code, out, err = satl(*command)
    assert (code, err) == (0, "")
    assert f"Packed 60 images of 48 x 48 pixels: {tmp_path / 'store'} (jpeg, 0." in out
    assert f"data.images={tmp_path / 'store'} images.store_size=48" in out
    assert packed_images(tmp_path / "store").size == 48
    code, out, err = satl(*command)
    assert (code, err) == (0, "")
    assert "holds all 60 images already; nothing was done" in out
    code, out, err = satl(*command, "--kind", "raw")
    assert (code, out) == (2, "")
    assert "is finished with --kind jpeg --quality 95, not --kind raw; pass another folder as --out" in err


def test_packing_and_checking_start_without_torch(pictures: Path, tmp_path: Path) -> None:
    for arguments in (
        [
            "pack",
            str(pictures / "labels.csv"),
            "--images",
            str(pictures),
            "--size",
            "16",
            "-o",
            str(tmp_path / "s"),
        ],
        ["pack", "--check", str(tmp_path / "s")],
    ):
        program = (
            f"import sys; sys.argv = ['satl', *{arguments!r}]\n"
            "from satl.cli import main\n"
            "try:\n    main()\n"
            "except SystemExit as end:\n    assert not end.code\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_check_says_what_is_damaged(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    satl("pack", pictures / "labels.csv", "--images", pictures, "--size", 16, "-o", path, "--kind", "raw")
    code, out, err = satl("pack", "--check", path)
    assert (code, err) == (0, "")
    assert "is sound: 60 images, every checksum is right" in out
    data = bytearray((path / PIXELS).read_bytes())
    length = 16 * 16 * 3
    for row in (3, 59):
        data[row * length + 7] ^= 1
    (path / PIXELS).write_bytes(data)
    ids = packed_images(path).ids
    code, out, err = satl("pack", "--check", path)
    assert (code, out) == (2, "")
    assert (
        f"{path / PIXELS}: 2 of 60 images are damaged: '{ids[3]}', '{ids[59]}'; copy the store again" in err
    )
    (path / PIXELS).write_bytes(data[:-1])
    code, out, err = satl("pack", "--check", path)
    assert (code, out) == (2, "")
    assert "instead of 46,080" in err


def test_a_broken_image_ends_with_its_row_and_the_run_goes_on(satl: Satl, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    satl("scenes", "-o", folder, "--count", 12, "--size", 16)
    broken = sorted(folder.glob("*.png"))[6]
    good = broken.read_bytes()
    broken.write_bytes(b"junk")
    command = ("pack", folder / "labels.csv", "--images", folder, "--size", 16, "-o", tmp_path / "store")
    code, out, err = satl(*command)
    assert (code, out) == (2, "")
    assert f"{broken.name}' of row 7 is not an image" in err
    assert err.count("\n") == 1
    broken.write_bytes(good)
    code, out, err = satl(*command)
    assert (code, err) == (0, "")
    assert "Packed 12 images of 16 x 16 pixels, 6 of them earlier" in out


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_ended_goes_on(
    satl: Satl, pictures: Path, tmp_path: Path, end: signal.Signals
) -> None:
    program = (
        "import os, signal, satl.images.pack as pack\n"
        "from satl.cli import main\n"
        # A shell lets what it starts in the background ignore Ctrl-C, and the tests with it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "pack._SECONDS_BETWEEN_COMMITS = 0.0\n"
        "add = pack._Writer.add\n"
        "def add_and_end(self, data):\n"
        "    add(self, data)\n"
        f"    if self.done == 25: os.kill(os.getpid(), {int(end)})\n"
        "pack._Writer.add = add_and_end\n"
        "main()\n"
    )
    command = ["pack", str(pictures / "labels.csv"), "--images", str(pictures), "--size", "32"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *command, "-o", str(tmp_path / "store")],
        check=False,
        capture_output=True,
        text=True,
    )
    if end == signal.SIGINT:
        assert ended.returncode == 130
        assert "of 60 images; run the same command again to resume." in ended.stderr
    else:
        assert ended.returncode == -signal.SIGKILL
    code, out, err = satl(*command, "-o", tmp_path / "store")
    assert (code, err) == (0, "")
    assert "of them earlier" in out
    satl(*command, "-o", tmp_path / "whole")
    for file in ("store.json", "index.npz", PIXELS):
        assert (tmp_path / "store" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_wrong_arguments_are_one_sentence(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    labels, out = pictures / "labels.csv", tmp_path / "store"
    for arguments, words in (
        ((), "satl pack needs TABLE, --images DIR and -o STORE; or --check STORE alone"),
        ((labels, "-o", out), "satl pack needs TABLE"),
        ((labels, "--check", out), "satl pack --check STORE stands alone"),
        (("--check", out), "is not a packed store"),
        ((labels, "--images", tmp_path / "none", "-o", out), "image folder '"),
        ((labels, "--images", pictures, "-o", pictures), "exists already and is not a packed store"),
        ((pictures, "--images", pictures, "-o", out), "is a folder: name the table in it"),
        ((labels, "--images", pictures, "-o", labels), "exists already and is not a packed store"),
        (
            (labels, "--images", pictures, "-o", labels / "st"),
            f"{labels} is a file, not a folder; give another",
        ),
        ((labels, "--images", pictures, "-o", "/proc/st"), "--out /proc/st: cannot be written (No such file"),
    ):
        code, printed, err = satl("pack", *arguments)
        assert (code, printed) == (2, "")
        assert words in err
        assert err.count("\n") == 1
    assert not out.exists()


def test_a_data_set_is_packed_from_its_own_folder(satl: Satl, tmp_path: Path) -> None:
    from labels.trees import coco2014

    root = coco2014(tmp_path / "coco", pictures=True)
    code, _, err = satl("pack", root, "--dataset", "coco2014", "--size", 16, "-o", tmp_path / "store")
    assert (code, err) == (0, "")
    assert all(name.startswith(("train2014/", "val2014/")) for name in packed_images(tmp_path / "store").ids)


def config_file(path: Path, labels: Path, images: Path) -> Path:
    content = {**TINY, "data": {"table": str(labels), "images": str(images), "proportion": 0.5}}
    content["images"] = {**TINY["images"], "store_size": 32}
    content["training"] = {**TINY["training"], "epochs": 2, "stage1_epochs": 1}
    path.write_text(yaml.safe_dump(content))
    return path


def test_training_from_a_raw_store_equals_training_from_the_folder(
    satl: Satl, pictures: Path, store: Path, tmp_path: Path
) -> None:
    labels = pictures / "labels.csv"
    for name, images, settings in (
        ("folder", pictures, ()),
        ("files", pictures, ("--set", "images.cache_gb=0", "--set", "images.workers=2")),
        ("store", store, ("--set", "images.workers=2")),
    ):
        config = config_file(tmp_path / f"{name}.yaml", labels, images)
        code, _, err = satl("train", config, "-o", tmp_path / name, "--quiet", *settings)
        assert (code, err) == (0, "")
    assert_same_run(tmp_path / "folder", tmp_path / "store")
    assert_same_run(tmp_path / "folder", tmp_path / "files")
    outputs = [satl("evaluate", tmp_path / name, "--json") for name in ("folder", "store")]
    assert outputs[0] == outputs[1]
    assert outputs[0].code == 0


def test_predicting_from_a_raw_store_equals_predicting_from_the_files(
    satl: Satl, tiny_run: Path, pictures: Path, store: Path, tmp_path: Path
) -> None:
    for name, source in (("files", pictures), ("store", store)):
        code, out, err = satl("predict", tiny_run, source, "-o", tmp_path / f"{name}.csv")
        assert (code, err) == (0, "")
        assert "Wrote 60 images" in out
    files, packed = ((tmp_path / f"{name}.csv").read_text().splitlines() for name in ("files", "store"))
    assert sorted(packed) == sorted(files)
    satl("pack", pictures / "labels.csv", "--images", pictures, "--size", 16, "-o", tmp_path / "small")
    code, _, err = satl("predict", tiny_run, tmp_path / "small", "-o", tmp_path / "x.csv")
    assert code == 2
    assert "holds images of 16 pixels, and" in err
    assert "was trained on 32; pack them again with --size 32." in err
    code, _, err = satl("predict", tiny_run, store, pictures, "-o", tmp_path / "x.csv")
    assert code == 2
    assert "is a packed store; give it alone" in err


def test_inspecting_a_store_says_what_inspecting_its_folder_says(
    satl: Satl, pictures: Path, store: Path
) -> None:
    of_files, of_store = (
        satl("inspect", pictures / "labels.csv", "--images", place) for place in (pictures, store)
    )
    assert of_store == of_files
    assert "files      60 looked for: 0 missing, 0 unreadable, 0 groups of duplicates" in of_store.out


def test_inspecting_a_damaged_store_with_a_larger_table(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    satl("pack", pictures / "labels.csv", "--images", pictures, "--size", 16, "-o", tmp_path / "store")
    content = bytearray((tmp_path / "store" / PIXELS).read_bytes())
    content[20] ^= 1
    (tmp_path / "store" / PIXELS).write_bytes(content)
    header, first, *others = (pictures / "labels.csv").read_text().splitlines()
    one_more = first.replace("scene-00000", "scene-99999")
    (tmp_path / "labels.csv").write_text("\n".join([header, first, *others, one_more]) + "\n")
    code, out, _ = satl("inspect", tmp_path / "labels.csv", "--images", tmp_path / "store")
    assert code == 0
    assert "files      61 looked for: 1 missing, 1 unreadable" in out
    flat = " ".join(out.split())
    assert "such as 'scene-99999.png'" in flat
    assert (
        "1 image file cannot be decoded, such as 'scene-00000.png' (its checksum is wrong): replace them"
        in flat
    )


def test_where_the_files_themselves_are_needed_a_store_is_refused(
    satl: Satl, pictures: Path, store: Path, tmp_path: Path
) -> None:
    labels = pictures / "labels.csv"
    for command in (
        ("export", labels, "-f", "coco", "-o", tmp_path / "labels.json"),
        ("pack", labels, "--size", 16, "-o", tmp_path / "smaller"),
    ):
        code, out, err = satl(*command, "--images", store)
        assert (code, out) == (2, "")
        assert f"'{store}' is a packed store, and the image files themselves are needed here" in err
        assert "pass the folder that they were packed from" in err
    assert list(tmp_path.iterdir()) == []


def test_training_from_a_jpeg_store(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    labels = pictures / "labels.csv"
    satl("pack", labels, "--images", pictures, "--size", 32, "-o", tmp_path / "store")
    config = config_file(tmp_path / "config.yaml", labels, tmp_path / "store")
    for name, settings in (("memory", ()), ("packed", ("--set", "images.cache_gb=0"))):
        code, _, err = satl("train", config, "-o", tmp_path / name, "--quiet", *settings)
        assert (code, err) == (0, "")
    assert_same_run(tmp_path / "memory", tmp_path / "packed")
