"""The four calls on features of a frame: what a notebook does, on the CPU in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import satl
from satl.api import evaluate_call
from satl.errors import ArrayError, ConfigError, EncodingError, RunError, SatlWarning, TableError
from satl.inference.prediction import predict_features
from satl.labels import LabelTable, read_table
from satl.runs.run_folder import RunFolder

NUM, DIM = 400, 8
QUICK = {
    "training.epochs": 3,
    "training.stage1_epochs": 1,
    "training.batch_size": 32,
    "training.lr": 0.05,
    "training.device": "cpu",
    "data.holdout_fraction": 0.3,
}


class Drawn:
    """Images whose two classes can be read off their features; a fifth of them is for testing."""

    draw = np.random.default_rng(0)
    truth = draw.random((NUM, 2)) < 0.4
    features = (truth @ (3 * np.eye(2, DIM)[:, ::-1]) + 0.7 * draw.normal(size=(NUM, DIM)) + 2).astype(
        np.float32
    )
    test = np.arange(NUM) % 5 == 0
    known = (draw.random((NUM, 2)) < 0.6) | test[:, None]


def column(at: int) -> list[int | None]:
    return [int(Drawn.truth[row, at]) if Drawn.known[row, at] else None for row in range(NUM)]


COLUMNS = {
    "image": [f"p/{row}.jpg" for row in range(NUM)],
    "split": ["test" if there else "train" for there in Drawn.test],
    "cat": column(0),
    "<dog>": column(1),
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.DataFrame(COLUMNS)


@pytest.fixture(scope="module")
def run(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> satl.api.TrainedRun:
    """A finished run; do not change it."""
    out = tmp_path_factory.mktemp("runs") / "first"
    return satl.train(table, features=Drawn.features, out=out, set=QUICK, quiet=True)


def test_five_lines_train_and_complete_from_a_frame(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table.to_csv("labels.csv", index=False)
    vectors, quick = Drawn.features, QUICK
    names: dict[str, Any] = {"vectors": vectors, "quick": quick}
    lines = """
