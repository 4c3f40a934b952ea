"""Parameters as they were called before each part of a method had a section of its own.

A run folder of that time is still read; in a configuration an old key is answered with the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satl.methods.registry import METHODS

_LOSSES_WITH_REDUCTION = ("classification", "pseudo", "asymmetric", "assumed", "curriculum")
_COMPARING = ("intra", "cross", "prototype")

OLD_KEYS: dict[str, tuple[str, ...]] = {
    "threshold": ("thresholds.rule",),
    "bce_reduction": tuple(f"losses.{name}.reduction" for name in _LOSSES_WITH_REDUCTION),
    "leave_one_out": tuple(f"generators.{name}.leave_one_out" for name in _COMPARING),
    "bank_size": ("generators.cross.bank_size",),
    "prototypes": ("generators.prototype.size",),
    "prototype_every": ("generators.prototype.every",),
    "prototype_samples": ("generators.prototype.samples",),
    **{
        f"{name}_weight": (f"losses.{name}.weight",)
        for name in ("pseudo", "cooccurrence", "contrast", "ranking")
    },
    "ranking_clamp": ("losses.ranking.clamp",),
    "ranking_reduction": ("losses.ranking.reduction",),
    "prototype_weight": ("losses.prototype_contrast.weight",),
    "prototype_sign": ("losses.prototype_contrast.sign",),
    "mix_weight": ("losses.mixed.weight",),
    "gamma_positive": ("losses.asymmetric.gamma_positive",),
    "gamma_negative": ("losses.asymmetric.gamma_negative",),
    "margin": ("losses.asymmetric.margin",),
    "focal_margin": ("losses.self_paced.margin",),
    "focal_gamma": ("losses.self_paced.gamma",),
    "variant": ("losses.large_loss.variant", "thresholds.permanent"),
    "teacher_decay": ("teacher.decay",),
    "probe_weight": ("teacher.probe_weight",),
    **{
        key: (f"network.{key}",)
        for key in ("zero_gates", "tie_gates", "adjacency_threshold", "adjacency_weight")
    },
    **{f"threshold_{key}": (f"thresholds.{key}",) for key in ("start", "step", "end", "floor")},
    **{f"threshold_{key}": (f"thresholds.{key}",) for key in ("weight", "shared", "decay")},
    "metric_beta": ("thresholds.beta",),
    **{
        key: (f"thresholds.{key}",)
        for key in (
            *(
                "bins",
                "min_count",
                "rate",
                "negative_quantile",
                "positive_quantile",
                "negatives_per_positive",
            ),
            *("convention", "update_every", "confidence", "least_precision", "share_step", "memory_cells"),
        )
    },
}
"""The places of each old key of the section ``method``."""


def new_key(key: str) -> str:
    """Return what an old key is called now.

    >>> new_key("rate")
    'method.thresholds.rate'
    """
    return " or ".join(f"method.{place}" for place in OLD_KEYS[key])


def with_new_keys(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``method`` of an older configuration with the keys of today; one of today stays as it is.

    >>> with_new_keys({"name": "sst", "threshold_end": 0.5, "leave_one_out": False})["thresholds"]
    {'end': 0.5}
    """
    name = old.get("name", "sst+satl")
    is_old = old.keys() & OLD_KEYS or isinstance(old.get("generators"), list)
    method = METHODS.get(str(name))
    if method is None or not is_old:
        return dict(old)
    new: dict[str, Any] = {key: value for key, value in old.items() if key not in OLD_KEYS}
    chosen = old.get("generators")
    if isinstance(chosen, list):
        new["generators"] = {part: False for part in method.generators if part not in chosen}
    rule = old.get("threshold", method.rule)
    for key in (key for key in old if key in OLD_KEYS):
        for place in OLD_KEYS[key]:
            section, *names = place.split(".")
            kept = (
                method.losses
                if section == "losses"
                else [g for g in method.generators if chosen is None or g in chosen]
            )
            if section in ("losses", "generators") and names[0] not in kept:
                continue
            value = old[key]
            if place == "losses.large_loss.variant" and value != "rejection":
                value = "correction"
            if place == "thresholds.permanent":
                if rule != "large-loss":
                    continue
                value = value == "permanent"
            target = new.setdefault(section, {})
            for part in names[:-1]:
                target = target.setdefault(part, {})
            target[names[-1]] = value
    return new
