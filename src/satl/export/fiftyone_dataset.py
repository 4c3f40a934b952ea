"""An evaluation in a dataset of FiftyOne: what a model says of each picture, right or wrong, beside the picture.

FiftyOne evaluates one class a picture, or boxes; several classes a picture it does not. So what is right and wrong is
written by its convention for evaluations: an attribute ``eval`` on every label, and fields ``KEY_tp``, ``KEY_fp`` and
``KEY_fn`` with counts, which its App filters and sorts by.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from satl.errors import Argument, ConfigError, RunError, Sentence, first_line
from satl.inference.run_evaluation import MeasuredImages

KEY = "satl"
"""What an evaluation is called where no other name is given."""
_OWN = "written_by_satl"
_AT_ONCE = 1000
_PARTS = ("", "_missed", "_tp", "_fp", "_fn")


class EvaluationDataset:
    """A dataset of FiftyOne that an evaluation is written into; it is made where there is none of the name.

    Args:
        name: of the dataset.
        key: what the evaluation is called there: the name of its field, and the beginning of those of its counts.

    Raises:
        ConfigError: FiftyOne is not installed, or the key is no name of a field.
        RunError: its database does not answer, or a field of the name is not an evaluation that satl wrote.
    """

    def __init__(self, name: str, key: str = KEY) -> None:
        if not key.isidentifier() or key.startswith("_"):
            raise ConfigError(
                "is no name of a field of FiftyOne",
                where=Argument("key", key),
                remedy="use letters, digits and _, beginning with a letter",
            )
        self.name, self.key = name, key
        # satl sends nothing anywhere; what FiftyOne counts of its users is theirs to switch on again.
        os.environ.setdefault("FIFTYONE_DO_NOT_TRACK", "true")
        with self._translate():
            try:
                import fiftyone
            except ImportError:
                raise ConfigError(
                    "needs the package fiftyone",
                    where=Argument("fiftyone", name),
                    remedy="run `pip install 'satl[fiftyone]'`",
                ) from None
            self._fo: Any = fiftyone
            there = fiftyone.dataset_exists(name)
            fields = fiftyone.load_dataset(name).get_field_schema() if there else {}
            own = there and _OWN in (fiftyone.load_dataset(name).info.get(key) or {})
        taken = [field for field in self._fields if field in fields]
        if taken and not own:
            raise RunError(
                f"has a field {taken[0]!r} that satl did not write",
                where=Argument("fiftyone", name),
                remedy=Sentence("choose another name with {key}", key=Argument("key")),
            )

    @property
    def _fields(self) -> list[str]:
        return [f"{self.key}{part}" for part in _PARTS]

    def write(self, measured: MeasuredImages, images: Path | None = None) -> int:
        """Write an evaluation in place of an earlier one of this key; return how many pictures were added.

        Pictures that the dataset has already are found by their path, and what else is known of them stays.

        Args:
            measured: what was measured.
            images: folder of the pictures; None: where the run reads them.

        Raises:
            ImageError: a picture is not in the folder.
            RunError: nobody knows where the pictures are, or the database fails.
        """
        files = self._files(measured, images)
        with self._translate():
            there = self._fo.dataset_exists(self.name)
            dataset = (
                self._fo.load_dataset(self.name) if there else self._fo.Dataset(self.name, persistent=True)
            )
            # First: whoever finds fields of an evaluation that was interrupted knows whose they are.
            self._tell(dataset, {"unfinished": True})
            old = [field for field in self._fields if field in dataset.get_field_schema()]
            if old:
                dataset.delete_sample_fields(old)
            ids = dict(zip(*dataset.values(["filepath", "id"]), strict=True))
            new = [file for file in dict.fromkeys(files) if file not in ids]
            for first in range(0, len(new), _AT_ONCE):
                part = new[first : first + _AT_ONCE]
                added = dataset.add_samples([self._fo.Sample(filepath=file) for file in part], progress=False)
                ids.update(zip(part, added, strict=True))
            for first in range(0, len(files), _AT_ONCE):
                rows = range(first, min(first + _AT_ONCE, len(files)))
                values = [self._values(measured, row) for row in rows]
                for field, column in zip(self._fields, zip(*values, strict=True), strict=True):
                    chosen = {ids[files[row]]: value for row, value in zip(rows, column, strict=True)}
                    dataset.set_values(field, chosen, key_field="id", dynamic=True, progress=False)
            self._tell(dataset, dict(measured.facts))
        return len(new)

    def _tell(self, dataset: Any, facts: dict[str, Any]) -> None:
        dataset.info[self.key] = {_OWN: True, **facts}
        dataset.save()

    def _files(self, measured: MeasuredImages, images: Path | None) -> list[str]:
        from satl.images import FolderImages

        files: Sequence[str] | None = measured.files
        if images is not None:
            files = FolderImages(images, measured.images, 1).files
        if files is None:
            raise RunError(
                "the run reads no picture files, and FiftyOne shows pictures",
                where=Argument("fiftyone", self.name),
                remedy=Sentence("name their folder with {images}", images=Argument("images")),
            )
        return [os.path.normpath(Path(file).absolute()) for file in files]  # as FiftyOne keeps them

    def _values(self, measured: MeasuredImages, row: int) -> tuple[Any, ...]:
        called, missed = [], []
        counts = {"tp": 0, "fp": 0, "fn": 0}
        cells, scores = measured.cells[row].tolist(), measured.probabilities[row].tolist()
        present = (measured.probabilities[row] >= measured.limits).tolist()
        for name, cell, score, said in zip(measured.classes, cells, scores, present, strict=True):
            if said:
                outcome = {1: "tp", -1: "fp", 0: "unknown"}[cell]
                called.append(self._fo.Classification(label=name, confidence=score, eval=outcome))
            elif cell == 1:
                outcome = "fn"
                missed.append(self._fo.Classification(label=name, confidence=score, eval=outcome))
            else:
                continue
            if outcome in counts:
                counts[outcome] += 1
        labels = (self._fo.Classifications(classifications=part) for part in (called, missed))
        return (*labels, *counts.values())

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn what FiftyOne and its database raise into one sentence, and what they print into notes."""
        from satl.errors import SatlError

        try:
            with redirect_stdout(sys.stderr):
                yield
        except SatlError:
            raise
        except Exception as error:
            # No database for this system, one that does not answer, a full disk: each has errors of its own.
            raise RunError(
                f"FiftyOne could not be used ({type(error).__name__}: {first_line(error)})",
                where=Argument("fiftyone", self.name),
                remedy="look whether its database runs (FIFTYONE_DATABASE_URI names one), and run the same again",
            ) from error
