"""Tables of recognition: mAP, F1, ablation, variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from satl.experiments.paper_numbers import ABLATION, FRAMEWORKS, Paper
from satl.experiments.results import RARE, Estimate
from satl.experiments.tables.number_text import DASH, MISSING, number, share, spread, title_of
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table, estimate_rows
from satl.experiments.tables.table_source import TableSource

_ABLATION_TITLES = {(): "", ("sate",): " + SATE", ("drl",): " + DRL", ("sate", "drl"): " + both (SATL)"}
_F1 = ("OF1", "CF1")


def map_table(source: TableSource) -> Table:
    """Return Table 1: mAP by proportion, and the average over the proportions."""
    grid, paper = source.grid, source.paper
    proportions = _all_proportions(source)
    lines = [_map_line(source, method, proportions) for method in grid.methods]
    titles = [title_of(name) for name in grid.methods]
    blocks = [Block(source.ours, estimate_rows(titles, lines, len(grid.seeds)))]
    blocks += _paper_map_blocks(source, proportions)
    return Table(
        key="table-1-map",
        heading="Table 1: mAP",
        title=f"mAP on {source.label}{_beside(paper)}",
        stub="method",
        columns=(*(Column(share(one)) for one in proportions), Column("average")),
        blocks=tuple(blocks),
        notes=(*source.model_notes(), *_average_notes(source), MISSING, *_paper_notes(paper, "table1")),
    )


def rare_table(source: TableSource) -> Table | None:
    """Return the mAP of the rarest third of the classes by proportion; None where no run has it."""
    grid = source.grid
    if not any(source.values(method, one, "", RARE) for method in grid.methods for one in grid.proportions):
        return None
    lines = [
        [
            *(source.estimate(method, one, column=RARE) for one in grid.proportions),
            source.average(method, RARE),
        ]
        for method in grid.methods
    ]
    titles = [title_of(method) for method in grid.methods]
    return Table(
        key="rare-classes",
        heading="Rare classes: mAP of the rarest third",
        title=f"mAP of the rarest third of the classes on {source.label}",
        stub="method",
        columns=(*(Column(share(one)) for one in grid.proportions), Column("average")),
        blocks=(Block(source.ours, estimate_rows(titles, lines, len(grid.seeds))),),
        notes=(
            *source.model_notes(),
            "The rarest third: the classes with the fewest known positives among the images that are measured.",
            MISSING,
        ),
    )


def stability_table(source: TableSource) -> Table | None:
    """Return how far the mAP of a method moves from seed to seed at each proportion; None with a single seed."""
    grid = source.grid
    if len(grid.seeds) < 2:
        return None
    rows = []
    for method in grid.methods:
        spreads = [Estimate.of(source.values(method, one).values()) for one in grid.proportions]
        ranges = [
            max(found) - min(found) if len(found := source.values(method, one).values()) > 1 else None
            for one in grid.proportions
        ]
        there = [one.deviation for one in spreads if one.deviation is not None]
        entries = [
            Entry(f"{number(one.deviation)} ({number(width)})" if width is not None else DASH)
            for one, width in zip(spreads, ranges, strict=True)
        ]
        mean = number(fmean(there)) if len(there) == len(grid.proportions) else DASH
        rows.append(Row(title_of(method), (*entries, Entry(mean))))
    return Table(
        key="stability",
        heading="Spread over the seeds",
        title=f"Spread of mAP over the seeds on {source.label}",
        stub="mAP over the seeds: deviation (range)",
        columns=(*(Column(share(one)) for one in grid.proportions), Column("mean deviation")),
        blocks=(Block(source.ours, tuple(rows)),),
        notes=(
            source.tested,
            f"Points of mAP over the seeds that are there, at most {len(grid.seeds)}. A seed draws the known labels as "
            "well as the weights, so most of it is common to all methods.",
            *source.on_validation,
            MISSING,
        ),
    )


def _paper_map_blocks(source: TableSource, proportions: Sequence[float]) -> list[Block]:
    paper, blocks = source.paper, []
    if paper is None:
        return []
    for dataset in paper.datasets:
        rows = []
        for method in paper.methods("table1", dataset):
            by_proportion, average = paper.map_of(dataset, method)
            entries = [_paper_entry(by_proportion.get(proportion)) for proportion in proportions]
            rows.append(Row(title_of(method), (*entries, _paper_entry(average))))
        blocks.append(Block(source.paper_heading(dataset, "Table 1"), tuple(rows), foreign=True))
    return blocks


def _map_line(source: TableSource, method: str, proportions: Iterable[float]) -> list[Estimate]:
    """Return the estimates of a method by proportion, and that of the average over the grid's proportions."""
    return [*(source.estimate(method, proportion) for proportion in proportions), source.average(method)]


