from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from satl.scenes import make_scenes

Satl = Callable[..., tuple[int, str, str]]


def test_a_run_with_thresholds_of_satl_thresholds(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    classes = json.loads((tiny_run / "classes.json").read_text())
    random = np.random.default_rng(0)
    cells = np.where(random.random((40, 24)) < 0.4, 1, -1)
    scores = np.clip(0.25 + 0.5 * (cells > 0) + random.normal(0, 0.05, cells.shape), 0, 1)
    cells[:, 3] = 0  # nothing is known of it: its threshold stays 1
    np.savez(tmp_path / "scores.npz", scores=scores, labels=cells, names=np.array(classes))
    thresholds = tmp_path / "thresholds.csv"
    chosen = satl(
        *("thresholds", "--scores", tmp_path / "scores.npz", "--rule", "mat", "--encoding", "signed"),
        *("-o", thresholds),
    )
    assert chosen[0] == 0, chosen
    out_file = tmp_path / "model.onnx"
    code, out, err = satl(
        "onnx", tiny_run, "-o", out_file, "--thresholds", thresholds, "--checkpoint", "last"
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:4] == [
        "Input   images         uint8 (N, 3, 32, 32)",
        "Output  probabilities  float32 (N, 24)",
        "Output  present        bool (N, 24)",
        "Thresholds: thresholds.csv",
    ]
    assert lines[4] == f"1 of 24 classes has no threshold and is never present: {classes[3]}"
    assert lines[5].startswith("Compared with torch: probabilities differ by ")
    assert float(lines[5].split(" by ")[1].split()[0]) < 1e-5
    assert lines[6:] == [f"Wrote 24 classes, {out_file.stat().st_size / 1e6:.1f} MB, to {out_file}"]

    pixels, _ = make_scenes(3, size=32, start=88)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    files = [tmp_path / f"{number}.png" for number in range(3)]
    assert satl("predict", tiny_run, *files, "-o", tmp_path / "p.csv", "--checkpoint", "last")[0] == 0
    with (tmp_path / "p.csv").open() as file:
        expected = np.array([float(row["probability"]) for row in csv.DictReader(file)]).reshape(3, 24)
    session = onnxruntime.InferenceSession(out_file)
    assert session.get_modelmeta().custom_metadata_map["checkpoint"] == "last"
    probabilities, present = session.run(None, {"images": pixels.transpose(0, 3, 1, 2)})
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=2e-6)
    with thresholds.open() as file:
        limits = np.array([np.float32(row["threshold"]) for row in csv.DictReader(file)])
    np.testing.assert_array_equal(present, probabilities > limits)


@pytest.mark.parametrize(
    ("options", "text", "part"),
    [
        (("--threshold", "0.3", "--thresholds", "mine.csv"), "", "give one of the two"),
        (
            ("--thresholds", "mine.csv"),
            "class,threshold\ncar,0.5\n",
            "mine.csv: 23 of the run's 24 classes have no threshold",
        ),
        (("--thresholds", "mine.csv"), "class,threshold\nrac,0.5\n", "mine.csv: row 1 is about class 'rac'"),
        (("--thresholds", "RUN"), "", "these are the thresholds of pseudo-labels"),
    ],
)
def test_mistakes_end_in_a_sentence(
    options: tuple[str, ...],
    text: str,
    part: str,
    satl: Satl,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(text)
    options = tuple(str(tiny_run / "thresholds.csv") if word == "RUN" else word for word in options)
    code, out, err = satl("onnx", tiny_run, "-o", "model.onnx", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert part in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_file_that_exists_is_replaced_only_with_force(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "model.onnx"
    out_file.write_text("precious")
    code, out, err = satl("onnx", tiny_run, "-o", out_file)
    assert (code, out) == (2, "")
    said = f"error: --out {out_file}: exists already; give another name, or pass --force to overwrite it."
    assert " ".join(err.split()) == said
    assert out_file.read_text() == "precious"
    assert satl("onnx", tiny_run, "-o", out_file, "--force")[0] == 0
    assert onnxruntime.InferenceSession(out_file).get_modelmeta().producer_name == "satl"


def test_without_the_extra(
    satl: Satl, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, err = satl("onnx", tiny_run, "-o", tmp_path / "model.onnx")
    assert (code, out) == (2, "")
    assert "pip install 'satl[onnx]'" in err
    assert not list(tmp_path.iterdir())


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, satl.cli.onnx, satl.inference.onnx_file, satl.inference.decision_thresholds\n"
        "print(*(name for name in ('torch', 'onnx', 'onnxruntime', 'onnxscript', 'timm') if name in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_help(satl: Satl) -> None:
    code, out, err = satl("onnx", "-h")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for word in ("--thresholds", "--threshold", "--checkpoint", "[default: (0.5 for every class)"):
        assert word in words
