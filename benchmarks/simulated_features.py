"""Tables of drawn features, a training on each with cells held out, and what its certificates are worth.

Used by ``certificate_simulation.py --part features``. Nothing here is a formula: `satl train` learns from the known
cells, pseudo-labels and mixed features included, certificates rest on the cells it held out, and the precision is
counted on the unknown cells that they accept, whose truth is kept aside.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.completion.statistics.assessment import CompletionSettings, assess
from satl.completion.workflow.from_run import case_from_run
from satl.features import FeatureFolder
from satl.labels import LabelTable, write_table
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer

CLASSES, DIM = 50, 64
TRAINING = (
    *("training.epochs=4", "training.stage1_epochs=2", "training.batch_size=1000", "training.lr=0.01"),
    *("training.evaluate_every=4", "training.device=cpu", "data.validation=0.05"),
)


@dataclass(frozen=True)
class FeatureSetting:
    """One row of the table: images, share of known cells, prevalence, how far a class moves a vector, promise.

    A vector is noise of deviation 1 in each number, and every class that is present adds a direction of the length
    ``strength``; 0 are features that say nothing.
    """

    rows: int
    known: float
    prevalence: float
    strength: float
    target: float = 0.95


# The first is the hardest: features say nothing and the prevalence is a little below the target, so that every
# threshold misses it by a hair.
SETTINGS = (
    FeatureSetting(20_000, 0.05, 0.949, 0.0),
    FeatureSetting(20_000, 0.05, 0.2, 6.0),
    FeatureSetting(20_000, 0.05, 0.5, 6.0),
    FeatureSetting(20_000, 0.05, 0.5, 3.0, 0.8),
    FeatureSetting(20_000, 0.20, 0.05, 6.0),
)


@dataclass(frozen=True)
class Promises:
    """The certificates of one direction of a table, one for each class; arrays (C,).

    Attributes:
        given: whether the class has a threshold.
        precision: among the unknown cells beyond it; NaN where there is none.
        found: share of the unknown cells of that value that it accepts.
    """

    given: npt.NDArray[np.bool_]
    precision: npt.NDArray[np.float64]
    found: npt.NDArray[np.float64]


def draw(
    setting: FeatureSetting, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return features (N, D), the truth (N, C) as 1 and -1, and which cells are known (N, C)."""
    random = np.random.default_rng(seed)
    present = random.random((setting.rows, CLASSES), dtype=np.float32) < setting.prevalence
    directions = random.standard_normal((CLASSES, DIM), dtype=np.float32)
    directions *= setting.strength / np.linalg.norm(directions, axis=1, keepdims=True)
    features = present.astype(np.float32) @ directions
    features += random.standard_normal(features.shape, dtype=np.float32)
    known = random.random(present.shape, dtype=np.float32) < setting.known
    return features, np.where(present, 1, -1).astype(np.int8), known


def promises_of(setting: FeatureSetting, seed: int) -> tuple[Promises, Promises]:
    """Train on one drawn table and return what its certificates of "present" and of "absent" are worth."""
    features, truth, known = draw(setting, seed)
    ids = tuple(f"{row}.jpg" for row in range(setting.rows))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        FeatureFolder.write(folder / "features", ids, features[:, None], {"drawn": seed})
        names = tuple(f"class {column}" for column in range(CLASSES))
        write_table(LabelTable(ids, names, np.where(known, truth, np.int8(0))), folder / "labels.npz")
        content = {
            "data": {
                "table": str(folder / "labels.npz"),
                "features": str(folder / "features"),
                "holdout": True,
            }
        }
        config = make_config(apply_overrides(content, (*TRAINING, f"training.seed={seed}")), "drawn features")
        Trainer.start(config, load_data(config), RunFolder(folder / "run")).fit()
        case = case_from_run(folder / "run", checkpoint="last")
        assessment = assess(
            case.scores, case.basis, case.tested, CompletionSettings(precision=setting.target), case.planned
        )
    certification = assessment.certification
    sides = []
    for certificate, value in ((certification.present, 1), (certification.absent, -1)):
        with np.errstate(invalid="ignore"):
            beyond = case.scores * value >= certificate.threshold * value
        accepted = beyond & ~known & certificate.certified
        right = np.count_nonzero(accepted & (truth == value), axis=0)
        taken = np.count_nonzero(accepted, axis=0)
        there = np.count_nonzero(~known & (truth == value), axis=0)
        precision = np.divide(right, taken, out=np.full(CLASSES, np.nan), where=taken > 0)
        sides.append(Promises(certificate.certified, precision, right / np.maximum(there, 1)))
    return sides[0], sides[1]


def feature_certificates(repetitions: int, seed: int, bar: float) -> bool:
    """Print two rows a setting, one a direction; return whether no direction violates its promise above ``bar``."""
    tables = -(-repetitions // CLASSES)
    print(
        f"\nfeatures: {tables} trainings of {CLASSES} classes for each setting, precision counted on the unknown cells "
        f"that are accepted; violations must not exceed {bar:.4f}"
    )
    print(
        f"{'images':>9}{'known':>8}{'prevalence':>14}{'strength':>11}{'target':>7}{'':>10}"
        f"{'given':>8}{'violations':>11}{'precision':>10}{'found':>7}{'seconds':>9}"
    )
    kept = True
    for number, setting in enumerate(SETTINGS):
        begun = time.perf_counter()
        drawn = [promises_of(setting, 1000 * (seed + 1) + 100 * number + table) for table in range(tables)]
        seconds = (time.perf_counter() - begun) / tables
        for side, word in enumerate(("present", "absent")):
            given, precision, found = (
                np.concatenate([getattr(promises[side], part) for promises in drawn])
                for part in ("given", "precision", "found")
            )
            violations = float(np.mean(given & (precision < setting.target)))
            good = violations <= bar
            kept &= good
            average = f"{np.nanmean(precision[given]):.3f}" if np.isfinite(precision[given]).any() else "-"
            share = f"{found[given].mean():.2f}" if given.any() else "-"
            print(
                f"{setting.rows:>9}{setting.known:>8.0%}{setting.prevalence:>14g}{setting.strength:>11g}"
                f"{setting.target:>7g}{word:>10}{given.mean():>8.3f}{violations:>11.4f}{average:>10}{share:>7}"
                f"{seconds:>9.1f}{'' if good else '   MISSED'}",
                flush=True,
            )
    return kept
