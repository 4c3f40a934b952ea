"""The methods that there are, and the checks that a new one has to pass."""

from __future__ import annotations

from pydantic import ValidationError

from satl.errors import ConfigError, nearest

# Importing them registers the parts that satl itself brings.
from satl.methods import networks, parts, rules  # noqa: F401
from satl.methods.declaration import GENERATORS, NETWORKS, RULES, TERMS, Method, Parameters

METHODS: dict[str, Method] = {}


def register_method(method: Method) -> Method:
    """Make a method known by its name; its parts must be registered before it.

    Raises:
        ValueError: the name is taken, or the method names something that there is not, or cannot train.
    """
    if method.name in METHODS:
        raise ValueError(f"method {method.name!r} is registered twice.")
    if method.base is not None and method.base not in METHODS:
        raise ValueError(f"method {method.name!r}: base names {method.base!r}, which is not registered.")
    _check(method)
    METHODS[method.name] = method
    return method


_FROM_GENERATORS = ("pseudo", "ranking")
"""Terms that are a sum over the generators, whose scores only stage 2 always has."""


def _check(method: Method) -> None:
    """Refuse a method that could not be trained, in a sentence."""
    place = f"method {method.name!r}"
    for key in ("stage1", "stage2", "generators"):
        if not isinstance(getattr(method, key), tuple):
            raise ValueError(f"{place}: {key} must be a tuple of names, such as ('classification',).")
    threshold = () if method.threshold is None else (method.threshold,)
    for kind, key, names, known in (
        ("network", "network", (method.network,), NETWORKS),
        ("loss term", "stage1", method.stage1, TERMS),
        ("loss term", "stage2", method.stage2, TERMS),
        ("generator", "generators", method.generators, GENERATORS),
        ("threshold rule", "threshold", threshold, RULES),
    ):
        for name in names:
            if name not in known:
                hint = nearest(str(name), known) or f"; known: {', '.join(known)}"
                raise ValueError(f"{place}: {key} names the {kind} {name!r}, which is not registered{hint}.")
    _check_together(method, place)
    _check_parameters(method, place)
    _check_defaults(method, place)


def _check_together(method: Method, place: str) -> None:
    """Refuse parts that exist, but lack each other."""
    if method.generators and method.threshold is None:
        raise ValueError(
            f"{place}: generators names {method.generators[0]!r}, whose scores need a threshold; name one of "
            f"{', '.join(RULES)}."
        )
    if method.threshold is not None and not method.generators:
        raise ValueError(
            f"{place}: threshold names {method.threshold!r}, but there is no generator whose scores it is for; name "
            f"one of {', '.join(GENERATORS)}."
        )
    for key, names in (("stage1", method.stage1), ("stage2", method.stage2)):
        if all("mixed" in TERMS[name].needs for name in names):
            raise ValueError(
                f"{place}: {key} must name at least one loss term that is not about mixed images."
            )
        for name in names:
            if name in _FROM_GENERATORS and key == "stage1":
                raise ValueError(f"{place}: stage1 names {name!r}, which only stage2 can have.")
            if name in _FROM_GENERATORS and not method.generators:
                raise ValueError(
                    f"{place}: {key} names {name!r}, which needs a generator; name one of {', '.join(GENERATORS)}."
                )
    for need in sorted({need for part in method.parts for need in part.needs if need.endswith(" scores")}):
        generator = need.removesuffix(" scores")
        if generator not in method.generators:
            raise ValueError(f"{place}: a part needs the scores of {generator!r}; add it to generators.")


def _check_parameters(method: Method, place: str) -> None:
    """Refuse two parts that mean different things by a parameter of the same name: one value would be that of both."""
    origins: dict[str, type[Parameters]] = {}
    for part in method.parts:
        for name in part.own_fields:
            origin = _origin(part.parameters, name)
            if origins.setdefault(name, origin) is not origin:
                raise ValueError(
                    f"{place}: {origins[name].__name__} and {origin.__name__} both bring a parameter {name!r}; give "
                    "one of them another name."
                )


def _origin(parameters: type[Parameters], name: str) -> type[Parameters]:
    """Return the model that a field was first declared in."""
    return [
        kind for kind in parameters.__mro__ if issubclass(kind, Parameters) and name in kind.model_fields
    ][-1]


def _check_defaults(method: Method, place: str) -> None:
    """Refuse defaults of parameters that no part has, or of impossible values."""
    known = dict.fromkeys(name for part in method.parts for name in part.parameters.model_fields)
    for name in method.defaults:
        if name not in known:
            hint = nearest(str(name), known) or f"; known: {', '.join(known)}"
            raise ValueError(f"{place}: defaults names the parameter {name!r}, which no part has{hint}.")
    try:
        method.parameters.model_validate(dict(method.defaults))
    except ValidationError as error:
        for problem in error.errors():
            if problem["loc"] and problem["loc"][0] in method.defaults:
                raise ValueError(
                    f"{place}: defaults sets {problem['loc'][0]} to {problem['input']!r}: {problem['msg']}."
                ) from None


def get_method(name: str) -> Method:
    """Return a registered method, or say which name was meant."""
    if name not in METHODS:
        raise ConfigError(
            f"method.name: there is no method '{name}'{nearest(name, METHODS)}; known: {', '.join(METHODS)}."
        )
    return METHODS[name]


def method_with(base: str, *adds: str) -> str | None:
    """Return the name of the method that adds these parts to a base, or None where there is none.

    >>> method_with("sst", "sate", "drl"), method_with("ignore", "sate")
    ('sst+satl', None)
    """
    found = (method.name for method in METHODS.values() if (method.base, method.adds) == (base, adds))
    return next(found, None)
