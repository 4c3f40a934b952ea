from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from satl.cli import add_commands
from satl.cli.labels import ENCODING_HELP
from satl.errors import EncodingError, ImageError, SatlError, TableError
from satl.labels import ENCODINGS, LabelTable, mask_table, read_table, write_table


def run(*arguments: object) -> Result:
    app = typer.Typer()
    add_commands(app, "inspect", "mask", "convert")
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.exception
    return str(result.stdout)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    path.write_text("image,split,cat,[dog]\na.jpg,train,1,\nb.jpg,train,0,1\nc.jpg,train,,\nd.jpg,val,0,0\n")
    return path


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    cells = np.where(np.random.RandomState(1).random_sample((60, 5)) < 0.3, 1, -1)
    path = tmp_path / "complete.csv"
    write_table(
        LabelTable(tuple(f"{i}.jpg" for i in range(60)), tuple("abcde"), cells, encoding="signed"),
        path,
        "complete",
    )
    return path


def test_inspect_shows_the_table(pets: Path) -> None:
    text = good("inspect", pets)
    for part in (
        "encoding   blank, found from the values: 1 present, 0 absent, blank unknown",
        "values     blank in 3 cells, 0 in 3 cells, 1 in 2 cells",
        "size       4 images, 2 classes (train 3, val 1)",
        "known      50.0% of 6 cells of the train images: 2 present, 1 absent, 3 unknown",
        "[dog]",
        "few positives, no negatives",
        "1 image (33.3%) has no known label, such as 'c.jpg'",
    ):
        assert part in text
    table_lines = [line for line in text.splitlines() if line.startswith(("cat", "[dog]", "class"))]
    assert max(map(len, table_lines)) <= 80


def test_inspect_limits_the_classes_and_shows_the_thinnest_first(tmp_path: Path) -> None:
    cells = np.zeros((300, 200), dtype=int)
    for position in range(200):
        cells[: position + 1, position] = 1
        cells[position + 1 :, position] = -1
    cells[0] = 0
    table = LabelTable(
        tuple(map(str, range(300))),
        tuple(f"class number {i:03d}" for i in range(200)),
        cells,
        encoding="signed",
    )
    write_table(table, tmp_path / "t.csv")
    text = good("inspect", tmp_path / "t.csv")
    shown = [line.split()[2] for line in text.splitlines() if line.startswith("class number")]
    assert shown[:3] == ["000", "001", "002"]
    assert len(shown) == 20
    assert "... and 180 more, better known: --all shows every class." in text
    assert good("inspect", tmp_path / "t.csv", "--all").count("class number") == 200


def test_inspect_as_json(pets: Path) -> None:
    data = json.loads(good("inspect", pets, "--json"))
    assert data["num_images"] == 4
    assert [c["name"] for c in data["classes"]] == ["cat", "[dog]"]
    assert data["unlabelled"] == ["c.jpg"]
    assert data["classes"][0]["thin"] is True
    assert data["files"] is None


def test_inspect_with_images(pets: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (20, 20), "red").save(folder / name)
    (folder / "c.jpg").write_bytes((folder / "a.jpg").read_bytes()[:200])
    text = good("inspect", pets, "--images", folder)
    assert "files      4 looked for: 1 missing, 1 unreadable, 1 group of duplicates" in text
    flat = " ".join(text.split())
    assert "such as 'd.jpg'" in flat
    assert "cannot be decoded, such as 'c.jpg'" in flat
    data = json.loads(good("inspect", pets, "--images", folder, "--json"))
    assert data["files"]["missing"] == ["d.jpg"]
    assert "--all lists every missing and every unreadable file" in text