def f1_table(source: TableSource, proportions: Sequence[float] = ()) -> Table:
    """Return Table 2: OF1 and CF1, averages over the proportions, beside those of the paper.

    Args:
        source: the results.
        proportions: where they are shown as well, before the averages.
    """
    grid, paper = source.grid, source.paper
    theirs = _paper_f1(paper)
    methods = tuple(
        dict.fromkeys((*grid.methods, *(method for found in theirs.values() for method in found)))
    )
    lines = [
        [
            *(source.estimate(method, one, column=column) for one in proportions for column in _F1),
            *(source.average(method, column) for column in _F1),
        ]
        for method in methods
    ]
    ours = estimate_rows([title_of(method) for method in methods], lines, len(grid.seeds))
    rows = []
    for method, row in zip(methods, ours, strict=True):
        values = [value for found in theirs.values() for value in found.get(method, (None, None))]
        rows.append(Row(row.label, (*row.entries, *(Entry(number(value)) for value in values))))
    groups = [(share(one), False) for one in proportions]
    groups += [("average" if proportions else source.ours, False)]
    groups += [(source.paper_heading(dataset), True) for dataset in theirs]
    return Table(
        key="table-2-f1",
        heading="Table 2: OF1 and CF1",
        title=f"OF1 and CF1, averages over the proportions, on {source.label}{_beside(paper)}",
        stub="method",
        columns=tuple(Column(label, group, foreign) for group, foreign in groups for label in _F1),
        blocks=(Block("", tuple(rows)),),
        notes=(*source.model_notes(), *_average_notes(source), MISSING, *_paper_notes(paper, "table2")),
    )


def _paper_f1(paper: Paper | None) -> dict[str, dict[str, tuple[float, float]]]:
    """Return OF1 and CF1 of the paper's methods by data set."""
    if paper is None:
        return {}
    return {
        dataset: {method: paper.f1_of(dataset, method) for method in paper.methods("table2", dataset)}
        for dataset in paper.datasets
    }


def ablation_table(source: TableSource) -> Table | None:
    """Return Table 4: each framework alone, with SATE, with DRL, with both; None if the grid has fewer than two."""
    grid, paper = source.grid, source.paper
    proportions = _all_proportions(source)
    blocks = []
    for base in FRAMEWORKS:
        methods = ABLATION[base]
        if sum(method in grid.methods for method in methods.values()) < 2:
            continue
        labels = [title_of(base) + _ABLATION_TITLES[adds] for adds in methods]
        lines = [_map_line(source, method, proportions) for method in methods.values()]
        heading = f"{source.ours}, base {title_of(base)}"
        blocks.append(Block(heading, estimate_rows(labels, lines, len(grid.seeds))))
    if not blocks:
        return None
    blocks += _paper_ablation_blocks(source, proportions)
    return Table(
        key="table-4-ablation",
        heading="Table 4: ablation",
        title=f"Ablation: mAP with the parts of SATL on {source.label}{_beside(paper)}",
        stub="method",
        columns=(*(Column(share(one)) for one in proportions), Column("average")),
        blocks=tuple(blocks),
        notes=(*source.model_notes(), *_average_notes(source), MISSING),
    )


