"""Any timm model as a feature map, with a choice of the stages that are trained.

The published setting trains only the last stage of a ResNet: every other stage keeps its weights *and* its
BatchNorm statistics. :class:`Backbone` does this for any model of timm that can return feature maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from satl.errors import ConfigError, first_of, nearest
from satl.models.frozen_stages import FrozenStages, foldable_stages

_SHOWN_KEYS = 6


class Backbone(nn.Module):
    """Map images to the last feature map of a timm model, average-pooled.

    ``forward``: images (B, 3, H, W) -> feature map (B, ``channels``, h, w).

    Args:
        name: a timm model name, such as ``resnet101``.
        pretrained: let timm fetch its published weights.
        weights: a local ``.safetensors`` or ``.pth`` file with torchvision or timm key names; the keys of the
            classifier are ignored, every other key must fit.
        kwargs: further arguments of the timm model (``img_size``, ``layers``, ...).
        pool: window and stride of the average pool over the last map; 1 leaves the map alone. A window that
            reaches over the border averages the part inside, so that no pixel is dropped and any size works.
        train_stages: ``"all"``, or the stages to train, by name (``"layer4"``, ``"stages.3"``, or a common
            prefix such as ``"stages"``) or by index (``-1`` is the last). All others are frozen: no gradient,
            always in eval mode. Frozen stages before the first trained one store nothing for the backward
            pass, because none of their inputs requires a gradient.
        freeze_statistics: let BatchNorm of trained stages, too, normalise with the statistics that it was loaded
            with; only its weights are trained.
        stride_in_1x1: ResNets of the first version halve the map in the first 1x1 convolution of layer2-4,
            not in the 3x3 one; needed for weights trained that way.

    >>> tiny = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}
    >>> backbone = Backbone("resnet18", kwargs=tiny, train_stages=["layer4"])
    >>> backbone.channels, tuple(backbone(torch.zeros(2, 3, 64, 64)).shape)
    (16, (2, 16, 1, 1))
    >>> backbone.stages
    ('layer1', 'layer2', 'layer3', 'layer4')
    """

    def __init__(
        self,
        name: str,
        pretrained: bool = False,
        weights: str | Path | None = None,
        kwargs: Mapping[str, Any] | None = None,
        pool: int = 2,
        train_stages: Literal["all"] | Sequence[str | int] = "all",
        stride_in_1x1: bool = False,
        freeze_statistics: bool = False,
    ) -> None:
        super().__init__()
        if pool < 1:
            raise ConfigError(f"backbone pool is {pool}, but must be 1 (none) or larger.")
        if pretrained and weights is not None:
            raise ConfigError(
                f"backbone has both pretrained: true and weights: {weights}: remove one of the two."
            )
        settings = dict(kwargs or {})
        self.name = name
        network = _create(name, settings, pretrained=pretrained, features_only=True, out_indices=(-1,))
        self.channels: int = int(network.feature_info.channels()[-1])
        self._channels_last_output = str(getattr(network, "output_fmt", "NCHW")).upper().endswith("NHWC")
        self.network = network
        self.stages, self._units = _find_units(self._body, network.feature_info)
        if stride_in_1x1:
            _move_stride_to_1x1(self._body, name)
        if weights is not None:
            _load_weights(self._body, name, settings, Path(weights))
        self.pool: nn.Module = nn.AvgPool2d(pool, pool, ceil_mode=True) if pool > 1 else nn.Identity()
        self._trained_units = self._select(train_stages)
        self.freeze_statistics = freeze_statistics
        self._freeze()
        self.trunk: FrozenStages | None = None
        self.register_load_state_dict_post_hook(_fold_again)

    @property
    def _body(self) -> nn.Module:
        # timm wraps models without a pyramid (ViT): their parts live one level down, in `model`.
        inner = getattr(self.network, "model", None)
        return inner if isinstance(inner, nn.Module) else self.network

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the trained parts, in the order of the model."""
        return tuple(self._units[unit] for unit in self._units if unit in self._trained_units)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> feature map (B, channels, h, w)."""
        feature_map = self._feature_map(images)
        if self._channels_last_output:
            feature_map = feature_map.permute(0, 3, 1, 2)
        pooled: Tensor = self.pool(feature_map)
        return pooled

    def fold_frozen(self) -> bool:
        """Let the frozen first stages of a ResNet run with folded weights wherever autocast computes in bfloat16.

        Returns whether there are such stages; other networks stay as they are. Frozen weights must not be changed
        afterwards other than by loading a state.
        """
        names = foldable_stages(self.network, self._trained_units)
        if names:
            self.trunk = FrozenStages(self.network, names, torch.bfloat16)
        return bool(names)

    def _feature_map(self, images: Tensor) -> Tensor:
        trunk, kind = self.trunk, images.device.type
        if (
            trunk is None
            or images.requires_grad
            or not torch.is_autocast_enabled(kind)
            or torch.get_autocast_dtype(kind) != trunk.dtype
        ):
            whole: Tensor = self.network(images)[-1]
            return whole
        features: Tensor = trunk(images)
        for name, part in self.network.named_children():
            if name not in trunk.names:
                features = part(features)
        return features

    def save_weights(self, path: str | Path) -> None:
        """Write the weights to a ``.safetensors`` file that ``weights`` of the same model can name."""
        from safetensors.torch import save_file

        save_file({name: value.contiguous() for name, value in self._body.state_dict().items()}, path)

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode of the trained stages; what is frozen stays in eval mode."""
        super().train(mode)
        if mode and len(self._trained_units) < len(self._units):
            self.network.eval()
            for unit in self._trained_units:
                part = attrgetter(unit)(self._body)
                if isinstance(part, nn.Module):
                    part.train()
        if self.freeze_statistics:
            for layer in self.network.modules():
                if isinstance(layer, _BatchNorm):
                    layer.eval()
        return self

    def _select(self, train_stages: Literal["all"] | Sequence[str | int]) -> frozenset[str]:
        if isinstance(train_stages, str):
            if train_stages != "all":
                raise ConfigError(
                    f"train_stages is '{train_stages}', but must be 'all' or a list of stages of "
                    f"{self.name}: {', '.join(self._units.values())}."
                )
            return frozenset(self._units)
        selected: set[str] = set()
        for wanted in train_stages:
            if isinstance(wanted, int):
                if not -len(self.stages) <= wanted < len(self.stages):
                    raise ConfigError(
                        f"train_stages has the index {wanted}, but {self.name} has {len(self.stages)} "
                        f"stages: {', '.join(self.stages)}."
                    )
                name = self.stages[wanted]
            else:
                name = wanted
            found = [unit for unit, shown in self._units.items() if _matches(name, unit, shown)]
            if not found:
                raise ConfigError(
                    f"train_stages has '{wanted}', which is not a stage of {self.name}"
                    f"{nearest(str(wanted), self._units.values())}: choose among "
                    f"{', '.join(self._units.values())}, or 'all'."
                )
            selected.update(found)
        return frozenset(selected)

    def _freeze(self) -> None:
        for parameter in self.network.parameters():
            parameter.requires_grad_(False)
        for unit in self._trained_units:
            part = attrgetter(unit)(self._body)
            if part is not None:
                part.requires_grad_(True)
        if len(self._trained_units) == len(self._units):
            self.network.requires_grad_(True)
        self.train(self.training)


