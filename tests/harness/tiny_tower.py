"""A tower of images and texts with a few numbers and random weights, as a folder that open_clip could have written."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import open_clip
import torch

TINY = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
NAME = "satl-tiny"


def write_tower(folder: Path, seed: int = 0) -> str:
    """Write a tower into a folder and return what a user calls it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"model_cfg": TINY, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    torch.manual_seed(seed)
    model = open_clip.CLIP(**TINY)
    with torch.no_grad():  # so that texts differ: as it starts, all end as the same vector but for rounding
        model.token_embedding.weight.normal_()
        attention = model.transformer.resblocks[0].attn
        for parameter in attention.parameters():
            parameter.normal_()
        attention.in_proj_weight[: 2 * TINY["text_cfg"]["width"]] = 0.0  # the same attention to every word
        model.text_projection.normal_()
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    return f"open_clip:{folder}"


def weights_of(folder: Path) -> Path:
    """Return the weight file of a tower that :func:`write_tower` wrote."""
    return folder / "open_clip_pytorch_model.bin"


def add_to_library(folder: Path) -> str:
    """Make the tiny tower one of open_clip's models, as its users do, and return what a user calls it."""
    if NAME not in open_clip.list_models():
        handlers = list(logging.getLogger().handlers)
        file = folder / f"{NAME}.json"
        file.write_text(json.dumps(TINY))
        open_clip.add_model_config(file)
        logging.getLogger().handlers[:] = handlers
    return f"open_clip:{NAME}"
