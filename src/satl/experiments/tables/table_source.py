"""What tables are made from: the results of an experiment, its grid, and the paper's numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from satl.experiments.grid import Grid
from satl.experiments.paper_numbers import Paper, paper
from satl.experiments.results import Estimate, Results


@dataclass(frozen=True)
class TableSource:
    """The results that tables are made from, their grid, headings and the paper's numbers.

    Attributes:
        grid: grid of the experiment, resolved.
        results: its results.
        label: data set and backbone of the experiment, for headings.
        paper: the paper's numbers, shown beside; None for tables without them.
        differences: how the experiment differs from that of the paper.
        model: which of a run's models: ``best`` (validated) or ``last``.
    """

    grid: Grid
    results: Results
    label: str
    paper: Paper | None = None
    differences: tuple[str, ...] = ()
    model: str = "best"

    def of_model(self, model: str) -> TableSource:
        """Return the same source for the other model."""
        return replace(self, model=model)

    def values(
        self, method: str, proportion: float, variant: str = "", column: str = "mAP"
    ) -> dict[int, float]:
        """Return a column of the grid runs of a method at a proportion, by seed."""
        return self.results.by_seed(column, method, proportion, variant, self.model)

    def estimate(self, method: str, proportion: float, variant: str = "", column: str = "mAP") -> Estimate:
        """Return mean and deviation of a column over the seeds."""
        return Estimate.of(self.values(method, proportion, variant, column).values())

    def average(self, method: str, column: str = "mAP") -> Estimate:
        """Return mean and deviation over the seeds of the average over the grid's proportions."""
        return Estimate.of(
            self.results.averages(column, method, self.grid.proportions, model=self.model).values()
        )

    @property
    def ours(self) -> str:
        """Heading of our own numbers."""
        return f"This experiment: {self.label}"

    def paper_heading(self, dataset: str, table: str = "") -> str:
        """Heading of the paper's numbers."""
        assert self.paper is not None
        return f"Paper{f', {table}' if table else ''}: {dataset}, {self.paper.label}"

    @property
    def tested(self) -> str:
        """A sentence: which model was tested."""
        return {
            "best": "The model of the epoch with the best validation mAP.",
            "last": "The model of the last epoch.",
        }[self.model]

    @property
    def on_validation(self) -> tuple[str, ...]:
        """A note where not test images were measured, else nothing."""
        if any(row["split"] == "val" for row in self.results.rows):
            return ("Measured on the validation images, not on test images as the paper's.",)
        return ()

    def model_notes(self, seeds: Sequence[int] | None = None) -> tuple[str, ...]:
        """Return notes: which model was tested, over how many seeds (None for those of the grid), on which images."""
        return self.tested, f"In per cent; {self.seeds_note(seeds)}.", *self.on_validation

    def seeds_note(self, seeds: Sequence[int] | None = None) -> str:
        """Return a note: over how many seeds a mean is."""
        given = seeds or self.grid.seeds
        shown = ", ".join(map(str, given))
        if len(given) == 1:
            return f"one seed ({shown}), so no spread"
        return f"mean ± standard deviation over {len(given)} seeds ({shown})"


def make_source(grid: Grid, results: Results) -> TableSource:
    """Join a resolved grid and its results with the paper's numbers."""
    facts, dataset = results.facts, grid.dataset or "data"
    if not facts:
        return TableSource(grid, results, dataset, paper())
    weights = "pretrained" if facts["pretrained"] else "from scratch"
    label = f"{dataset}, {facts['backbone']}, {weights}"
    if facts["image_size"] is not None:  # else that of the backbone
        label += f", {facts['image_size']} px"
    return TableSource(grid, results, label, paper(), tuple(paper().differences(dataset, facts)))
