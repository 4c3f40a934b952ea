"""A method put together: network, generators and thresholds in one module whose forward is the whole loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch._functorch.config as functorch
from torch import Tensor, nn

from satl.errors import ArrayError
from satl.methods.generators import PartContext
from satl.methods.method import Method, MethodParameters
from satl.methods.method_parts import GENERATORS, LOSSES, RULES
from satl.methods.mixing import mix
from satl.methods.step_data import StepContext, StepInputs, StepResult
from satl.models.feature_input import FeatureInput
from satl.models.functional import symmetric_pairs
from satl.models.semantic_transfer import NetworkOutput
from satl.scoring import Generator, GeneratorInputs, GeneratorScores, ProbeLogits, Survey
from satl.thresholds import ThresholdRule

KEPT_FOR_BACKWARD = 0.6
"""Share of the activations that compiled code may keep for the backward pass; the rest is computed again.

Below 1 it is elementwise work that is repeated, and if that is not enough the products with the fewest operations
for their size, such as 1 x 1 convolutions and those with the graph of classes.
"""


_COMPILED = ("_run_network", "_compute_losses", "_compute_mixed_losses")
"""Methods of a learner that :meth:`Learner.compile_step` puts compiled code in the place of."""


class Learner(nn.Module):
    """The trainable whole of a method.

    Everything that changes while training lives in its parameters and buffers: weights, thresholds,
    histograms, feature banks and prototypes.

    A threshold rule that learns by gradient has a loss of its own: the further term ``threshold`` of stage 2.

    Args:
        method: as it was configured.
        parameters: of its parts.
        network: of the method.
        proportion: share of known cells in the training table.
        positive_share: share of positives among them.
        known_per_class: how many of them a class has on average.
    """

    def __init__(
        self,
        method: Method,
        parameters: MethodParameters,
        network: nn.Module,
        proportion: float,
        positive_share: float = 0.0,
        known_per_class: float = 0.0,
    ) -> None:
        super().__init__()
        self.positive_share = positive_share
        self.method = method
        losses = {
            name: part.for_labels(known_per_class, proportion) for name, part in parameters.losses.items()
        }
        self.method_parameters = parameters = replace(parameters, losses=losses)
        self.network = network
        shared = bool(getattr(network, "shared_feature", False))
        context = PartContext(int(network.num_classes), int(network.feature_dim), proportion, shared)  # type: ignore[arg-type]
        generators = {
            name: GENERATORS[name].build(context, parameters.generators[name]) for name in method.generators
        }
        self.generators = nn.ModuleDict(generators)
        self.rules = nn.ModuleDict(
            {
                name: RULES[method.rule].build(
                    replace(context, probability=generator.probability), parameters.thresholds
                )
                for name, generator in generators.items()
                if method.rule
            }
        )
        for name in self.rules:
            self._rule(name).take_signed()  # cells of a table, which may have no -1 at all
        self.probe_weight = 0.0 if parameters.teacher is None else parameters.teacher.probe_weight
        self.probe = ProbeLogits(context.num_classes) if self.probe_weight else None

    def forward(self, inputs: StepInputs, mixed: bool = False) -> StepResult:
        """Compute the loss of one batch, or of one of the equal micro-batches that it is done in.

        The mean of the losses of micro-batches, and of processes, is the loss of the batch; what is counted only
        after the network has run (pseudo-labels, scores that mean something) is counted over a micro-batch of all
        processes.

        Args:
            inputs: of the step.
            mixed: compute only the loss of the images mixed by ``inputs.shares``; :meth:`mixes` tells which steps
                need this second call.
        """
        if mixed:
            assert inputs.shares is not None
            with_pairs = any("pairs" in LOSSES[name].needs for name in self._mixed_terms(inputs.stage))
            output = self._run_network(
                mix(self._mixable(inputs.pixels), inputs.shares), with_pairs=with_pairs
            )
            return self._compute_mixed_losses(output, inputs)
        output = self._run_network(inputs.pixels, with_pairs=self.method.needs("pairs"))
        return self._compute_losses(output, inputs)

    def _mixable(self, pixels: Tensor) -> Tensor:
        """Return what is mixed: images, but features only where they are as long as each other and standardised."""
        backbone = getattr(self.network, "backbone", None)
        return backbone(pixels) if isinstance(backbone, FeatureInput) else pixels

    def mixes(self, stage: int) -> bool:
        """Whether a step of this stage has a further call of :meth:`forward`, for mixed images."""
        return bool(self._mixed_terms(stage))

    def _mixed_terms(self, stage: int) -> list[str]:
        """Return the names of a stage's terms about mixed images that do anything.

        In stage 1 a teacher takes a probe: an average of weights that were random a moment ago cannot teach.
        """
        taught = stage == 2 or (self.probe is not None and not self.needs_probe)
        return [
            name
            for name in self._terms(stage, mixed=True)
            if not self.method_parameters.losses[name].switched_off
            and (taught or "teacher" not in LOSSES[name].needs)
        ]

    def uses_teacher(self, stage: int) -> bool:
        """Whether a term of this stage needs the teacher, other than those about mixed images."""
        return any("teacher" in LOSSES[name].needs for name in self._terms(stage, mixed=False))

    def _terms(self, stage: int, mixed: bool) -> list[str]:
        """Return the names of a stage's terms that are about mixed images, or of those that are not."""
        terms = self.method.stage2 if stage == 2 else self.method.stage1
        return [name for name in terms if ("mixed" in LOSSES[name].needs) == mixed]

    def compile_step(self, **options: Any) -> None:
        """From now on let :meth:`forward` run compiled code; other methods and ``network`` itself stay as they are.

        The network is compiled once, and once for each stage what follows it: a second stage then costs
        seconds, not the minutes that a large backbone takes. Neither part has a graph break. What is cheap to
        compute again in the backward pass is not kept for it (:data:`KEPT_FOR_BACKWARD`).

        Args:
            options: for ``torch.compile``.
        """
        compiled = {"fullgraph": True, "dynamic": False, **options}
        # Past nn.Module, which would take the wrapper for a further part with weights of its own.
        parts: tuple[Callable[..., Any], ...] = (
            self.network,
            self._compute_losses,
            self._compute_mixed_losses,
        )
        for name, function in zip(_COMPILED, parts, strict=True):
            object.__setattr__(self, name, _with_memory_budget(torch.compile(function, **compiled)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: all but compiled code, which belongs to this process and learner."""
        return {name: value for name, value in self.__dict__.items() if name not in _COMPILED}

    def _run_network(self, images: Tensor, with_pairs: bool) -> NetworkOutput:
        output: NetworkOutput = self.network(images, with_pairs=with_pairs)
        return output

    def _compute_losses(self, output: NetworkOutput, inputs: StepInputs) -> StepResult:
        """Everything of :meth:`forward` that follows the network: scores, pseudo-labels, losses, histograms."""
        labels, stage = inputs.labels, inputs.stage
        generator_inputs, scores, pseudo = None, {}, {}
        if self.generators:
            generator_inputs = self._generator_inputs(
                output, labels, inputs.indices, inputs.teacher, inputs.pixels
            )
        if generator_inputs is not None and (stage == 2 or inputs.observe):
            scores = {name: generator(generator_inputs) for name, generator in self.generators.items()}
            _check_scores(scores, labels)
        if stage == 2:
            pseudo = {
                name: self._rule(name).pseudo_labels(
                    self._candidates(name, score, inputs.teacher), labels, inputs.indices
                )
                for name, score in scores.items()
            }
        rules = {name: self._rule(name) for name in scores}
        context = StepContext(inputs, output, scores, pseudo, rules, self.positive_share)
        own = self.method_parameters.losses
        parts = {
            name: LOSSES[name].build(context, own[name]) * (inputs.ramp if LOSSES[name].ramped else 1.0)
            for name in self._terms(stage, mixed=False)
        }
        if stage == 2:
            parts |= self._threshold_loss(scores, labels)
        if inputs.observe:
            for name, score in scores.items():
                rules[name].observe(_or_else(score, torch.nan).detach(), labels)
        return StepResult(*self._add_up(parts, rules_have_gradient=stage == 2), pseudo, generator_inputs)

    def _candidates(self, name: str, score: GeneratorScores, teacher: Tensor | None) -> Tensor:
        """Return the scores of a generator's cells that may become pseudo-labels, -1 of the others.

        Thresholds are estimated from all its scores, those that the teacher does not agree with included.
        """
        values, settings = _or_else(score, -1.0), self.method_parameters.teacher
        if (
            settings is None
            or settings.agreement == 0
            or teacher is None
            or self.generators[name].probability
        ):
            return values
        return torch.where(teacher >= settings.agreement, values, -1.0)

    def _compute_mixed_losses(self, output: NetworkOutput, inputs: StepInputs) -> StepResult:
        """What :meth:`_compute_losses` is for a step's images, for mixed ones: the terms that are about them."""
        context = StepContext(inputs, output, positive_share=self.positive_share)
        own = self.method_parameters.losses
        terms = self._mixed_terms(inputs.stage)
        parts = {name: LOSSES[name].build(context, own[name]) for name in terms}
        return StepResult(*self._add_up(parts, rules_have_gradient=False), {}, None)

    def _add_up(
        self, parts: dict[str, Tensor], rules_have_gradient: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of loss terms, which must be scalars, and the terms without their gradient."""
        for name, part in parts.items():
            if part.ndim:
                raise ArrayError(
                    f"loss term {name!r} must return a scalar, got the shape {tuple(part.shape)}."
                )
        loss = torch.stack(list(parts.values())).sum()
        if not rules_have_gradient:
            # Plus zero, with a gradient: several processes can add up gradients only if every parameter has one.
            loss = loss + sum(0.0 * parameter.sum() for parameter in self.rules.parameters())
        return loss, {name: part.detach() for name, part in parts.items()}

    def _threshold_loss(self, scores: dict[str, GeneratorScores], labels: Tensor) -> dict[str, Tensor]:
        """Return the loss of the rules that learn by gradient, if there are any, by the name of the term."""
        costs = [
            self._rule(name).loss(score.values, torch.where(score.informative, labels, 0))
            for name, score in scores.items()
            if self._rule(name).learns_by_gradient
        ]
        return {"threshold": torch.stack(costs).sum()} if costs else {}

    @property
    def needs_probe(self) -> bool:
        """Whether a probe is part of the teacher, and has still to be fitted."""
        return self.probe is not None and len(self.probe.logits) == 0

    def teacher_probabilities(self, probabilities: Tensor | None, indices: Tensor) -> Tensor:
        """Return the teacher's probabilities ``(B, C)``: of the averaged network and of the probe, once fitted.

        Args:
            probabilities: ``(B, C)`` of the averaged network; None: the probe's alone.
            indices: ``(B,)`` index of each image in the training set.
        """
        if probabilities is None:
            assert self.probe is not None
            return self.probe.probabilities(indices)
        if self.probe is None or self.needs_probe:
            return probabilities
        return self.probe.blend(probabilities, indices, self.probe_weight)

    @torch.no_grad()
    def remember(self, generator_inputs: GeneratorInputs | None) -> None:
        """Let the generators take in a batch; call it after the backward pass."""
        if generator_inputs is not None:
            for generator in self._generators():
                generator.remember(generator_inputs)

    def use_bfloat16_memory(self) -> None:
        """Let the generators keep what they remember in bfloat16, for networks that compute in it."""
        for generator in self._generators():
            generator.use_bfloat16_memory()

    def survey_size(self, epoch: int) -> int:
        """Return how many known positives per class the generators need before an epoch of stage 2.

        ``epoch`` counts the epochs of stage 2 that are done; 0: no generator needs a survey.
        """
        return max((generator.survey_size(epoch) for generator in self._generators()), default=0)

    def study(self, survey: Survey, epoch: int, seed: int) -> None:
        """Pass a survey to the generators that need one before this epoch."""
        for generator in self._generators():
            if generator.survey_size(epoch) > 0:
                generator.study(survey, seed)

    def update_thresholds(self) -> None:
        """Move the thresholds of all generators."""
        for name in self.rules:
            self._rule(name).update()

    def update_thresholds_within_epoch(self, step: int, steps: int) -> None:
        """Move the thresholds of rules that update after this step of an epoch of ``steps``."""
        for name in self.rules:
            if self._rule(name).updates_after(step, steps):
                self._rule(name).update()

    @torch.no_grad()
    def score(self, images: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Return generator scores and the class probability ``(B, C)`` of a batch, for reports and figures.

        Scores that mean nothing (see :class:`satl.scoring.GeneratorScores`) are NaN. The network itself takes the
        teacher's place.
        """
        output = self.network(images, with_pairs=self.method.needs("pairs"))
        result = {"probability": output.logits.float().sigmoid()}
        if self.generators:
            teacher = self.teacher_probabilities(result["probability"], indices)
            generator_inputs = self._generator_inputs(output, labels, indices, teacher, images)
            for name, generator in self.generators.items():
                result[name] = _or_else(generator(generator_inputs), torch.nan)
        return result

    def thresholds(self) -> dict[str, Tensor]:
        """Return the current thresholds ``(C,)`` of each generator."""
        return {name: self._rule(name).value.detach() for name in self.rules}

    def _generators(self) -> list[Generator]:
        return [generator for generator in self.generators.values() if isinstance(generator, Generator)]

    def _rule(self, name: str) -> ThresholdRule:
        rule = self.rules[name]
        assert isinstance(rule, ThresholdRule)
        return rule

    def _generator_inputs(
        self, output: NetworkOutput, labels: Tensor, indices: Tensor, teacher: Tensor | None, images: Tensor
    ) -> GeneratorInputs:
        pairs = None
        if output.pair_logits is not None:
            pairs = symmetric_pairs(output.pair_logits.float().sigmoid(), labels.shape[1], diagonal=1.0)
        vectors = images if images.ndim == 2 else None
        return GeneratorInputs(output.features, pairs, labels, indices, output.logits, teacher, vectors)


def _check_scores(scores: dict[str, GeneratorScores], labels: Tensor) -> None:
    """Refuse scores that are not one for each cell, which would be broadcast."""
    for name, score in scores.items():
        for kind in ("values", "informative"):
            shape = getattr(score, kind).shape
            if shape != labels.shape:
                raise ArrayError(
                    f"generator {name!r}: the {kind} of its scores must be (B, C), here {tuple(labels.shape)}, "
                    f"got {tuple(shape)}."
                )


def _or_else(scores: GeneratorScores, other: float) -> Tensor:
    """Return the scores, and ``other`` where they mean nothing."""
    return torch.where(scores.informative, scores.values, other)


def _with_memory_budget(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that is generated, at its first call, with :data:`KEPT_FOR_BACKWARD`."""

    def call(*arguments: Any, **named: Any) -> Any:
        with functorch.patch(activation_memory_budget=KEPT_FOR_BACKWARD):
            return compiled(*arguments, **named)

    return call
