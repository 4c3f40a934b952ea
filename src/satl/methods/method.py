"""A method is data: a network, generators, a threshold rule, and the losses of its two stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from satl.errors import nearest
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES, MethodPart
from satl.methods.parameters import Parameters, TeacherParameters

AnyParameters = TypeVar("AnyParameters", bound=Parameters)


SECTIONS = ("network", "generators", "thresholds", "losses", "teacher")
"""The sections of ``method`` in a configuration, beside the key ``name``."""


@dataclass(frozen=True)
class Method:
    """One way to learn from labels with holes, declared as data.

    The names in ``network``, ``generators``, ``rule`` and the two stages are looked up in the registries of those
    parts, so a new combination needs no code. What a user may set follows from the parts.
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
    rule: str | None = None
    """The threshold rule of every generator's scores."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that differ from those of the parts, by section: ``{"thresholds": {"rate": 0.5}}``."""
    base: str | None = None
    """The method that this one extends, by name."""
    adds: tuple[str, ...] = ()
    """What it adds to its base: ``sate``, ``drl``."""
    on_features: Method | None = None
    """The method for features instead of images, where more than its network is another one; see
    :func:`satl.methods.feature_methods.on_features`. It has the same name."""

    @property
    def framework(self) -> str:
        """The name of the base, or the method's own name where it extends none."""
        return self.name if self.base is None else self.base

    @property
    def losses(self) -> tuple[str, ...]:
        """The loss terms of both stages, each once."""
        return tuple(dict.fromkeys(self.stage1 + self.stage2))

    @property
    def parts(self) -> tuple[MethodPart, ...]:
        """Every part of the method, once."""
        rules = () if self.rule is None else (RULES[self.rule],)
        return (
            NETWORKS[self.network],
            *(LOSSES[name] for name in self.losses),
            *(GENERATORS[name] for name in self.generators),
            *rules,
        )

    def needs(self, what: str) -> bool:
        """Whether some part needs ``pairs``, a ``teacher``, ``noise``, ``mixed`` images, a ``map`` or some scores."""
        return any(what in part.needs for part in self.parts)


@dataclass(frozen=True)
class MethodParameters:
    """The parameters of every part of a method, by the sections of a configuration."""

    network: Parameters
    generators: dict[str, Parameters]
    thresholds: Parameters | None
    """Of the threshold rule."""
    losses: dict[str, Parameters]
    teacher: TeacherParameters | None
    """For methods that need one."""