def test_inspect_lists_every_broken_file_with_its_row(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    names = [f"deep/{number:02d} [a].jpg" for number in range(40)]
    for name in names[10:20]:
        Image.new("RGB", (20, 20), "red").save(folder / name)
    for name in names[20:]:
        (folder / name).write_bytes(b"no image")
    path = tmp_path / "t.csv"
    path.write_text("image,cat\n" + "".join(f"{name},{'01'[len(name) % 2]}\n" for name in names))
    text = good("inspect", path, "--encoding", "complete", "--images", folder, "--all")
    lines = text.splitlines()
    listed = [line for line in lines if line.startswith("row ")]
    assert listed == [
        *(f"row {number + 1}  {names[number]}" for number in range(10)),
        *(
            f"row {number + 1}  {names[number]} (not an image in a format that can be read)"
            for number in range(20, 40)
        ),
    ]
    assert lines.index(f"missing in {folder}") < lines.index(f"unreadable in {folder}")
    assert "--all lists" not in text
    assert "row 1 " not in good("inspect", path, "--encoding", "complete", "--images", folder)


def test_inspect_with_truth(pets: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text("image,cat,[dog]\na.jpg,yes,no\nb.jpg,yes,yes\n")
    assert "truth      4 cells, 1 contradicted" in good("inspect", pets, "--truth", truth)


def test_inspect_with_nothing_to_say(tmp_path: Path) -> None:
    cells = np.where(np.arange(1300)[:, None] < 100, 1, -1)
    path = tmp_path / "t.npz"
    write_table(LabelTable(tuple(map(str, range(1300))), ("cat",), cells, encoding="signed"), path)
    assert "No problem found." in good("inspect", path)


def test_ambiguous_until_the_encoding_is_named(complete: Path) -> None:
    for command in (("inspect", complete), ("mask", complete, "--proportion", 0.5)):
        result = run(*command)
        assert isinstance(result.exception, EncodingError)
        assert "encoding='complete'" in str(result.exception)
        assert "encoding='signed'" in str(result.exception)
        assert run(*command, "--encoding", "complete").exit_code == 0
    assert "as given" in good("inspect", complete, "--encoding", "complete")


@pytest.mark.parametrize("extension", ["csv", "parquet", "jsonl", "npz", "json"])
def test_mask_writes_table_and_truth(complete: Path, tmp_path: Path, extension: str) -> None:
    out = tmp_path / "out" / f"masked.{extension}"
    text = good("mask", complete, "--encoding", "complete", "--proportion", 0.1, "--seed", 3, "-o", out)
    source = read_table(complete, "complete")
    truth = None if extension == "npz" else out.with_name(f"masked.truth.{extension}")
    assert read_table(out, truth=truth) == mask_table(source, 0.1, 3)
    assert str(out) in text
    assert f"{int(read_table(out).known.sum())} of 300 known labels stay" in text
    # The command that is offered works as it stands.
    offered = text.split("satl inspect ")[1].split()
    assert "truth      300 cells, 0 contradicted" in good("inspect", *offered)


def test_mask_has_a_default_place_and_masks_are_nested(complete: Path) -> None:
    known = []
    for proportion in ("0.1", "0.50"):
        good("mask", complete, "--encoding", "complete", "--proportion", proportion, "--seed", "2")
        path = complete.with_name(f"complete.known-{float(proportion):g}-seed-2.csv")
        known.append(read_table(path).known)
    assert not (known[0] & ~known[1]).any()


def test_a_command_to_copy_is_fit_for_a_shell(complete: Path, tmp_path: Path) -> None:
    out = tmp_path / "my tables" / "m.csv"
    text = good("mask", complete, "--encoding", "complete", "--proportion", 0.1, "-o", out)
    command = shlex.split(text.split("Look at it: satl ")[1])
    assert command == ["inspect", str(out), "--truth", str(out.with_name("m.truth.csv"))]


def test_names_in_json_survive_any_terminal(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("image,Möwe\na.jpg,1\nb.jpg,\n", encoding="utf-8")
    text = good("inspect", table, "--json")
    assert text.isascii()
    assert "Möwe" in str(json.loads(text))


def test_a_large_picture_is_read_without_a_word(tmp_path: Path) -> None:
    Image.new("1", (9500, 9500)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("image,cat\na.png,1\nb.png,\n")
    command = [sys.executable, "-m", "satl", "inspect", tmp_path / "t.csv", "--images", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 missing, 0 unreadable" in done.stdout
    assert "Warning" not in done.stderr


def test_mask_touches_the_train_rows_only(pets: Path, tmp_path: Path) -> None:
    text = good("mask", pets, "--proportion", 0.01, "-o", tmp_path / "m.csv")
    # Of the train images alone: what is known of the others stays by itself.
    assert "Masked the train images with proportion 0.01 and seed 0: 0 of 3 known labels stay." in text
    assert read_table(tmp_path / "m.csv").cells[3].tolist() == [-1, -1]


@pytest.mark.parametrize("proportion", ["0", "1.5", "-1", "nan"])
def test_mask_refuses_bad_proportions_and_writes_nothing(pets: Path, tmp_path: Path, proportion: str) -> None:
    result = run("mask", pets, f"--proportion={proportion}", "-o", tmp_path / "m.csv")
    assert isinstance(result.exception, SatlError)
    assert "must be above 0 and at most 1" in str(result.exception)
    assert list(tmp_path.iterdir()) == [pets]


def test_mask_asks_before_it_overwrites(pets: Path, tmp_path: Path) -> None:
    out, truth = tmp_path / "m.csv", tmp_path / "m.truth.csv"
    for precious in (out, truth):
        precious.write_text("precious")
        result = run("mask", pets, "--proportion", 0.5, "-o", out)
        assert isinstance(result.exception, TableError)
        assert f"{precious}: exists already; choose another name, or pass force=True" in str(result.exception)
        assert sorted(tmp_path.iterdir()) == sorted([pets, precious])
        assert precious.read_text() == "precious"
        precious.unlink()
    out.write_text("precious")
    good("mask", pets, "--proportion", 0.5, "-o", out, "--force")
    good("mask", pets, "--proportion", 1, "-o", out, "--force")
    assert read_table(out, truth=truth).cells.tolist() == read_table(pets).cells.tolist()


def test_mask_never_overwrites_its_source(pets: Path, tmp_path: Path) -> None:
    before = pets.read_bytes()
    result = run("mask", pets, "--proportion", 0.5, "-o", pets, "--force")
    assert isinstance(result.exception, TableError)
    assert "belongs to the inputs of this command" in str(result.exception)
    truth = pets.rename(tmp_path / "m.truth.csv")
    assert isinstance(run("mask", truth, "--proportion", 0.5, "-o", tmp_path / "m.csv").exception, TableError)
    assert truth.read_bytes() == before
    assert list(tmp_path.iterdir()) == [truth]


@pytest.mark.parametrize(
    ("arguments", "kind", "part"),
    [
        (("inspect", "nothing.csv"), TableError, "nothing.csv does not exist"),
        (("inspect", "{pets}", "--images", "nowhere"), ImageError, "nowhere': is not a folder"),
        (("inspect", "{pets}", "--encoding", "blnk"), EncodingError, "did you mean 'blank'?"),
        (("mask", "{pets}", "--proportion", "0.5", "-o", "out.ods"), TableError, "satl writes"),
        (
            ("mask", "{pets}", "--proportion", "0.5", "--seed", "-1", "-o", "{pets}.csv"),
            SatlError,
            "seed=-1: must lie",
        ),
    ],
)
def test_refused(pets: Path, arguments: tuple[str, ...], kind: type[SatlError], part: str) -> None:
    result = run(*(argument.format(pets=pets) for argument in arguments))
    assert isinstance(result.exception, kind)
    assert part in str(result.exception)
    assert list(pets.parent.iterdir()) == [pets]


def test_help_names_every_encoding_and_loads_nothing_heavy() -> None:
    assert all(name in ENCODING_HELP for name in ENCODINGS)
    code = (
        "import sys, satl.cli.labels; "
        "print([m for m in ('numpy', 'torch', 'pyarrow', 'PIL', 'satl.labels') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_room_does_not_load_torch_or_pyarrow() -> None:
    code = "import sys, satl.labels; print([m for m in ('torch', 'pyarrow', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
