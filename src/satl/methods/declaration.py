"""A method is data: a network, generators, a threshold rule, and the losses of its two stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model, field_validator
from pydantic.fields import FieldInfo

from satl.errors import ConfigError, nearest

TEACHER_DECAY = 0.995
"""Decay of a teacher's weights where neither the configuration nor the method's parameters name one."""


class Parameters(BaseModel):
    """What a user may set for every method; further parameters come with a method's parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bce_reduction: Literal["known", "sample"] = Field(
        "known", description="Average over all known cells of the batch, or first per image (equation 9)."
    )

    def __reduce_ex__(self, protocol: Any) -> Any:
        made_of = _MADE_OF.get(type(self))
        if made_of is None:
            return super().__reduce_ex__(protocol)
        # A model that was made while satl runs has no name to be found by, so it is made again.
        return _empty, made_of, self.__getstate__()


class PseudoParameters(Parameters):
    """Parameters of the loss on pseudo-labels."""

    pseudo_weight: float = Field(1.0, ge=0, description="Weight of the loss on each generator's labels.")


class CooccurrenceParameters(Parameters):
    """Parameters of the co-occurrence loss."""

    cooccurrence_weight: float = Field(10.0, ge=0, description="Weight of the co-occurrence loss.")


class ContrastParameters(Parameters):
    """Parameters of the contrastive loss."""

    contrast_weight: float = Field(0.05, ge=0, description="Weight of the contrastive loss.")


class LeaveOneOutParameters(Parameters):
    """Parameters of generators that compare known positives with each other."""

    leave_one_out: bool = Field(
        True,
        description="Score a known positive without itself; false counts it too, as the published code does (which "
        "also counts empty places of the bank as 0).",
    )


class BankParameters(LeaveOneOutParameters):
    """Parameters of the cross-image generator."""

    bank_size: int = Field(100, ge=1, description="Stored features per class of the cross-image generator.")


class LinearParameters(Parameters):
    """Parameters of SST's linear decay of one threshold for all classes."""

    threshold_start: float = Field(0.95, ge=0, le=1, description="Threshold of the first stage-2 epoch.")
    threshold_step: float = Field(0.025, ge=0, description="How much lower each further epoch is.")
    threshold_end: float = Field(0.75, ge=0, le=1, validate_default=True, description="The lowest threshold.")

    @field_validator("threshold_end")
    @classmethod
    def _not_above_the_start(cls, value: float, info: ValidationInfo) -> float:
        return not_above(value, info, "threshold_start")


class HistogramParameters(Parameters):
    """Parameters of rules that estimate thresholds from histograms of scores."""

    bins: int = Field(2048, ge=2, description="Bins of the score histograms.")
    min_count: int = Field(1, ge=1, description="A class with fewer known cells keeps its threshold.")


class SemanticParameters(HistogramParameters):
    """Parameters of semantic-aware thresholds (SATE)."""

    rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of the way to the ideal threshold per update; none: from the known proportion "
        "(0.3 at 20 %, 0.5 at 50 %, linear between and beyond).",
    )
    negative_quantile: float = Field(0.999, ge=0, le=1, description="Level on known negatives' scores.")
    positive_quantile: float = Field(0.1, ge=0, le=1, description="Level on known positives' scores.")
    negatives_per_positive: float = Field(
        0.0,
        ge=0,
        description="Known negatives that may lie above the threshold for each known positive of the class, where that "
        "is more than negative_quantile lets pass: for classes that most images show. For scores that are "
        "probabilities (generators teacher and probability). 0 is the paper's rule.",
    )
    threshold_floor: float = Field(
        0.0,
        ge=0,
        le=1,
        description="The lowest threshold of a class for scores that are probabilities (generators teacher and "
        "probability). 0 is the paper's rule.",
    )
    convention: Literal["rate", "eq5"] = Field(
        "rate",
        description="'eq5' is the paper's literal equation 5, in which the rate has the opposite sense.",
    )
    update_every: int | None = Field(
        None,
        ge=1,
        description="About so many steps between threshold updates, spread evenly; by default once an epoch.",
    )


class RankingParameters(Parameters):
    """Parameters of the differential ranking loss (DRL)."""

    ranking_weight: float = Field(0.01, ge=0, description="Weight of the ranking loss of each generator.")
    ranking_clamp: bool = Field(True, description="The literal loss; false also lifts positives below.")
    ranking_reduction: Literal["batch", "sum", "known"] = Field("batch", description="What to divide by.")


