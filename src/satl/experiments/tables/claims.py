"""What a set of paired tests allows to say: where one method is above another, in words made from the numbers.

A difference counts as shown where the models of both epochs, the last and the best validated one, differ in the same
direction with a p-value below 0.05 after Holm's correction. Since both must show it, the two need no correction between
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from satl.experiments.tables.both_epochs import BEST, LAST
from satl.experiments.tables.difference_tables import Place, Tested, paired_tests
from satl.experiments.tables.number_text import number
from satl.experiments.tables.table_source import TableSource

ALPHA = 0.05
ABOVE, BELOW, OPEN, UNTESTED = "above", "below", "open", "untested"
_ONE_EPOCH = {
    (outcome, model): f"{outcome}, {model} epoch only" for outcome in (ABOVE, BELOW) for model in (LAST, BEST)
}
_WORDS = {
    ABOVE: "higher",
    BELOW: "lower",
    **{
        text: f"{'higher' if outcome == ABOVE else 'lower'} with the {model} epoch only"
        for (outcome, model), text in _ONE_EPOCH.items()
    },
    OPEN: "not significantly different",
    UNTESTED: "one seed, so no test",
}


class Claims:
    """The comparisons of one table, and what they show.

    Args:
        source: the results.
        pairs: what is compared: methods, or methods and variants.
        proportions: where; None for those of the grid.
    """

    def __init__(
        self,
        source: TableSource,
        pairs: Iterable[tuple[Place, Place]],
        proportions: Sequence[float] | None = None,
    ) -> None:
        self.source = source
        self.pairs = list(pairs)
        self.proportions = tuple(source.grid.proportions if proportions is None else proportions)
        self._tests = {
            model: paired_tests(source.of_model(model), self.pairs, self.proportions)
            for model in (LAST, BEST)
        }

    def test(self, first: Place, second: Place, proportion: float, model: str = LAST) -> Tested | None:
        """Return the test of a difference, or None where no seed has both."""
        return self._tests[model].get((first, second, proportion))

    def difference(self, first: Place, second: Place, proportion: float, model: str = LAST) -> float | None:
        """Return the mean difference over the seeds that both have; None without such a seed."""
        tested = self.test(first, second, proportion, model)
        return None if tested is None else tested.test.mean_difference

    def outcome(self, first: Place, second: Place, proportion: float) -> str:
        """Return what the two tests of a difference come to.

        Returns:
            ``above`` or ``below`` where the difference is shown; the same and ``, last epoch only`` (or ``best``) where
            one model alone shows it; ``open`` where neither does or they contradict each other; ``untested`` where
            there are not two seeds.
        """
        tests = {model: self.test(first, second, proportion, model) for model in (LAST, BEST)}
        if any(one is None or one.test.n == 1 for one in tests.values()):
            return UNTESTED
        found = {model: _sign(one) for model, one in tests.items() if one is not None}
        if len(set(found.values())) == 1:
            return found[LAST]
        shown = [(outcome, model) for model, outcome in found.items() if outcome != OPEN]
        return _ONE_EPOCH[shown[0]] if len(shown) == 1 else OPEN

    def where(self, first: Place, second: Place, outcome: str) -> list[float]:
        """Return the proportions with an outcome."""
        return [one for one in self.proportions if self.outcome(first, second, one) == outcome]

    def verdict(self, first: Place, second: Place) -> str:
        """Say where the first is significantly higher or lower than the second.

        Returns:
            For example ``higher at 5 and 10 %, not significantly different at 20 %``; empty where no seed has both.
        """
        there = [one for one in self.proportions if self.test(first, second, one) is not None]
        parts = []
        for outcome, text in _WORDS.items():
            found = [one for one in there if self.outcome(first, second, one) == outcome]
            if found:
                every = "any proportion" if outcome == OPEN else "every proportion"
                parts.append(
                    f"{text} at {every if len(found) == len(self.proportions) > 2 else shares(found)}"
                )
        return ", ".join(parts)

    def differences(self, first: Place, second: Place, model: str = LAST) -> str:
        """Write the differences at all proportions, one after the other."""
        return listed(number(self.difference(first, second, one, model)) for one in self.proportions)


def _sign(tested: Tested) -> str:
    if not tested.corrected < ALPHA:
        return OPEN
    return ABOVE if tested.test.mean_difference > 0 else BELOW


def listed(texts: Iterable[str]) -> str:
    """Write a list.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *head, last = texts
    return f"{', '.join(head)} and {last}" if head else last


def shares(proportions: Iterable[float]) -> str:
    """Write proportions with one sign.

    >>> shares([0.05, 0.1, 0.125])
    '5, 10 and 12.5 %'
    """
    return f"{listed(f'{100 * one:.6g}' for one in proportions)} %"
