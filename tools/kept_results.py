"""Results that are kept beside the grids, ``experiments/*/results/GRID.csv``: what is missing, and adding to them.

    python tools/kept_results.py missing experiments/coco18/others.yaml
    python tools/kept_results.py add runs/others experiments/coco18/others.yaml

The first prints an option ``--only=RUN`` for each run of the grid that is not kept, in the order of the grid; more
patterns leave only some of them, those of the first pattern first. So another machine runs what is left:

    satl experiment GRID --out RUNS --jobs 12 $(python tools/kept_results.py missing GRID '*-p20-*')

The second takes the finished runs of the folder RUNS; those that were kept before are replaced.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from satl.errors import SatlError
from satl.experiments.grid import choose_runs, read_grid
from satl.experiments.results import Results, read_results


def kept_file(grid: Path) -> Path:
    """Return where the results of a grid are kept."""
    return grid.parent / "results" / f"{grid.stem}.csv"


def missing(grid: Path, patterns: list[str]) -> list[str]:
    """Return the names of the runs that are not kept."""
    file = kept_file(grid)
    there = {row["run"] for row in read_results(file).rows} if file.is_file() else set()
    chosen = choose_runs(read_grid(grid).runs(), patterns)
    return [grid_run.name for grid_run in chosen if grid_run.name not in there]


def add(folder: Path, grid: Path) -> tuple[int, int]:
    """Keep the finished runs of an experiment's folder; return how many are new and how many were replaced."""
    grid_runs = {grid_run.name: grid_run for grid_run in read_grid(grid).runs()}
    file = kept_file(grid)
    rows = {}
    if file.is_file():
        rows = {(row["run"], row["model"]): row for row in read_results(file).rows}
    before = {run for run, _ in rows}
    measured = [row for row in read_results(folder).rows if row["status"] == "done"]
    for row in measured:
        if row["run"] not in grid_runs:
            raise SystemExit(
                f"{folder} has a run {row['run']}, which {grid} lacks: give the grid that was run."
            )
        rows[row["run"], row["model"]] = row
    place = {name: at for at, name in enumerate(grid_runs)}
    # Runs that the grid no longer has go last; a test refuses them.
    ordered = sorted(rows.values(), key=lambda row: place.get(row["run"], len(place)))
    settings = dict.fromkeys(key for grid_run in grid_runs.values() for key in grid_run.settings)
    Results(ordered, tuple(settings)).write_csv(file)
    taken = {row["run"] for row in measured}
    return len(taken - before), len(taken & before)


def main() -> None:
    """Print what is missing, or add what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("missing", "add"):
        command = commands.add_parser(name)
        if name == "add":
            command.add_argument("folder", type=Path, help="--out of satl experiment")
        command.add_argument("grid", type=Path)
        if name == "missing":
            command.add_argument("pattern", nargs="*", help="* stands for anything")
    given = parser.parse_args()
    try:
        if given.command == "missing":
            # Without any option satl experiment would run the whole grid; of this one it says that no run has it.
            for name in missing(given.grid, given.pattern) or ["nothing-is-missing"]:
                print(f"--only={name}")
        else:
            new, replaced = add(given.folder, given.grid)
            print(f"{kept_file(given.grid)}: {new:,} new runs, {replaced:,} replaced.")
    except SatlError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
