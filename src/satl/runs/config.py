"""The configuration of a run: typed sections with their defaults (:mod:`satl.runs.reading` reads them)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from satl.errors import ConfigError, nearest
from satl.images.images_config import ImagesConfig
from satl.methods import Method, MethodParameters, configure, get_method, on_features
from satl.methods.method import resolved_settings, setting_error
from satl.methods.method_parts import NETWORKS
from satl.methods.old_keys import OLD_KEYS, new_key
from satl.models.model_config import ModelConfig
from satl.remote.addresses import RemotePath, as_path
from satl.runs.feature_runs import (
    OF_PIXELS,
    FeaturesConfig,
    check_inputs,
    uses_features,
    with_feature_defaults,
)
from satl.runs.settings import section_model
from satl.runs.training_config import TrainingConfig
from satl.sections import Effect, Section


class ScenesConfig(Section):
    """The embedded data set, rendered when the run starts."""

    train: int = Field(2000, ge=1, le=10_000_000, description="Training images.")
    val: int = Field(
        300, ge=0, description="Validation images; with 0 a share of the others is taken (`data.validation`)."
    )
    test: int = Field(1000, ge=0, le=10_000_000, description="Test images.")
    size: int = Field(64, ge=16, le=1024, description="Side in pixels.")
    seed: int = Field(0, ge=0, description="Seed of the images.")
    objects: Literal["few", "many"] = Field(
        "few", description="few: 2 to 4 classes in a picture; many: 8 to 14, smaller."
    )


class DataConfig(Section):
    """Where labels and images come from: a table, a data set in its published layout, or scenes."""

    # Options of the data set stand beside these keys; every other key is refused below.
    model_config = ConfigDict(extra="allow")

    table: Path | None = Field(None, description="Label table (CSV, Parquet, JSONL, JSON or npz).")
    images: Path | None = Field(
        None, description="Folder that the image ids are relative to, or a store that `satl pack` wrote."
    )
    features: Path | None = Field(
        None,
        description="Features to train on instead of images: npz, npy with a list of ids, Parquet, Arrow, or a folder "
        "that `satl embed` wrote; `images` is then only shown to people, and may be left out.",
    )
    encoding: str | None = Field(None, description="How the table says present, absent and unknown.")
    truth: Path | None = Field(None, description="Table of hidden truth, only to measure pseudo-labels.")
    ignore_columns: tuple[str, ...] = Field((), description="Columns of the table that are no classes.")
    dataset: str | None = Field(
        None, description="A data set by name (see docs/datasets.md); its options stand beside this key."
    )
    root: Path | None = Field(None, description="Folder in which the data set was unpacked.")
    scenes: Annotated[ScenesConfig | None, Effect.RESULT] = Field(
        None, description="Use the embedded data set instead."
    )
    proportion: float | None = Field(
        None, gt=0, le=1, description="Keep only this share of the training labels (a study's mask)."
    )
    mask_seed: int | None = Field(None, ge=0, description="Seed of the mask; the run's seed if not given.")
    validation: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Share of the training images to validate on, if the table has no `val` rows; with 0 the model of "
        "the last epoch is kept as the best.",
    )
    validation_labels: Literal["known", "complete"] = Field(
        "known",
        description="Labels of the validation images if `proportion` hides labels: the same share of them, as somebody "
        "with such labels would have, or complete labels, as in published studies.",
    )
    use_test: bool = Field(
        True, description="Read the test images; false leaves them out, to choose settings without them."
    )
    holdout: bool = Field(
        False,
        description="Keep some known training cells from training, so that `satl complete` can certify on them.",
    )
    holdout_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the known training cells to hold out; by default each class gives what a certificate "
        "takes, 10 to 30 %, or nothing where that cannot be reached.",
    )
    holdout_from: Path | None = Field(
        None,
        description="Hold out only cells that this table knows: the one from before a review or a completion, which "
        "fill cells in by their score.",
    )
    holdout_seed: int = Field(
        0, ge=0, description="Seed of the hold-out; it does not follow the run's, so that runs can share it."
    )

    @field_validator("table", "images", "features", "truth", "root", "holdout_from")
    @classmethod
    def _as_path(cls, value: Path | None) -> Path | None:
        return None if value is None else as_path(value)

    @property
    def remote(self) -> dict[str, RemotePath]:
        """The keys that name an address such as ``s3://bucket/photos``."""
        places = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: place for key, place in places.items() if isinstance(place, RemotePath)}

    @property
    def options(self) -> dict[str, Any]:
        """The options of the data set, defaults included."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _with_options(cls, content: Any) -> Any:
        """Complete the options of the data set; what is neither a key nor an option is refused."""
        if not isinstance(content, dict):
            return content
        others = {key: value for key, value in content.items() if key not in cls.model_fields}
        name = content.get("dataset")
        if isinstance(name, str):
            keys = {key: content[key] for key in content if key in cls.model_fields}
            return {**keys, **_dataset_options(name, others, cls.model_fields)}
        if others:
            raise ValidationError.from_exception_data(
                cls.__name__,
                [{"type": "extra_forbidden", "loc": (key,), "input": others[key]} for key in others],
            )
        return content

    @field_validator("ignore_columns", mode="before")
    @classmethod
    def _one_column_or_several(cls, names: Any) -> Any:
        return (names,) if isinstance(names, str) else names

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if sum(source is not None for source in (self.table, self.dataset, self.scenes)) != 1:
            raise ValueError("give either table (with images or features) or scenes or dataset (with root)")
        if self.table is not None and self.images is None and self.features is None:
            raise ValueError("table needs images, the folder that holds them, or features")
        if (self.dataset is None) != (self.root is None):
            raise ValueError("dataset and root, the folder in which it was unpacked, go together")
        if self.table is None:
            for key in ("images", "features"):
                if getattr(self, key) is not None and self.scenes is not None:
                    raise ValueError(f"{key} belongs to a table or a dataset, so leave it out")
            for key in ("encoding", "truth", "ignore_columns"):
                if getattr(self, key):
                    raise ValueError(f"{key} belongs to a table, so leave it out")
        for key in ("holdout_fraction", "holdout_from"):
            if getattr(self, key) is not None and not self.holdout:
                raise ValueError(f"{key} needs holdout: true")
        return self


def _dataset_options(name: str, given: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return all options of a data set; problems are raised as pydantic expects them."""
    from satl.labels.datasets import check_options, find_dataset

    try:
        dataset = find_dataset(name)
        known = [option.name for option in dataset.options]
        for key in given:
            if key not in known:
                near = nearest(str(key), [*known, *keys])
                choices = f"; options of {name}: {', '.join(known)}"
                raise ConfigError(f"there is no key '{key}'{near or choices}.")
        return check_options(dataset, given)
    except ConfigError as error:
        raise ValueError(str(error).rstrip(".")) from None


