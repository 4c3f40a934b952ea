"""The section ``model`` of a configuration: the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from satl.models.class_prompts import PREFIX, TextSource, is_tower, problem_of_prompts
from satl.sections import Effect, Section

TEXT_KEYS = {"text_weights": "model.text_weights"}
"""Arguments of :class:`~satl.models.class_prompts.TextSource` and the keys of a configuration that set them."""


LARGEST_DIM = 65_536
"""Largest size of a vector within the network: matrices of two such sizes take 17 GB."""


class ModelConfig(Section):
    """The network."""

    backbone: str = Field("resnet101", description="Any timm model.")
    backbone_kwargs: dict[str, Any] = Field(default_factory=dict, description="Arguments for timm.")
    pretrained: Annotated[bool, Effect.START] = Field(True, description="Published weights through timm.")
    weights: Annotated[Path | None, Effect.START] = Field(
        None, description="A weight file instead (.safetensors or .pth), such as timm can load."
    )
    stride_in_1x1: bool = Field(False, description="The weight file is of a version 1 ResNet.")
    train_stages: Literal["all", "last"] | tuple[str | int, ...] = Field(
        "last",
        description="Stages of the backbone that are trained; the others stay frozen. last is the last stage and "
        "what is behind it.",
    )
    final_layers: bool | None = Field(
        None,
        description="Use what the backbone has behind its last stage, such as the norm of a ViT; by default wherever "
        "there is something.",
    )
    freeze_statistics: bool = Field(
        False,
        description="Keep the BatchNorm statistics of the pretrained weights in trained stages, too.",
    )
    pool: int = Field(2, ge=1, le=LARGEST_DIM, description="Average pooling of the last feature map.")
    feature_dim: int | Literal["all"] | None = Field(
        None,
        description="Size of a class feature (in ml-gcn, of its hidden layer), to which a layer reduces the channels "
        "of the backbone; all keeps them, without a layer that starts from random weights. By default 1024, or all "
        "for ssgrl.",
    )
    reduction: Annotated[Literal["random", "components"], Effect.START] = Field(
        "random",
        description="How that layer starts: random, as published, or components, as the principal components of the "
        "backbone's features of training images, which keeps what the backbone knows and helps short trainings.",
    )
    attention_dim: int | None = Field(
        None,
        ge=1,
        le=LARGEST_DIM,
        description="Size within the semantic attention; by default 512, or 1024 for ssgrl.",
    )
    pair_dim: int = Field(512, ge=1, le=LARGEST_DIM, description="Size of class features in the pair branch.")
    pair_hidden: int = Field(1024, ge=1, le=LARGEST_DIM, description="Hidden units of the pair branch.")
    pair_head: Literal["full", "factorised"] = Field(
        "full",
        description="full has a vector for each pair of classes, as published; factorised two for each class, for "
        "hundreds of classes and more.",
    )
    steps: int = Field(3, ge=0, le=1000, description="Steps of the gated graph network.")
    word_vectors: Annotated[Path | None, Effect.START] = Field(
        None, description="GloVe text, npz or npy; learned if not given."
    )
    missing_words: Annotated[Literal["error", "random"], Effect.START] = Field(
        "error", description="What to do about missing words."
    )
    text_model: Annotated[str | None, Effect.START] = Field(
        None,
        description="Makes the vectors of the class names instead: name or folder of a sentence-transformers model "
        "(extra `text`), or a tower open_clip:NAME, open_clip:./FOLDER or, fetched, open_clip:NAME/TAG (extra "
        "`clip`).",
    )
    text_weights: Annotated[Path | None, Effect.START] = Field(
        None, description="Weight file of a tower open_clip:NAME."
    )
    text_prompts: Annotated[tuple[str, ...] | None, Effect.START] = Field(
        None,
        description="Prompts with {} in the place of the class name, averaged; by default `a photo of a {}.` for a "
        "tower, and the name alone for a model of sentences.",
    )
    embedding_dim: int = Field(
        300, ge=1, le=LARGEST_DIM, description="Size of class embeddings, learned or from word vectors."
    )
    prior_bias: bool = Field(
        False,
        description="Start each class at the log-odds of its known labels; helps training from scratch.",
    )

    @field_validator("feature_dim", mode="before")
    @classmethod
    def _size_or_all(cls, value: Any) -> Any:
        # Here and not by the types: what pydantic says of a choice of types names them, and not the value.
        if value is None or value == "all":
            return value
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if type(value) is not int:
            raise ValueError("must be a whole number, or all")
        if value < 1:
            raise ValueError("input should be greater than or equal to 1")
        if value > LARGEST_DIM:
            raise ValueError(f"input should be less than or equal to {LARGEST_DIM}")
        return value

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

    @field_validator("text_weights")
    @classmethod
    def _weights_of_a_tower(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and not is_tower(info.data.get("text_model") or ""):
            raise ValueError(f"belongs to a text_model such as {PREFIX}ViT-B-32, so leave it out")
        return value

    @field_validator("text_prompts", mode="before")
    @classmethod
    def _one_prompt_or_several(cls, prompts: Any) -> Any:
        return (prompts,) if isinstance(prompts, str) else prompts

    @field_validator("text_prompts")
    @classmethod
    def _prompts_have_a_place(
        cls, value: tuple[str, ...] | None, info: ValidationInfo
    ) -> tuple[str, ...] | None:
        if value is None:
            return None
        if info.data.get("text_model") is None:
            raise ValueError("there is no text_model that reads them, so leave it out")
        problem = problem_of_prompts(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @property
    def text_source(self) -> TextSource | None:
        """Where vectors of class names come from, if a text model makes them."""
        if self.text_model is None:
            return None
        return TextSource(self.text_model, self.text_weights, self.text_prompts)
