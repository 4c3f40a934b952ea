"""What a run folder holds before the first step: what is to be trained, on what, and where."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from satl.errors import SatlWarning
from satl.labels import LabelTable, write_table
from satl.runs.config import RunConfig
from satl.runs.data import RunData
from satl.runs.picture_record import PictureRecord, copies_words
from satl.runs.reading import save_config
from satl.runs.run_folder import RunFolder


def begin_folder(folder: RunFolder, config: RunConfig, data: RunData, environment: Mapping[str, Any]) -> None:
    """Make the folder of a new run, lock it, and write all that is known before it is trained.

    Args:
        folder: where the run is to be.
        config: of the run, settled; written last, because it makes the folder a run.
        data: of the run.
        environment: versions, device and time.

    Raises:
        RunError: there is a run already, or nothing can be written there.
    """
    RunFolder.create(folder.path)
    folder.lock()
    RunFolder.check_free(folder.path)  # asked once more, now that nobody else can begin a run in it
    table = data.table
    folder.write_facts(
        table.classes, data.fingerprint(), environment, data.feature_facts(), data.label_counts()
    )
    if data.held_out is not None:
        known = LabelTable(table.images, table.classes, data.known_cells, table.split, encoding="signed")
        write_table(known, folder.labels)
        data.held_out.save(folder.held_out, table.images, table.classes)
    folder.write_broken(data.left_out)
    record = PictureRecord.of(data)
    record.save(folder.pictures)
    for split in ("val", "test"):
        copies = copies_words(record, split)
        if copies is not None:
            warnings.warn(SatlWarning(f"{copies}."), stacklevel=3)
    save_config(config, folder.config)
