"""Pictures that broke while a run was trained: another one of their batch stood in for them, and that is told."""

from __future__ import annotations

from satl.images import Batches
from satl.images.broken_pictures import BrokenPicture, left_out_words, require_few
from satl.labels.file_report import counted
from satl.runs.config import RunConfig
from satl.runs.data import RunData
from satl.runs.run_folder import RunFolder
from satl.training.display import Display
from satl.training.log import logger
from satl.training.saving import gathered


def tell_late(
    config: RunConfig,
    data: RunData,
    batches: Batches,
    folder: RunFolder,
    epoch: int,
    display: Display,
    is_main: bool,
) -> None:
    """List the pictures that broke in an epoch in ``broken.csv`` and say so; every process must call it.

    Raises:
        ImageError: with those that were left out at the start they are more than ``images.broken_share`` allows.
    """
    if not batches.stand_in:
        return
    of_all: dict[int, str] = {}
    for found in gathered(batches.broken):
        of_all |= found
    if not of_all:
        return
    broken = {data.table.images[row]: reason for row, reason in sorted(of_all.items())}
    new = sorted(set(broken) - set(folder.all_broken()))
    if is_main and new:
        folder.add_broken({image: broken[image] for image in new}, epoch)
        text = (
            f"epoch {epoch + 1}: {counted(len(new), 'image|images')} can no longer be read ({folder.broken} says why), "
            f"such as {new[0]}; in its place another one of the batch is trained on"
        )
        logger.info(text)
        display.remark(text)
    late = tuple(BrokenPicture(image, reason) for image, reason in broken.items())
    total = data.table.num_images + len(data.left_out)
    require_few((*data.left_out, *late), total, config.images.broken_share)


def tell_left_out(data: RunData, folder: RunFolder) -> None:
    """Write to the log how many pictures cannot be read."""
    broken = folder.all_broken()
    if broken:
        logger.info(left_out_words(broken, data.table.num_images + len(data.left_out), folder.broken))
