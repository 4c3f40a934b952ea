"""The configuration of a run: typed sections with their defaults (:mod:`satl.runs.reading` reads them)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from satl.errors import ConfigError, nearest
from satl.methods import Method, MethodParameters, configure, get_method
from satl.methods.method import resolved_settings, setting_error
from satl.methods.old_keys import OLD_KEYS, new_key
from satl.models.model_config import ModelConfig
from satl.runs.settings import section_model
from satl.sections import Effect, Section


class ScenesConfig(Section):
    """The embedded data set, rendered when the run starts."""

    train: int = Field(2000, ge=1, description="Training images.")
    val: int = Field(300, ge=1, description="Validation images.")
    test: int = Field(1000, ge=0, description="Test images.")
    size: int = Field(64, ge=16, le=1024, description="Side in pixels.")
    seed: int = Field(0, ge=0, description="Seed of the images.")


class DataConfig(Section):
    """Where labels and images come from: a table, a data set in its published layout, or scenes."""

    # Options of the data set stand beside these keys; every other key is refused below.
    model_config = ConfigDict(extra="allow")

    table: Path | None = Field(None, description="Label table (CSV, Parquet, JSONL, JSON or npz).")
    images: Path | None = Field(
        None, description="Folder that the image ids are relative to, or a store that `satl pack` wrote."
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
        0.1, gt=0, lt=1, description="Share of the training images to validate on, where no split says so."
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
            raise ValueError("give either table (with images) or scenes or dataset (with root)")
        if self.table is not None and self.images is None:
            raise ValueError("table needs images, the folder that holds them")
        if (self.dataset is None) != (self.root is None):
            raise ValueError("dataset and root, the folder in which it was unpacked, go together")
        if self.table is None:
            if self.images is not None and self.scenes is not None:
                raise ValueError("images belongs to a table or a dataset, so leave it out")
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


class ImagesConfig(Section):
    """From files to batches."""

    store_size: int = Field(512, ge=8, description="Images are read as squares of this side.")
    size: int = Field(448, ge=8, description="The network sees squares of this side.")
    crop_sizes: tuple[int, ...] | None = Field(
        None, description="Sides of training crops; by default 1, 7/8, 6/8, 5/8 and 4/8 of store_size."
    )
    flip: bool = Field(True, description="Mirror half of the training images.")
    jitter: float = Field(0.0, ge=0, le=1, description="Random change of brightness, contrast, saturation.")
    workers: Annotated[int, Effect.NOTHING] = Field(4, ge=0, description="Processes that decode images.")
    cache_gb: Annotated[float, Effect.NOTHING] = Field(
        2.0, ge=0, description="Keep decoded images in memory up to this size."
    )
    gpu_cache_gb: Annotated[float | None, Effect.NOTHING] = Field(
        None,
        ge=0,
        description="Keep them on the GPU up to this size; by default up to a quarter of what is free there.",
    )


class TrainingConfig(Section):
    """Optimiser, schedule, stages."""

    epochs: Annotated[int, Effect.START] = Field(20, ge=1, description="Epochs of both stages together.")
    stage1_epochs: int = Field(5, ge=1, description="Epochs before pseudo-labels are used.")
    batch_size: int = Field(32, ge=2, description="Images a step, over all processes.")
    accumulate: int = Field(
        1, ge=1, description="Micro-batches that a step is done in, one after the other, to save memory."
    )
    optimiser: Literal["adam", "adamw", "sgd"] = Field("adam", description="What moves the weights.")
    lr: float = Field(1e-5, gt=0, description="Learning rate.")
    head_lr: float | None = Field(None, gt=0, description="Learning rate of all but the backbone, if other.")
    weight_decay: float = Field(5e-4, ge=0, description="Weight decay.")
    momentum: float = Field(0.9, ge=0, lt=1, description="For sgd.")
    schedule: Literal["step", "cosine", "constant"] = Field(
        "step", description="How the learning rate changes."
    )
    step_epochs: int = Field(10, ge=1, description="The step schedule divides the rate by 10 this often.")
    warmup_epochs: float = Field(0.0, ge=0, description="Linear warm-up.")
    clip_norm: float | None = Field(None, gt=0, description="Largest norm of the gradient.")
    ema: float | None = Field(None, gt=0, lt=1, description="Decay of an average of weights to evaluate.")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16 computes in half the bits.")
    compile: Annotated[bool, Effect.START] = Field(
        False,
        description="Compile network and losses with torch.compile: a slower start, faster steps on a GPU.",
    )
    cuda_graphs: Annotated[bool, Effect.START] = Field(
        False, description="On one GPU, replay the whole step as one CUDA graph; ignored elsewhere."
    )
    shard: Annotated[bool, Effect.START] = Field(
        False, description="Spread the pair head over the processes, for one that outgrows a card."
    )
    device: Annotated[Literal["auto", "cpu"], Effect.START] = Field(
        "auto", description="auto takes a GPU if there is one."
    )
    seed: int = Field(0, ge=0, description="Decides weights, order, augmentation and split.")
    checkpoint_steps: Annotated[int | None, Effect.NOTHING] = Field(
        None, ge=1, description="Also save within an epoch, every so many steps."
    )
    checkpoint_epochs: Annotated[int, Effect.NOTHING] = Field(
        1, ge=1, description="Epochs between checkpoints to resume from (the last is always written)."
    )
    tensorboard: Annotated[bool, Effect.NOTHING] = Field(
        False,
        description="Also write curves for TensorBoard into the run's folder; needs the extra `tensorboard`.",
    )
    evaluate_every: Annotated[int, Effect.START] = Field(
        1, ge=1, description="Epochs between validations (the last is always done)."
    )

    @model_validator(mode="after")
    def _stages(self) -> TrainingConfig:
        if self.stage1_epochs > self.epochs:
            raise ValueError(f"stage1_epochs ({self.stage1_epochs}) is more than epochs ({self.epochs})")
        if self.shard and self.compile:
            raise ValueError(
                "a head that is spread over processes cannot be compiled: set shard or compile to false"
            )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size ({self.batch_size}) cannot be done in {self.accumulate} equal micro-batches (accumulate)"
            )
        return self


class MethodConfig(Section):
    """The method and the parameters of its parts, all of them: what is not given has its default."""

    name: str = Field("sst+satl", description="The method; `satl methods` lists them.")
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
        try:
            method = get_method(name)
        except ConfigError as error:
            raise setting_error(str(error.what).rstrip("."), name, "name") from None
        for key in content:
            if key not in cls.model_fields:
                raise setting_error(f"there is no key '{key}'{_new_place(str(key), method)}", content)
        return {"name": name, **resolved_settings(method, *configure(method, content))}

    def configured(self) -> tuple[Method, MethodParameters]:
        """Return the method, with another threshold rule or fewer generators where that was set, and its parameters."""
        return configure(get_method(self.name), self.model_dump())


def _new_place(key: str, method: Method) -> str:
    """Say where an unknown key of the section ``method`` belongs, as the end of a sentence."""
    if key in OLD_KEYS:
        return f" any more, it is {new_key(key)} now"
    places = [*flat_settings(resolved_settings(method, *configure(method, {}))), *MethodConfig.model_fields]
    of_word = {place.rpartition(".")[2]: place for place in places}
    close = difflib.get_close_matches(key, of_word, n=1)
    return (
        f" (did you mean '{of_word[close[0]]}'?)"
        if close
        else f"; valid keys: {', '.join(MethodConfig.model_fields)}"
    )


class RunConfig(Section):
    """Everything that decides what a run does."""

    # The labels themselves are compared by their digest.
    data: Annotated[DataConfig, Effect.START]
    images: ImagesConfig = Field(default_factory=ImagesConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    method: MethodConfig = Field(default_factory=MethodConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)

    @property
    def source_size(self) -> int:
        """Side of the images as they are read, before any transform."""
        return self.images.store_size if self.data.scenes is None else self.data.scenes.size

    def resolved(self) -> dict[str, Any]:
        """Return the whole configuration, defaults and method parameters included, as plain data."""
        plain: dict[str, Any] = self.model_dump(mode="json")
        # Methods have only some of the sections of their parts.
        plain["method"] = {key: value for key, value in plain["method"].items() if value != {}}
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
    return {
        key: value for key, value in flat_settings(content).items() if effect_of(key) is not Effect.NOTHING
    }


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
