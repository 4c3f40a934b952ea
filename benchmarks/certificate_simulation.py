"""Are the promises kept? Simulated tables whose true precision is known by formula.

    python benchmarks/certificate_simulation.py [--repetitions 1000] [--part PART]

Every class of a simulated table is one repetition. A repetition violates the promise if a threshold is given
whose true precision is below the target. The rate of violations, over all repetitions, must not exceed
1 - confidence by more than three Monte-Carlo standard errors. The shift check must alarm in at most 5 % of the
classes without a shift (prevalence alone changing included) and in at least 90 % with one of the stated size, again
within three standard errors. The exit code is 1 if any bar is missed.

Scores are standard normal for negatives; for positives they are higher by the separation. The parts are
certificates, prevalence, broken, table, shift, and features, in which nothing is given by formula: models are trained
on drawn features with cells held out, as ``satl train`` does it (``simulated_features.py``).
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from satl.completion import certify, check_shift

CONFIDENCE = 0.95
ALARMS, DETECTIONS = 0.05, 0.90


@dataclass(frozen=True)
class Setting:
    """One row of the table of certificates."""

    known: int
    unknown: int
    prevalence: float
    separation: float
    target: float = 0.95
    unknown_prevalence: float | None = None
    rounding: int | None = None
    guard: float = 0.0

    @property
    def in_unknown(self) -> float:
        """Prevalence among the unknown cells."""
        return self.prevalence if self.unknown_prevalence is None else self.unknown_prevalence


# A prevalence a little below the target with scores that say nothing is the hardest case: every threshold
# misses the target by a hair, and any threshold at all is a violation.
CERTIFICATES = (
    *(Setting(known, 300, 0.949, 0.0) for known in (60, 100, 300, 1000, 3000)),
    Setting(300, 300, 0.79, 0.0, target=0.8),
    Setting(1000, 300, 0.989, 0.0, target=0.99),
    *(
        Setting(known, 500, prevalence, separation)
        for known in (100, 300, 1000)
        for prevalence in (0.05, 0.2, 0.5)
        for separation in (1.5, 3.0)
    ),
    Setting(1000, 500, 0.3, 1.0, target=0.8),
    Setting(300, 20, 0.5, 2.0, target=0.9),
    Setting(300, 1, 0.5, 1.0, target=0.8),
    Setting(1000, 500, 0.5, 2.0, rounding=1),
    Setting(1000, 500, 0.5, 1.0, target=0.8, rounding=0),
    Setting(1000, 500, 0.5, 2.0, guard=0.9),
    Setting(3000, 500, 0.1, 3.0, guard=0.9),
)
PREVALENCE = (
    Setting(500, 1000, 0.5, 3.0, 0.9, 0.3),
    Setting(1000, 1000, 0.5, 3.0, 0.9, 0.1),
    Setting(1000, 1000, 0.5, 4.0, 0.9, 0.05),
    Setting(1000, 1000, 0.2, 2.0, 0.9, 0.5),
    Setting(1000, 1000, 0.1, 3.0, 0.9, 0.02),
    Setting(300, 1000, 0.5, 2.0, 0.8, 0.4),
)
# What happens to a promise whose assumption is broken: positives are rarer among the unknown cells.
BROKEN = (Setting(500, 1000, 0.5, 3.0, 0.95, 0.1), Setting(500, 1000, 0.5, 3.0, 0.95, 0.3))


def true_precision(
    setting: Setting, thresholds: npt.NDArray[np.float64], value: int
) -> npt.NDArray[np.float64]:
    """Precision among unknown cells at a threshold, by formula."""
    # A rounded score is at least t exactly when the score itself is at least half a step lower.
    half = 0.0 if setting.rounding is None else 0.5 * 10.0**-setting.rounding
    at = thresholds - value * half
    positive, negative = ndtr(value * (setting.separation - at)), ndtr(-value * at)
    share = setting.in_unknown
    present, absent = share * positive, (1 - share) * negative
    right = present if value > 0 else absent
    whole = present + absent
    return np.divide(right, whole, out=np.full(right.shape, np.nan), where=whole > 0)


def draw_table(
    setting: Setting, classes: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    rows = setting.known + setting.unknown
    share = np.repeat((setting.prevalence, setting.in_unknown), (setting.known, setting.unknown))[
        :, np.newaxis
    ]
    present = random.random((rows, classes), dtype=np.float32) < share
    scores = random.standard_normal((rows, classes), dtype=np.float32)
    scores += np.float32(setting.separation) * present
    if setting.rounding is not None:
        scores = np.round(scores.astype(np.float64), setting.rounding)
    labels = np.where(present, 1, -1).astype(np.int8)
    labels[setting.known :] = 0
    return scores, labels


def standard_error(rate: float, repetitions: int) -> float:
    return math.sqrt(rate * (1 - rate) / repetitions)


def certificates(
    settings: tuple[Setting, ...], transfer: str, repetitions: int, seed: int, for_information: bool = False
) -> bool:
    """Print one row a setting; return whether every bar is kept (none is set ``for_information``)."""
    bar = 1 - CONFIDENCE + 3 * standard_error(1 - CONFIDENCE, repetitions)
    rule = "for information" if for_information else f"violations must not exceed {bar:.4f}"
    print(f"\nthresholds, transfer={transfer!r}, {repetitions} repetitions each; {rule}")
    print(
        f"{'held out':>9}{'unknown':>8}{'prevalence':>14}{'separation':>11}{'target':>7}{'':>10}"
        f"{'given':>8}{'violations':>11}{'+-':>8}{'precision':>10}{'found':>7}"
    )
    kept = True
    for number, setting in enumerate(settings):
        random = np.random.default_rng([seed, number])
        scores, labels = draw_table(setting, repetitions, random)
        result = certify(
            scores,
            labels,
            precision=setting.target,
            confidence=CONFIDENCE,
            guard=setting.guard,
            transfer=transfer,
        )
        note = "".join(
            (
                f" rounded {setting.rounding}" if setting.rounding is not None else "",
                f" guard {setting.guard:g}" if setting.guard else "",
            )
        )
        for side in (result.present, result.absent):
            given = side.certified
            precision = true_precision(setting, side.threshold, side.value)
            violations = float(np.count_nonzero(given & (precision < setting.target)) / repetitions)
            prevalence = f"{setting.prevalence:g}"
            if setting.unknown_prevalence is not None:
                prevalence += f" -> {setting.unknown_prevalence:g}"
            average = f"{precision[given].mean():.3f}" if given.any() else "-"
            found = f"{side.found[given].mean():.2f}" if given.any() else "-"
            good = for_information or violations <= bar
            kept &= good
            print(
                f"{setting.known:>9}{setting.unknown:>8}{prevalence:>14}{setting.separation:>11g}{setting.target:>7g}"
                f"{'present' if side.value > 0 else 'absent':>10}{given.mean():>8.3f}{violations:>11.4f}"
                f"{standard_error(violations, repetitions):>8.4f}{average:>10}{found:>7}{note}"
                f"{'' if good else '   MISSED'}",
                flush=True,
            )
    return kept


def whole_tables(repetitions: int, seed: int) -> bool:
    """Family-wise: any violation among all classes and both directions of a table counts once."""
    classes = 10
    bar = 1 - CONFIDENCE + 3 * standard_error(1 - CONFIDENCE, repetitions)
    print(
        f"\nfamily='table', {repetitions} tables of {classes} classes; violations must not exceed {bar:.4f}"
    )
    kept = True
    for number, setting in enumerate(
        (Setting(300, 100, 0.949, 0.0), Setting(400, 100, 0.5, 2.0, target=0.8))
    ):
        violated = given = 0
        random = np.random.default_rng([seed, 1000 + number])
        for _ in range(repetitions):
            result = certify(
                *draw_table(setting, classes, random), precision=setting.target, guard=0.0, family="table"
            )
            sides = (result.present, result.absent)
            given += sum(int(side.certified.sum()) for side in sides)
            violated += any(
                bool((true_precision(setting, side.threshold, side.value) < setting.target).any())
                for side in sides
            )
        rate = violated / repetitions
        kept &= rate <= bar
        print(
            f"{setting.known} held out, prevalence {setting.prevalence:g}, separation {setting.separation:g}, target "
            f"{setting.target:g}: {given / repetitions:.2f} thresholds a table, violations {rate:.4f} "
            f"+- {standard_error(rate, repetitions):.4f}{'' if rate <= bar else '   MISSED'}",
            flush=True,
        )
    return kept


# Held-out positives and negatives, unknown cells, prevalence among them, separation, and what differs: "none",
# "all" (all unknown scores move by the size, in standard deviations), "hard" (that share of the unknown negatives
# scores half-way to the positives), "spread" (unknown scores scatter more by that factor).
SHIFTS = (
    (20, 20, 50, 0.3, 2.0, "none", 0.0),
    (30, 100, 500, 0.5, 3.0, "none", 0.0),
    (30, 300, 2000, 0.02, 2.0, "none", 0.0),
    (100, 400, 2000, 0.2, 3.0, "none", 0.0),
    (100, 400, 2000, 0.05, 2.0, "none", 0.0),
    (100, 400, 2000, 0.8, 2.0, "none", 0.0),
    (100, 400, 2000, 0.0, 3.0, "none", 0.0),
    (200, 800, 4000, 0.2, 0.5, "none", 0.0),
    (400, 400, 4000, 0.01, 4.0, "none", 0.0),
    (100, 400, 2000, 0.2, 3.0, "all", 0.5),
    (100, 400, 2000, 0.2, 3.0, "all", -0.5),
    (200, 800, 4000, 0.2, 2.0, "all", 0.5),
    (200, 800, 4000, 0.2, 2.0, "all", -0.5),
    (50, 200, 2000, 0.2, 3.0, "all", 1.0),
    (200, 800, 4000, 0.2, 3.0, "hard", 0.3),
    (200, 800, 4000, 0.2, 3.0, "spread", 1.4),
)


def shift(repetitions: int, seed: int) -> bool:
    bars = (
        ALARMS + 3 * standard_error(ALARMS, repetitions),
        DETECTIONS - 3 * standard_error(DETECTIONS, repetitions),
    )
    print(
        f"\nshift check, {repetitions} classes each; alarms at most {bars[0]:.4f} without a shift, at least "
        f"{bars[1]:.4f} with one"
    )
    print(
        f"{'positives':>10}{'negatives':>10}{'unknown':>8}{'prevalence':>11}{'separation':>11}{'shift':>12}"
        f"{'alarms':>8}{'+-':>8}{'estimate':>9}{'covered':>8}"
    )
    kept = True
    for number, (positives, negatives, unknown, prevalence, separation, kind, size) in enumerate(SHIFTS):
        random = np.random.default_rng([seed, 2000 + number])
        rows = positives + negatives + unknown
        present = np.zeros((rows, repetitions), dtype=np.bool_)
        present[:positives] = True
        present[positives + negatives :] = random.random((unknown, repetitions)) < prevalence
        scores = random.standard_normal(present.shape, dtype=np.float32)
        new = scores[positives + negatives :]
        if kind == "spread":
            new *= np.float32(size)
        scores += np.float32(separation) * present
        if kind == "all":
            new += np.float32(size)
        if kind == "hard":
            moved = (random.random(new.shape) < size) & ~present[positives + negatives :]
            new += np.float32(separation / 2) * moved
        labels = np.where(present, 1, -1).astype(np.int8)
        labels[positives + negatives :] = 0
        check = check_shift(scores, labels, seed=number)
        rate = float(check.alarm.mean())
        good = rate <= bars[0] if kind == "none" else rate >= bars[1]
        kept &= good
        covered = float(((check.prevalence_low <= prevalence) & (prevalence <= check.prevalence_high)).mean())
        name = kind if kind == "none" else f"{kind} {size:g}"
        print(
            f"{positives:>10}{negatives:>10}{unknown:>8}{prevalence:>11g}{separation:>11g}{name:>12}{rate:>8.3f}"
            f"{standard_error(rate, repetitions):>8.4f}{np.mean(check.prevalence):>9.3f}"
            f"{covered if kind == 'none' else math.nan:>8.3f}{'' if good else '   MISSED'}",
            flush=True,
        )
    return kept


def features(repetitions: int, seed: int) -> bool:
    from simulated_features import feature_certificates  # it loads torch, which no other part needs

    # A class is a repetition, and those of one table share their images and their training.
    return feature_certificates(
        repetitions, seed, 1 - CONFIDENCE + 3 * standard_error(1 - CONFIDENCE, repetitions)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", choices=("certificates", "prevalence", "broken", "table", "shift", "features"), default=None
    )
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    parts = {
        "certificates": lambda: certificates(CERTIFICATES, "same", options.repetitions, options.seed),
        "prevalence": lambda: certificates(PREVALENCE, "prevalence", options.repetitions, options.seed + 1),
        "broken": lambda: certificates(
            BROKEN, "same", options.repetitions, options.seed + 2, for_information=True
        ),
        "table": lambda: whole_tables(options.repetitions, options.seed),
        "shift": lambda: shift(options.repetitions, options.seed),
        "features": lambda: features(options.repetitions, options.seed),
    }
    kept = True
    for name, part in parts.items():
        if options.part in (None, name):
            start = time.perf_counter()
            kept &= part()
            print(f"({name}: {time.perf_counter() - start:.0f} s)")
    print(f"\nbars: {'kept' if kept else 'missed'}")
    raise SystemExit(not kept)


if __name__ == "__main__":
    main()
