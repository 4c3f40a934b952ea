"""What paired tests allow to say."""

from __future__ import annotations

import pytest

from experiments.grids import grid_of, results_of, row
from satl.experiments.results import Results
from satl.experiments.tables.claims import ABOVE, BELOW, OPEN, UNTESTED, Claims
from satl.experiments.tables.table_source import make_source

ONE, OTHER = ("sst+satl", ""), ("sst", "")
SEEDS = (0, 1, 2, 3, 4)
CLEAR = (4.0, 4.1, 3.9, 4.2, 4.0)
NOISE = (4.0, -4.0, 1.0, -1.0, 0.5)


def claims_of(gains: dict[float, tuple[tuple[float, ...], tuple[float, ...]]], seeds=SEEDS) -> Claims:
    """Return claims of made-up gains over SST: proportion -> those of the last and of the best epoch."""
    rows = [
        {
            **row(method, proportion, seed, 50.0 + seed + (gain if method == "sst+satl" else 0.0)),
            "model": model,
        }
        for proportion, both in gains.items()
        for model, values in zip(("last", "best"), both, strict=True)
        for seed, gain in zip(seeds, values, strict=False)
        for method in ("sst", "sst+satl")
    ]
    grid = grid_of(dataset="scenes", methods=["sst", "sst+satl"], proportions=list(gains), seeds=list(seeds))
    return Claims(make_source(grid, Results(rows, (), results_of().facts)), [(ONE, OTHER)])


@pytest.mark.parametrize(
    ("last", "best", "outcome"),
    [
        (CLEAR, CLEAR, ABOVE),
        (tuple(-one for one in CLEAR), tuple(-one for one in CLEAR), BELOW),
        (CLEAR, NOISE, "above, last epoch only"),
        (NOISE, tuple(-one for one in CLEAR), "below, best epoch only"),
        (NOISE, NOISE, OPEN),
        (CLEAR, tuple(-one for one in CLEAR), OPEN),
        (CLEAR[:1], CLEAR[:1], UNTESTED),
    ],
)
def test_a_difference_is_shown_where_both_epochs_show_it(last, best, outcome) -> None:
    assert claims_of({0.1: (last, best)}).outcome(ONE, OTHER, 0.1) == outcome


def test_the_correction_is_over_all_proportions() -> None:
    weak = (1.0, 2.0, 3.0, 1.5, 0.2)  # p 0.026 alone
    alone = claims_of({0.1: (weak, weak)})
    assert alone.outcome(ONE, OTHER, 0.1) == ABOVE
    among = claims_of({0.1: (weak, weak), 0.2: (NOISE, NOISE)})
    assert among.outcome(ONE, OTHER, 0.1) == OPEN
    assert among.test(ONE, OTHER, 0.1).corrected == pytest.approx(
        2 * alone.test(ONE, OTHER, 0.1).test.p_value
    )


def test_verdicts_and_differences_are_written_out() -> None:
    claims = claims_of({0.05: (CLEAR, CLEAR), 0.1: (CLEAR, NOISE), 0.2: (NOISE, NOISE)})
    assert claims.verdict(ONE, OTHER) == (
        "higher at 5 %, higher with the last epoch only at 10 %, not significantly different at 20 %"
    )
    assert claims.differences(ONE, OTHER) == "4.0, 4.0 and 0.1"
    assert claims.where(ONE, OTHER, ABOVE) == [0.05]
    every = claims_of(dict.fromkeys((0.05, 0.1, 0.2), (CLEAR, CLEAR)))
    assert every.verdict(ONE, OTHER) == "higher at every proportion"
    none = claims_of(dict.fromkeys((0.05, 0.1, 0.2), (NOISE, NOISE)))
    assert none.verdict(ONE, OTHER) == "not significantly different at any proportion"
    assert claims_of({0.1: ((), ())}).verdict(ONE, OTHER) == ""
    assert claims_of({0.1: (CLEAR[:1], CLEAR[:1])}).verdict(ONE, OTHER) == "one seed, so no test at 10 %"
