"""What is shared of a run predicts the same, remembers no image, and goes where it should."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from harness.hub import Hub
from satl.errors import ConfigError, RunError
from satl.inference.recogniser import Recogniser
from satl.reports.sharing import push_run, shared_folder, without_folders
from satl.runs.data import load_data
from satl.runs.reading import make_config
from satl.runs.run_folder import RunFolder
from training.tiny import TINY, tiny_config, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the method that remembers most of its training images; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "a_run"
    train(folder, tiny_config("method.name=satl+", "training.epochs=3", "training.stage1_epochs=1"))
    return folder


def test_what_is_shared_predicts_the_same_and_remembers_no_image(run: Path, tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    with shared_folder(run) as shared:
        address = push_run(shared, "me/scenes", api=hub)
        sizes = shared.sizes
    assert not shared.path.exists()
    assert address == "https://huggingface.co/me/scenes"
    assert hub.private == {"me/scenes": True}
    place = tmp_path / "me" / "scenes"
    files = {file.relative_to(place).as_posix(): file for file in place.rglob("*") if file.is_file()}
    assert {name: file.stat().st_size for name, file in files.items()} == sizes
    model = {f"checkpoints/best/{name}" for name in ("checksums.json", "learner.safetensors")}
    assert set(files) == {"README.md", "config.yaml", "classes.json", "data.json", *model}

    data = load_data(RunFolder(run).read_config())
    here, there = Recogniser.load(run), Recogniser.load(place)
    assert np.array_equal(here.probabilities(data.source), there.probabilities(data.source))
    assert {name: value.tolist() for name, value in here.learner.thresholds().items()} == {
        name: value.tolist() for name, value in there.learner.thresholds().items()
    }
    own = load_file(run / "checkpoints" / "best" / "learner.safetensors")
    sent = load_file(files["checkpoints/best/learner.safetensors"])
    memories = ("generators.cross.rows", "generators.cross.written", "rules.cross.counts", "probe.logits")
    for name in memories:
        assert torch.count_nonzero(own[name]) > 0, name
        assert torch.count_nonzero(sent[name]) == 0, name
    everything = b"".join(file.read_bytes() for file in files.values())
    assert str(run.parent).encode() not in everything


def test_who_may_see_it_is_never_widened_in_silence(run: Path, tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.private = {"me/public": False, "me/private": True}
    with shared_folder(run) as shared:
        with pytest.raises(ConfigError, match="everybody can see it"):
            push_run(shared, "me/public", api=hub)
        assert not (tmp_path / "me").exists()
        push_run(shared, "me/public", public=True, api=hub)
        push_run(shared, "me/private", public=True, api=hub)
        assert hub.private["me/private"]
        with pytest.raises(ConfigError, match="OWNER/NAME"):
            push_run(shared, "https://huggingface.co/me/x", api=hub)

        class Refuses(Hub):
            def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
                raise PermissionError("403 Forbidden: no right to write\nRequest ID: 7")

        with pytest.raises(
            RunError, match=r"me/x: nothing was uploaded \(PermissionError: 403 Forbidden: no right"
        ):
            push_run(shared, "me/x", api=Refuses(tmp_path))


def test_a_card_of_ones_own_is_kept(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(run, mine)
    (mine / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    with shared_folder(mine) as shared:
        assert (shared.path / "README.md").read_text() == "---\nlicense: mit\n---\n# Mine\n"


def test_paths_are_only_names() -> None:
    data = {"table": "/home/alice/secret/labels.csv", "images": "/home/alice/photos"}
    model = {**TINY["model"], "weights": "/home/alice/w.safetensors", "word_vectors": "/home/alice/glove.txt"}
    content = without_folders(make_config({**TINY, "data": data, "model": model}, "here"))
    assert "alice" not in json.dumps(content)
    assert (content["data"]["table"], content["data"]["images"]) == ("labels.csv", "photos")
    assert make_config(content, "again").resolved() == content