class MethodConfig(Section):
    """The method and the parameters of its parts, all of them: what is not given has its default."""

    name: str = Field("sst+satl", description="The method; `satl methods` lists them.")
    inputs: Literal["images", "features"] = Field(
        "images", description="What the network sees; follows from data.features."
    )
    network: dict[str, Any] = Field(default_factory=dict, description="Parameters of the network.")
    generators: dict[str, dict[str, Any] | bool] = Field(
        default_factory=dict, description="Parameters of each generator; false leaves one out."
    )
    thresholds: dict[str, Any] = Field(
        default_factory=dict, description="The threshold rule (`rule`) and its parameters."
    )
    losses: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Parameters of each loss term."
    )
    teacher: dict[str, Any] = Field(default_factory=dict, description="Parameters of the teacher.")

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        """Complete the parameters of the method; what is not a parameter of one of its parts is refused."""
        if not isinstance(content, Mapping):
            return content
        name = content.get("name", cls.model_fields["name"].default)
        if not isinstance(name, str):
            return content
        inputs = content.get("inputs", "images")
        try:
            method = _method_for(name, str(inputs))
        except ConfigError as error:
            remedy = "" if error.remedy is None else f": {error.remedy}"
            raise setting_error(f"{error.what}{remedy}".rstrip("."), name, "name") from None
        for key in content:
            if key not in cls.model_fields:
                raise setting_error(f"there is no key '{key}'{_new_place(str(key), method)}", content)
        chosen, parameters = configure(method, {key: content[key] for key in content if key != "inputs"})
        if inputs == "features" and "map" in NETWORKS[chosen.network].needs:
            able = ", ".join(one for one, part in NETWORKS.items() if "map" not in part.needs)
            raise setting_error(
                f"network '{chosen.network}' attends to the positions of a feature map, and features have one position "
                f"only; use one of {able}, or images",
                chosen.network,
                "network",
                "name",
            )
        return {"name": name, "inputs": inputs, **resolved_settings(method, chosen, parameters)}

    def configured(self) -> tuple[Method, MethodParameters]:
        """Return the method, with another threshold rule or fewer generators where that was set, and its parameters."""
        return configure(_method_for(self.name, self.inputs), self.model_dump(exclude={"inputs"}))


def _method_for(name: str, inputs: str) -> Method:
    """Return the method of this name for images or features."""
    return on_features(get_method(name)) if inputs == "features" else get_method(name)


