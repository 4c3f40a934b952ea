"""How far does a linear probe of the pretrained features get from the known labels alone? No network is trained.

``python benchmarks/probe.py CONFIG --features FILE`` takes a configuration, such as ``experiments/coco18/base.yaml``,
for its data, its pictures and its backbone; a grid of that configuration trains networks on the same known labels.
Features of all images are computed once (some 20 minutes for 12,000 photographs and a ResNet-50 on two cores) and
kept in FILE; an npz file that holds them already, by ``ids`` or ``images``, is taken as it is. A configuration with
``data.features`` needs no FILE. Printed is the mAP on
the test images, mean and deviation over seeds, for each known proportion. With --out, as in
``--out experiments/coco18/results/probe.csv``, a row for each proportion and seed is written as well, with the columns
of an experiment's results, so that the probe is a row of its tables; rows that are there are kept, unless they are
measured again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from satl.evaluation import Evaluation, evaluate_scores
from satl.experiments.grid import GridRun
from satl.experiments.results import COLUMNS, METRICS, RARE, Results, Row, read_results
from satl.features import FeatureTable
from satl.images import Batches
from satl.runs.config import RunConfig
from satl.runs.data import RunData, load_data
from satl.runs.reading import apply_overrides, make_config, read_config
from satl.runs.settling import settled
from satl.scoring import fit_probe
from satl.training.build import build_learner, build_transform
from satl.training.forward import pooled_features

FloatArray = np.ndarray[tuple[int, int], np.dtype[np.float32]]


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def features_of(config: RunConfig, data: RunData, file: Path | None) -> FloatArray:
    """Return the features ``(N, D)`` of all images: those of the data, or from ``file`` where it holds them."""
    if isinstance(data.source, FeatureTable):
        if file is not None:
            raise SystemExit("the configuration names features: leave --features out, or data.features.")
        return data.source.take(np.arange(len(data.source)))[:, 0].astype(np.float32)
    if file is None:
        raise SystemExit("these data are images: name a file for their features with --features FILE.")
    if file.exists():
        with np.load(file) as content:
            names = content["ids" if "ids" in content else "images"]
            place = {str(name): at for at, name in enumerate(names)}
            if not place.keys() >= set(data.table.images):
                raise SystemExit(f"{file}: holds the features of other images; name another file.")
            kept: FloatArray = content["features"][[place[name] for name in data.table.images]]
            return kept.astype(np.float32)
    device = _device()
    # With labels, since without them it is a shell that has no pretrained weights.
    learner = build_learner(config, data.table.classes, data.table.cells[data.rows("train")])
    backbone = learner.network.get_submodule("backbone").to(device).eval()
    transform = build_transform(config.images, device)
    batches = Batches(data.source, batch_size=64, workers=config.images.workers)
    features: FloatArray = pooled_features(backbone, batches, transform, device)
    np.savez(file, features=features, images=np.array(data.table.images))
    return features


def probed(features: FloatArray, data: RunData) -> Evaluation:
    """Evaluate, on the test images, a probe that is fitted to the known cells of the training images."""
    rows, test = data.rows("train"), data.rows("test")
    device = _device()
    learned = torch.from_numpy(features[rows]).to(device)
    probe, _ = fit_probe(learned, torch.from_numpy(data.table.cells[rows]).to(device))
    with torch.no_grad():
        probabilities = probe(torch.from_numpy(features[test]).to(device)).sigmoid().cpu().numpy()
    return evaluate_scores(probabilities, data.table.cells[test], data.table.classes)


def result_row(config: RunConfig, dataset: str, evaluation: Evaluation) -> Row:
    """Return what a probe scores as a row of results; it has no epochs, so that it is its only model."""
    proportion, seed = config.data.proportion, config.training.seed
    assert proportion is not None
    summary = evaluation.summary()
    scores = {name: 100 * float(value) for name in (*METRICS, RARE) if (value := summary[name]) is not None}
    return {
        **dict.fromkeys(COLUMNS),
        **scores,
        "dataset": dataset,
        "backbone": config.input_name,
        "method": "probe",
        "proportion": proportion,
        "seed": seed,
        "variant": "",
        "model": "last",
        "status": "done",
        "error": "",
        "run": GridRun("probe", proportion, seed).name,
        "split": "test",
        "device": _device().type,
        "jobs": 1,
        "threads": torch.get_num_threads(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each proportion."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, help="configuration with a table, test images and a backbone")
    parser.add_argument("--features", type=Path, help="npz file that keeps the features of images")
    parser.add_argument("--proportions", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, help="CSV file that keeps a row for each proportion and seed")
    options = parser.parse_args(arguments)
    base = read_config(options.config).resolved()
    features: FloatArray | None = None
    kept = read_results(options.out).rows if options.out is not None and options.out.is_file() else []
    rows: dict[str, Row] = {row["run"]: row for row in kept}
    for proportion in options.proportions:
        scores = []
        for seed in options.seeds:
            # Images are decoded for the features only, so none are kept in memory.
            settings = (f"data.proportion={proportion}", f"training.seed={seed}", "images.cache_gb=0")
            config = settled(make_config(apply_overrides(base, settings), str(options.config)))
            data = load_data(config)
            if features is None:
                features = features_of(config, data, options.features)
            evaluation = probed(features, data)
            scores.append(100 * evaluation.mAP)
            if options.out is not None:
                # The folder of the results stands in that of the data set.
                dataset = options.out.resolve().parent.parent.name
                row = result_row(config, dataset, evaluation)
                rows[row["run"]] = row
                options.out.parent.mkdir(parents=True, exist_ok=True)
                Results(sorted(rows.values(), key=lambda one: (one["proportion"], one["seed"]))).write_csv(
                    options.out
                )
        spread = f" +- {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
        print(f"{proportion:4.0%} known: mAP {np.mean(scores):.1f}{spread}", flush=True)


if __name__ == "__main__":
    main()