def not_above(value: float, info: ValidationInfo, other: str) -> float:
    """Return a value, or refuse one that is above that of another field."""
    if value > info.data.get(other, value):
        raise ValueError(f"must not be above {other} ({info.data[other]})")
    return value


def default_rate(proportion: float) -> float:
    """Return the update rate for a known proportion: the paper's 0.3 at 20 % and 0.5 at 50 %, linear between.

    >>> round(default_rate(0.1), 3), round(default_rate(0.5), 3)
    (0.233, 0.5)
    """
    return min(max(0.3 + (proportion - 0.2) * 2.0 / 3.0, 0.05), 1.0)


RESERVED = ("name", "threshold", "generators")
"""Keys of the section ``method`` that choose the method and its parts, so that no parameter can be set by them."""

NEEDS = ("pairs", "teacher", "noise", "mixed")
"""What a part may need of the step, beside the scores of a generator."""


@dataclass(frozen=True)
class Part:
    """A generator, threshold rule, loss term or network that methods name."""

    build: Callable[..., Any]
    parameters: type[Parameters]
    """What a user may set once a method names this part."""
    needs: frozenset[str]
    """What the step must bring for it, of :data:`NEEDS`: ``pairs`` (the pair branch), ``teacher`` (an average of
    weights), ``noise``, ``mixed`` (images); or the scores of a generator (``prototype scores``)."""
    ramped: bool
    """Whether a loss term grows from 0 to its weight during the first epoch, as two of SST's do."""

    def __call__(self, *arguments: Any) -> Any:
        """Build the part, or compute the loss term."""
        return self.build(*arguments)

    @property
    def summary(self) -> str:
        """What the part is, in a sentence."""
        return (self.build.__doc__ or self.parameters.__doc__ or "").splitlines()[0]

    @property
    def own_fields(self) -> dict[str, FieldInfo]:
        """What this part adds to the parameters that every method has."""
        common = Parameters.model_fields
        return {name: field for name, field in self.parameters.model_fields.items() if name not in common}


