"""The small backbone that timm knows by the name satl_tiny."""

from __future__ import annotations

import pytest
import timm
import torch

from satl.errors import ConfigError
from satl.models.backbone import Backbone
from satl.models.heads import ElementWiseLinear
from satl.models.tiny_network import TinyNet


@pytest.mark.parametrize("widths", [(8, 16, 24), (8, 8, 16, 16)])
def test_each_stage_halves_the_side(widths):
    backbone = Backbone("satl_tiny", kwargs={"widths": widths}, pool=1)
    assert backbone.channels == widths[-1]
    side = 64 // 2 ** len(widths)
    assert backbone(torch.randn(2, 3, 64, 64)).shape == (2, widths[-1], side, side)
    assert len(backbone.stages) == len(widths)


def test_stages_can_be_frozen():
    backbone = Backbone("satl_tiny", kwargs={"widths": (8, 8, 16)}, train_stages=["stages.2"])
    trained = {name for name, parameter in backbone.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("stages_2" in name or "stages.2" in name for name in trained)


def test_it_is_an_ordinary_timm_model():
    model = timm.create_model("satl_tiny", num_classes=5, widths=(8, 8, 8))
    assert isinstance(model, TinyNet)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)


def test_wrong_argument_is_one_sentence():
    with pytest.raises(ConfigError, match=r"satl_tiny.*layers"):
        Backbone("satl_tiny", kwargs={"layers": (1, 1)})


def test_biases_start_at_given_probabilities():
    layer = ElementWiseLinear(3, 4)
    layer.set_prior(torch.tensor([0.1, 0.5, 0.9]))
    logits = layer(torch.zeros(1, 3, 4))
    torch.testing.assert_close(logits.sigmoid(), torch.tensor([[0.1, 0.5, 0.9]]))
