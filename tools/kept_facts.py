"""What the templates of the results page ask of the results in ``experiments/*/results/*.csv``: tables and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from statistics import fmean

from kept_files import PROBE, configs_of, csv_of, folder_of, has, measured_grid, probe_rows
from kept_places import at_proportion, called, place, place_table, places, rule_name, table, written
from kept_said import Said

from satl.experiments.grid import read_grid
from satl.experiments.results import Estimate, Results, Row, read_results
from satl.experiments.tables.both_epochs import BEST, LAST, both_epochs
from satl.experiments.tables.claims import ABOVE, BELOW, OPEN, UNTESTED, Claims, listed
from satl.experiments.tables.difference_tables import (
    QUALITIES,
    Change,
    changes_table,
    differences_table,
    grid_changes,
    quality_text,
)
from satl.experiments.tables.number_text import DASH, MINUS, number, share, spread, title_of
from satl.experiments.tables.recognition_tables import f1_table, map_table, rare_table, stability_table
from satl.experiments.tables.table_source import TableSource
from satl.experiments.tables.training_tables import pseudo_overview_table
from satl.runs.config import changed_settings


class Kept:
    """The kept results of a grid, as the templates ask for them; places are written as :func:`place` reads them.

    Args:
        experiment: its folder.
        grid: name of the grid.
        further: grids of the same folder whose plain runs are taken as well.
        probe: whether a linear probe is a further method, where there are results of one.
        borrow: grids whose runs stand in for runs of this one that have the same configuration.
    """

    def __init__(
        self,
        experiment: str,
        grid: str,
        further: Sequence[str] = (),
        probe: bool = False,
        borrow: Sequence[str] = (),
    ) -> None:
        self.experiment, self.name = experiment, grid
        self.folder = folder_of(experiment)
        planned = read_grid(self.folder / f"{grid}.yaml")
        rows = read_results(csv_of(experiment, grid)).rows
        for other in filter(partial(has, experiment), borrow):
            rows += self._borrowed(other, {row["run"] for row in rows})
        for other in filter(partial(has, experiment), further):
            there = {row["run"] for row in rows}
            rows += [
                row
                for row in read_results(csv_of(experiment, other)).rows
                if row["run"] not in there and not row["variant"]
            ]
        if probe and has(experiment, PROBE):
            rows += [row for row in probe_rows(experiment) if row["proportion"] in planned.proportions]
        self.planned, self.grid = planned, measured_grid(planned, rows)
        self.source = TableSource(self.grid, Results(rows), experiment, model=LAST)

    def _borrowed(self, other: str, there: set[str]) -> list[Row]:
        """Return runs of another grid under the names of runs of this one that have the same configuration."""
        if not (self.folder / f"{other}.yaml").is_file():
            return []
        theirs = {grid_run.name: config for grid_run, config in configs_of(self.folder, other).items()}
        rows: dict[str, list[Row]] = {}
        for row in read_results(csv_of(self.experiment, other)).rows:
            rows.setdefault(row["run"], []).append(row)
        found = []
        for grid_run, config in configs_of(self.folder, self.name).items():
            if grid_run.name in there:
                continue
            for name in dict.fromkeys((grid_run.name, replace(grid_run, variant="").name)):
                if name in rows and not changed_settings(theirs[name], config):
                    found += [
                        {**row, "variant": grid_run.variant, "run": grid_run.name} for row in rows[name]
                    ]
                    break
        return found

    # Tables.

    def map(self) -> str:
        """Return mAP by proportion."""
        return table(both_epochs(map_table, self.source), "mAP")

    def f1(self, proportions: Sequence[float]) -> str:
        """Return OF1 and CF1 at some proportions and on the average of all."""
        return table(both_epochs(partial(f1_table, proportions=proportions), self.source))

    def pseudo(self) -> str:
        """Return precision and recall of the pseudo-labels."""
        return table(pseudo_overview_table(self.source))

    def stability(self) -> str:
        """Return the spread over the seeds."""
        return table(both_epochs(stability_table, self.source))

    def rare(self) -> str:
        """Return the mAP of the rarest third of the classes; nothing where no run has it."""
        found = both_epochs(rare_table, self.source)
        return "" if found is None else table(found, "mAP of the rarest third")

    def differences(
        self, pairs: Sequence[tuple[str, str]], proportions: Sequence[float] | None = None
    ) -> str:
        """Return differences, with their tests."""
        make = partial(differences_table, pairs=places(pairs), proportions=proportions)
        return table(both_epochs(make, self.source))

    def changes(
        self, rows: Sequence[tuple[str, str, str]] | None = None, proportions: Sequence[float] = ()
    ) -> str:
        """Return what changes of settings do.

        Args:
            rows: place, label, and the place it is compared with, which may be empty; None for what the grid changes.
            proportions: those of the grid if not given.
        """
        changes = self._changes(rows)
        make = partial(changes_table, changes=changes, proportions=proportions or None)
        return table(both_epochs(make, self.source))

    def _changes(self, rows: Sequence[tuple[str, str, str]] | None) -> list[Change]:
        if rows is not None:
            return [Change(label, place(own), place(base) if base else None) for own, label, base in rows]
        there = {(row["method"], row["variant"]) for row in self.source.results.rows}
        changes = [one for one in grid_changes(self.planned) if one.place in there]
        return [one if one.base in there else replace(one, base=None) for one in changes]

    def sweep_rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of the sweeps: each value against the one that equals the plain runs."""
        configs = configs_of(self.folder, self.name)
        plain = {grid_run.name: config for grid_run, config in configs.items() if not grid_run.variant}
        same = {
            (grid_run.method, grid_run.variant)
            for grid_run, config in configs.items()
            if grid_run.variant and not changed_settings(plain[replace(grid_run, variant="").name], config)
        }
        rows = []
        for sweep in self.planned.sweeps:
            for method in sweep.methods or self.planned.methods:
                variants = {value: sweep.variant(value) for value in sweep.values}
                usual = next((one for one in variants.values() if (method, one) in same), "")
                for value, variant in variants.items():
                    base = "" if variant == usual else f"{method}:{usual}"
                    rows.append(
                        (f"{method}:{variant}", f"{title_of(method)}, `{sweep.title}: {value}`", base)
                    )
        return rows

    def proportions_of(self, rows: Sequence[tuple[str, str, str]]) -> list[float]:
        """Return the proportions at which every row was run."""
        return [
            one
            for one in sorted(self.planned.proportions)
            if all(self.source.values(place(own)[0], one, place(own)[1]) for own, _, _ in rows)
        ]

    # Numbers.

    def value(
        self, where: str, proportion: float, model: str = LAST, column: str = "mAP", digits: int = 1
    ) -> str:
        """Write the mean of a column over the seeds."""
        return number(self._estimate(where, proportion, model, column).mean, digits)

    def mean(self, where: str, proportion: float, model: str = LAST, column: str = "mAP") -> float:
        """Return the mean of a column over the seeds; NaN where there is none, which is above and below nothing."""
        found = self._estimate(where, proportion, model, column).mean
        return float("nan") if found is None else found

    def both(self, where: str, proportion: float, column: str = "mAP") -> str:
        """Write the mean with the last epoch, and in brackets with the best one."""
        return f"{self.value(where, proportion, LAST, column)} (best {self.value(where, proportion, BEST, column)})"

    def spread(self, where: str, proportion: float, model: str = LAST) -> str:
        """Write mean and deviation."""
        return spread(self._estimate(where, proportion, model, "mAP"), len(self.planned.seeds))

    def quality(self, where: str, proportion: float, kind: str = "all cells") -> str:
        """Write precision / recall of the pseudo-labels."""
        method, variant = place(where)
        return quality_text(self.source, method, proportion, variant, kind)

    def less(self, first: str, second: str, proportion: float, column: str, digits: int = 0) -> str:
        """Write the difference of two means."""
        first_mean, second_mean = (self.mean(one, proportion, LAST, column) for one in (first, second))
        text = number(first_mean - second_mean, digits)
        return text if text[0] in (MINUS, DASH) else f"+{text}"

    def times(self, first: str, second: str, proportion: float) -> str:
        """Write how many times as long the first one trains, run by run."""
        own, other = (
            self.source.values(*at_proportion(one, proportion), column="train_seconds")
            for one in (first, second)
        )
        return number(fmean(own[seed] / other[seed] for seed in own.keys() & other.keys()))

    def gap(self, where: str, proportions: Iterable[float], known: Kept, model: str = LAST) -> str:
        """Write the share of the gap between ignore and every label that a method closes, at several proportions."""
        top = known.mean("ignore", 1.0, model)
        texts = []
        for one in proportions:
            own, ignored = (self.mean(name, one, model) for name in (where, "ignore"))
            texts.append(f"{100 * (own - ignored) / (top - ignored):.0f}")
        return f"{listed(texts)} %"

    def above_all_known(self, where: str, known: Kept) -> list[float]:
        """Return the proportions at which a method is above training with every label in both epochs."""
        return [
            one
            for one in self.grid.proportions
            if all(self.mean(where, one, model) > known.mean("ignore", 1.0, model) for model in (LAST, BEST))
        ]

    def _estimate(self, where: str, proportion: float, model: str, column: str) -> Estimate:
        method, variant = place(where)
        return self.source.of_model(model).estimate(method, proportion, variant, column)

    @property
    def proportions(self) -> tuple[float, ...]:
        """Proportions that were run."""
        return self.grid.proportions

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that were run."""
        return self.grid.methods

    def count(self) -> str:
        """Write how many of the planned runs are there."""
        names = {grid_run.name for grid_run in self.planned.runs()}
        done = len({row["run"] for row in self.source.results.rows} & names)
        return f"{done:,} of {len(names):,}" if done < len(names) else f"All {len(names):,}"

    def seeds(self, where: str, proportion: float) -> int:
        """Return how many seeds were run."""
        return self._estimate(where, proportion, LAST, "mAP").n

    def claims(self, pairs: Sequence[tuple[str, str]], proportions: Sequence[float] | None = None) -> Said:
        """Return what the tests of a table of differences allow to say."""
        return Said(Claims(self.source, places(pairs), proportions))

    # Grids of variants, of which little is known before they are run.

    @property
    def run_places(self) -> list[str]:
        """What was run, in the order of the grid; then the plain runs that were taken from other grids."""
        there = dict.fromkeys(written(row["method"], row["variant"]) for row in self.source.results.rows)
        planned = dict.fromkeys(written(one.method, one.variant) for one in self.planned.runs())
        return [one for one in dict.fromkeys((*planned, *there)) if one in there]

    @property
    def all_proportions(self) -> tuple[float, ...]:
        """Proportions that anything of the grid was run at, variants included, but not every label."""
        there = {row["proportion"] for row in self.source.results.rows}
        planned = {one.proportion for one in self.planned.runs()}
        return tuple(sorted(one for one in there & planned if one < 1))

    def existing(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the pairs of which both have been run."""
        there = set(self.run_places)
        return [pair for pair in pairs if there.issuperset(pair)]

    def existing_against(self, subject: str, rivals: Sequence[str]) -> list[tuple[str, str]]:
        """Return pairs of one place and all others that have been run."""
        return self.existing([(subject, other) for other in rivals if other != subject])

    def drl_pairs(self) -> list[tuple[str, str]]:
        """Return each reading of the ranking loss against the same training without it."""
        bases = {"sst+drl": "sst", "sst+satl": "sst+sate:sate"}
        pairs = []
        for one in self.run_places:
            method, variant = place(one)
            fused = variant.startswith("fused")
            base = {"sst+drl": "sst:fused", "sst+satl": "sst+sate:fused"} if fused else bases
            if method in base:
                pairs.append((one, base[method]))
        pairs += [("sst:fused", "sst"), ("sst+sate:fused", "sst+sate:sate")]
        return self.existing(pairs)

    def of_methods(self, *further: str) -> list[str]:
        """Return what was run of the methods that the grid has, and of further ones."""
        methods = {one.method for one in self.planned.runs()} | set(further)
        return [one for one in self.run_places if place(one)[0] in methods]

    @property
    def on_validation(self) -> bool:
        """Whether validation images were measured."""
        return bool(self.source.on_validation)

    def overview(self, chosen: Sequence[str] = ()) -> str:
        """Return mAP by proportion, a row for each place; everything that was run if none is chosen.

        With a single proportion there is room for the quality of the pseudo-labels beside it.
        """
        shown = list(chosen) or self.run_places
        if len(self.all_proportions) == 1:
            return self.changes([(one, called(place(one)), "") for one in shown], self.all_proportions)
        make = partial(place_table, places=shown, proportions=self.all_proportions)
        return table(both_epochs(make, self.source))

    def overview_pseudo(self, chosen: Sequence[str] = ()) -> str:
        """Return precision / recall of the pseudo-labels by proportion, where :meth:`overview` has no room for it."""
        if len(self.all_proportions) == 1:
            return ""
        lines = []
        for one in chosen or self.run_places:
            for kind in QUALITIES:
                texts = [self.quality(one, proportion, kind) for proportion in self.all_proportions]
                if any(text != DASH for text in texts):
                    lines.append((f"{called(place(one))}", kind, *texts))
        if not lines:
            return ""
        head = ("pseudo-labels: precision / recall", "over", *map(share, self.all_proportions))
        rule = ("---", *("---:" for _ in head[1:]))
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))

    def framework(self, name: str) -> list[str]:
        """Return the variants of a framework, that of SATE first, and, for SST, methods without a framework."""
        plain = [one for one in self.run_places if ":" not in one and name == "sst"]
        found = [one for one in self.run_places if one.startswith(f"{name}:")]
        return sorted(found, key=lambda one: not one.endswith(":sate")) + plain if found else []

    def _outcomes(self, subject: str, rivals: Sequence[str]) -> dict[float, dict[str, list[str]]]:
        """Return by proportion and outcome against which rules; what one epoch alone shows counts as not shown."""
        pairs = self.existing_against(subject, rivals)
        claims = Claims(self.source, places(pairs), self.all_proportions)
        found: dict[float, dict[str, list[str]]] = {}
        for one in self.all_proportions:
            for (_, other), (first, second) in zip(pairs, claims.pairs, strict=True):
                if claims.test(first, second, one) is not None:
                    outcome = claims.outcome(first, second, one)
                    known = outcome if outcome in (ABOVE, BELOW, UNTESTED) else OPEN
                    found.setdefault(one, {}).setdefault(known, []).append(other)
        return found

    def _leader(self, compared: Sequence[str], proportion: float) -> str:
        means = {one: mean for one in compared if not isnan(mean := self.mean(one, proportion))}
        leader = max(means, key=lambda one: means[one])
        return f"{rule_name(leader)} ({number(means[leader])})"

    def thesis(self, subject: str, rivals: Sequence[str]) -> str:
        """Say at each proportion which rules a rule is higher than, lower than and not different from, a point each."""
        words = {
            ABOVE: "significantly higher than",
            BELOW: "significantly lower than",
            OPEN: "not significantly different from",
            UNTESTED: "of one seed beside",
        }
        lines = []
        for one, outcomes in self._outcomes(subject, rivals).items():
            parts = [
                f"{words[kind]} {listed(map(rule_name, outcomes[kind]))}"
                for kind in words
                if kind in outcomes
            ]
            first = self._leader((subject, *rivals), one)
            lines.append(
                f"- With {share(one)} known {rule_name(subject)} is {', '.join(parts)}. The highest mean of the last "
                f"epoch is that of {first}."
            )
        return "\n".join(lines)

    def thesis_in_short(self, subject: str, rivals: Sequence[str]) -> str:
        """Say the same in numbers of rules."""
        words = {
            ABOVE: "significantly higher than",
            BELOW: "significantly lower than",
            OPEN: "not significantly different from",
            UNTESTED: "untested against",
        }
        parts = []
        for one, outcomes in self._outcomes(subject, rivals).items():
            counts = ", ".join(f"{words[kind]} {len(outcomes[kind])}" for kind in words if kind in outcomes)
            parts.append(
                f"with {share(one)} known {counts}, highest mean {self._leader((subject, *rivals), one)}"
            )
        return "; ".join(parts)

    def said_changes(self, rows: Sequence[tuple[str, str, str]], proportion: float) -> str:
        """Say which rows of a table of changes differ from what they are compared with, as a list."""
        changes = [one for one in self._changes(rows) if one.base is not None]
        pairs = [(one.place, one.base) for one in changes if one.base is not None]
        claims = Claims(self.source, dict.fromkeys(pairs), (proportion,))
        lines = []
        for title, shown in (("Significant with both models", True), ("Not significant", False)):
            found = []
            for change in changes:
                assert change.base is not None
                outcome = claims.outcome(change.place, change.base, proportion)
                if outcome in (ABOVE, BELOW) if shown else outcome not in (ABOVE, BELOW):
                    both = [
                        number(claims.difference(change.place, change.base, proportion, m))
                        for m in (LAST, BEST)
                    ]
                    found.append(f"{change.label} {both[0]} (best {both[1]})")
            if found:
                lines.append(f"- {title}: {'; '.join(found)}.")
        return "\n".join(lines)
