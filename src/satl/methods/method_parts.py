"""The registries of parts that methods name: networks, generators, threshold rules and loss terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from satl.errors import nearest
from satl.methods.parameters import Parameters

NEEDS = ("pairs", "teacher", "noise", "mixed", "generators", "vectors", "map")
"""What a part may need of a step, beside the scores of one generator."""

AnyBuild = TypeVar("AnyBuild", bound=Callable[..., Any])


@dataclass(frozen=True)
class MethodPart:
    """A network, generator, threshold rule or loss term that methods name."""

    build: Callable[[Any, Any], Any]
    """Builds the part, or computes the loss term, from a context and the part's own parameters."""
    parameters: type[Parameters]
    """What a user may set in the part's section."""
    needs: frozenset[str]
    """What the step must provide, of :data:`NEEDS`: ``pairs`` (the pair branch), ``teacher`` (an average of weights),
    ``noise`` (random numbers), ``mixed`` (mixed images), ``generators`` (at least one, so stage 2), ``vectors``
    (features instead of images), ``map`` (a feature map with more than one position, so images); or the scores of one
    generator (``prototype scores``)."""
    ramped: bool
    """Whether a loss term grows from 0 to its weight during the first epoch, as two of SST's do."""
    for_any: bool = False
    """Whether a configuration may add this loss term, in both stages, or this generator to a method that does not name
    it."""
    gives: frozenset[str] = frozenset()
    """What a network brings to the step of what other parts need: ``pairs``."""

    @property
    def summary(self) -> str:
        """What the part is, in a sentence."""
        return (self.build.__doc__ or self.parameters.__doc__ or "").splitlines()[0]


class Registry(dict[str, MethodPart]):
    """Parts of one kind by name."""

    def register(
        self,
        name: str,
        parameters: type[Parameters] = Parameters,
        needs: Iterable[str] = (),
        ramped: bool = False,
        for_any: bool = False,
        gives: Iterable[str] = (),
    ) -> Callable[[AnyBuild], AnyBuild]:
        """Decorate a function of a context and the part's parameters to register it.

        Args:
            name: what methods call the part.
            parameters: the model of what a user may set for it.
            needs: what the step must provide; see :class:`MethodPart`.
            ramped: whether a loss term grows during the first epoch.
            for_any: whether a configuration may add this loss term to any method, or this generator to any with some.
            gives: what a network brings of what other parts need.

        Raises:
            ValueError: the name is taken, or ``needs`` has a word that no step knows.
        """
        wanted = (needs,) if isinstance(needs, str) else tuple(needs)
        for need in wanted:
            # The generator may be registered later; `register_method` sees whether the method has it.
            if need not in NEEDS and not need.endswith(" scores"):
                raise ValueError(
                    f"part {name!r}: needs names {need!r}, which no step brings{nearest(need, NEEDS)}; known: "
                    f"{', '.join(NEEDS)}, and 'NAME scores' of a generator NAME."
                )

        def keep(build: AnyBuild) -> AnyBuild:
            if name in self:
                raise ValueError(f"part {name!r} is registered twice.")
            self[name] = MethodPart(build, parameters, frozenset(wanted), ramped, for_any, frozenset(gives))
            return build

        return keep


NETWORKS = Registry()
GENERATORS = Registry()
RULES = Registry()
LOSSES = Registry()
