"""One ONNX file decides as the run does, explains itself, and is not there at all where it would not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

from satl import __version__
from satl.errors import ConfigError, RunError, SatlError
from satl.images import ArrayImages, EvalTransform
from satl.inference import onnx_file, onnx_graph
from satl.inference.decision_thresholds import DecisionThresholds, same_threshold
from satl.inference.onnx_file import OnnxFile, write_onnx
from satl.inference.onnx_graph import DecisionModel, Resize, plain_attention
from satl.inference.prediction import predict_files
from satl.inference.recogniser import Recogniser
from satl.inference.threshold_files import read_thresholds
from satl.models.functional import semantic_attention
from satl.runs.run_folder import RunFolder
from satl.scenes import make_scenes
from satl.training.build import build_learner, build_transform
from satl.training.checkpoints import AVERAGE, LEARNER, module_content, save_module
from training.tiny import tiny_config

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
CLASSES = ("half", "withheld", "sure but none", "sure", "猫, cat", "dog", "boat")
SIZE = 96
BYTES = ("data.scenes.size=96", "images.size=80", "images.crop_sizes=[96, 80]")  # resized as bytes


def half(count: int) -> DecisionThresholds:
    return same_threshold(0.5, count)


def drawn(count: int, size: int, seed: int = 0) -> np.ndarray:
    """Scenes (N, 3, S, S)."""
    return np.ascontiguousarray(make_scenes(count, size=size, start=seed)[0].transpose(0, 3, 1, 2))


def unsettle(network: nn.Module, seed: int) -> None:
    """Give the weights and statistics of an untrained network values as a trained one may have."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2, generator=generator)
                module.running_var.uniform_(0.5, 1.5, generator=generator)
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * parameter.std(correction=0) * noise)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder without a training: other weights than their average, and classes of known probability."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    config = tiny_config("method.name=sst", *BYTES)
    folder.checkpoints.mkdir(parents=True)
    folder.config.write_text(yaml.safe_dump(config.resolved()), encoding="utf-8")
    folder.write_facts(CLASSES, "digest", {})
    torch.manual_seed(0)
    learner = build_learner(config, CLASSES, np.eye(7, dtype=np.int8))
    with folder.new_checkpoint("best") as place:
        unsettle(learner.network, 1)
        save_module(module_content(learner), place / LEARNER)
        unsettle(learner.network, 2)
        last = learner.network.class_head.classifier
        with torch.no_grad():
            last.weight[:4] = 0
            last.weight[4:] *= 4
            last.bias[:4] = torch.tensor([0.0, 0.0, 30.0, 30.0])  # 1/2 twice, 1 twice, exactly
        save_module(module_content(learner.network), place / AVERAGE)
    return folder.path


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``satl complete`` could have written about these classes."""
    path = tmp_path_factory.mktemp("completed") / "thresholds.csv"
    present = ("0.5,0.95", "0.1,", ",", "1.0,0.95", "0.4,0.95", "0.55,0.95", "0.500001,0.95")
    lines = ["class,direction,threshold,precision_lower_bound"]
    for name, cells in zip(CLASSES, present, strict=True):
        lines += [f'"{name}",present,{cells}', f'"{name}",absent,0.01,0.95']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def written(run: Path, certified: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxFile:
    """The run as a file; exporting takes seconds, so it is done once."""
    target = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return write_onnx(run, target, lambda classes: read_thresholds(certified, classes))


@pytest.fixture(scope="module")
def session(written: OnnxFile) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(written.path, providers=["CPUExecutionProvider"])


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch, written: OnnxFile) -> Callable[[Callable[[Any], None]], None]:
    """Return a function that lets the exporter answer with the graph of ``written``, changed by a function."""

    def prepare(change: Callable[[Any], None]) -> None:
        model = onnx.load(written.path)
        del model.metadata_props[:]
        change(model)
        monkeypatch.setattr(onnx_graph, "onnx_graph", lambda module, images: model)

    return prepare


def test_the_same_probabilities_as_the_run(run: Path, session: onnxruntime.InferenceSession) -> None:
    recogniser = Recogniser.load(run)
    images = np.concatenate(
        [drawn(5, SIZE), np.random.default_rng(0).integers(0, 256, (3, 3, SIZE, SIZE), np.uint8)]
    )
    expected = recogniser.probabilities(ArrayImages.from_channels_first(images))
    assert expected[:, 4:].std(axis=0).min() > 2e-3  # images matter
    other = Recogniser.load(run, averaged=False).probabilities(ArrayImages.from_channels_first(images))
    assert np.abs(expected - other).max() > 0.1  # and so does which weights are used
    for batch in (images[:1], images[:5], images):
        probabilities, _ = session.run(None, {"images": batch})
        assert (probabilities.dtype, probabilities.shape) == (np.float32, (len(batch), 7))
        np.testing.assert_allclose(probabilities, expected[: len(batch)], rtol=0, atol=2e-6)


def test_thresholds_inside_decide(session: onnxruntime.InferenceSession) -> None:
    probabilities, present = session.run(["probabilities", "present"], {"images": drawn(40, SIZE)})
    assert present.dtype == np.bool_
    assert (probabilities[:, :2] == 0.5).all()
    assert (probabilities[:, 2:4] == 1).all()
    assert present[:, 0].all()  # equal to its threshold
    assert not present[:, 1:3].any()  # withheld, none
    assert present[:, 3].all()  # 1 is at least 1
    for column, threshold in ((4, 0.4), (5, 0.55), (6, 0.500001)):
        np.testing.assert_array_equal(present[:, column], probabilities[:, column].astype(float) >= threshold)
    assert 0 < present[:, 4:].mean() < 1


def test_what_was_written(written: OnnxFile, run: Path) -> None:
    assert written.classes == CLASSES
    assert (written.input_name, written.input_kind) == ("images", "uint8 (N, 3, 96, 96)")
    assert 0 <= written.difference < 1e-5
    assert written.thresholds.never.tolist() == [False, True, True, *[False] * 4]
    assert written.megabytes == written.path.stat().st_size / 1e6
    assert [path.name for path in written.path.parent.iterdir()] == ["model.onnx"]


def test_one_file_of_plain_operators_that_says_what_it_is(written: OnnxFile, run: Path) -> None:
    model = onnx.load(written.path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} | {opset.domain for opset in model.opset_import} == {""}
    assert not model.functions
    (images,) = model.graph.input
    assert images.name == "images"
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    shape = images.type.tensor_type.shape.dim
    assert (shape[0].dim_param, [dim.dim_value for dim in shape[1:]]) == ("N", [3, 96, 96])
    outputs = {output.name: output.type.tensor_type for output in model.graph.output}
    assert list(outputs) == ["probabilities", "present"]
    assert [kind.elem_type for kind in outputs.values()] == [onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL]
    for kind in outputs.values():
        assert (kind.shape.dim[0].dim_param, kind.shape.dim[1].dim_value) == ("N", 7)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_array_equal(stored["thresholds"].ravel(), written.thresholds.values)
    assert not any("pair_head" in name for name in stored)
    # Nothing about the machine that it was made on.
    content = written.path.read_bytes()
    for word in (str(run.parent), "site-packages", "stack_trace", ".py"):
        assert word.encode() not in content, word


def test_metadata(written: OnnxFile, session: onnxruntime.InferenceSession) -> None:
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(CLASSES)
    thresholds = json.loads(about["thresholds"])
    assert thresholds[:4] == [0.5, None, None, 1.0]
    assert thresholds[4:] == pytest.approx([0.4, 0.55, 0.500001], abs=1e-7)
    # Who compares with them in 64 bits decides as the file does, where a probability is equal to one as well.
    assert thresholds[4:] == [float(value) for value in written.thresholds.values[4:]]
    assert (about["image_size"], about["network_size"]) == ("96", "80")
    assert json.loads(about["mean"]) == [0.485, 0.456, 0.406]
    assert json.loads(about["std"]) == [0.229, 0.224, 0.225]
    assert "96 x 96 with Pillow's BICUBIC" in about["preprocessing"]
    assert "resizes it to 80 x 80" in about["preprocessing"]
    assert (about["method"], about["backbone"], about["checkpoint"]) == ("sst", "resnet18", "best")
    assert about["satl_version"] == __version__
    assert about["thresholds_from"] == "thresholds.csv"
    for key in about:
        assert f"`{key}`" in PAGE, key


def test_the_example_of_the_page_is_satl_predict(written: OnnxFile, run: Path, tmp_path: Path) -> None:
    (example,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "onnxruntime" in one)
    assert not re.search(r"^\s*(import|from) (satl|torch)", example, re.MULTILINE)
    (tmp_path / "model.onnx").write_bytes(written.path.read_bytes())
    large, small = make_scenes(2, size=512)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    # Four times too large, so that it is decoded smaller; and a wide one in grey, larger than the square.
    Image.fromarray(large).resize((1200, 900)).save(tmp_path / "a.jpg", exif=exif)
    Image.fromarray(small).resize((300, 150)).convert("L").save(tmp_path / "b.jpg")
    code = example + "\nnp.savez('out.npz', images=images, probabilities=probabilities, present=present)\n"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    out = np.load(tmp_path / "out.npz")
    classes, expected = predict_files(run, [tmp_path / "a.jpg", tmp_path / "b.jpg"])
    np.testing.assert_allclose(out["probabilities"], expected, rtol=0, atol=2e-6)
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    shown = [str([name for name, there in zip(classes, row, strict=True) if there]) for row in out["present"]]
    assert result.stdout.splitlines() == shown


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("sizes", [(96, 80), (100, 130), (512, 96), (32, 28), (40, 64)])
def test_the_resize_is_that_of_the_transform(sizes: tuple[int, int], interpolation: Any) -> None:
    source, size = sizes
    images = torch.randint(0, 256, (3, 3, source, source), dtype=torch.uint8)
    images[0] = (images[0] > 127) * 255  # sharp edges: values beyond the range are cut off
    plain = EvalTransform(size, mean=(0, 0, 0), std=(1 / 255,) * 3, interpolation=interpolation)
    ours, expected = Resize(source, size, interpolation)(images.float()), plain(images)
    assert ours.dtype == torch.float32
    if source * size > 6400:
        torch.testing.assert_close(ours, expected.round(), rtol=0, atol=0)
    else:
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-3)


def test_sums_of_the_resize_are_exact() -> None:
    for source, size, dtype in ((512, 448, torch.float32), (512, 96, torch.float64)):
        matrix = Resize(source, size).matrix
        assert matrix.dtype == dtype
        largest = 255 * matrix.double().abs().sum(dim=1).max()
        assert (largest < 2**24) == (dtype == torch.float32)


def test_the_attention_written_plainly_in_parts() -> None:
    inputs = torch.randn(2, 9, 4), torch.randn(5, 4), torch.randn(4)
    for limit in (None, 1, 80):
        torch.testing.assert_close(
            plain_attention(*inputs, limit), semantic_attention(*inputs), rtol=0, atol=1e-6
        )


slow = pytest.mark.slow
LARGER = ("images.size=64", "data.scenes.size=64")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ml-gcn", ("data.scenes.size=40",)),  # resized by products
        pytest.param(
            "sst", ("model.backbone=satl_tiny", "model.backbone_kwargs={widths: [8, 8]}"), marks=slow
        ),
        pytest.param("ssgrl", (), marks=slow),
        pytest.param(
            "kggr", ("model.backbone=test_convnext", "model.backbone_kwargs={}", *LARGER), marks=slow
        ),
        pytest.param(
            "satl+",
            (
                "model.backbone=vit_tiny_patch16_224",
                "model.backbone_kwargs={img_size: 64, depth: 2}",
                *LARGER,
            ),
            marks=slow,
        ),
    ],
)
def test_every_network(method: str, settings: tuple[str, ...]) -> None:
    config = tiny_config(f"method.name={method}", *settings)
    torch.manual_seed(0)
    labels = np.eye(6, dtype=np.int8)
    network = build_learner(config, tuple("abcdef"), labels).eval().network
    unsettle(network, 3)
    transform, side = build_transform(config.images, torch.device("cpu")), config.source_size
    module = DecisionModel(network, transform, side, torch.full((6,), 0.5))
    model = onnx_graph.onnx_graph(module, torch.from_numpy(drawn(2, side)))
    assert {node.domain for node in model.graph.node} == {""}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 5):
        images = drawn(count, side, seed=count)
        with torch.no_grad():
            expected = network(transform(torch.from_numpy(images))).logits.sigmoid().numpy()
        probabilities, present = session.run(None, {"images": images})
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(present, probabilities >= 0.5)
    assert expected.std(axis=0).max() > 1e-4


@pytest.mark.parametrize(("added", "shown"), [(2e-3, r"0\.000\d+"), (np.nan, "nan")])
def test_a_file_that_differs_is_not_kept(
    run: Path,
    as_before: Callable[[Callable[[Any], None]], None],
    tmp_path: Path,
    added: float,
    shown: str,
) -> None:
    def change(model: Any) -> None:
        (bias,) = (t for t in model.graph.initializer if t.name == "network.class_head.classifier.bias")
        values = onnx.numpy_helper.to_array(bias).copy()
        values[5] += added
        bias.raw_data = values.tobytes()

    as_before(change)
    (tmp_path / "model.onnx").write_bytes(b"older")
    with pytest.raises(RunError) as caught:
        write_onnx(run, tmp_path / "model.onnx", lambda classes: half(7), force=True)
    assert re.search(
        rf"does not decide as the run does \(a probability differs by {shown}, .*use predict\(\)",
        str(caught.value),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_bytes() == b"older"


def test_a_file_with_other_thresholds_is_not_kept(
    run: Path, as_before: Callable[[Callable[[Any], None]], None], tmp_path: Path
) -> None:
    as_before(lambda model: None)  # it has those of the fixture
    with pytest.raises(RunError, match=r"does not decide as the run does .its thresholds are others"):
        write_onnx(run, tmp_path / "model.onnx", lambda classes: same_threshold(0.9, 7))
    assert not list(tmp_path.iterdir())


def test_a_network_that_no_exporter_knows(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise NotImplementedError("no such operator.\nand a page of details")

    monkeypatch.setattr(onnx_graph, "onnx_graph", fail)
    with pytest.raises(RunError) as caught:
        write_onnx(run, tmp_path / "model.onnx", lambda classes: half(7))
    assert "(backbone resnet18) cannot be written as ONNX (no such operator);" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_more_than_a_file_holds(
    run: Path,
    as_before: Callable[[Callable[[Any], None]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_before(lambda model: None)
    monkeypatch.setattr(onnx_file, "_LARGEST_FILE", 1000)
    with pytest.raises(RunError, match="one ONNX file holds 2 GB; train with a smaller backbone"):
        write_onnx(run, tmp_path / "model.onnx", lambda classes: half(7))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra(name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError) as caught:
        write_onnx(run, tmp_path / "model.onnx", lambda classes: half(7))
    assert str(caught.value) == (
        f"ONNX files need the package {name}; install it with `pip install 'satl[onnx]'`."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "checkpoint", "part"),
    [
        ("model.pt", "best", "model.pt': cannot be written as '.pt'; end the name in .onnx"),
        ("folder.onnx", "best", "is a folder"),
        ("none/model.onnx", "best", "does not exist; make it first"),
        ("model.onnx", "middle", "no checkpoint 'middle'; use best or last"),
        ("model.onnx", "last", "holds no checkpoint 'last'"),
    ],
)
def test_mistakes_are_told_before_the_work(
    out: str, checkpoint: str, part: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graph, "onnx_graph", lambda *_: pytest.fail("too late"))
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(SatlError) as caught:
        write_onnx(run, tmp_path / out, lambda classes: half(7), checkpoint)
    assert part in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.onnx"]