def configure(method: Method, settings: Mapping[str, Any]) -> tuple[Method, MethodParameters]:
    """Return a method as a user configured it: other parts than its own, and the parameters of every part.

    Args:
        method: the declared method.
        settings: the sections ``network``, ``generators``, ``thresholds``, ``losses`` and ``teacher`` of a
            configuration, all optional; ``network.name`` and ``thresholds.rule`` replace the network and the rule,
            ``generators.NAME: false`` leaves a generator out, ``generators.NAME`` and ``losses.NAME`` may add a part
            that is for any method.

    Raises:
        ValidationError: a key is unknown or a value does not fit; the error names its place within the section
            ``method``.

    >>> from satl.methods import get_method
    >>> chosen, parameters = configure(get_method("sst"), {"thresholds": {"rule": "mat", "beta": 0.5}})
    >>> chosen.rule, parameters.thresholds.beta, parameters.losses["cooccurrence"].weight
    ('mat', 0.5, 10.0)
    """
    given: dict[str, Mapping[str, Any]] = {key: {} for key in SECTIONS}
    for name, values in settings.items():
        if name not in SECTIONS and name != "name":
            _refuse(f"there is no section '{name}'; valid sections: {', '.join(SECTIONS)}", settings)
        if isinstance(values, Mapping):
            given[name] = values
        elif values is not None and name != "name":
            _refuse("must be a section of keys", values, name)
    chosen = _with_generators(_with_rule(method, given["thresholds"]), given["generators"])
    chosen = _with_losses(chosen, given["losses"])
    chosen = _with_network(chosen, given["network"])
    # Defaults of the method's own rule or network mean nothing to another one.
    replaced_parts = {"thresholds": chosen.rule != method.rule, "network": chosen.network != method.network}
    own = {name: values for name, values in method.defaults.items() if not replaced_parts.get(name)}
    thresholds = {key: value for key, value in given["thresholds"].items() if key != "rule"}
    if chosen.rule is None and thresholds:
        _refuse(
            f"method '{method.name}' makes no pseudo-labels and has no thresholds",
            given["thresholds"],
            "thresholds",
        )
    if not chosen.needs("teacher") and given["teacher"]:
        _refuse(f"method '{method.name}' has no teacher", given["teacher"], "teacher")
    losses = _loss_parameters(chosen, given["losses"], own.get("losses", {}))
    replaced = {name for parameters in losses.values() for name in parameters.replaces}
    chosen = replace(chosen, stage2=tuple(name for name in chosen.stage2 if name not in replaced))
    return chosen, MethodParameters(
        network=_validated(
            NETWORKS[chosen.network].parameters,
            {key: value for key, value in given["network"].items() if key != "name"},
            own.get("network", {}),
            "network",
        ),
        generators={
            name: _validated(
                GENERATORS[name].parameters,
                {} if (values := given["generators"].get(name)) is None or values is True else values,
                own.get("generators", {}).get(name, {}),
                *("generators", name),
            )
            for name in chosen.generators
        },
        thresholds=None
        if chosen.rule is None
        else _validated(RULES[chosen.rule].parameters, thresholds, own.get("thresholds", {}), "thresholds"),
        losses=losses,
        teacher=_validated(TeacherParameters, given["teacher"], own.get("teacher", {}), "teacher")
        if chosen.needs("teacher")
        else None,
    )


def resolved_settings(method: Method, chosen: Method, parameters: MethodParameters) -> dict[str, Any]:
    """Return the sections of a configuration in full, as plain data; sections without keys are left out.

    Args:
        method: the declared method.
        chosen: the method as it was configured.
        parameters: its parameters.
    """
    generators = {
        name: parameters.generators[name].model_dump(mode="json") if name in chosen.generators else False
        for name in method.generators
    }
    # One that was added says so also where it has no keys: an empty section would count as none.
    generators |= {
        name: parameters.generators[name].model_dump(mode="json") or True
        for name in chosen.generators
        if name not in method.generators
    }
    other_network = {"name": chosen.network} if chosen.network != method.network else {}
    sections: dict[str, Any] = {
        "network": {**other_network, **parameters.network.model_dump(mode="json")},
        "generators": generators,
    }
    if parameters.thresholds is not None:
        sections["thresholds"] = {"rule": chosen.rule, **parameters.thresholds.model_dump(mode="json")}
    sections["losses"] = {name: own.model_dump(mode="json") for name, own in parameters.losses.items()}
    if parameters.teacher is not None:
        sections["teacher"] = parameters.teacher.model_dump(mode="json")
    return {name: values for name, values in sections.items() if values}


def _with_rule(method: Method, thresholds: Mapping[str, Any]) -> Method:
    rule = thresholds.get("rule")
    if rule is None:
        return method
    place = ("thresholds", "rule")
    if rule not in RULES:
        _refuse(
            f"there is no rule '{rule}'{nearest(str(rule), RULES)}; known: {', '.join(RULES)}", rule, *place
        )
    if method.rule is None:
        _refuse(f"method '{method.name}' makes no pseudo-labels, so there is no rule to choose", rule, *place)
    return replace(method, rule=rule)


def _with_network(method: Method, network: Mapping[str, Any]) -> Method:
    name = network.get("name")
    if name is None or name == method.network:
        return method
    if name not in NETWORKS:
        hint = f"{nearest(str(name), NETWORKS)}; known: {', '.join(NETWORKS)}"
        _refuse(f"there is no network '{name}'{hint}", name, "network", "name")
    chosen = replace(method, network=name)
    if chosen.needs("pairs") and "pairs" not in NETWORKS[name].gives:
        parts = {
            **{one: LOSSES[one] for one in method.losses},
            **{one: GENERATORS[one] for one in method.generators},
        }
        asking = ", ".join(one for one, part in parts.items() if "pairs" in part.needs)
        _refuse(
            f"network '{name}' does not say which classes occur together, as {asking} must know",
            name,
            "network",
            "name",
        )
    return chosen


