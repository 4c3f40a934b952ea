"""The folder of Parquet files that predictions are written to, read as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from satl.scores.prediction_folder import PRESENT, is_prediction_folder, part_files
from satl.scores.readers.parquet_scores import open_parquet
from satl.scores.score_reader import Block, ScoreFile, ScoreReader, register_reader


@contextmanager
def open_predictions(path: Path, classes: Sequence[str] | None) -> Iterator[ScoreFile]:
    """Open a folder of predictions; all its files have the same columns."""
    first, *others = part_files(path)

    def blocks(opened: ScoreFile) -> Iterator[Block]:
        yield from opened.blocks
        for file in others:
            with open_parquet(file, classes, (PRESENT,)) as more:
                yield from more.blocks

    with open_parquet(first, classes, (PRESENT,)) as opened:
        yield ScoreFile(opened.classes, opened.columns, blocks(opened))


register_reader(ScoreReader("a folder of predictions", is_prediction_folder, open_predictions))
