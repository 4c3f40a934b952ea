"""What the configuration of a run that somebody else may have written can ask of timm: a known network, nothing else.

A run is loaded to be used, so its folder must not fetch anything, nor open a file that is not its own. timm's
``create_model`` does both if it is asked to: a name such as ``hf-hub:owner/model`` is looked up on the internet,
``checkpoint_path`` opens any file.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from torch import nn

from satl.errors import RunError, first_of, nearest
from satl.models.model_config import ModelConfig


def require_local_network(model: ModelConfig, where: Path) -> None:
    """Refuse a name that leads elsewhere, and arguments that do not describe the network itself.

    Args:
        model: of the configuration of the run.
        where: the file that says so, for the message.

    Raises:
        RunError: the run asks for more than a network of timm.

    >>> require_local_network(ModelConfig(backbone="hf-hub:owner/model"), Path("config.yaml"))
    Traceback (most recent call last):
    satl.errors.RunError: config.yaml: model.backbone 'hf-hub:owner/model' is not the name of a timm architecture, and
    a run is loaded without asking anyone for it; write the architecture there, such as resnet50.
    """
    name = model.backbone
    if ":" in name or "/" in name:
        raise RunError(
            f"model.backbone {name[:80]!r} is not the name of a timm architecture, and a run is loaded without asking "
            "anyone for it",
            where=where,
            remedy="write the architecture there, such as resnet50",
        )
    require_network_arguments(model, where)


def require_network_arguments(model: ModelConfig, where: Path) -> None:
    """Refuse arguments that do not describe the network itself, such as files to load.

    Args:
        model: of the configuration of the run.
        where: the file that says so, for the message.

    Raises:
        RunError: an argument is none of the network.
    """
    name = model.backbone
    allowed = network_arguments(name)
    strange = [key for key in model.backbone_kwargs if key not in allowed] if allowed else []
    if strange:
        raise RunError(
            f"model.backbone_kwargs names {first_of(strange)}, which does not describe the network "
            f"{name}{nearest(strange[0], allowed)}",
            where=where,
            remedy="take it out",
        )


def network_arguments(name: str) -> frozenset[str]:
    """Return the arguments of all networks in the module of a timm architecture; none if timm does not know it.

    They are those of the classes, not of timm's functions that make and load them.

    >>> "layers" in network_arguments("resnet18"), "checkpoint_path" in network_arguments("resnet18")
    (True, False)
    """
    import timm

    import satl.models.tiny_network  # noqa: F401  (registers satl_tiny with timm)

    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        return frozenset()
    module = sys.modules[timm.model_entrypoint(architecture).__module__]
    classes = [
        kind for kind in vars(module).values() if inspect.isclass(kind) and issubclass(kind, nn.Module)
    ]
    return frozenset(
        parameter.name
        for kind in classes
        for parameter in inspect.signature(kind.__init__).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    )