def _fold_again(backbone: nn.Module, _: object) -> None:
    # Called with the module that was loaded, so a copy of a backbone folds its own weights.
    if isinstance(backbone, Backbone) and backbone.trunk is not None:
        backbone.trunk.fold(backbone.network)


def _create(name: str, settings: Mapping[str, Any], **fixed: Any) -> Any:
    import timm

    import satl.models.tiny_network  # noqa: F401  (registers satl_tiny with timm)

    architecture = name.partition(".")[0]
    if not timm.is_model(architecture) and ":" not in name:
        raise ConfigError(
            f"backbone name '{name}' is unknown to timm{nearest(architecture, timm.list_models())}: "
            "run `python -c 'import timm; print(timm.list_models())'` for the list."
        )
    clash = sorted(set(settings) & set(fixed))
    if clash:
        raise ConfigError(f"backbone kwargs must not hold {', '.join(clash)}: satl sets them itself.")
    try:
        return timm.create_model(name, **fixed, **settings)
    except (TypeError, RuntimeError, ValueError, AssertionError, AttributeError) as error:
        raise ConfigError(
            f"timm cannot build backbone '{name}' with kwargs {dict(settings)}: {error}."
        ) from error
    except Exception as error:
        # The download passes through several libraries, each with errors of its own.
        if not fixed.get("pretrained"):
            raise
        raise ConfigError(
            f"the pretrained weights of backbone '{name}' cannot be fetched ({type(error).__name__}): connect to the "
            "internet, or set model.pretrained to false and model.weights to a file that holds them."
        ) from error


