"""The tables of recognition: mAP, F1, ablation, variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from satl.experiments.results import Estimate
from satl.experiments.tables import (
    MISSING,
    Block,
    Column,
    Entry,
    Row,
    Study,
    Table,
    estimate_rows,
    number,
    share,
    spread,
    title_of,
)

_PARTS = ("", "+sate", "+drl", "+satl")
_PART_TITLES = {"": "", "+sate": " + SATE", "+drl": " + DRL", "+satl": " + both (SATL)"}


def map_table(study: Study) -> Table:
    """Return Table 1: mAP by proportion and its average over the proportions."""
    grid, paper = study.grid, study.paper
    columns = _all_proportions(study)
    lines = [map_line(study, method, columns) for method in grid.methods]
    blocks = [
        Block(study.ours, estimate_rows([title_of(name) for name in grid.methods], lines, len(grid.seeds)))
    ]
    for dataset in paper.datasets:
        rows = []
        for method in paper.methods("table1", dataset):
            found, average = paper.map_of(dataset, method)
            entries = [_printed(found.get(proportion)) for proportion in columns]
            rows.append(Row(title_of(method), (*entries, _printed(average))))
        blocks.append(Block(study.theirs(dataset, "Table 1"), tuple(rows), foreign=True))
    return Table(
        key=_key("table-1-map", study),
        heading="Table 1: mAP",
        title=f"mAP on {study.label} beside the paper",
        stub="method",
        columns=(*(Column(share(one)) for one in columns), Column("average")),
        blocks=tuple(blocks),
        notes=(study.model_note(), *_average_notes(study), MISSING, *paper.notes("table1")),
    )


def map_line(
    study: Study, method: str, columns: Iterable[float], variant: str = "", column: str = "mAP"
) -> list[Estimate]:
    """Return the estimates of a method by proportion, and that of the average over the grid's proportions."""
    results, model = study.results, study.model
    line = [Estimate.of(results.by_seed(column, method, one, variant, model).values()) for one in columns]
    average = results.averages(column, method, study.grid.proportions, variant, model)
    return [*line, Estimate.of(average.values())]


def f1_table(study: Study) -> Table:
    """Return Table 2: OF1 and CF1, averages over the proportions, with the paper's in the next columns."""
    grid, paper = study.grid, study.paper
    known = dict.fromkeys(
        (*grid.methods, *(m for dataset in paper.datasets for m in paper.methods("table2", dataset)))
    )
    lines = [
        [map_line(study, method, (), column=column)[-1] for column in ("OF1", "CF1")] for method in known
    ]
    ours = estimate_rows([title_of(method) for method in known], lines, len(grid.seeds))
    rows = []
    for method, row in zip(known, ours, strict=True):
        theirs: list[Entry] = []
        for dataset in paper.datasets:
            theirs += (Entry(number(value)) for value in paper.f1_of(dataset, method) or (None, None))
        rows.append(Row(row.label, (*row.entries, *theirs)))
    groups = [(study.ours, False), *((study.theirs(dataset), True) for dataset in paper.datasets)]
    return Table(
        key=_key("table-2-f1", study),
        heading="Table 2: OF1 and CF1",
        title=f"OF1 and CF1, averages over the proportions, on {study.label} beside the paper",
        stub="method",
        columns=tuple(Column(label, group, foreign) for group, foreign in groups for label in ("OF1", "CF1")),
        blocks=(Block("", tuple(rows)),),
        notes=(study.model_note(), *_average_notes(study), MISSING, *paper.notes("table2")),
    )


