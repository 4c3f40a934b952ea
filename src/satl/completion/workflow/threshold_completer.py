"""Thresholds and certificates behind the interface of scikit-learn: fit on scores and labels, complete, predict."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from satl.checks.array_checks import as_labels, as_real_matrix
from satl.completion.statistics.assessment import Assessment, CompletionSettings, assess
from satl.completion.statistics.certify import Family, Transfer
from satl.errors import ArrayError, ConfigError, SatlError, nearest
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells

Floats = npt.NDArray[np.float64]


class NotFittedError(SatlError, ValueError, AttributeError):
    """Something was asked of thresholds that have not been fitted."""


class ThresholdCompleter:
    """Choose thresholds from the scores of any model, and complete labels as far as a precision can be promised.

    The scores of the known cells must come from a model that was not trained on them. ``fit`` finds, for each class,
    the threshold with the best F1, and certifies one for *present* and one for *absent* where the precision can be
    promised (:func:`satl.completion.certify`); ``complete`` fills unknown cells beyond these; ``predict`` decides by
    the first for scores of any images.

    It follows the conventions of scikit-learn, which it does not need: parameters are those of the constructor,
    ``get_params`` and ``set_params`` hand them out, what is learned ends in an underscore, ``fit`` returns the object.

    Args:
        precision: share of the accepted cells of a class that must be right, in (0, 1).
        confidence: of each promise, in (0, 1).
        family: "class": each promise on its own; "table": all at once.
        transfer: "same": known cells are a random choice; "prevalence": positives may be rarer among the unknown.
        encoding: how label arrays are written (a name in ``satl.labels.ENCODINGS``). None: 1, -1 and 0 for unknown, or
            1, 0 and NaN for unknown; 1 and 0 alone can be read in two ways and are refused.

    Attributes:
        thresholds_: (C,) score from which on a class is present, with the best F1; NaN: never.
        present_from_, absent_to_: (C,) certified scores from which on cells are accepted as present, up to which as
            absent; NaN: no promise, nothing is accepted.
        assessment_: all that was found out, with reasons and labels needed.
        n_features_in_: C.

    >>> draw = np.random.default_rng(0)
    >>> truth = draw.random((2000, 1)) < 0.4
    >>> scores = draw.normal(size=truth.shape) + 4 * truth
    >>> labels = np.where(draw.random(truth.shape) < 0.3, truth, np.nan)
    >>> completer = ThresholdCompleter(precision=0.9).fit(scores, labels)
    >>> completer.thresholds_.round(1), int(completer.predict([[3.5]])[0, 0])
    (array([2.]), 1)
    >>> filled = completer.complete(scores, labels)
    >>> bool((filled[filled != 0] == np.where(truth, 1, -1)[filled != 0]).mean() > 0.9)
    True
    """

    def __init__(
        self,
        precision: float = 0.95,
        confidence: float = 0.95,
        family: Family = "class",
        transfer: Transfer = "same",
        encoding: str | None = None,
    ) -> None:
        self.precision = precision
        self.confidence = confidence
        self.family = family
        self.transfer = transfer
        self.encoding = encoding

    def fit(self, scores: npt.ArrayLike, labels: npt.ArrayLike) -> Self:
        """Find the thresholds.

        Args:
            scores: (N, C), any scale, higher means rather present; NaN: no score.
            labels: (N, C) what is known; see ``encoding``.

        Raises:
            ArrayError: shapes or values do not fit, nothing is known, or the labels can be read in several ways.
        """
        values, cells = self._checked(scores, labels)
        if not cells.any():
            raise ArrayError(
                "no label is known, so there is nothing to learn from", remedy="give some labels"
            )
        settings = CompletionSettings(self.precision, self.confidence, self.family, self.transfer)
        found = assess(np.asfortranarray(values), np.asfortranarray(cells), None, settings)
        self.assessment_: Assessment = found
        self.thresholds_: Floats = np.asarray(found.best_f1, dtype=np.float64)
        self.present_from_: Floats = found.present_from
        self.absent_to_: Floats = found.absent_to
        self.n_features_in_ = values.shape[1]
        return self

    def complete(self, scores: npt.ArrayLike, labels: npt.ArrayLike) -> Cells:
        """Return the labels with unknown cells filled where a precision is promised.

        Args:
            scores, labels: as in :meth:`fit`.

        Returns:
            int8 (N, C): 1 present, -1 absent, 0 still unknown. Known cells never change.
        """
        self._require_fitted()
        values, cells = self._checked(scores, labels)
        self._require_width(values)
        unknown = cells == UNKNOWN
        filled = cells.copy()
        # A score or a threshold that is NaN compares as False: nothing is accepted.
        filled[unknown & (values >= self.present_from_)] = PRESENT
        filled[unknown & (values <= self.absent_to_)] = ABSENT
        return filled

    def predict(self, scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return 1 where a class is present by its threshold with the best F1, else 0: int64 (N, C)."""
        self._require_fitted()
        values = as_real_matrix(scores)
        self._require_width(values)
        return np.asarray(values >= self.thresholds_, dtype=np.int64)

    def fit_complete(self, scores: npt.ArrayLike, labels: npt.ArrayLike) -> Cells:
        """Fit, and complete the same labels."""
        return self.fit(scores, labels).complete(scores, labels)

    @classmethod
    def _parameters(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the constructor by name.

        Raises:
            ConfigError: there is no such parameter.
        """
        known = self._parameters()
        for name, value in parameters.items():
            if name not in known:
                raise ConfigError(
                    f"there is no parameter {name!r}{nearest(name, known)}", remedy=f"use {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "thresholds_")

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn asks for them, so it is there.
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(allow_nan=True),
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        given = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("the thresholds are not fitted", remedy="call fit(scores, labels) first")

    def _require_width(self, values: npt.NDArray[Any]) -> None:
        if values.shape[1] != self.n_features_in_:
            raise ArrayError(
                f"the scores have {values.shape[1]:,} classes, and the thresholds were fitted to "
                f"{self.n_features_in_:,}",
                remedy="give the same classes in the same order",
            )

    def _checked(self, scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[npt.NDArray[Any], Cells]:
        values = as_real_matrix(scores)
        return values, as_labels(labels, values.shape, encoding=self.encoding)