import satl, pandas as pd
table = pd.read_csv("labels.csv")
run = satl.train(table, features=vectors, set=quick, quiet=True)
result = satl.complete(run, precision=0.8)
completed = result.frame
""".strip().splitlines()
    assert len(lines) == 5
    exec("\n".join(lines), names)
    completed = names["completed"]
    assert isinstance(completed, pd.DataFrame)
    assert list(completed.columns) == ["image", "split", "cat", "<dog>"]
    before, after = table[["cat", "<dog>"]].isna().sum().sum(), completed[["cat", "<dog>"]].isna().sum().sum()
    assert after < before / 2
    filled = completed[["cat", "<dog>"]].notna().to_numpy() & table[["cat", "<dog>"]].isna().to_numpy()
    right = completed[["cat", "<dog>"]].fillna(-1).to_numpy() == Drawn.truth
    assert right[filled].mean() > 0.8
    assert sorted(path.name for path in Path("runs").iterdir()) == ["run", "run-completed", "run-data"]
    assert "run-completed" in repr(names["result"])


def test_a_run_gives_frames_and_a_display(run: satl.api.TrainedRun) -> None:
    assert list(run.frame["epoch"]) == [1, 2, 3]
    assert run.frame["mAP"].iloc[-1] > 0.9
    assert "TrainedRun" in repr(run)
    assert "3 epochs, best validation mAP" in run._repr_html_()
    assert set(run.thresholds["class"]) == {"cat", "<dog>"}
    assert RunFolder(run.path).read_classes() == ("cat", "<dog>")
    kept = read_table(run.path.with_name("first-data") / "labels.csv")
    assert kept == LabelTable.from_frame(pd.DataFrame(COLUMNS))
    assert run.recogniser().classes == ("cat", "<dog>")


def test_the_call_trains_what_the_command_trains(run: satl.api.TrainedRun, tmp_path: Path) -> None:
    """The same table and features from files, through the configuration of the command line."""
    data = run.path.with_name("first-data")
    config = {
        "data": {
            "table": str(data / "labels.csv"),
            "features": str(data / "features.npz"),
            "holdout": True,
        }
    }
    again = satl.train(config=config, out=tmp_path / "again", set=QUICK, quiet=True)

    def metrics(path: Path) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in row.items() if not key.endswith("_seconds")}
            for row in RunFolder(path).read_metrics()
        ]

    assert metrics(again.path) == metrics(run.path)


def test_complete_reports_and_shows(run: satl.api.TrainedRun, tmp_path: Path) -> None:
    result = satl.complete(run, out=tmp_path / "completed", precision=0.8, quiet=True)
    assert result.path == tmp_path / "completed"
    assert (result.path / "report.html").is_file()
    assert result.report == json.loads((result.path / "report.json").read_text())
    assert result.table.to_frame("pandas").equals(result.frame)
    assert list(result.classes["class"]) == ["cat", "<dog>"]
    assert result.classes["accepted_present"].sum() == result.completion.present > 0
    done = result.completion
    assert len(result.changes) == done.present + done.absent + done.review + done.errors
    page = result._repr_html_()
    assert "&lt;dog&gt;" in page
    assert "<dog>" not in page
    assert "unknown cells were accepted" in page
    with pytest.raises(RunError, match=r"holds a completion already; .*force=True"):
        satl.complete(run, out=tmp_path / "completed", quiet=True)
    satl.complete(run, out=tmp_path / "completed", force=True, quiet=True)


def test_evaluate_measures_the_run_and_other_data(run: satl.api.TrainedRun, tmp_path: Path) -> None:
    own = satl.evaluate(run, out=tmp_path, quiet=True)
    assert own.split == "test"
    assert own.summary["mAP"] > 0.9
    assert list(own.frame["name"]) == ["cat", "<dog>"]
    assert "&lt;dog&gt;" in own._repr_html_()
    assert (tmp_path / "evaluation-test.json").is_file()

    rows = np.flatnonzero(Drawn.test)
    other = pl.DataFrame(COLUMNS)[rows.tolist()]
    found = satl.evaluate(run, other, features=Drawn.features[rows], encoding="complete", quiet=True)
    assert found.evaluation.mAP == own.evaluation.mAP
    assert isinstance(found.frame, pl.DataFrame)
    misspelt = other.rename({"<dog>": "<dgo>"})
    with pytest.warns(
        SatlWarning, match=r"no class '<dog>' \(did you mean '<dgo>'\?\), so that nothing is measured of it"
    ) as told:
        half = satl.evaluate(run, misspelt, features=Drawn.features[rows], encoding="complete", quiet=True)
    assert half.evaluation.per_class[0] == own.evaluation.per_class[0]
    assert [warning.filename for warning in told] == [__file__]  # the line of the call, not one of satl
    with pytest.raises(EncodingError, match="pass encoding='complete'"):
        satl.evaluate(run, other, features=Drawn.features[rows], quiet=True)
    with pytest.raises(ConfigError, match="trained on features, and none are given; pass features"):
        satl.evaluate(run, other, encoding="complete", quiet=True)
    strict = satl.evaluate(run, threshold={"cat": 1.0, "<dog>": 0.0}, out=tmp_path, quiet=True)
    assert list(strict.frame["threshold"]) == [1.0, 0.0]


def test_similar_names_are_looked_for_of_the_classes_that_are_told_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(evaluate_call, "nearest", lambda name, others: asked.append(name) or "")
    with pytest.warns(SatlWarning) as told:
        evaluate_call._tell_missing([f"of it. {n}" for n in range(5000)], ["of it. 0", "cat"])
    assert asked == ["of it. 1", "of it. 2", "of it. 3"]
    assert str(told[0].message) == (
        "the data has no class 'of it. 1', 'of it. 2', 'of it. 3' and 4996 more, so that nothing is measured of them."
    )


def test_predict_takes_arrays_and_files(run: satl.api.TrainedRun, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", images=["a", "b"], features=Drawn.features[:2])
    found = satl.predict(run, tmp_path / "new.npz", out=tmp_path / "p.csv", quiet=True)
    assert found.images == ("a", "b")
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 5
    arrays = satl.predict(run, Drawn.features[:2], threshold=0.9, quiet=True)
    assert np.array_equal(arrays.probabilities, found.probabilities)
    assert np.array_equal(
        satl.predict(run, torch.tensor(Drawn.features[:2])).probabilities, found.probabilities
    )
    assert list(found.frame.columns) == ["image", "cat", "<dog>"]
    assert np.array_equal(arrays.decisions["cat"], (arrays.probabilities[:, 0] >= 0.9).astype(int))
    assert "2 images x 2 classes" in found._repr_html_()
    from satl.features import read_features

    _, expected = predict_features(run.path, read_features(tmp_path / "new.npz"))
    assert np.array_equal(found.probabilities, expected)
    with pytest.raises(ArrayError, match="trained on features of 8 numbers"):
        satl.predict(run, Drawn.features[:2, :5])
    with pytest.raises(ArrayError, match="row 2 of the features"):
        satl.predict(run, np.array([[1.0] * DIM, [np.nan] * DIM]))
    with pytest.raises(ConfigError, match="exists already"):
        satl.predict(run, tmp_path / "new.npz", out=tmp_path / "p.csv", quiet=True)


def test_a_table_is_completed_in_one_call_and_nothing_is_computed_twice(
    table: pd.DataFrame, tmp_path: Path
) -> None:
    settings = {key: value for key, value in QUICK.items() if key != "training.batch_size"}
    given = {"features": Drawn.features, "out": tmp_path / "done", "precision": 0.8, "set": settings}
    with pytest.raises(ConfigError, match="no key"):  # what a call that failed has kept is in nobody's way
        satl.complete(
            table.iloc[1:], **{**given, "features": Drawn.features[1:], "set": {"data.x": 1}}, quiet=True
        )
    first = satl.complete(table, **given, quiet=True)
    assert first.completion.present > 0
    assert isinstance(first.frame, pd.DataFrame)
    checkpoint = (
        (tmp_path / "done-model" / "run" / "checkpoints" / "last" / "learner.safetensors").stat().st_mtime_ns
    )
    again = satl.complete(table, **given, force=True, quiet=True)
    assert again.frame.equals(first.frame)
    assert (
        tmp_path / "done-model" / "run" / "checkpoints" / "last" / "learner.safetensors"
    ).stat().st_mtime_ns == checkpoint
    (tmp_path / "done").rename(
        tmp_path / "moved"
    )  # the place of the completion is free, that of its model is not
    other = {**given, "features": Drawn.features[:300]}
    with pytest.raises(RunError, match="holds the data of another call"):
        satl.complete(table.iloc[:300], **other, quiet=True)


def test_scores_of_any_model(table: pd.DataFrame, tmp_path: Path) -> None:
    scores = Drawn.truth + 0.3 * np.random.default_rng(1).normal(size=Drawn.truth.shape)
    result = satl.complete(table, scores=scores, out=tmp_path / "out", precision=0.9, quiet=True)
    assert result.completion.present > 0
    np.savez(tmp_path / "s.npz", scores=scores, images=table["image"].tolist(), classes=["cat", "<dog>"])
    other = satl.complete(
        pl.DataFrame(COLUMNS),
        scores=tmp_path / "s.npz",
        out=tmp_path / "other",
        precision=0.9,
        quiet=True,
    )
    assert isinstance(other.frame, pl.DataFrame)
    assert other.table == result.table
    with pytest.raises(ConfigError, match="one score for each cell"):
        satl.complete(table, scores=scores[:5], out=tmp_path / "third", quiet=True)


def test_frames_of_scores_are_matched_by_name(table: pd.DataFrame, tmp_path: Path) -> None:
    scores = Drawn.truth + 0.3 * np.random.default_rng(1).normal(size=Drawn.truth.shape)
    frame = pd.DataFrame(scores, columns=["cat", "<dog>"])
    named = frame.assign(image=table["image"]).sample(frac=1, random_state=0)
    kinds = {
        "array": scores,
        "columns in another order": frame[["<dog>", "cat"]],
        "rows in another order": named[["image", "<dog>", "cat"]],
        "an index of ids": named.set_index("image"),
        "an index without a name": pd.DataFrame(frame.to_numpy(), index=[*table["image"]])[::-1],
        "whole numbers as names": pd.DataFrame(scores),
        "polars": pl.from_pandas(named),
        "arrow": pl.from_pandas(named).to_arrow(),
    }
    found = {
        name: satl.complete(table, scores=given, out=tmp_path / name, precision=0.9, quiet=True).table
        for name, given in kinds.items()
    }
    assert [name for name, one in found.items() if one != found["array"]] == []
    wrong = {
        "none of which is a class": pd.DataFrame(scores, columns=["a", "b"]),
        "numbers of the table in another order": frame.set_axis([0, 1], axis=1)[::-1],
        "something else than numbers": frame.assign(more="text"),
    }
    for told, given in wrong.items():
        with pytest.raises((ArrayError, ConfigError), match=told):
            satl.complete(table, scores=given, out=tmp_path / "wrong", quiet=True)


def test_frames_of_features_are_matched_by_name(
    run: satl.api.TrainedRun, table: pd.DataFrame, tmp_path: Path
) -> None:
    frame = pd.DataFrame(Drawn.features).assign(image=table["image"]).sample(frac=1, random_state=0)
    vectors = pd.DataFrame({"image": table["image"], "vector": [*Drawn.features]})[::-1]
    quick = {**QUICK, "training.epochs": 1}
    expected = satl.train(table, features=Drawn.features, out=tmp_path / "array", set=quick, quiet=True).frame
    kinds = {
        "a column": frame,
        "an index": frame.set_index("image"),
        "vectors": vectors,
        "polars": pl.DataFrame({"image": table["image"].to_list(), "vector": Drawn.features})[::-1],
    }
    for name, given in kinds.items():
        trained = satl.train(table, features=given, out=tmp_path / name, set=quick, quiet=True)
        assert trained.frame.equals(expected), name
        new = given.tail(3) if name in ("vectors", "polars") else given.loc[given.index[:3]]
        found = satl.predict(run, new, quiet=True)
        rows = [COLUMNS["image"].index(image) for image in found.images]
        alone = satl.predict(run, Drawn.features[rows], quiet=True)
        assert np.array_equal(found.probabilities, alone.probabilities), name
    with pytest.raises(ArrayError, match="numbers of the table in another order"):
        satl.train(table, features=frame.drop(columns="image"), out=tmp_path / "wrong", set=quick)
    gaps = frame.astype({0: object})
    gaps.iloc[0, 0] = "x"
    with pytest.raises(ArrayError, match="column 0 of the frame holds something else than numbers"):
        satl.train(table, features=gaps, out=tmp_path / "wrong", set=quick)
    assert not list(tmp_path.glob("wrong*"))


def test_numbers_of_any_precision(run: satl.api.TrainedRun, table: pd.DataFrame, tmp_path: Path) -> None:
    tensor = torch.tensor(Drawn.features, requires_grad=True)
    expected = satl.predict(run, tensor, quiet=True).probabilities
    recogniser = satl.Recogniser.load(run)
    assert np.array_equal(recogniser.predict(tensor), expected)
    assert np.array_equal(satl.predict(run, [*tensor], quiet=True).probabilities, expected)
    half = recogniser.predict(tensor.bfloat16())
    assert np.abs(half - expected).max() < 0.05
    assert np.array_equal(satl.predict(run, [*tensor.bfloat16()], quiet=True).probabilities, half)
    quick = {**QUICK, "training.epochs": 1}
    assert satl.train(table, features=tensor.bfloat16(), out=tmp_path / "half", set=quick, quiet=True).path


@pytest.mark.parametrize(
    "threshold",
    [
        np.float32(0.25),
        torch.tensor(0.25),
        {"cat": np.float64(0.25), "<dog>": np.float32(0.25)},
        pd.Series({"<dog>": 0.25, "cat": 0.25}),
    ],
)
def test_thresholds_are_numbers_of_any_library(run: satl.api.TrainedRun, threshold: Any) -> None:
    found = satl.predict(run, Drawn.features[:3], threshold=threshold, quiet=True)
    assert found.thresholds.values.tolist() == [0.25, 0.25]


@pytest.mark.parametrize(
    "threshold", [True, float("nan"), np.array([0.2, 0.3]), [0.2, 0.3], -1, {"cat": "x"}]
)
def test_other_thresholds_are_refused(run: satl.api.TrainedRun, threshold: Any) -> None:
    with pytest.raises(ConfigError, match="is no probability"):
        satl.predict(run, Drawn.features[:3], threshold=threshold, quiet=True)


def test_every_kind_of_table_trains_the_same_run(run: satl.api.TrainedRun, tmp_path: Path) -> None:
    import datasets
    import pyarrow as pa

    expected = RunFolder(run.path).read_fingerprint()
    quick = {**QUICK, "training.epochs": 1}
    pd.DataFrame(COLUMNS).to_csv(tmp_path / "labels.csv", index=False)
    kinds = {
        "path": tmp_path / "labels.csv",
        "text": str(tmp_path / "labels.csv"),
        "polars": pl.DataFrame(COLUMNS),
        "arrow": pa.table(COLUMNS),
        "table": LabelTable.from_frame(pa.table(COLUMNS)),
        "hugging face": datasets.Dataset.from_dict(COLUMNS),
    }
    for name, data in kinds.items():
        found = satl.train(data, features=Drawn.features, out=tmp_path / name, set=quick, quiet=True)
        assert RunFolder(found.path).read_fingerprint() == expected, name
        frame = pl.DataFrame if name == "polars" else pa.Table if name == "arrow" else pd.DataFrame
        assert isinstance(found.frame, frame)


def test_a_torch_data_set_of_vectors(tmp_path: Path) -> None:
    labels = np.where(Drawn.known, Drawn.truth, np.nan).astype(np.float32)
    data = torch.utils.data.TensorDataset(torch.tensor(Drawn.features), torch.tensor(labels))
    quick = {**QUICK, "data.validation": 0.2}
    run = satl.train(data, classes=["cat", "dog"], out=tmp_path / "run", set=quick, quiet=True)
    assert satl.evaluate(run, quiet=True).summary["mAP"] > 0.9
    whole = torch.utils.data.TensorDataset(torch.tensor(Drawn.features), torch.tensor(Drawn.truth))
    with pytest.raises(EncodingError, match="the data set: can be read in 2 ways"):
        satl.train(whole, out=tmp_path / "other", set=quick, quiet=True)
    assert not (tmp_path / "other-data").exists()
    with pytest.raises(ArrayError, match="3 names of classes, and label vectors have 2"):
        satl.train(data, classes=["a", "b", "c"], out=tmp_path / "other", set=quick, quiet=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "other"))] == []


def test_a_run_is_resumed(run: satl.api.TrainedRun) -> None:
    again = satl.train(resume=run, quiet=True)
    assert again.path == Path(run)
    assert list(again.frame["epoch"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"features": Drawn.features[:-1]}, ArrayError, "399 rows of features for 400 images"),
        ({"features": np.array(["a"])}, ArrayError, "features cannot be"),
        ({"features": Drawn.features, "set": {"training.epoch": 1}}, ConfigError, "no key 'training.epoch'"),
        ({"features": Drawn.features, "set": ["training.epochs=1"]}, ConfigError, "is no dictionary"),
        ({"features": Drawn.features, "config": 3}, ConfigError, "is no configuration"),
        ({"features": Drawn.features, "config": {"data": {"scenes": {}}}}, ConfigError, "data.scenes is set"),
        ({"features": Drawn.features, "encoding": "cls"}, EncodingError, "did you mean 'csl'"),
        ({"features": Drawn.features, "classes": ["a"]}, TableError, "a frame names its classes"),
        ({"features": Drawn.features, "resume": "runs/x"}, ConfigError, "leave out data"),
    ],
)
def test_mistakes_end_in_a_sentence_and_leave_nothing(
    table: pd.DataFrame, tmp_path: Path, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        satl.train(table, out=tmp_path / "run", quiet=True, **given)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_never_replaced(table: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "run-data").mkdir()
    (tmp_path / "run-data" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="no call of satl wrote it"):
        satl.train(table, features=Drawn.features, out=tmp_path / "run", set=QUICK, quiet=True)
    assert [path.name for path in (tmp_path / "run-data").iterdir()] == ["mine.txt"]


def test_too_few_labels_to_hold_out_say_what_to_set(tmp_path: Path) -> None:
    few = pd.DataFrame(COLUMNS).iloc[:20]
    quick = {
        key: value
        for key, value in QUICK.items()
        if key not in ("data.holdout_fraction", "training.batch_size")
    }
    with pytest.raises(TableError, match=r"hold none out with data\.holdout=False"):
        satl.train(few, features=Drawn.features[:20], out=tmp_path / "run", set=quick, quiet=True)
    run = satl.train(
        few,
        features=Drawn.features[:20],
        out=tmp_path / "run",
        set={**quick, "data.holdout": False},
        quiet=True,
    )
    with pytest.raises(RunError, match="review_only=True"):
        satl.complete(run, quiet=True)
    proposed = satl.complete(run, out=tmp_path / "proposed", review_only=True, quiet=True)
    assert proposed.completion.present == 0
