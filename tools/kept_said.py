"""Claims in the words of the results page."""

from __future__ import annotations

from collections.abc import Sequence

from kept_places import called, place

from satl.experiments.tables.both_epochs import BEST, LAST
from satl.experiments.tables.claims import ABOVE, Claims, shares
from satl.experiments.tables.number_text import DASH, number


class Said:
    """Claims, with places as templates write them."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims

    def verdict(self, first: str, second: str) -> str:
        """Say where the first is above or below the second."""
        return self.claims.verdict(place(first), place(second))

    def tested(self, first: str, second: str) -> bool:
        """Whether there is a test, with two seeds at least, at some proportion."""
        tests = [self.claims.test(place(first), place(second), one) for one in self.claims.proportions]
        return any(one is not None and one.test.n > 1 for one in tests)

    def differences(self, first: str, second: str) -> str:
        """Write all differences of the last epoch, and those of the best one."""
        last, best = (self.claims.differences(place(first), place(second), model) for model in (LAST, BEST))
        return f"{last} (best {best})"

    def difference(self, first: str, second: str, proportion: float, model: str = LAST) -> str:
        """Write one difference."""
        return number(self.claims.difference(place(first), place(second), proportion, model))

    def both(self, first: str, second: str, proportion: float) -> str:
        """Write one difference of the last epoch, and in brackets that of the best one."""
        best = self.difference(first, second, proportion, BEST)
        return f"{self.difference(first, second, proportion)} (best {best})"

    def interval(self, first: str, second: str, proportion: float, model: str = LAST) -> str:
        """Write the 95 % interval."""
        tested = self.claims.test(place(first), place(second), proportion, model)
        if tested is None or tested.test.n == 1:
            return DASH
        return f"{number(tested.test.interval_low)} to {number(tested.test.interval_high)}"

    def higher(
        self, first: str, second: str, models: Sequence[str] = (LAST, BEST), since: float = 0.0
    ) -> bool:
        """Whether the first has the higher mean at all proportions from one on, shown or not."""
        pairs, sign = self.claims.pairs, 1
        if (place(first), place(second)) not in pairs:
            first, second, sign = second, first, -1
        found = [
            self.claims.difference(place(first), place(second), one, model)
            for one in self.claims.proportions
            if one >= since
            for model in models
        ]
        return all(one is not None and sign * one > 0 for one in found)

    def equal(self, first: str, second: str) -> bool:
        """Whether the two have the same numbers at all proportions."""
        return {
            self.claims.difference(place(first), place(second), one, model)
            for one in self.claims.proportions
            for model in (LAST, BEST)
        } == {0.0}

    def where(self, first: str, second: str, outcome: str) -> list[float]:
        """Return the proportions with an outcome."""
        return self.claims.where(place(first), place(second), outcome)

    def everywhere(self, first: str, second: str, outcome: str) -> bool:
        """Whether it is so at all proportions."""
        return len(self.where(first, second, outcome)) == len(self.claims.proportions)

    def shown_above(self) -> str:
        """Name the comparisons in which the first is shown above at some proportion; empty if there is none."""
        return "; ".join(
            f"{called(first)} against {called(second)} at {shares(found)}"
            for first, second in self.claims.pairs
            if (found := self.claims.where(first, second, ABOVE))
        )

    def sentences(self) -> str:
        """Say what the comparisons come to, a line for all with one outcome; those that were not run are left out."""
        found: dict[str, list[str]] = {}
        for first, second in self.claims.pairs:
            if verdict := self.claims.verdict(first, second):
                found.setdefault(verdict, []).append(f"{called(first)} against {called(second)}")
        return "\n".join(
            f"- {verdict[0].upper()}{verdict[1:]}: {'; '.join(names)}." for verdict, names in found.items()
        )