def _new_place(key: str, method: Method) -> str:
    """Say where an unknown key of the section ``method`` belongs, as the end of a sentence."""
    if key in OLD_KEYS:
        return f" any more, it is {new_key(key)} now"
    keys = [name for name in MethodConfig.model_fields if name != "inputs"]  # which nobody has to write
    places = [*flat_settings(resolved_settings(method, *configure(method, {}))), *keys]
    of_word = {place.rpartition(".")[2]: place for place in places}
    close = difflib.get_close_matches(key, of_word, n=1)
    return f" (did you mean '{of_word[close[0]]}'?)" if close else f"; valid keys: {', '.join(keys)}"


class RunConfig(Section):
    """Everything that decides what a run does."""

    # The labels themselves are compared by their digest.
    data: Annotated[DataConfig, Effect.START]
    images: ImagesConfig = Field(default_factory=ImagesConfig)
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    method: MethodConfig = Field(default_factory=MethodConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)

    @model_validator(mode="before")
    @classmethod
    def _with_inputs(cls, content: Any) -> Any:
        """Let the method, and the defaults of other keys, follow from what the network sees."""
        if not isinstance(content, Mapping) or not uses_features(content):
            return content
        content = with_feature_defaults(content)
        if isinstance(content["method"], dict):
            content["method"].setdefault("inputs", "features")
        return content

    @model_validator(mode="after")
    def _inputs_fit(self) -> RunConfig:
        if (self.method.inputs == "features") != self.on_features:
            raise ValueError(
                f"method.inputs is {self.method.inputs}, but data.features is "
                f"{'' if self.on_features else 'not '}given; leave method.inputs out"
            )
        check_inputs(self)
        return self

    @property
    def on_features(self) -> bool:
        """Whether the run is trained on features instead of images."""
        return self.data.features is not None

    @property
    def input_name(self) -> str:
        """What the classes are recognised from, for tables: the backbone, or the file of features."""
        return self.model.backbone if self.data.features is None else self.data.features.name

    @property
    def source_size(self) -> int:
        """Side of the images as they are read, before any transform."""
        return self.images.store_size if self.data.scenes is None else self.data.scenes.size

    def resolved(self) -> dict[str, Any]:
        """Return the whole configuration, defaults and method parameters included, as plain data.

        Keys that are about features, or about pixels, are left out of a run that has none.
        """
        plain: dict[str, Any] = self.model_dump(mode="json")
        # Methods have only some of the sections of their parts.
        plain["method"] = {key: value for key, value in plain["method"].items() if value != {}}
        if self.on_features:
            for section, keys in OF_PIXELS.items():
                plain[section] = {key: value for key, value in plain[section].items() if key not in keys}
        else:
            del plain["features"], plain["method"]["inputs"]
        return plain

    def fixed(self) -> dict[str, str]:
        """Return the values, as JSON by ``section.key``, that must stay the same while a run is trained."""
        return {
            key: json.dumps(value, sort_keys=True)
            for key, value in sorted(flat_settings(self.resolved()).items())
            if effect_of(key) is Effect.RESULT
        }


def effect_of(key: str) -> Effect:
    """Return what a setting can change, from the mark on its field or on the section around it.

    >>> effect_of("images.workers"), effect_of("training.lr"), effect_of("data.table")
    (<Effect.NOTHING: 3>, <Effect.RESULT: 1>, <Effect.START: 2>)
    """
    effect: Effect = Effect.RESULT
    section: type[BaseModel] | None = RunConfig
    for part in key.split("."):
        field = None if section is None else section.model_fields.get(part)
        if field is None:  # an option of a data set, an argument of the backbone, a parameter of a method
            break
        effect = next((mark for mark in field.metadata if isinstance(mark, Effect)), effect)
        section = section_model(field.annotation)
    return effect


def flat_settings(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted keys; an empty section counts as one that is not there.

    >>> flat_settings({"training": {"epochs": 3}, "model": {"backbone_kwargs": {}}})
    {'training.epochs': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def deciding_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a resolved configuration, by their dotted keys, that can change a result."""
    settings = {
        key: value for key, value in flat_settings(content).items() if effect_of(key) is not Effect.NOTHING
    }
    if list(settings.get("model.train_stages", ())) == ["layer4"]:
        settings["model.train_stages"] = "last"  # what the last stage is called wherever there is a layer4
    return settings


def changed_settings(saved: RunConfig, wanted: RunConfig) -> list[str]:
    """Say which settings of two configurations differ in a way that can change a result.

    Returns:
        ``key (was one value, now another)`` for each.
    """
    before, now = deciding_settings(saved.resolved()), deciding_settings(wanted.resolved())
    return [
        f"{key} (was {json.dumps(before.get(key))}, now {json.dumps(now.get(key))})"
        for key in dict.fromkeys((*before, *now))
        if before.get(key) != now.get(key)
    ]
