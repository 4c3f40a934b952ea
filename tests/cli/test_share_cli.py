"""satl card and satl push as a user runs them; the Hub is a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import yaml

from harness.hub import Hub
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.scenes import write_scenes
from training.tiny import TINY

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def completed(satl: Satl, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run with held-out cells, and the completion with it."""
    folder = tmp_path_factory.mktemp("shared")
    content = {
        **TINY,
        "data": {"scenes": {**TINY["data"]["scenes"], "train": 400}, "proportion": 0.6, "holdout": True},
        "training": {**TINY["training"], "epochs": 2, "stage1_epochs": 1},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    assert satl("train", folder / "run.yaml", "--out", folder / "run", "--quiet")[0] == 0
    assert satl("complete", folder / "run", "-o", folder / "done")[0] == 0
    return folder / "run", folder / "done"


def test_a_card_with_certificates(satl: Satl, completed: tuple[Path, Path], tmp_path: Path) -> None:
    run, done = completed
    file = tmp_path / "card.md"
    code, out, err = satl("card", run, "--completed", done, "-o", file)
    assert (code, out, err) == (0, f"Wrote {file}; choose a licence in its first lines.\n", "")
    card = file.read_text()
    report = CompletedFolder.open(done).read_report()
    assert report["statement"] in card
    for entry in report["classes"]:
        for side in ("present", "absent"):
            limit = f"{entry[side]['threshold']:.4f}" if entry[side]["certified"] else "none"
            tested = f"{entry[side]['held_out']} | {entry[side]['errors']} |"
            assert f"| {entry['name']} | {side} | {limit} | {tested}" in card
    assert "Nothing is promised" not in card
    assert satl("card", run, "-o", file)[0] == 2
    assert file.read_text() == card
    assert satl("card", run, "-o", file, "--force")[0] == 0
    assert satl("card", run)[1] == file.read_text() != card


def test_a_completion_of_something_else_is_refused(
    satl: Satl, completed: tuple[Path, Path], tmp_path: Path
) -> None:
    run, done = completed
    code, _, err = satl("card", run, "--completed", tmp_path)
    assert code == 2
    assert "is not the folder of a completion" in err
    assert satl("card", done)[0] == 2


def test_nothing_is_sent_without_yes(
    satl: Satl, completed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    code, out, _ = satl("push", completed[0], "me/scenes")
    assert code == 0
    assert hub.private == {}
    assert "Nothing was sent" in out
    listed = {line.split()[1]: int(line.split()[0].replace(",", "")) for line in out.splitlines()[:-2]}

    code, out, _ = satl("push", completed[0], "me/scenes", "--yes")
    assert code == 0
    assert out.endswith("Uploaded to https://huggingface.co/me/scenes\n")
    place = tmp_path / "me" / "scenes"
    sent = {file.relative_to(place).as_posix(): file for file in place.rglob("*") if file.is_file()}
    assert {name: file.stat().st_size for name, file in sent.items()} == listed

    write_scenes(tmp_path / "photos", 3, size=32)
    for name, folder in (("here", completed[0]), ("there", place)):
        assert satl("predict", folder, tmp_path / "photos", "-o", tmp_path / f"{name}.csv")[0] == 0
    assert (tmp_path / "here.csv").read_text() == (tmp_path / "there.csv").read_text()

    code, _, err = satl("push", completed[0], "scenes", "--yes")
    assert code == 2
    assert "write OWNER/NAME" in err
