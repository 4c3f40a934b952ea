"""The section ``model`` of a configuration: the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from satl.sections import Effect, Section


class ModelConfig(Section):
    """The network."""

    backbone: str = Field("resnet101", description="Any timm model.")
    backbone_kwargs: dict[str, Any] = Field(default_factory=dict, description="Arguments for timm.")
    pretrained: Annotated[bool, Effect.START] = Field(True, description="ImageNet weights through timm.")
    weights: Annotated[Path | None, Effect.START] = Field(
        None, description="A weight file instead (.safetensors or .pth)."
    )
    stride_in_1x1: bool = Field(False, description="The weight file is of a version 1 ResNet.")
    train_stages: Literal["all"] | tuple[str | int, ...] = Field(
        ("layer4",), description="Stages of the backbone that are trained; the others stay frozen."
    )
    freeze_statistics: bool = Field(
        False,
        description="Keep the BatchNorm statistics of the pretrained weights in trained stages, too.",
    )
    pool: int = Field(2, ge=1, description="Average pooling of the last feature map.")
    feature_dim: int | None = Field(
        None,
        ge=1,
        description="Size of a class feature (in ml-gcn, of its hidden layer); by default 1024, or all channels "
        "of the backbone for ssgrl.",
    )
    attention_dim: int | None = Field(
        None, ge=1, description="Size within the semantic attention; by default 512, or 1024 for ssgrl."
    )
    pair_dim: int = Field(512, ge=1, description="Size of class features in the pair branch.")
    pair_hidden: int = Field(1024, ge=1, description="Hidden units of the pair branch.")
    pair_head: Literal["full", "factorised"] = Field(
        "full",
        description="full has a vector for each pair of classes, as published; factorised two for each class, for "
        "hundreds of classes and more.",
    )
    steps: int = Field(3, ge=0, description="Steps of the gated graph network.")
    word_vectors: Annotated[Path | None, Effect.START] = Field(
        None, description="GloVe text, npz or npy; learned if not given."
    )
    missing_words: Annotated[Literal["error", "random"], Effect.START] = Field(
        "error", description="What to do about missing words."
    )
    text_model: Annotated[str | None, Effect.START] = Field(
        None,
        description="Name or folder of a sentence-transformers model that makes the vectors of the class names "
        "instead; needs the extra `text`.",
    )
    embedding_dim: int = Field(
        300, ge=1, description="Size of class embeddings, learned or from word vectors."
    )
    prior_bias: bool = Field(
        False,
        description="Start each class at the log-odds of its known labels; helps training from scratch.",
    )

    @field_validator("freeze_statistics")
    @classmethod
    def _statistics_exist(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("pretrained") is False and info.data.get("weights") is None:
            raise ValueError("there are no statistics to keep without pretrained: true or weights")
        return value

    @field_validator("text_model")
    @classmethod
    def _one_source_of_vectors(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("word_vectors") is not None:
            raise ValueError("word_vectors are given as well; remove one of the two")
        return value
