"""``satl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(train)


def train(
    config: Annotated[Path | None, typer.Argument(help="YAML file; see docs/configuration.md.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New folder for the run.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value; repeatable.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
) -> None:
    """Train a recogniser from a half-labelled table, or continue a run that was cut off."""
    if resume is not None and (config is not None or settings or out is not None):
        raise ConfigError(
            "satl train --resume RUN takes no CONFIG, --set or --out: a run goes on as it was started."
        )
    if resume is None and (config is None or out is None):
        raise ConfigError("satl train needs CONFIG and --out RUN, or --resume RUN.")
    from satl.cli.progress import RichDisplay, loading
    from satl.training.config import read_config
    from satl.training.data import load_data
    from satl.training.display import Silent
    from satl.training.run_folder import RunFolder
    from satl.training.trainer import Trainer

    if resume is not None:
        folder = RunFolder.open(resume)
        run_config = folder.read_config()
        folder.checkpoint("last")
    else:
        assert config is not None
        assert out is not None
        run_config = read_config(config, settings or ())
        RunFolder.check_free(out)
    with loading("Reading images", quiet) as progress:
        data = load_data(run_config, progress)
    display = Silent() if quiet else RichDisplay(data)
    if resume is not None:
        trainer = Trainer.resume(data, folder, display)
    else:
        assert out is not None
        folder = RunFolder(out)
        trainer = Trainer.start(run_config, data, folder, display)
    if trainer.finished:
        best, state = trainer.best, "was finished before; nothing was done"
    else:
        best, state = trainer.fit(), "is finished"
    if trainer.is_main:
        score = f"{100 * best['mAP']:.2f}" if best["mAP"] >= 0 else "not measurable (no known positive)"
        typer.echo(
            f"The run in {folder.path} {state}. Best validation mAP {score} in epoch {best['epoch'] + 1}; "
            f"next: satl evaluate {folder.path}"
        )
    trainer.accelerator.end_training()