def _paper_ablation_blocks(source: TableSource, proportions: Sequence[float]) -> list[Block]:
    paper, blocks = source.paper, []
    if paper is None:
        return []
    for dataset in paper.datasets:
        rows = []
        for adds, method in ABLATION["sst"].items():
            found = paper.ablation_of(dataset, method)
            assert found is not None
            values = [*(found[0].get(proportion) for proportion in proportions), found[1]]
            label = title_of("sst") + _ABLATION_TITLES[adds]
            rows.append(Row(label, tuple(Entry(number(value)) for value in values)))
        title = f"{source.paper_heading(dataset, 'Table 4')}, base {title_of('sst')}"
        blocks.append(Block(title, tuple(rows), foreign=True))
    return blocks


def variants_table(source: TableSource) -> Table | None:
    """Return mAP of the named variants and their difference from the plain runs, or None without variants."""
    grid, results = source.grid, source.results
    shown = tuple(
        sorted({*grid.proportions, *(one for part in grid.variants for one in part.proportions or ())})
    )
    blocks = []
    for variant in grid.variants:
        rows = []
        seeds = len(variant.seeds or grid.seeds)
        for method in variant.methods or grid.methods:
            proportions = variant.proportions or grid.proportions
            entries = [
                Entry(spread(source.estimate(method, one, variant.name), seeds))
                if one in proportions
                else Entry()
                for one in shown
            ]
            plain = results.paired("mAP", method, proportions, "", source.model)
            changed = results.paired("mAP", method, proportions, variant.name, source.model)
            gain = Estimate.of(
                changed[place] - plain[place] for place in sorted(plain.keys() & changed.keys())
            )
            text = spread(gain, 0)
            entries += [
                Entry(text if gain.mean is None or gain.mean < 0 else f"+{text}"),
                Entry(str(gain.n)),
            ]
            rows.append(Row(title_of(method), tuple(entries)))
        blocks.append(Block(f"{variant.name}: {', '.join(variant.set)} ({source.label})", tuple(rows)))
    if not blocks:
        return None
    return Table(
        key="variants",
        heading="Variants",
        title=f"mAP of the variants on {source.label}",
        stub="method",
        columns=(*(Column(share(one)) for one in shown), Column("against plain"), Column("pairs")),
        blocks=tuple(blocks),
        notes=(
            *_variants_notes(source),
            "Against plain: mean difference from the runs of the same method, proportion and seed without the variant.",
            MISSING,
        ),
    )


def _variants_notes(source: TableSource) -> tuple[str, ...]:
    """Return notes: which model was tested over how many seeds, where every variant may have its own."""
    seeds = {variant.seeds or source.grid.seeds for variant in source.grid.variants}
    if len(seeds) == 1:
        return source.model_notes(*seeds)
    spread_note = "In per cent; mean ± standard deviation over the seeds of each variant."
    return source.tested, spread_note, *source.on_validation


def _all_proportions(source: TableSource) -> tuple[float, ...]:
    in_paper = source.paper.proportions if source.paper else ()
    return tuple(sorted({*source.grid.proportions, *in_paper}))


def _beside(paper: Paper | None) -> str:
    return " beside the paper" if paper else ""


def _paper_notes(paper: Paper | None, table: str) -> tuple[str, ...]:
    return paper.notes(table) if paper else ()


def _paper_entry(value: tuple[float, float] | None) -> Entry:
    return Entry() if value is None else Entry(spread(Estimate(value[0], value[1], 2), 0))


def _average_notes(source: TableSource) -> Sequence[str]:
    """Return a note: over which proportions averages are, and whether the paper's are over the same."""
    ours = tuple(sorted(source.grid.proportions))
    text = "Averages are taken for each seed over its proportions"
    if source.paper is None:
        return (f"{text}.",)
    if ours == source.paper.proportions:
        return (f"{text}, the six of the paper.",)
    shown = ", ".join(share(one) for one in ours)
    theirs = f"{share(source.paper.proportions[0])} to {share(source.paper.proportions[-1])}"
    return (f"{text} ({shown}); the paper's are over {theirs}, so that averages cannot be compared.",)