def _matches(wanted: str, unit: str, shown: str) -> bool:
    return wanted in (unit, shown) or unit.startswith((f"{wanted}.", f"{wanted}_"))


def _find_units(body: nn.Module, feature_info: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split a model into parts that can be frozen.

    Returns the names of the stages (the parts that give feature maps, or are siblings of one), and a mapping
    of every part with parameters: attribute path -> name as timm's ``feature_info`` writes it (timm flattens
    ``stages.3`` to the attribute ``stages_3`` in some models).
    """
    modules = [str(info["module"]) for info in feature_info.info]
    flattened = {name.replace(".", "_"): name for name in modules}
    containers = {name.rsplit(".", 1)[0] for name in modules if "." in name}
    units: dict[str, str] = {}
    stages: list[str] = []
    for child, module in body.named_children():
        inside = [(f"{child}.{name}", part) for name, part in module.named_children()]
        parts = inside if child in containers else [(child, module)]
        for path, part in parts:
            if next(part.parameters(), None) is None:
                continue
            shown = flattened.get(path, path)
            units[path] = shown
            if shown in modules or child in containers:
                stages.append(shown)
    for path, parameter in body.named_parameters(recurse=False):
        if parameter is not None:
            units[path] = path
    return tuple(stages), units


def _move_stride_to_1x1(body: nn.Module, name: str) -> None:
    for stage in ("layer2", "layer3", "layer4"):
        block = getattr(body, stage, [None])[0]
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if (
            not isinstance(first, nn.Conv2d)
            or not isinstance(second, nn.Conv2d)
            or first.kernel_size != (1, 1)
            or second.stride != (2, 2)
        ):
            raise ConfigError(
                f"stride_in_1x1 needs a ResNet with bottleneck blocks, and {name} is not one: set it to false."
            )
        first.stride, second.stride = (2, 2), (1, 1)


def _read_weights(path: Path) -> dict[str, Tensor]:
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
    for wrapper in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(wrapper), dict):
            loaded = loaded[wrapper]
            break
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ConfigError(
            f"backbone weights {path} hold no dictionary of tensors: save `model.state_dict()`."
        )
    return {key.removeprefix("module."): value for key, value in loaded.items()}


def _load_weights(body: nn.Module, name: str, settings: Mapping[str, Any], path: Path) -> None:
    stored = {key: value for key, value in _read_weights(path).items() if not key.startswith("fc.")}
    current = body.state_dict()
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
    missing = [key for key in current if key not in source_of and not key.endswith("num_batches_tracked")]
    surplus = sorted(set(stored) - set(source_of.values()))
    if surplus:
        # The file may hold the parts behind the last feature map, which the feature extractor has not.
        whole_model = set(_create(name, settings).state_dict())
        surplus = [key for key in surplus if key not in whole_model]
    wrong_shape = [
        f"{key} {tuple(stored[source].shape)} instead of {tuple(current[key].shape)}"
        for key, source in source_of.items()
        if stored[source].shape != current[key].shape
    ]
    kinds = (("missing:", missing), ("not in the model:", surplus), ("shape:", wrong_shape))
    problems = [f"{kind} {first_of(keys, _SHOWN_KEYS)}" for kind, keys in kinds if keys]
    if problems:
        raise ConfigError(
            f"backbone weights {path} do not fit {name} ({'; '.join(problems)}): choose the model they were "
            "trained with."
        )
    # copy_ converts weights stored in half precision to the model's own precision.
    with torch.no_grad():
        for key, source in source_of.items():
            current[key].copy_(stored[source])