def ablation_table(study: Study) -> Table | None:
    """Return the table of the parts of SATL on each base, or None if the grid has none of them."""
    grid, paper = study.grid, study.paper
    columns = _all_proportions(study)
    blocks = []
    for base in ("sst", "hst"):
        methods = [base + part for part in _PARTS]
        if sum(method in grid.methods for method in methods) < 2:
            continue
        labels = [title_of(base) + _PART_TITLES[part] for part in _PARTS]
        lines = [map_line(study, method, columns) for method in methods]
        blocks.append(
            Block(f"{study.ours}, base {title_of(base)}", estimate_rows(labels, lines, len(grid.seeds)))
        )
    if not blocks:
        return None
    for dataset in paper.datasets:
        rows = []
        for part in _PARTS:
            found = paper.ablation_of(dataset, f"sst{part}")
            assert found is not None
            values = [*(found[0].get(proportion) for proportion in columns), found[1]]
            label = title_of("sst") + _PART_TITLES[part]
            rows.append(Row(label, tuple(Entry(number(value)) for value in values)))
        title = f"{study.theirs(dataset, 'Table 4')}, base {title_of('sst')}"
        blocks.append(Block(title, tuple(rows), foreign=True))
    return Table(
        key=_key("table-4-ablation", study),
        heading="Table 4: ablation",
        title=f"Ablation: mAP with the parts of SATL on {study.label} beside the paper",
        stub="method",
        columns=(*(Column(share(one)) for one in columns), Column("average")),
        blocks=tuple(blocks),
        notes=(study.model_note(), *_average_notes(study), MISSING),
    )


def variants_table(study: Study) -> Table | None:
    """Return mAP of the named variants and their difference from the plain runs, or None without variants."""
    grid, results = study.grid, study.results
    blocks = []
    for variant in grid.variants:
        rows = []
        for method in variant.methods or grid.methods:
            proportions = variant.proportions or grid.proportions
            entries = [
                Entry(
                    spread(
                        Estimate.of(results.by_seed("mAP", method, one, variant.name, study.model).values()),
                        len(variant.seeds or grid.seeds),
                    )
                )
                if one in proportions
                else Entry()
                for one in _ours(study)
            ]
            plain = results.paired("mAP", method, proportions, "", study.model)
            changed = results.paired("mAP", method, proportions, variant.name, study.model)
            shared = sorted(plain.keys() & changed.keys())
            gain = Estimate.of(changed[place] - plain[place] for place in shared)
            text = spread(gain, 0)
            entries += [
                Entry(text if gain.mean is None or gain.mean < 0 else f"+{text}"),
                Entry(str(gain.n)),
            ]
            rows.append(Row(title_of(method), tuple(entries)))
        settings = ", ".join(variant.set)
        blocks.append(Block(f"{variant.name}: {settings} ({study.label})", tuple(rows)))
    if not blocks:
        return None
    return Table(
        key=_key("variants", study),
        heading="Variants",
        title=f"mAP of the variants on {study.label}",
        stub="method",
        columns=(
            *(Column(share(one)) for one in _ours(study)),
            Column("against plain"),
            Column("pairs"),
        ),
        blocks=tuple(blocks),
        notes=(
            _variants_note(study),
            "Against plain: mean difference from the runs of the same method, proportion and seed without the variant.",
            MISSING,
        ),
    )


def _variants_note(study: Study) -> str:
    """Say which model was tested over how many seeds, where every variant may have its own."""
    seeds = {variant.seeds or study.grid.seeds for variant in study.grid.variants}
    if len(seeds) == 1:
        return study.model_note(*seeds)
    return f"{study.tested}, in per cent; mean ± standard deviation over the seeds of each variant."


def _key(name: str, study: Study) -> str:
    return name if study.model == "best" else f"{name}-{study.model}"


def _ours(study: Study) -> tuple[float, ...]:
    """Return every proportion of the grid, variants included."""
    parts = (part.proportions or () for part in study.grid.variants)
    return tuple(sorted({*study.grid.proportions, *(one for part in parts for one in part)}))


def _all_proportions(study: Study) -> tuple[float, ...]:
    return tuple(sorted({*study.grid.proportions, *study.paper.proportions}))


def _printed(value: tuple[float, float] | None) -> Entry:
    return Entry() if value is None else Entry(spread(Estimate(value[0], value[1], 2), 0))


def _average_notes(study: Study) -> Sequence[str]:
    """Say over which proportions averages are, if not over those of the paper."""
    ours = tuple(sorted(study.grid.proportions))
    text = "Averages are taken for each seed over its proportions"
    if ours == study.paper.proportions:
        return (f"{text}, the six of the paper.",)
    shown = ", ".join(share(one) for one in ours)
    theirs = f"{share(study.paper.proportions[0])} to {share(study.paper.proportions[-1])}"
    return (f"{text} ({shown}); the paper's are over {theirs}, so that averages cannot be compared.",)
