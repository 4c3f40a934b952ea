"""The end of the demo: a table completed with a promise, ready to be reviewed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from satl.completion.workflow.complete import Completion
    from satl.inference.recogniser import Recogniser
    from satl.runs.data import RunData

COMPLETED = "completed"
PICTURES = "pictures"
_IMAGES = 1000
_PIXELS = 160
_PRECISION = 0.9


def complete_demo(out: Path, model: Recogniser, run: Path, data: RunData, size: int, seed: int) -> Completion:
    """Complete the table of some training scenes from the last model of a run, and render all images of it.

    Certificates rest on the validation scenes, whose labels are all known: the last model of a run does not depend
    on them in any way (only the choice of the best epoch does).

    Args:
        out: the demo's folder.
        model: the last model of the run, which scores the cells.
        run: folder of the run.
        data: its data.
        size: side of the scenes in pixels.
        seed: seed of the scenes.
    """
    from PIL import Image

    from satl.completion.statistics.assessment import CompletionSettings
    from satl.completion.workflow.case import Case
    from satl.completion.workflow.complete import complete
    from satl.labels import TableFile
    from satl.scenes import render_scene

    trained, tested = data.rows("train")[:_IMAGES], data.rows("val")
    rows = np.concatenate([trained, tested])
    table = data.table.select(rows).with_truth(None)
    pictures = out / PICTURES
    pictures.mkdir()
    for row in rows:  # those to validate on too: the review shows them where their labels look wrong
        pixels, _ = render_scene(int(row), size=max(size, _PIXELS), seed=seed)
        Image.fromarray(pixels).save(pictures / data.table.images[row])
    scores = model.probabilities(data.source, rows)
    case = Case(
        file=TableFile(table, Path("scenes.csv"), "csv", "blank"),
        scores=np.asarray(scores, dtype=np.float32),
        basis=table.cells,
        tested=np.arange(len(rows))[:, None] >= np.full((1, table.num_classes), len(trained)),
        source={
            "kind": "scores",
            "scores": str(run),
            "labels": "scenes.csv",
            "format": "csv",
            "encoding": "blank",
            "out_of_sample": "those of the validation scenes, which the last model of the run does not depend on",
            "folds": 0,
        },
        images=str(pictures.resolve()),
        keep_scores=True,
    )
    return complete(case, out / COMPLETED, CompletionSettings(precision=_PRECISION))
