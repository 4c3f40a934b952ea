"""Do certificates hold where the truth is known? Per class: accepted cells, their true precision, the promise.

``python benchmarks/coco18_certificates.py --scores scores.npz [--data DIR]`` takes the scores of any model: an
``.npz`` file with ``scores``, ``labels`` (1, -1, 0), ``names``, ``images``, and ``truth`` (1, -1, 0) or else the
folder of coco18 with its complete ``labels.csv``; ``held_out`` (or ``in_sample``, or ``fold``) says which known cells
the model has not seen. ``--run RUN`` takes a run that was trained with ``data.holdout`` and ``data.proportion``, for
example that of ``experiments/coco18/certificates.yaml``. ``--scenes RUN`` trains a small model on the embedded scenes
instead, in a few minutes on a CPU.

Printed is a table in Markdown and the share of certificates whose promise holds on the hidden truth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from satl.completion.statistics.assessment import CompletionSettings, assess
from satl.completion.statistics.class_changes import TableChanges
from satl.completion.workflow.case import Case
from satl.completion.workflow.from_scores import case_from_scores
from satl.labels import LabelTable, aligned_cells, read_table
from satl.labels.io.arrays import ArrayFile


def scenes_case(run: Path, proportion: float, images: int) -> tuple[Case, np.ndarray]:
    """Train a small model on scenes with a hold-out, and return its case with the truth."""
    from satl.demo.demo_run import demo_config
    from satl.runs.data import load_data
    from satl.runs.reading import apply_overrides, make_config
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    settings = (f"data.scenes.train={images}", f"data.proportion={proportion}", "data.holdout=true")
    config = make_config(apply_overrides(demo_config("sst+satl").resolved(), settings), "scenes")
    data = load_data(config)
    if not (run / "config.yaml").exists():
        Trainer.start(config, data, RunFolder(run)).fit()
    return run_case(run, "best")


def run_case(run: Path, checkpoint: str) -> tuple[Case, np.ndarray]:
    """Return the case of a trained run whose labels were hidden by ``data.proportion``."""
    from satl.completion.workflow.from_run import case_from_run
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder

    table = load_data(RunFolder.open(run).read_config()).table
    if table.truth is None:
        raise SystemExit(f"{run}: nothing was hidden (data.proportion), so there is no truth to compare with")
    case = case_from_run(run, checkpoint=checkpoint)
    return case, aligned_cells(
        LabelTable(table.images, table.classes, table.truth, encoding="signed"), case.table, run
    )


def scores_case(path: Path, data: Path | None, encoding: str) -> tuple[Case, np.ndarray]:
    """Return the case of a file of scores with the truth."""
    case = case_from_scores(path, encoding=encoding)
    with ArrayFile(path) as arrays:
        if "truth" in arrays:
            return case, arrays.read("truth").astype(np.int8)
    if data is None:
        raise SystemExit(f"{path} holds no 'truth': give the folder of the complete labels with --data DIR")
    return case, aligned_cells(read_table(data / "labels.csv", "complete"), case.table, data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoding", default="signed")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")
    parser.add_argument("--scenes", type=Path)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--proportion", type=float, default=0.3)
    parser.add_argument("--precision", type=float, default=0.95)
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--transfer", choices=("same", "prevalence"), default="same")
    args = parser.parse_args()
    if sum(given is not None for given in (args.scores, args.run, args.scenes)) != 1:
        raise SystemExit("give --scores FILE, --run RUN or --scenes RUN")
    if args.run is not None:
        case, truth = run_case(args.run, args.checkpoint)
    elif args.scenes is not None:
        case, truth = scenes_case(args.scenes, args.proportion, args.images)
    else:
        case, truth = scores_case(args.scores, args.data, args.encoding)
    settings = CompletionSettings(args.precision, args.confidence, transfer=args.transfer)
    assessment = assess(case.scores, case.basis, case.tested, settings)
    changes = TableChanges(case.scores, case.table.cells, assessment)
    known = case.table.known
    print(
        f"{case.table.num_images:,} images x {case.table.num_classes} classes, {known.mean():.1%} known, "
        f"{case.tested_count:,} cells tested; promised {args.precision:g} at confidence {args.confidence:g}\n"
    )
    print("| class | tested +/- | present: evidence | accepted | true precision | absent: evidence | accepted | "
          "true precision | promised |")  # fmt: skip
    print("| --- " + "| ---: " * 8 + "|")
    holds: list[bool] = []
    classes, filled, right = [], 0, 0
    tested = case.basis if case.tested is None else np.where(case.tested, case.basis, 0)
    for column, name in enumerate(case.table.classes):
        found = changes.of_class(column)
        before = len(holds)
        cells = [name, f"{(tested[:, column] > 0).sum()} / {(tested[:, column] < 0).sum()}"]
        for certificate, rows, value, kept in (
            (assessment.certification.present, found.present, 1, assessment.present_from),
            (assessment.certification.absent, found.absent, -1, assessment.absent_to),
        ):
            correct = truth[rows, column] == value
            judged = truth[rows, column] != 0
            total, errors = int(certificate.cells[column]), int(certificate.errors[column])
            if np.isnan(kept[column]):
                cells += ["withheld" if certificate.certified[column] else "none", "", ""]
                continue
            precision = correct[judged].mean() if judged.any() else np.nan
            holds.append(bool(precision >= args.precision))
            filled, right = filled + int(judged.sum()), right + int(correct.sum())
            cells += [
                f"{total - errors} of {total}",
                f"{len(rows):,}",
                f"{precision:.3f}{'' if holds[-1] else ' **missed**'}",
            ]
        if len(holds) > before:
            classes.append(all(holds[before:]))
        print("| " + " | ".join([*cells, f"{args.precision:g}"]) + " |")
    print(
        f"\n{sum(holds)} of {len(holds)} certificates ({sum(holds) / max(len(holds), 1):.1%}) hold on the truth, "
        f"and {sum(classes)} of {len(classes)} classes with a certificate ({sum(classes) / max(len(classes), 1):.1%}) "
        f"hold all they have; {filled:,} cells accepted, {right / max(filled, 1):.2%} of them right."
    )
    print(f"Shift alarms: {', '.join(np.array(case.table.classes)[assessment.shift.alarm]) or 'none'}.")


if __name__ == "__main__":
    main()
