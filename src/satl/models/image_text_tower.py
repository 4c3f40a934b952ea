"""Networks with an image side and a text side that share one space (CLIP, SigLIP), for users of the extra ``clip``.

A tower is named ``open_clip:NAME``, one of open_clip's models with a weight file of its own, ``open_clip:FOLDER``, a
folder with ``open_clip_config.json`` and the weights, or ``open_clip:NAME/TAG``, weights that open_clip fetches. Only
the last one ever asks another machine for anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from satl.errors import Argument, ConfigError, Sentence, first_line, first_of, nearest
from satl.images.input_format import Channels, InputFormat, Interpolation
from satl.models.class_prompts import PREFIX, is_folder_name
from satl.models.weight_digest import weight_digest
from satl.parsing import parse_json

_TEXTS_AT_ONCE = 64
_CONFIG = "open_clip_config.json"
_TOKENIZER_ARGUMENTS = ("clean", "strip_sep_token")
"""What the configurations of open_clip itself give to a tokenizer."""
_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "model.safetensors",
    "pytorch_model.bin",
)
"""Names of a folder's weights, in the order in which they are looked for."""


class ImageTextTower(nn.Module):
    """Both sides of a tower, frozen: texts and images to vectors of one space.

    Use :meth:`load`; ``forward`` is the image side.

    Attributes:
        name: what the user calls it.
        model: both sides, as open_clip has them.
    """

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.name = name
        self.model = model
        self.eval().requires_grad_(False)
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, name: str, weights: Path | None = None, *, texts: bool = True) -> ImageTextTower:
        """Load a tower.

        Args:
            name: ``open_clip:NAME``, ``open_clip:FOLDER`` or ``open_clip:NAME/TAG``.
            weights: a weight file; needed with NAME alone, a choice with FOLDER, refused with TAG.
            texts: whether texts will be encoded, which needs the tokenizer as well.

        Raises:
            ConfigError: open_clip is not installed, or the name, the folder or the weights are not what it takes.
        """
        library = _library(name)
        source = _source(name, weights, texts, library)
        with _root_logger_as_it_is():
            try:
                model = library.create_model(
                    source.identifier,
                    pretrained=source.tag,
                    load_weights=source.tag is not None,
                    pretrained_text=False,
                )
            except Exception as error:  # whatever a broken configuration or no connection raises there
                raise ConfigError(
                    f"cannot be made ({first_line(error)})",
                    where=name,
                    remedy="check its configuration, or the connection where weights are fetched",
                ) from error
            if source.weights is not None:
                _load_weights(library, model, source.weights)
            if not texts:
                return cls(name, model, None)
            try:
                tokenizer = library.get_tokenizer(source.identifier)
            except Exception as error:
                raise ConfigError(
                    f"its tokenizer cannot be loaded ({first_line(error)})",
                    where=name,
                    remedy="put the files of the tokenizer into the tower's folder and install transformers",
                ) from error
        return cls(name, model, tokenizer)

    @cached_property
    def digest(self) -> str:
        """What tells its weights from others."""
        return weight_digest(self.model)

    def image_format(self) -> InputFormat:
        """Return what the image side takes.

        Raises:
            ConfigError: it takes no squares.
        """
        settings: Any = self.model.visual.preprocess_cfg
        size = settings["size"]
        height, width = (size, size) if isinstance(size, int) else size
        if height != width:
            raise ConfigError(
                f"takes images of {height} x {width} pixels, and satl makes squares",
                where=self.name,
                remedy="choose another tower",
            )
        interpolation: Interpolation = "bilinear" if settings["interpolation"] == "bilinear" else "bicubic"
        return InputFormat(
            int(height), _channels(settings["mean"]), _channels(settings["std"]), interpolation
        )

    @torch.no_grad()
    def image_dim(self) -> int:
        """Return how many numbers the vector of an image has."""
        size = self.image_format().size
        return int(self(torch.zeros(1, 3, size, size)).shape[1])

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (T, E) float32, as long as the tower makes them."""
        device = next(self.model.parameters()).device
        vectors = [
            self.model.encode_text(self._tokenizer(list(texts[begin : begin + _TEXTS_AT_ONCE])).to(device))
            for begin in range(0, len(texts), _TEXTS_AT_ONCE)
        ]
        found: NDArray[np.float32] = torch.cat(vectors).float().cpu().numpy()
        return found

    def forward(self, pixels: Tensor) -> Tensor:
        """Images (B, 3, S, S), normalised as :meth:`image_format` says -> vectors (B, E)."""
        vectors: Tensor = self.model.encode_image(pixels)
        return vectors


@dataclass(frozen=True)
class _Source:
    """Where a tower comes from."""

    identifier: str
    """As open_clip calls it."""
    tag: str | None = None
    """Of weights to fetch."""
    weights: Path | None = None


def _library(name: str) -> Any:
    try:
        import open_clip
    except ImportError as error:
        raise ConfigError(
            "needs the package open_clip_torch", where=name, remedy="run `pip install 'satl[clip]'`"
        ) from error
    return open_clip


def _source(name: str, weights: Path | None, texts: bool, library: Any) -> _Source:
    rest = name.removeprefix(PREFIX)
    if weights is not None and not weights.is_file():
        raise ConfigError("does not exist", where=Argument("weights", weights), remedy="correct the path")
    if is_folder_name(rest):
        return _from_folder(name, Path(rest).expanduser(), weights)
    model, _, tag = rest.partition("/")
    known = library.list_models()
    if model not in known:
        raise ConfigError(
            f"open_clip has no model '{model}'{nearest(model, known)}",
            where=name,
            remedy=f"name one of its models, such as {PREFIX}ViT-B-32, or a folder, such as {PREFIX}./FOLDER",
        )
    config = library.get_model_config(model)
    tags = library.list_pretrained_tags_by_model(model)
    other = _of_other_activation(model, config)
    if other != model and other in known:  # weights of one are of no use in the other
        quick = _quick(config)
        fitting = [one for one in tags if _quick(library.get_pretrained_cfg(model, one)) == quick]
        if tag in tags and tag not in fitting:
            raise ConfigError(
                f"the weights '{tag}' were trained with another activation than {model} has",
                where=name,
                remedy=f"name the tower {PREFIX}{other}/{tag}",
            )
        tags = fitting
    if tag:
        if tag not in tags:
            choices = f"it has {first_of(tags)}" if tags else "it has none"
            raise ConfigError(
                f"open_clip has no weights '{tag}' of {model}{nearest(tag, tags)}", where=name, remedy=choices
            )
        if weights is not None:
            raise ConfigError(
                f"the name says to fetch the weights '{tag}'",
                where=Argument("weights", weights),
                remedy=f"leave it out, or name the tower {PREFIX}{model}",
            )
        return _Source(model, tag)
    if weights is None:
        fetched = f", or let open_clip fetch some: {PREFIX}{model}/{tags[0]}" if tags else ""
        raise ConfigError(
            "has no weights",
            where=name,
            remedy=Sentence(f"give {{weights}}{fetched}", weights=Argument("weights")),
        )
    if texts and ("hf_tokenizer_name" in config["text_cfg"] or "siglip" in model.lower()):
        raise ConfigError(
            "its tokenizer is no part of open_clip and would be fetched",
            where=name,
            remedy=f"give a folder with open_clip_config.json, weights and tokenizer, such as {PREFIX}./FOLDER"
            + (f", or let open_clip fetch all: {name}/{tags[0]}" if tags else ""),
        )
    _refuse_fetching(name, config)
    return _Source(model, weights=weights)


def _quick(config: Any) -> bool:
    return bool(config.get("quick_gelu"))


def _of_other_activation(model: str, config: Any) -> str:
    """Return what open_clip calls the same model with the other of the two activations, if there is one."""
    return model.removesuffix("-quickgelu") if _quick(config) else f"{model}-quickgelu"


def _from_folder(name: str, folder: Path, weights: Path | None) -> _Source:
    file = folder / _CONFIG
    try:
        config = parse_json(file.read_text(encoding="utf-8"))["model_cfg"]
        _refuse_fetching(name, config)
        _refuse_code(name, config)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"has no {_CONFIG} that can be read",
            where=name,
            remedy="give a folder that open_clip wrote, or that holds a model in its format",
        ) from None
    if weights is None:
        weights = next((folder / file for file in _WEIGHTS if (folder / file).is_file()), None)
    if weights is None:
        raise ConfigError(
            f"has none of {', '.join(_WEIGHTS)}",
            where=name,
            remedy=Sentence("give {weights}", weights=Argument("weights")),
        )
    _refuse_more_than_its_weights(name, config, weights)
    return _Source(f"local-dir:{folder}", weights=weights)


def _refuse_fetching(name: str, config: Any) -> None:
    """Refuse a configuration that names a model of another place, which would be asked for it."""
    if "hf_model_name" in config["text_cfg"] or ":" in str(config["vision_cfg"].get("timm_model_name", "")):
        raise ConfigError(
            "a part of it is a model of the Hugging Face hub, which would be fetched",
            where=name,
            remedy="choose a tower that open_clip itself defines",
        )


def _refuse_code(name: str, config: Any) -> None:
    """Refuse arguments of a tokenizer with which transformers would run code of the folder, or read files elsewhere."""
    given = config["text_cfg"].get("tokenizer_kwargs") or {}
    if not isinstance(given, dict) or not set(given) <= set(_TOKENIZER_ARGUMENTS):
        raise ConfigError(
            f"its tokenizer_kwargs may only hold {', '.join(_TOKENIZER_ARGUMENTS)}",
            where=name,
            remedy=f"remove the others from its {_CONFIG}",
        )


def _refuse_more_than_its_weights(name: str, config: Any, weights: Path) -> None:
    """Refuse a model that its file of weights cannot fill, before memory is taken for it."""
    size = weights.stat().st_size
    least = sum(_least_parameters(part) for part in config.values() if isinstance(part, dict))
    if least > size:
        raise ConfigError(
            f"its {_CONFIG} describes at least {least:,} parameters, and {weights.name} has {size:,} bytes",
            where=name,
            remedy="give the configuration and the weights of one model",
        )


def _least_parameters(part: dict[str, Any]) -> int:
    """Return how many parameters one side of a tower has at least: attention of its layers, and its tables.

    >>> _least_parameters({"width": 512, "layers": 12, "vocab_size": 49408, "context_length": 77})
    37919232
    >>> _least_parameters({"timm_model_name": "resnet50", "layers": [3, 4, 6, 3]})
    0
    """
    width, layers, *lengths = (
        number if isinstance(number := part.get(key), int) and number > 0 else 0
        for key in ("width", "layers", "vocab_size", "context_length")
    )
    return width * (4 * layers * width + sum(lengths))


def _load_weights(library: Any, model: nn.Module, path: Path) -> None:
    """Load a file as open_clip does, tensors only."""
    try:
        library.factory.load_checkpoint(model, str(path), weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(
            f"does not hold the weights of this tower ({type(error).__name__}: {reason})",
            where=Argument("weights", path),
            remedy="give the file of the same model, as tensors only (.safetensors or .pt)",
        ) from error


def _channels(values: Sequence[float]) -> Channels:
    red, green, blue = map(float, values)
    return red, green, blue


@contextmanager
def _root_logger_as_it_is() -> Iterator[None]:
    """Keep open_clip, which writes to the root logger, from giving it a handler that would print satl's log again."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
