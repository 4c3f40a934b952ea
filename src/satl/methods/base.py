"""A method is data: a network, generators, a threshold rule, and the losses of its two stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from satl.errors import ConfigError, nearest


class Parameters(BaseModel):
    """What a user may set for every method; further parameters come with a method's parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bce_reduction: Literal["known", "sample"] = Field(
        "known", description="Average over all known cells of the batch, or first per image (equation 9)."
    )


class TransferParameters(Parameters):
    """Parameters of the SST framework."""

    pseudo_weight: float = Field(1.0, ge=0, description="Weight of the loss on each generator's labels.")
    cooccurrence_weight: float = Field(10.0, ge=0, description="Weight of the co-occurrence loss.")
    contrast_weight: float = Field(0.05, ge=0, description="Weight of the contrastive loss.")
    bank_size: int = Field(100, ge=1, description="Stored features per class of the cross-image generator.")
    leave_one_out: bool = Field(
        True, description="Score a known positive without itself; false is the published code's score."
    )


class LinearParameters(TransferParameters):
    """Parameters of SST's linear decay of one threshold for all classes."""

    threshold_start: float = Field(0.95, ge=0, le=1, description="Threshold of the first stage-2 epoch.")
    threshold_step: float = Field(0.025, ge=0, description="How much lower each further epoch is.")
    threshold_end: float = Field(0.75, ge=0, le=1, description="The lowest threshold.")


class SemanticParameters(TransferParameters):
    """Parameters of semantic-aware thresholds (SATE)."""

    rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of the way to the ideal threshold per update; by default from the known proportion "
        "(0.3 at 20 %, 0.5 at 50 %, linear between and beyond).",
    )
    negative_quantile: float = Field(0.999, ge=0, le=1, description="Level on known negatives' scores.")
    positive_quantile: float = Field(0.1, ge=0, le=1, description="Level on known positives' scores.")
    bins: int = Field(2048, ge=2, description="Bins of the score histograms.")
    min_count: int = Field(1, ge=1, description="A class with fewer known cells keeps its threshold.")
    convention: Literal["rate", "eq5"] = Field(
        "rate",
        description="'eq5' is the paper's literal equation 5, in which the rate has the opposite sense.",
    )
    update_every: int | None = Field(
        None, ge=1, description="Steps between threshold updates; by default once an epoch."
    )


class RankingParameters(Parameters):
    """Parameters of the differential ranking loss (DRL)."""

    ranking_weight: float = Field(0.01, ge=0, description="Weight of the ranking loss of each generator.")
    ranking_clamp: bool = Field(True, description="The literal loss; false also lifts positives below.")
    ranking_reduction: Literal["batch", "sum", "known"] = Field("batch", description="What to divide by.")


def default_rate(proportion: float) -> float:
    """Return the update rate for a known proportion: the paper's 0.3 at 20 % and 0.5 at 50 %, linear between.

    >>> round(default_rate(0.1), 3), round(default_rate(0.5), 3)
    (0.233, 0.5)
    """
    return min(max(0.3 + (proportion - 0.2) * 2.0 / 3.0, 0.05), 1.0)


@dataclass(frozen=True)
class Method:
    """One way to learn from labels with holes, declared as data.

    The names in ``network``, ``generators``, ``threshold`` and the two stages are looked up in the
    registries of those parts, so a new combination needs no code.
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
    parameters: type[Parameters] = field(default=Parameters)

    @property
    def needs_pairs(self) -> bool:
        """Whether the network needs its pair branch."""
        return "cooccurrence" in self.stage1 + self.stage2 or "intra" in self.generators


METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Make a method known by its name."""
    if method.name in METHODS:
        raise ValueError(f"method {method.name!r} is registered twice.")
    METHODS[method.name] = method
    return method


def get_method(name: str) -> Method:
    """Return a registered method, or say which name was meant."""
    if name not in METHODS:
        raise ConfigError(
            f"method.name: there is no method '{name}'{nearest(name, METHODS)}; known: {', '.join(METHODS)}."
        )
    return METHODS[name]


class Registry(dict[str, Callable[..., Any]]):
    """Builders of one kind of part by name."""

    def register(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a builder to register it."""

        def keep(builder: Callable[..., Any]) -> Callable[..., Any]:
            self[name] = builder
            return builder

        return keep
