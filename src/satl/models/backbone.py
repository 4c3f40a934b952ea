"""Any timm model as a feature map, with a choice of the stages that are trained.

The published setting trains only the last stage of a ResNet: every other stage keeps its weights *and* its
BatchNorm statistics. :class:`Backbone` does this for any model of timm whose features are a map or tokens of patches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from satl.errors import Argument, ConfigError, first_line, nearest
from satl.models.frozen_stages import FrozenStages, foldable_stages
from satl.models.timm_models import create_timm_model, ends_with_last_stage, model_facts
from satl.models.weight_files import load_weights

TrainStages = Literal["all", "last"] | Sequence[str | int]


class Backbone(nn.Module):
    """Map images to the features of a timm model as a map, average-pooled.

    ``forward``: images (B, 3, H, W) -> feature map (B, ``channels``, h, w). The map is what timm's
    ``forward_features`` gives; tokens of patches are put back into their places, class and register tokens left out.

    Args:
        name: a timm model name, such as ``resnet101``.
        pretrained: let timm fetch its published weights.
        weights: a local ``.safetensors`` or ``.pth`` file that timm's loader takes (:mod:`satl.models.weight_files`);
            the keys of the classifier are ignored, every other key must fit.
        kwargs: further arguments of the timm model (``img_size``, ``layers``, ...).
        pool: window and stride of the average pool over the last map; 1 leaves the map alone. A window that
            reaches over the border averages the part inside, so that no pixel is dropped and any size works.
        train_stages: ``"all"``, ``"last"`` (the last stage and the layers behind it), or the stages to train, by name
            (``"layer4"``, ``"stages.3"``, or a common prefix such as ``"stages"``) or by index (``-1`` is the last
            stage alone). All others are frozen: no gradient, always in eval mode. Frozen stages before the first
            trained one store nothing for the backward pass, because none of their inputs requires a gradient.
        freeze_statistics: let BatchNorm of trained stages, too, normalise with the statistics that it was loaded
            with; only its weights are trained.
        stride_in_1x1: ResNets of the first version halve the map in the first 1x1 convolution of layer2-4,
            not in the 3x3 one; needed for weights trained that way.
        final_layers: apply what a model has behind its last stage, such as the norm of a ViT or the last
            convolution of an EfficientNet; False as in runs of earlier versions.

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
        train_stages: TrainStages = "all",
        stride_in_1x1: bool = False,
        freeze_statistics: bool = False,
        final_layers: bool = True,
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
        self.pool: nn.Module = nn.AvgPool2d(pool, pool, ceil_mode=True) if pool > 1 else nn.Identity()
        self.trunk: FrozenStages | None = None
        self._stops_at_last_stage = not final_layers or ends_with_last_stage(name)
        whole_model: set[str] | None = None
        if self._stops_at_last_stage:
            network = create_timm_model(
                name, settings, pretrained=pretrained, features_only=True, out_indices=(-1,)
            )
        else:
            _require_free(settings, ("features_only", "out_indices"))
            network = create_timm_model(name, settings, pretrained=pretrained)
            whole_model = set(network.state_dict())
        self.network = network
        self._channels_last_output = str(getattr(network, "output_fmt", "NCHW")).upper().endswith("NHWC")
        self.channels: int = (
            int(network.feature_info.channels()[-1])
            if self._stops_at_last_stage
            else self._keep_what_features_need(settings)
        )
        self.stages, self._units = _find_units(self._body, getattr(network, "feature_info", None))
        if stride_in_1x1:
            _move_stride_to_1x1(self._body, name)
        if weights is not None:
            load_weights(
                self._body,
                name,
                Path(weights),
                lambda: whole_model or set(create_timm_model(name, settings).state_dict()),
            )
        self._trained_units = self._select(train_stages)
        self.freeze_statistics = freeze_statistics
        self._freeze()
        self.register_load_state_dict_post_hook(_fold_again)

    @property
    def _body(self) -> nn.Module:
        # timm wraps the stages of models without a pyramid (ViT): their parts live one level down, in `model`.
        inner = getattr(self.network, "model", None) if self._stops_at_last_stage else None
        return inner if isinstance(inner, nn.Module) else self.network

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the trained parts, in the order of the model."""
        return tuple(self._units[unit] for unit in self._units if unit in self._trained_units)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> feature map (B, channels, h, w)."""
        pooled: Tensor = self.pool(self._as_map(self._features(images)))
        return pooled

    def require_size(self, size: int) -> None:
        """Raise ConfigError if the model cannot take images of this side."""
        try:
            self._dry_run(size)
        except _Refused as refused:
            step = _patch_size(self.network)
            multiple = max(step, round(size / step) * step)
            raise ConfigError(
                f"images of {size} x {size} pixels cannot go through {self.name} ({refused})",
                where="images.size",
                remedy=f"set it to a multiple of {step}, such as {multiple}"
                if size % step
                else "choose another size",
            ) from None
        finally:
            self.train(self.training)

    def fold_frozen(self) -> bool:
        """Let the frozen first stages of a ResNet run with folded weights wherever autocast computes in bfloat16.

        Returns whether there are such stages; other networks stay as they are. Frozen weights must not be changed
        afterwards other than by loading a state.
        """
        names = foldable_stages(self.network, self._trained_units)
        if names:
            self.trunk = FrozenStages(self.network, names, torch.bfloat16)
        return bool(names)

    def _features(self, images: Tensor) -> Tensor:
        """Return the features as the model gives them: a map, or tokens (B, L, C)."""
        if not self._stops_at_last_stage:
            final: Tensor = self.network.forward_features(images)
            return final
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

    def _as_map(self, features: Tensor) -> Tensor:
        """Return features as a map (B, C, h, w)."""
        if features.ndim == 3:
            patches = features[:, self.prefix_tokens :].transpose(1, 2)
            side = math.isqrt(patches.shape[2])
            return patches.unflatten(2, (side, -1))
        return features.permute(0, 3, 1, 2) if self._channels_last_output else features

    @property
    def has_class_token(self) -> bool:
        """Whether the first token stands for the whole image."""
        token = getattr(self.network, "cls_token", None)
        return not self._stops_at_last_stage and isinstance(token, nn.Parameter)

    def class_token(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> the class token of each, (B, channels)."""
        return self._features(images)[:, 0]

    @property
    def prefix_tokens(self) -> int:
        """Class and register tokens in front of the tokens of patches."""
        has_class_token = isinstance(getattr(self.network, "cls_token", None), nn.Parameter)
        return int(getattr(self.network, "num_prefix_tokens", has_class_token))

    def _keep_what_features_need(self, settings: Mapping[str, Any]) -> int:
        """Take the classifier and what belongs to it out of the model; return the channels of its features."""
        called: set[str] = set()
        hooks = [
            part.register_forward_pre_hook(lambda *_, name=name: called.add(name))
            for name, child in self.network.named_children()
            for part in child.modules()
        ]
        size = settings.get("img_size") or model_facts(self.name, settings).trained_size
        try:
            channels = self._dry_run(size if isinstance(size, int) else int(size[0]))
        except _Refused as refused:
            other = "size or backbone" if "img_size" in settings else "backbone"
            raise ConfigError(
                f"timm's {self.name} gives no features that make a map ({refused}): choose another {other}."
            ) from None
        finally:
            for hook in hooks:
                hook.remove()
        for name, child in list(self.network.named_children()):
            # What has no weights stays: it may be used other than by a call, as rotary embeddings are.
            if name not in called and next(child.parameters(), None) is not None:
                setattr(self.network, name, nn.Identity())
        return channels

    def _dry_run(self, size: int) -> int:
        """Send the shapes of two images through the model, and no numbers; return the channels of the map.

        The model is left in eval mode.
        """
        self.network.eval()
        weights = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        shapes = {f"network.{name}": value.to("meta") for name, value in weights.items()}
        try:
            with torch.no_grad():
                try:
                    images = torch.zeros(2, 3, size, size, device="meta")
                    result: Tensor = functional_call(self, shapes, (images,))
                except (
                    Exception
                ):  # the size does not fit; or there is a tensor that is no weight, so run it truly
                    images = torch.zeros(2, 3, size, size, device=next(iter(weights.values())).device)
                    result = self(images)
            _, channels, rows, columns = result.shape
        except Exception as error:  # models say in errors of every kind what they cannot take
            raise _Refused(first_line(error) or type(error).__name__) from None
        if rows != columns:
            raise _Refused(f"their map has {rows} x {columns} places for a square image")
        return int(channels)

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

    def _select(self, train_stages: TrainStages) -> frozenset[str]:
        if isinstance(train_stages, str):
            if train_stages == "last":
                return frozenset(_last_stage(self._body, self.stages, self._units))
            if train_stages != "all":
                raise ConfigError(
                    f"train_stages is '{train_stages}', but must be 'all', 'last' or a list of stages of "
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


class _Refused(Exception):
    """Why a model cannot take images of a size."""


def _fold_again(backbone: nn.Module, _: object) -> None:
    # Called with the module that was loaded, so a copy of a backbone folds its own weights.
    if isinstance(backbone, Backbone) and backbone.trunk is not None:
        backbone.trunk.fold(backbone.network)


def _matches(wanted: str, unit: str, shown: str) -> bool:
    return wanted in (unit, shown, unit.replace(".", "_")) or unit.startswith((f"{wanted}.", f"{wanted}_"))


def _find_units(body: nn.Module, feature_info: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split a model into parts that can be frozen.

    Returns the names of the stages (the parts that give feature maps, or are siblings of one), and a mapping
    of every part with parameters: attribute path -> name as timm's ``feature_info`` writes it (timm flattens
    ``stages.3`` to the attribute ``stages_3`` in some models).
    """
    modules = [str(info["module"]) for info in getattr(feature_info, "info", feature_info) or ()]
    flattened = {name.replace(".", "_"): name for name in modules}
    children = dict(body.named_children())
    containers = {name.rsplit(".", 1)[0] for name in modules if "." in name} & set(children)
    if not containers and not {*modules, *flattened} & set(
        children
    ):  # it does not say, or calls them otherwise
        containers = {name for name, child in children.items() if isinstance(child, nn.ModuleList)}
    units: dict[str, str] = {}
    stages: list[str] = []
    for child, module in children.items():
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


def _last_stage(body: nn.Module, stages: Sequence[str], units: Mapping[str, str]) -> list[str]:
    """Return the last stage that has more than norms, and the layers behind it."""
    parts = {unit: part for unit in units if isinstance(part := attrgetter(unit)(body), nn.Module)}
    order = list(parts)
    weighty = [unit for unit in order if any(weight.ndim > 1 for weight in parts[unit].parameters())]
    last = [unit for unit in weighty if units[unit] in stages] or weighty
    return order[order.index(last[-1]) :] if last else order[-1:]


def _patch_size(network: nn.Module) -> int:
    size = getattr(getattr(network, "patch_embed", None), "patch_size", 1)
    return int(size[0] if isinstance(size, Sequence) else size)


def _require_free(settings: Mapping[str, Any], names: Sequence[str]) -> None:
    clash = [name for name in names if name in settings]
    if clash:
        raise ConfigError(f"backbone kwargs must not hold {', '.join(clash)}: satl sets them itself.")


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
                f"needs a ResNet with bottleneck blocks, and {name} is not one",
                where=Argument("model.stride_in_1x1", True),
                remedy="leave it out",
            )
        first.stride, second.stride = (2, 2), (1, 1)
