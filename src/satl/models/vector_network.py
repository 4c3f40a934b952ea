"""One vector for each picture and a linear classifier for each class, with a hidden layer where it is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from satl.models.class_network import NetworkOutput


class VectorNetwork(nn.Module):
    """The mean over the feature map, and a linear classifier: logit_c = w_c . x + b_c.

    With a hidden layer x is relu(W f + b) instead of the mean f. The feature of a picture is the feature of each of its
    classes, as a view that takes no memory.

    Args:
        num_classes: C.
        backbone: gives feature maps (B, ``backbone.channels``, h, w); a
            :class:`~satl.models.feature_input.FeatureInput` for feature vectors.
        hidden: units of the hidden layer; 0: none.

    >>> from satl.models.feature_input import FeatureInput
    >>> output = VectorNetwork(3, FeatureInput(8))(torch.randn(2, 8))
    >>> tuple(output.logits.shape), tuple(output.features.shape), output.pair_logits
    ((2, 3), (2, 3, 8), None)
    """

    shared_feature = True
    """All classes of a picture have one and the same feature, which generators may make use of."""

    def __init__(self, num_classes: int, backbone: nn.Module, hidden: int = 0) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.backbone = backbone
        channels = int(backbone.channels)  # type: ignore[arg-type]
        self.feature_dim = hidden or channels
        self.hidden: nn.Module = nn.Identity()
        if hidden:
            self.hidden = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU())
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        # From zero: before it has learned anything the network says nothing about any class.
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    @torch.no_grad()
    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these class probabilities (C,), such as the class frequencies."""
        self.classifier.bias.copy_(torch.logit(probabilities))

    def vectors(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), or features (B, D) -> what the classifiers see (B, ``feature_dim``)."""
        vectors: Tensor = self.hidden(self.backbone(images).flatten(2).mean(-1))
        return vectors

    def class_features(self, images: Tensor) -> Tensor:
        """Images, or features -> (B, C, D), for every class the vector of the picture; a view."""
        return self._for_every_class(self.vectors(images))

    def forward(self, images: Tensor, with_pairs: bool = False) -> NetworkOutput:
        """Images, or features -> :class:`~satl.models.class_network.NetworkOutput`; there is no pair branch."""
        vectors = self.vectors(images)
        return NetworkOutput(self.classifier(vectors), self._for_every_class(vectors), None)

    def _for_every_class(self, vectors: Tensor) -> Tensor:
        return vectors[:, None, :].expand(-1, self.num_classes, -1)
