"""Prompts about the classes, for a new run whose method has the zero-shot generator."""

from __future__ import annotations

from satl.errors import ConfigError
from satl.features import FeatureTable
from satl.methods import Learner
from satl.models.model_config import TEXT_KEYS, ModelConfig
from satl.runs.data import RunData
from satl.scoring import TextGenerator
from satl.scoring.zero_shot import each_view, fit_prompts


def keep_prompts(learner: Learner, model: ModelConfig, data: RunData) -> None:
    """Give the zero-shot generator of a learner its prompts, if it has one; all processes do the same.

    Checkpoints hold them afterwards: neither the text model nor its weights are needed again.

    Args:
        learner: the method put together.
        model: names what makes the vectors of the prompts.
        data: classes, and the features over whose training rows similarities are standardised.

    Raises:
        ConfigError: the text model cannot be loaded, or the features were not made by the same tower.
    """
    generators = [part for part in learner.generators.values() if isinstance(part, TextGenerator)]
    if not generators:
        return
    source, features = model.text_source, data.source
    assert source is not None  # the configuration sees to both
    assert isinstance(features, FeatureTable)
    try:
        prompts = fit_prompts(source, data.table.classes, features, each_view(features, data.rows("train")))
    except ConfigError as error:
        raise error.with_arguments(TEXT_KEYS) from None
    for generator in generators:
        generator.keep(*prompts)