class Registry(dict[str, Part]):
    """Parts of one kind by name."""

    def register(
        self,
        name: str,
        parameters: type[Parameters] = Parameters,
        needs: Iterable[str] = (),
        ramped: bool = False,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a builder to register it.

        Raises:
            ValueError: the name is taken, ``needs`` has a word that no step knows, or a parameter is called like a key
                that every method has.
        """
        for key in RESERVED:
            if key in parameters.model_fields:
                raise ValueError(
                    f"part {name!r}: a parameter must not be called {key!r}, because method.{key} is a key of every "
                    "method; give it another name."
                )
        wanted = (needs,) if isinstance(needs, str) else tuple(needs)
        for need in wanted:
            # The generator may be registered later; `register_method` sees whether the method has it.
            if need not in NEEDS and not need.endswith(" scores"):
                raise ValueError(
                    f"part {name!r}: needs names {need!r}, which no step brings{nearest(need, NEEDS)}; known: "
                    f"{', '.join(NEEDS)}, and 'NAME scores' of a generator NAME."
                )

        def keep(build: Callable[..., Any]) -> Callable[..., Any]:
            if name in self:
                raise ValueError(f"part {name!r} is registered twice.")
            self[name] = Part(build, parameters, frozenset(wanted), ramped)
            return build

        return keep


GENERATORS = Registry()
RULES = Registry()
TERMS = Registry()
NETWORKS = Registry()


@dataclass(frozen=True)
class Method:
    """One way to learn from labels with holes, declared as data.

    The names in ``network``, ``generators``, ``threshold`` and the two stages are looked up in the
    registries of those parts, so a new combination needs no code. What a user may set follows from the parts.
    """

    name: str
    summary: str
    reference: str
    stage1: tuple[str, ...]
    """Loss terms while no pseudo-labels are used."""
    stage2: tuple[str, ...]
    """Loss terms once they are."""
    network: str = "transfer"
    generators: tuple[str, ...] = ()
    threshold: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of parameters that differ from those of the parts."""
    base: str | None = None
    """The method that this one extends, by name."""
    adds: tuple[str, ...] = ()
    """What it adds to its base: ``sate``, ``drl``."""

    @property
    def framework(self) -> str:
        """The name of the base, or the method's own name where it extends none."""
        return self.name if self.base is None else self.base

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of the method, once."""
        rules = () if self.threshold is None else (RULES[self.threshold],)
        terms = dict.fromkeys(self.stage1 + self.stage2)
        return (
            NETWORKS[self.network],
            *(TERMS[name] for name in terms),
            *(GENERATORS[name] for name in self.generators),
            *rules,
        )

    @property
    def parameters(self) -> type[Parameters]:
        """The model of what a user may set: the parameters of all parts together."""
        models = dict.fromkeys(part.parameters for part in self.parts)
        return _joined(tuple(models), tuple(self.defaults.items()))

    def needs(self, what: str) -> bool:
        """Whether some part needs ``pairs``, a ``teacher``, ``noise``, ``mixed`` images or a generator's scores."""
        return any(what in part.needs for part in self.parts)

    def with_generators(self, names: tuple[str, ...]) -> Method:
        """Return the same method with some of its generators only.

        >>> from satl.methods import get_method
        >>> "bank_size" in get_method("satl+").with_generators(("teacher",)).parameters.model_fields
        False
        """
        if not self.generators:
            raise ConfigError(
                f"method.generators: method '{self.name}' makes no pseudo-labels, so there is none to choose; remove "
                "the key."
            )
        strange = [name for name in names if name not in self.generators]
        if strange or not names or len(set(names)) < len(names):
            problem = f"there is no '{strange[0]}'" if strange else "name at least one, and each once"
            raise ConfigError(
                f"method.generators: {problem}; those of method '{self.name}' are {', '.join(self.generators)}."
            )
        for name in self.generators:
            if name not in names and self.needs(f"{name} scores"):
                raise ConfigError(
                    f"method.generators: a loss of method '{self.name}' is about the scores of '{name}'; keep it."
                )
        # In the order of the method, so that the same choice is the same run.
        chosen = replace(self, generators=tuple(name for name in self.generators if name in names))
        kept = {name for part in chosen.parts for name in part.parameters.model_fields}
        return replace(
            chosen, defaults={name: value for name, value in self.defaults.items() if name in kept}
        )

    def with_threshold(self, rule: str) -> Method:
        """Return the same method with another threshold rule.

        >>> from satl.methods import get_method
        >>> "rate" in get_method("sst").with_threshold("semantic").parameters.model_fields
        True
        """
        if rule not in RULES:
            raise ConfigError(
                f"method.threshold: there is no rule '{rule}'{nearest(rule, RULES)}; known: {', '.join(RULES)}."
            )
        if self.threshold is None:
            raise ConfigError(
                f"method.threshold: method '{self.name}' makes no pseudo-labels, so there is no threshold to choose; "
                "remove the key."
            )
        if rule == self.threshold:
            return self
        others = {name for part in replace(self, threshold=None).parts for name in part.own_fields}
        gone = RULES[self.threshold].own_fields.keys() - others
        kept = {name: value for name, value in self.defaults.items() if name not in gone}
        return replace(self, threshold=rule, defaults=kept)


_MADE_OF: dict[type[Parameters], tuple[tuple[type[Parameters], ...], tuple[tuple[str, Any], ...]]] = {}
"""What :func:`_joined` made each model from."""


@cache
def _joined(models: tuple[type[Parameters], ...], defaults: tuple[tuple[str, Any], ...]) -> type[Parameters]:
    """Return one model with the fields of all, with some defaults replaced."""
    bases = tuple(
        model
        for model in models
        if not any(other is not model and issubclass(other, model) for other in models)
    )
    make: Any = create_model  # the type checker takes a direct call for the definition of a class
    joined: Any = bases[0] if len(bases) == 1 else make("MethodParameters", __base__=bases)
    if defaults:
        changed: dict[str, Any] = {}
        for name, value in defaults:
            own = copy(joined.model_fields[name])
            own.default = value
            changed[name] = (own.annotation, own)
        joined = make("MethodParameters", __base__=joined, **changed)
    result: type[Parameters] = joined
    if result not in models:
        _MADE_OF[result] = (models, defaults)
    return result


def _empty(models: tuple[type[Parameters], ...], defaults: tuple[tuple[str, Any], ...]) -> Parameters:
    """Return parameters without values, for :mod:`pickle` to fill in."""
    made = _joined(models, defaults)
    return made.__new__(made)