def _with_generators(method: Method, generators: Mapping[str, Any]) -> Method:
    """Leave out the generators that are set to false, and add those for any method that the configuration names."""
    further = [name for name in GENERATORS if GENERATORS[name].for_any and name not in method.generators]
    for name, values in generators.items():
        if name in further and (method.generators or values is False):
            continue
        if name not in method.generators:
            has = f"those of method '{method.name}' are {', '.join(method.generators)}"
            if further:
                has += f", and any method with generators can have {', '.join(further)}"
            if not method.generators:
                has = f"method '{method.name}' makes no pseudo-labels"
            near = nearest(str(name), (*method.generators, *further) if method.generators else ())
            _refuse(f"there is no generator '{name}'{near}; {has}", generators, "generators")
        if values is False and method.needs(f"{name} scores"):
            _refuse(
                f"a loss of method '{method.name}' needs its scores, so it cannot be left out",
                values,
                "generators",
                name,
            )
    kept = tuple(name for name in method.generators if generators.get(name) is not False)
    kept += tuple(name for name in further if generators.get(name, False) is not False)
    if method.generators and not kept:
        _refuse("at least one generator must stay", generators, "generators")
    return replace(method, generators=kept)


def _with_losses(method: Method, given: Mapping[str, Any]) -> Method:
    """Add the loss terms that are for any method and that the configuration names."""
    further = tuple(
        name for name in given if name not in method.losses and name in LOSSES and LOSSES[name].for_any
    )
    return replace(method, stage1=(*method.stage1, *further), stage2=(*method.stage2, *further))


def _loss_parameters(
    method: Method, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Parameters]:
    for name in given:
        if name not in method.losses:
            has = f"those of method '{method.name}' are {', '.join(method.losses)}"
            further = [one for one in LOSSES if LOSSES[one].for_any and one not in method.losses]
            if further:
                has += f", and any method can have {', '.join(further)}"
            near = nearest(str(name), (*method.losses, *further))
            _refuse(f"there is no loss '{name}'{near}; {has}", given, "losses")
    return {
        name: _validated(
            LOSSES[name].parameters, given.get(name) or {}, defaults.get(name, {}), *("losses", name)
        )
        for name in method.losses
    }


_CHOICES: dict[tuple[str, ...], list[str]] = {("thresholds",): ["rule"], ("network",): ["name"]}
"""Keys that choose a part, beside those of its parameters."""


def _validated(
    model: type[AnyParameters], given: Any, defaults: Mapping[str, Any], *place: str
) -> AnyParameters:
    """Validate the parameters of one part; problems name their place within the section ``method``."""
    if not isinstance(given, Mapping):
        _refuse("must be a section of keys", given, *place)
    known = [*model.model_fields, *_CHOICES.get(place, [])]
    for key in given:
        if key not in model.model_fields:
            hint = nearest(str(key), known) or f"; valid keys: {', '.join(known) or 'none'}"
            _refuse(f"there is no key '{key}'{hint}", given, *place)
    try:
        return model.model_validate({**defaults, **given})
    except ValidationError as error:
        raise ValidationError.from_exception_data(
            error.title,
            [
                InitErrorDetails(
                    type=problem["type"],
                    loc=(*place, *problem["loc"]),
                    input=problem["input"],
                    ctx=problem.get("ctx", {}),
                )
                for problem in error.errors()
            ],
        ) from None


def _refuse(message: str, value: Any, *place: str) -> NoReturn:
    raise setting_error(message, value, *place)


def setting_error(message: str, value: Any, *place: str) -> ValidationError:
    """Return an error about a value of the section ``method``, at this place within it."""
    problem = PydanticCustomError("method_setting", "{message}", {"message": message})
    return ValidationError.from_exception_data(
        "method", [InitErrorDetails(type=problem, loc=place, input=value)]
    )
