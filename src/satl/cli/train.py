"""``satl train``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from satl.cli.completion import recipe as complete_recipe
from satl.errors import ConfigError, in_shell


def train(
    config: Annotated[Path | None, typer.Argument(help="YAML file; see docs/configuration.md.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New folder for the run.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A published setting instead of CONFIG: DATASET/METHOD; see `satl recipes`.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    data_folder: Annotated[
        Path | None,
        typer.Option("--data", help="For --recipe: the folder in which the data set was unpacked."),
    ] = None,
    proportion: Annotated[
        float | None, typer.Option(help="Keep only this share of the training labels: data.proportion.")
    ] = None,
    word_vectors: Annotated[
        Path | None, typer.Option(help="GloVe text, npz or npy for the class names: model.word_vectors.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run: training.seed.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value; repeatable.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
) -> None:
    """Train a recogniser from a half-labelled table, or continue a run that was cut off."""
    flags = (config, recipe, data_folder, proportion, word_vectors, seed, settings, out)
    if resume is not None and any(flag is not None and flag != [] for flag in flags):
        raise ConfigError(
            "satl train --resume RUN takes no CONFIG and no other option: a run is resumed with its own configuration."
        )
    if resume is None and (out is None or (config is None) == (recipe is None)):
        raise ConfigError("satl train needs CONFIG or --recipe, and --out RUN; or --resume RUN alone.")
    if (recipe is None) != (data_folder is None):
        raise ConfigError("satl train: --recipe and --data DIR, the folder of its data set, go together.")
    from satl.cli.progress import RichDisplay, loading
    from satl.distributed import launched_rank
    from satl.images.broken_pictures import left_out_words
    from satl.recipes import read_recipe
    from satl.runs.data import load_data
    from satl.runs.reading import override_config, read_config
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    if resume is not None:
        folder = RunFolder.open(resume)
        run_config = folder.read_config()
        folder.can_resume(run_config.training.checkpoint_epochs)
        folder.require_inputs(run_config)
        if launched_rank() == 0:
            folder.lock()  # before the images are read, which can take minutes
    else:
        assert out is not None
        chosen = {
            "data.root": data_folder and str(data_folder.resolve()),
            "data.proportion": proportion,
            "model.word_vectors": word_vectors and str(word_vectors.resolve()),
            "training.seed": seed,
        }
        overrides = [f"{key}={json.dumps(value)}" for key, value in chosen.items() if value is not None]
        overrides += settings or []
        if recipe is not None:
            run_config = override_config(read_recipe(recipe), overrides, f"recipe {recipe}")
        else:
            assert config is not None
            run_config = read_config(config, overrides)
        RunFolder.check_free(out)
    with loading("Reading images", quiet) as progress:
        data = load_data(run_config, progress, None if resume is None else folder.read_broken())
    total = data.table.num_images + len(data.left_out)
    if data.left_out and not quiet:
        when = (
            " could not be read when the features were made and"
            if run_config.on_features
            else " cannot be read and"
        )
        typer.echo(
            f"{len(data.left_out):,} of {total:,} images{when} are left out, such as {data.left_out[0].image}",
            err=True,
        )
    display = None if quiet else RichDisplay(data)
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
        typer.echo(
            f"The run in {folder.path} {state}. {best_line(best)}; next: satl evaluate {in_shell(folder.path)}"
        )
        broken = folder.all_broken()
        if broken:
            typer.echo(f"{left_out_words(broken, total, folder.broken)}.", err=True)
    # Together: a process that leaves while another still talks to it can abort that one.
    trainer.accelerator.wait_for_everyone()


def best_line(best: Mapping[str, Any]) -> str:
    """Return which model was kept as the best.

    >>> best_line({"epoch": 3, "mAP": 0.5})
    'Best validation mAP 50.00 in epoch 4'
    """
    epoch = best["epoch"] + 1
    if best["mAP"] is None:
        return f"No validation images, so the model of the last epoch ({epoch}) is the one that is kept as the best"
    score = f"{100 * best['mAP']:.2f}" if best["mAP"] >= 0 else "not measurable (no known positive)"
    return f"Best validation mAP {score} in epoch {epoch}"
