"""``satl thresholds``: every rule by its name, from every kind of file, and one sentence for every mistake."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from satl.inference.recogniser import Recogniser
from satl.methods.method_parts import RULES
from satl.runs.data import load_data
from satl.thresholds import FixedThreshold, MetricThreshold, SemanticAwareThreshold
from satl.thresholds.application import apply_rule

Satl = Callable[..., tuple[int, str, str]]
PAGE = (Path(__file__).parents[2] / "docs" / "thresholds.md").read_text(encoding="utf-8")
CLASSES = ("cat", "dog", "bird")


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0)
    truth = np.where(noise.random((200, 3)) < [0.2, 0.4, 0.6], 1, -1).astype(np.int8)
    scores = np.clip(noise.normal(0.3, 0.15, (200, 3)) + 0.4 * (truth > 0), 0, 1).round(3)
    labels = np.where(noise.random((200, 3)) < 0.4, truth, 0).astype(np.int8)
    return {"scores": scores, "labels": labels, "truth": truth}


@pytest.fixture
def npz(tmp_path: Path, data: dict[str, np.ndarray]) -> Path:
    path = tmp_path / "scores.npz"
    spread = np.where(np.arange(200)[:, None] % 2 == 0, 0.01, 0.2) * np.ones((1, 3))
    np.savez(path, **data, names=np.array(CLASSES), encoding="signed", uncertainty=spread)
    return path


@pytest.fixture
def tables(tmp_path: Path, data: dict[str, np.ndarray]) -> tuple[Path, Path, Path]:
    """The same as three CSV files; the labels in another order of rows and columns, with one image more."""
    scores, labels, truth = tmp_path / "scores.csv", tmp_path / "labels.csv", tmp_path / "truth.csv"
    names = [f"{n:03d}.jpg" for n in range(200)]
    scores.write_text(
        "image,cat,dog,bird\n"
        + "".join(
            f"{name},{','.join(map(str, row))}\n" for name, row in zip(names, data["scores"], strict=True)
        )
    )
    words = {1: "yes", -1: "no", 0: ""}
    for path, cells in ((labels, data["labels"]), (truth, data["truth"])):
        lines = [
            f"{name},{','.join(words[v] for v in row[::-1])}"
            for name, row in zip(names, cells.tolist(), strict=True)
        ]
        path.write_text("\n".join(["image,bird,dog,cat", "extra.jpg,yes,no,", *lines[::-1]]) + "\n")
    return scores, labels, truth


def test_npz_and_tables_give_what_the_rule_gives(
    satl: Satl, npz: Path, tables: tuple[Path, Path, Path], data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    expected = apply_rule(
        MetricThreshold(3, beta=0.5),
        data["scores"].astype(np.float32),
        data["labels"],
        CLASSES,
        data["truth"],
    )
    scores, labels, truth = tables
    options = ("--rule", "mat", "--set", "beta=0.5")
    for source in (
        ("--scores", npz),
        ("--scores", scores, "--labels", labels, "--truth", truth),
    ):
        out = tmp_path / "thresholds.csv"
        code, text, err = satl("thresholds", *source, *options, "-o", out, "--force")
        assert (code, err) == (0, "")
        with out.open() as file:
            rows = list(csv.DictReader(file))
        assert [row["class"] for row in rows] == list(CLASSES)
        for row, wanted in zip(rows, expected, strict=True):
            assert row["rule"] == "mat"
            assert float(row["threshold"]) == wanted.threshold
            assert np.float32(row["threshold"]) == np.float32(wanted.threshold)
            for key in ("known_positives", "known_negatives", "unknown", "accepted"):
                assert int(row[key]) == getattr(wanted, key)
            for key in ("precision", "recall", "truth_precision", "truth_recall"):
                assert float(row[key]) == pytest.approx(getattr(wanted, key), abs=1e-6)
            assert f"{100 * wanted.truth_precision:.1f}" in text
        assert f"Accepted {sum(row.accepted for row in expected):,} of" in text
        assert f"Written: {out}" in text


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_can_be_applied(satl: Satl, npz: Path, rule: str) -> None:
    options = ("--updates", 3) if rule == "large-loss" else ()
    code, out, err = satl("thresholds", "--scores", npz, "--rule", rule, "--json", *options)
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["rule"] == rule
    assert [row["class"] for row in content["classes"]] == list(CLASSES)
    for row in content["classes"]:
        assert 0.0 <= row["threshold"] <= 1.0
        assert row["accepted"] <= row["unknown"]


def test_updates_and_parameters(satl: Satl, npz: Path, data: dict[str, np.ndarray]) -> None:
    def found(*options: object) -> list[float]:
        code, out, err = satl("thresholds", "--scores", npz, "--rule", "semantic", "--json", *options)
        assert (code, err) == (0, "")
        return [row["threshold"] for row in json.loads(out)["classes"]]

    def wanted(rate: float, updates: int | None) -> list[float]:
        rule = SemanticAwareThreshold(3, rate=rate)
        scores = data["scores"].astype(np.float32)
        return [row.threshold for row in apply_rule(rule, scores, data["labels"], CLASSES, updates=updates)]

    assert found() == wanted(0.3, None) == found("--set", "rate=0.1")
    assert found("--set", "method.thresholds.rate=0.3", "--updates", 2) == wanted(0.3, 2)
    share = float((data["labels"] != 0).mean())
    assert found("--updates", 1) == pytest.approx(wanted(0.3 + (share - 0.2) * 2 / 3, 1), abs=1e-6)


def test_uncertain_cells_are_not_accepted(satl: Satl, npz: Path, data: dict[str, np.ndarray]) -> None:
    options = ("--rule", "fixed", "--set", "confidence=0.5", "--json")
    _, everything, _ = satl("thresholds", "--scores", npz, *options)
    _, certain, _ = satl("thresholds", "--scores", npz, *options, "--max-uncertainty", 0.05)
    even = apply_rule(
        FixedThreshold(3, 0.5), data["scores"][::2].astype(np.float32), data["labels"][::2], CLASSES
    )
    accepted = [row["accepted"] for row in json.loads(certain)["classes"]]
    assert accepted == [row.accepted for row in even]
    assert sum(accepted) < sum(row["accepted"] for row in json.loads(everything)["classes"])


def test_a_column_that_is_no_class_is_left_out_by_the_option_that_the_error_names(
    satl: Satl, tables: tuple[Path, Path, Path], npz: Path
) -> None:
    scores, labels, _ = tables
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join([f"{lines[0]},age", *(f"{line},47" for line in lines[1:])]) + "\n")
    command = ("thresholds", "--scores", scores, "--labels", labels, "--rule", "mat")
    code, _, err = satl(*command)
    assert code == 2
    assert "--ignore-column age" in err
    code, out, err = satl(*command, "--ignore-column", "age")
    assert (code, err) == (0, "")
    assert "Accepted" in out
    code, _, err = satl("thresholds", "--scores", npz, "--rule", "mat", "--ignore-column", "age")
    assert (code, err) == (2, "error: --ignore-column age: belongs to --labels TABLE; leave it out.\n")


def test_scores_alone(satl: Satl, tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    path = tmp_path / "alone.npz"
    np.savez(path, scores=data["scores"])
    code, out, err = satl("thresholds", "--scores", path, "--rule", "fixed", "--set", "confidence=0.9")
    assert (code, err) == (0, "")
    assert "class 3" in out
    code, out, err = satl("thresholds", "--scores", path, "--rule", "fixed", "--set", "confidence=1")
    assert (code, err) == (0, "")  # a constant needs no labels, whatever it is
    code, out, err = satl("thresholds", "--scores", path, "--rule", "mat", "-o", tmp_path / "decide.csv")
    assert (code, out) == (2, "")
    assert "alone.npz: holds no known label, which rule 'mat' needs" in err
    assert "--labels" in err
    assert not (tmp_path / "decide.csv").exists()


def test_known_cells_without_a_positive_accept_nothing(satl: Satl, tmp_path: Path) -> None:
    path = tmp_path / "negatives.npz"
    np.savez(path, scores=np.full((4, 3), 0.5), labels=np.array([[-1] * 3] + [[0] * 3] * 3))
    code, out, err = satl("thresholds", "--scores", path, "--rule", "mat", "--encoding", "signed")
    assert (code, err) == (0, "")
    assert "Accepted 0 of 9 unknown cells, in 0 of 3 classes" in out
    assert "! 3 of 3 classes have threshold 1 and accept nothing" in out
    assert "nan" not in out


def test_many_silent_classes_are_not_all_named(satl: Satl, tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    np.savez(path, scores=np.full((2, 12), 0.5), labels=np.array([[-1] * 12, [0] * 12]))
    _, out, _ = satl("thresholds", "--scores", path, "--rule", "cap", "--encoding", "signed")
    assert "class 8 and 4 more." in out


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--rule", "matt"), ("--rule matt", "did you mean 'mat'")),
        (("--rule", "zzz"), ("known: linear, semantic",)),
        (
            ("--rule", "mat", "--set", "bta=2"),
            ("no key 'bta'", "did you mean 'beta'"),
        ),
        (("--rule", "mat", "--set", "zzz=2"), ("no key 'zzz'", "valid keys: bins, min_count, beta")),
        (("--rule", "mat", "--set", "beta"), ("--set beta", "name=value", "`satl methods --rules mat`")),
        (("--rule", "mat", "--set", "beta=-1"), ("--set for rule 'mat': beta", "greater than 0 (got -1)")),
        (("--rule", "mat", "--set", "beta=[1,"), ("--set beta=[1,", "not valid YAML")),
        (("--rule", "flexmatch", "--set", "confidence=0.3"), ("floor", "not be above confidence")),
        (("--rule", "large-loss"), ("grows with every update", "--updates")),
        (("--rule", "learned", "--updates", "3"), ("moved by training", "leave the option out")),
        (("--rule", "mat", "-o", "t.xlsx"), ("--out t.xlsx", ".csv")),
        (("--rule", "mat", "-o", "none/t.csv"), ("--out none/t.csv", "make it first")),
        (("--rule", "mat", "-o", "/proc/t.csv"), ("--out /proc/t.csv", "cannot be written", "another place")),
        (("--rule", "mat", "--labels", "labels.csv"), ("holds labels of its own", "leave out --labels")),
        (("--rule", "mat", "--truth", "labels.csv"), ("--truth labels.csv", "needs --labels")),
    ],
)
def test_wrong_options(satl: Satl, npz: Path, options: tuple[str, ...], parts: tuple[str, ...]) -> None:
    refused(satl, ("--scores", npz, *options), parts)


def refused(satl: Satl, options: tuple[object, ...], parts: tuple[str, ...]) -> None:
    code, out, err = satl("thresholds", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_wrong_files(satl: Satl, tables: tuple[Path, Path, Path], tmp_path: Path) -> None:
    scores, labels, _ = tables
    rule = ("--rule", "semantic", "-o", tmp_path / "t.csv")
    none = ("--max-uncertainty", "0.1")
    refused(satl, ("--scores", scores, "--labels", labels, *rule, *none), ("'uncertainty'", ".npz"))
    refused(satl, ("--scores", tmp_path / "scroes.csv", *rule), ("did you mean 'scores.csv'",))
    refused(satl, ("--scores", scores, "--labels", tmp_path / "l.csv", *rule), ("l.csv does not exist",))
    text = labels.read_text()
    labels.write_text(text.replace("bird", "bidr", 1))
    refused(satl, ("--scores", scores, "--labels", labels, *rule), ("no class 'bird'", "did you mean 'bidr'"))
    labels.write_text(text.replace("\n000.jpg", "\n0.jpg"))
    refused(satl, ("--scores", scores, "--labels", labels, *rule), ("no row for 1 of the 200", "'000.jpg'"))
    labels.write_text(re.sub(r"(?<=,)(yes|no|)(?=[,\n])", "1", text))
    refused(
        satl, ("--scores", scores, "--labels", labels, "--encoding", "zeros", *rule), ("zeros", "--encoding")
    )
    labels.write_text(re.sub(r",(?=[,\n])", ",0", text.replace("yes", "1").replace("no", "0")))
    refused(satl, ("--scores", scores, "--labels", labels, *rule), ("labels.csv", "--encoding signed"))
    scores.write_text(scores.read_text().replace("000.jpg,0.", "000.jpg,7."))
    refused(satl, ("--scores", scores, "--labels", labels, *rule), ("row 1", "'000.jpg'", "outside [0, 1]"))
    assert not (tmp_path / "t.csv").exists()


def test_no_file_is_overwritten_unasked_and_no_input_ever(
    satl: Satl, tables: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    scores, labels, truth = tables
    command = ("--scores", scores, "--labels", labels, "--truth", truth, "--rule", "mat")
    before = [file.read_text() for file in tables]
    for out in tables:
        for force in ((), ("--force",)):
            refused(satl, (*command, "-o", out, *force), (f"--out {out}", "belongs to the inputs and would"))
    assert [file.read_text() for file in tables] == before
    older = tmp_path / "older.csv"
    older.write_text("mine")
    refused(satl, (*command, "-o", older), (f"--out {older}", "exists already", "--force"))
    assert older.read_text() == "mine"
    assert satl("thresholds", *command, "-o", older, "--force")[0] == 0
    assert older.read_text().startswith("class,rule,threshold")
    refused(satl, (*command, "-o", older / "t.csv"), (f"{older} is a file, not a folder", "another place"))


def test_the_examples_of_the_page(satl: Satl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    blocks = re.findall(r"```console\n\$ satl (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 3
    for command, expected in blocks:
        code, out, err = satl(*shlex.split(command))
        assert (code, err) == (0, ""), command
        assert out.split() == expected.split(), command


def test_every_rule_has_a_row_on_the_page() -> None:
    for name in RULES:
        assert f"| `{name}` |" in PAGE, name


def test_a_run_gives_scores_and_labels_of_the_images_it_has_seen(
    satl: Satl, tiny_run: Path, tmp_path: Path
) -> None:
    cuts = tmp_path / "cuts.csv"
    code, out, err = satl("thresholds", "--scores", tiny_run, "--rule", "mat", "-o", cuts)
    assert (code, err) == (0, "")
    recogniser = Recogniser.load(tiny_run)
    seen = load_data(recogniser.config)
    rows = np.concatenate([seen.rows("train"), seen.rows("val")])  # not one test image
    assert f"{tiny_run}: {len(rows)} images, rule mat\n" in out
    probabilities = recogniser.probabilities(seen.source, rows)
    expected = apply_rule(
        MetricThreshold(24), probabilities, seen.table.cells[rows], recogniser.classes, seen.table.truth[rows]
    )
    with cuts.open(encoding="utf-8") as file:
        found = {row["class"]: float(row["threshold"]) for row in csv.DictReader(file)}
    assert found == {row.name: pytest.approx(row.threshold, abs=1e-6) for row in expected}
    run = shutil.copytree(tiny_run, tmp_path / "run")
    assert satl("evaluate", run, "--split", "val", "--thresholds", cuts)[0] == 0


def test_a_run_needs_no_labels_and_keeps_its_own_thresholds(
    satl: Satl, tiny_run: Path, tmp_path: Path
) -> None:
    own = tiny_run / "thresholds.csv"
    before = own.read_bytes()
    for more, part in (
        (("--labels", tmp_path / "t.csv"), "is a run and has labels of its own; leave it out"),
        (("-o", own, "--force"), "thresholds.csv"),
    ):
        code, out, err = satl("thresholds", "--scores", tiny_run, "--rule", "mat", *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert part in err
    assert own.read_bytes() == before
    code, _, err = satl("thresholds", "--scores", tmp_path, "--rule", "mat")
    assert (code, err.count("\n")) == (2, 1)
    assert "config.yaml" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("further", [(), ("--json",)])
def test_a_full_output_is_told(further: tuple[str, ...], npz: Path) -> None:
    command = [sys.executable, "-m", "satl", "thresholds", "--scores", str(npz), "--rule", "cap", *further]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        finished = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: the output cannot be written (No space left on device)")
    assert finished.stderr.count("\n") == 1


def test_a_limit_of_the_size_of_files_is_told_and_the_old_file_stays(npz: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    out.write_text("old")
    command = [sys.executable, "-m", "satl", "thresholds", "--scores", npz, "--rule", "cap", "-o", out]
    words = shlex.join(map(str, [*command, "--force"]))
    # Nothing may be written at all: not even a place for temporary files is found.
    finished = subprocess.run(
        ["bash", "-c", f"ulimit -f 0; exec {words}"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 2, finished.stderr
    assert finished.stderr.startswith("error: ")
    assert finished.stderr.count("\n") == 1
    assert "lift the limit" in finished.stderr or "choose another place" in finished.stderr
    assert out.read_text() == "old"
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
