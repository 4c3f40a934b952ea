"""The registry of methods, and the checks of a new one."""

from __future__ import annotations

from pydantic import ValidationError

from satl.errors import ConfigError, nearest

# Importing them registers the parts of satl itself.
from satl.methods import generators, loss_terms, networks, rules, text_generator  # noqa: F401
from satl.methods.method import Method, configure
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES

METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Make a method known by its name; its base and its parts must be registered before it.

    Raises:
        ValueError: the name is taken, or the method names an unknown part, or cannot be trained.
    """
    if method.name in METHODS:
        raise ValueError(f"method {method.name!r} is registered twice.")
    for variant in (method, method.on_features):
        if variant is not None:
            _check(variant)
    if method.on_features is not None and method.on_features.name != method.name:
        raise ValueError(f"method {method.name!r}: on_features is called {method.on_features.name!r}.")
    METHODS[method.name] = method
    return method


def _check(method: Method) -> None:
    """Refuse a method that could not be trained, in a sentence."""
    place = f"method {method.name!r}"
    for key in ("stage1", "stage2", "generators", "adds"):
        if not isinstance(getattr(method, key), tuple):
            raise ValueError(f"{place}: {key} must be a tuple of names, such as ('classification',).")
    optional = {
        key: (name,) if name is not None else ()
        for key, name in (("rule", method.rule), ("base", method.base))
    }
    for kind, key, names, known in (
        ("network", "network", (method.network,), NETWORKS),
        ("loss term", "stage1", method.stage1, LOSSES),
        ("loss term", "stage2", method.stage2, LOSSES),
        ("generator", "generators", method.generators, GENERATORS),
        ("threshold rule", "rule", optional["rule"], RULES),
        ("method", "base", optional["base"], METHODS),
    ):
        for name in names:
            if name not in known:
                hint = nearest(str(name), known) or f"; known: {', '.join(known)}"
                raise ValueError(f"{place}: {key} names the {kind} {name!r}, which is not registered{hint}.")
    _check_together(method, place)
    try:
        configure(method, method.defaults)
    except ValidationError as error:
        problem = error.errors()[0]
        where = "".join(f"{part}." for part in problem["loc"]).rstrip(".")
        raise ValueError(f"{place}: defaults: {where and where + ': '}{problem['msg']}.") from None


def _check_together(method: Method, place: str) -> None:
    """Refuse a method that lacks a part which another of its parts needs."""
    if method.needs("pairs") and "pairs" not in NETWORKS[method.network].gives:
        raise ValueError(
            f"{place}: a part needs to know which classes occur together, and network {method.network!r} does not say "
            "it."
        )
    if method.generators and method.rule is None:
        raise ValueError(
            f"{place}: generators names {method.generators[0]!r}, whose scores need a threshold; set rule to one of "
            f"{', '.join(RULES)}."
        )
    if method.rule is not None and not method.generators:
        raise ValueError(
            f"{place}: rule names {method.rule!r}, but there is no generator whose scores it is for; name one of "
            f"{', '.join(GENERATORS)}."
        )
    for key, names in (("stage1", method.stage1), ("stage2", method.stage2)):
        if all("mixed" in LOSSES[name].needs for name in names):
            raise ValueError(
                f"{place}: {key} must name at least one loss term that is not about mixed images."
            )
        for name in names:
            if "generators" not in LOSSES[name].needs:
                continue
            if key == "stage1":
                raise ValueError(f"{place}: stage1 names {name!r}, which only stage2 can have.")
            if not method.generators:
                raise ValueError(
                    f"{place}: {key} names {name!r}, which needs a generator; name one of {', '.join(GENERATORS)}."
                )
    for need in sorted({need for part in method.parts for need in part.needs if need.endswith(" scores")}):
        generator = need.removesuffix(" scores")
        if generator not in method.generators:
            raise ValueError(f"{place}: a part needs the scores of {generator!r}; add it to generators.")


def get_method(name: str) -> Method:
    """Return a registered method; the error for an unknown name suggests a similar one."""
    if name not in METHODS:
        raise ConfigError(
            f"there is no method '{name}'{nearest(name, METHODS)}; known: {', '.join(METHODS)}.",
            where="method.name",
        )
    return METHODS[name]


def method_with(base: str, *adds: str) -> str | None:
    """Return the name of the method that adds these parts to a base, or None where there is none.

    >>> method_with("sst", "sate", "drl"), method_with("ignore", "sate")
    ('sst+satl', None)
    """
    found = (method.name for method in METHODS.values() if (method.base, method.adds) == (base, adds))
    return next(found, None)
