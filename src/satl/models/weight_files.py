"""Weights of a backbone from a file: timm's, torchvision's, or of the project that trained the model.

Tensors only, nothing is executed. What a file calls its tensors is brought to timm's names in two ways: prefixes of
programs that wrapped the model (``module.``, ``backbone.``, the image tower of a CLIP file) are taken off, and timm's
own conversion for the model's family is applied, which also resizes position embeddings.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satl.errors import ConfigError, first_of

_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "teacher", "module")
"""Keys under which training programs keep the weights, the averaged ones first, as timm's loader takes them."""
_PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
    "teacher.",
    "network.",
    "backbone.",
    "encoder.",
    "image_encoder.",
    "visual.",
    "trunk.",
)
_DEEPEST = 3
_SHOWN_KEYS = 6

State = dict[str, Tensor]


def read_weights(path: Path) -> State:
    """Return the tensors of a ``.safetensors`` or ``.pth`` file, by the names in the file.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise ConfigError(f"backbone weights {path} do not exist: correct the path or remove `weights`.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ConfigError(
            f"backbone weights {path} cannot be read as .safetensors or .pth ({type(error).__name__}): "
            "give a file that holds tensors only."
        ) from error
    for _ in range(_DEEPEST):
        inner = next(
            (key for key in _WRAPPERS if isinstance(loaded, dict) and _is_state(loaded.get(key))), None
        )
        if inner is None:
            break
        loaded = loaded[inner]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ConfigError(
            f"backbone weights {path} hold no dictionary of tensors: save `model.state_dict()`."
        )
    return loaded


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(part, Tensor | dict) for part in value.values())


@dataclass(frozen=True)
class _Fit:
    """How the tensors of a file fit a model."""

    source_of: dict[str, Tensor]
    missing: list[str]
    surplus: list[str]
    wrong_shape: list[str]

    @property
    def problems(self) -> int:
        return len(self.missing) + len(self.surplus) + len(self.wrong_shape)


def load_weights(body: nn.Module, name: str, path: Path, whole_model: Callable[[], set[str]]) -> None:
    """Copy the weights of a file into a model.

    Args:
        body: the model, without its classifier.
        name: what timm calls it.
        path: the file.
        whole_model: gives the keys of the model with its classifier, which a file may hold as well.

    Raises:
        ConfigError: the file cannot be read, lacks a tensor of the model, or has others.
    """
    best: _Fit | None = None
    for state in _candidates(read_weights(path), body):
        fit = _fit(body, state)
        if best is None or fit.problems < best.problems:
            best = fit
        if best.problems == 0:
            break
    assert best is not None
    surplus = best.surplus
    if surplus:
        known = whole_model()
        surplus = [key for key in surplus if key not in known]
    kinds = (
        ("missing:", best.missing),
        ("not in the model:", surplus),
        ("shape:", best.wrong_shape),
    )
    problems = [f"{kind} {first_of(keys, _SHOWN_KEYS)}" for kind, keys in kinds if keys]
    if problems:
        raise ConfigError(
            f"backbone weights {path} do not fit {name} ({'; '.join(problems)}): choose the model they were "
            "trained with."
        )
    current = body.state_dict()
    # copy_ converts weights stored in half precision to the model's own precision.
    with torch.no_grad():
        for key, source in best.source_of.items():
            current[key].copy_(source)


def _candidates(stored: State, body: nn.Module) -> Iterator[State]:
    """Yield the tensors under the names that the model may know them by: as they are, converted, without prefixes."""
    states, seen = [stored], {tuple(stored)}
    for _ in range(_DEEPEST + 1):
        longer = []
        for state in states:
            yield state
            converted = _converted(state, body)
            if converted is not None:
                yield converted
            for prefix in _PREFIXES:
                shorter = {
                    key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
                }
                if shorter and tuple(shorter) not in seen:
                    seen.add(tuple(shorter))
                    longer.append(shorter)
        states = longer


def _converted(state: State, body: nn.Module) -> State | None:
    """Return the tensors as timm's own loader would take them for this family, or None where it has no conversion."""
    convert = getattr(sys.modules.get(type(body).__module__), "checkpoint_filter_fn", None)
    if convert is None:
        return None
    options: dict[str, Any] = {}
    if "adapt_layer_scale" in inspect.signature(convert).parameters:
        options["adapt_layer_scale"] = True  # DeiT III has them under other names
    try:
        converted: Mapping[str, Any] = convert(dict(state), body, **options)
    except Exception:  # not a file of this kind, which is told by the keys that do not fit
        return None
    return {key: value for key, value in converted.items() if isinstance(value, Tensor)}


def _fit(body: nn.Module, stored: State) -> _Fit:
    current = body.state_dict()
    # A classifier is not among the features, whatever its size.
    stored = {key: value for key, value in stored.items() if not key.startswith("fc.")}
    source_of: dict[str, str] = {}
    for key in current:
        child, _, rest = key.partition(".")
        spellings = [key]
        spellings += [
            f"{child[:at]}.{child[at + 1 :]}.{rest}" for at, letter in enumerate(child) if letter == "_"
        ]
        found = next((spelling for spelling in spellings if spelling in stored), None)
        if found is not None:
            source_of[key] = found
    return _Fit(
        source_of={key: stored[source] for key, source in source_of.items()},
        missing=[key for key in current if key not in source_of and not key.endswith("num_batches_tracked")],
        surplus=sorted(set(stored) - set(source_of.values())),
        wrong_shape=[
            f"{key} {tuple(stored[source].shape)} instead of {tuple(current[key].shape)}"
            for key, source in source_of.items()
            if stored[source].shape != current[key].shape
        ],
    )
