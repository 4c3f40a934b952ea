"""Files of a run folder that somebody damaged or made up end in a sentence."""

from __future__ import annotations

import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzz.targets.registry import CORPUS
from fuzz.targets.run_targets import parts
from satl.errors import ConfigError, RunError
from satl.runs.checkpoint_folders import DamagedError, require_whole
from satl.runs.reading import apply_overrides, override_config, read_config
from satl.runs.run_folder import RunFolder

HOSTILE = {
    "digits": "training: {epochs: " + "9" * 5000 + "}",
    "brackets": "[" * 5000,
    "date": "training: {epochs: 2020-13-45}",
    "itself": "&a [*a, {? *a : 1}]",
    "bytes": "\udcff",
    "control": "\x00",
    "tag": "!!python/object/apply:os.system [id]",
    "key": "{[1]: 2}",
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_configuration_that_cannot_be_one(case: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(HOSTILE[case].encode("utf-8", "surrogateescape"))
    with pytest.raises(RunError, match=r"config\.yaml: cannot be read; restore it"):
        RunFolder.open(tmp_path).read_config()


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_configuration_of_ones_own_that_cannot_be_one(case: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_bytes(HOSTILE[case].encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"own\.yaml: is not valid YAML.*; fix the file\."):
        read_config(tmp_path / "own.yaml")


@pytest.mark.parametrize("key", ["data.images", "data.table", "model.text_model"])
@pytest.mark.parametrize("path", ["./a\\0b", "~nobody at all/pictures"])
def test_a_path_that_is_none(key: str, path: str, tmp_path: Path) -> None:
    section, name = key.split(".")
    (tmp_path / "own.yaml").write_text(f'{section}: {{{name}: "{path}"}}')
    with pytest.raises(ConfigError, match=rf"{key}: is no path \(.+\); fix this value\."):
        read_config(tmp_path / "own.yaml")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000, "2020-13-45", "{[1]: 2}"])
def test_a_setting_that_cannot_be_one(value: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        apply_overrides({}, [f"training.epochs={value}"])


@pytest.mark.parametrize(
    "line",
    ["[]", "3", "{}", '{"epoch": "one"}', '{"epoch": null}', "[" * 100_000, '{"epoch": ' + "9" * 5000 + "}"],
)
def test_metrics_that_cannot_be_any(line: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"epoch": 0}}\n{line}\n{{"epoch": 2}}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be read; restore it"):
        RunFolder(tmp_path).read_metrics()


@pytest.mark.parametrize("tail", [b'{"epo', b"\xff\xfe\x00", b"\0\0\0\0"])
def test_a_last_line_that_was_cut_off_is_left_out(tail: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"epoch": 0}\n' + tail)
    assert RunFolder(tmp_path).read_metrics() == [{"epoch": 0}]


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("images.size=1000000", "16384"),
        ("images.store_size=1000000", "16384"),
        ("model.feature_dim=1000000000", "65536"),
        ("model.attention_dim=1000000000", "65536"),
        ("model.embedding_dim=1000000000", "65536"),
        ("model.pair_dim=1000000000", "65536"),
        ("model.pair_hidden=1000000000", "65536"),
        ("training.epochs=1e9", "1000000"),
        ("training.batch_size=1e9", "1000000"),
        ("training.seed=99999999999999999999", "9223372036854775808"),
        ("images.workers=100000", "1024"),
    ],
)
def test_a_setting_that_asks_for_too_much_is_refused_with_the_limit(setting: str, limit: str) -> None:
    content = {"data": {"table": "t.csv", "images": "."}}
    with pytest.raises(
        ConfigError, match=rf"{setting.partition('=')[0]}: input should be less than .*{limit}"
    ):
        override_config(content, [setting], "settings")


def test_a_configuration_that_names_itself_a_million_times(tmp_path: Path) -> None:
    names = "abcdefghij"
    anchors = "".join(f", &{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in pairwise(names))
    (tmp_path / "own.yaml").write_text(f"data: {{table: [&a [x, y]{anchors}]}}")
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as raised:
            read_config(tmp_path / "own.yaml")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b", "../x", "a/b"])
def test_checksums_of_names_that_are_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "checksums.json").write_text(f'{{"{name}": 3}}')
    with pytest.raises(DamagedError, match=r"checksums\.json: cannot be read"):
        require_whole(tmp_path)


@pytest.mark.parametrize("value", ["Infinity", "null", '"a"', "[]", "9" * 5000])
def test_facts_about_features_that_are_none(value: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(f'{{"features": {{"dim": {value}, "views": 1}}}}')
    with pytest.raises(RunError, match=r"data\.json: cannot be read"):
        RunFolder(tmp_path).read_features()


CHANGES: dict[str, Any] = {
    "an epoch that is no number": {"epoch": "one"},
    "an epoch below 0": {"epoch": -1},
    "a step that is no number": {"step": None},
    "no best epoch": {"best": None},
    "a best epoch without a score": {"best": {"epoch": 1}},
    "a best epoch that is no number": {"best": {"epoch": "1", "mAP": 0.5}},
    "no sums": {"tally": []},
    "no random state": {"random": [None]},
    "random states of other kinds": {
        "random": [{"torch": torch.zeros(3), "cuda": [], "python": 1, "numpy": 2}]
    },
    "no optimiser": {"optimiser": {}},
    "another schedule": {"schedule": 3},
    "other buffers": {"local": [[{"a": torch.zeros(2)}]]},
}


@pytest.mark.parametrize("case", list(CHANGES))
def test_a_training_state_that_cannot_be_one(case: str, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "saved", tmp_path, dirs_exist_ok=True)
    saver, tally = parts(tmp_path)
    assert saver.load_last(tally)[:2] == (1, 0)
    file = tmp_path / "checkpoints" / "last" / "training.pt"
    torch.save({**torch.load(file, weights_only=True), **CHANGES[case]}, file)
    with pytest.raises(
        DamagedError, match=r"training\.pt: does not hold the state of a training of this run"
    ):
        saver.load_last(tally)
