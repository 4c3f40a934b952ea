"""A method put together: network, generators and thresholds in one module whose forward is the whole loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch._functorch.config as functorch
from torch import Tensor, nn

from satl.methods.declaration import GENERATORS, RULES, TERMS, Method, Parameters
from satl.methods.mixing import mix
from satl.methods.parts import Setting, StepContext
from satl.models.functional import symmetric_pairs
from satl.models.semantic_transfer import NetworkOutput
from satl.scoring import Evidence, Generator, ProbeOpinion, Scores, Survey
from satl.thresholds import LearnedThreshold, ThresholdRule

KEPT_FOR_BACKWARD = 0.6
"""Share of the activations that compiled code may keep for the backward pass; the rest is computed again.

Below 1 it is elementwise work that is repeated, and if that is not enough the products with the fewest operations
for their size, such as 1 x 1 convolutions and those with the graph of classes.
"""


_COMPILED = ("_run_network", "_judge", "_judge_mixed")
"""Methods of a learner that :meth:`Learner.compile_step` puts compiled code in the place of."""


class StepResult(NamedTuple):
    """What one training step computes before the backward pass."""

    loss: Tensor
    parts: dict[str, Tensor]
    """The weighted terms of the loss, detached."""
    pseudo: dict[str, Tensor]
    """``(B, C)`` labels filled by each generator, in stage 2."""
    evidence: Evidence | None
    """For :meth:`Learner.remember`, after the backward pass."""


class Learner(nn.Module):
    """The trainable whole of a method.

    Everything that changes while training lives in its parameters and buffers: weights, thresholds,
    histograms, feature banks and prototypes.

    A threshold rule that learns by gradient brings its loss along: stage 2 then has the further term
    ``threshold``, whatever the method.
    """

    def __init__(self, method: Method, parameters: Parameters, network: nn.Module, proportion: float) -> None:
        super().__init__()
        self.method = method
        self.parameters_of_method = parameters
        self.network = network
        setting = Setting(parameters, int(network.num_classes), int(network.feature_dim), proportion)  # type: ignore[arg-type]
        generators = {name: GENERATORS[name](setting) for name in method.generators}
        self.generators = nn.ModuleDict(generators)
        self.rules = nn.ModuleDict(
            {
                name: RULES[method.threshold](replace(setting, probability=generator.probability))
                for name, generator in generators.items()
                if method.threshold
            }
        )
        self.probe_weight: float = getattr(parameters, "probe_weight", 0.0)
        self.probe = ProbeOpinion(setting.num_classes) if self.probe_weight else None

    def forward(
        self,
        images: Tensor,
        labels: Tensor,
        indices: Tensor,
        stage: int,
        ramp: Tensor | float,
        observe: bool,
        teacher: Tensor | None = None,
        noise: Tensor | None = None,
        batch: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> StepResult:
        """Compute the loss of one batch, or of one of the equal micro-batches that it is done in.

        The mean of the losses of micro-batches, and of processes, is the loss of the batch; what is counted only
        after the network has run (pseudo-labels, scores that mean something) is counted over a micro-batch of all
        processes.

        Args:
            images: ``(B, 3, H, W)`` normalised pixels.
            labels: ``(B, C)`` with +1, -1, 0.
            indices: ``(B,)`` index of each image in the training set.
            stage: 1 or 2.
            ramp: weight in [0, 1] of the terms that grow during the first epoch.
            observe: whether the threshold rules take note of the scores.
            teacher: ``(B, C)`` probabilities of the teacher, for methods that need one.
            noise: ``(C, B (B - 1) / 2)`` in [0, 1) for terms that choose pairs of images at random, with the B of
                all processes together; drawn where it is not given, which one process alone may do.
            batch: ``(N, C)`` all labels of the batch in this process, where ``labels`` are those of a micro-batch.
            shares: ``(B,)`` how much of each mixed image is the image itself. Where it is given, the loss is that of
                the images mixed so, and of nothing else; :meth:`mixes` says which steps want such a call beside the
                other one.
        """
        with_pairs = self.method.needs("pairs")
        if shares is not None:
            return self._judge_mixed(
                self._run_network(mix(images, shares), with_pairs=with_pairs), labels, stage, teacher, shares
            )
        output = self._run_network(images, with_pairs=with_pairs)
        return self._judge(output, labels, indices, stage, ramp, observe, teacher, noise, batch)

    def mixes(self, stage: int) -> bool:
        """Whether a step of this stage has a further call of :meth:`forward`, for mixed images.

        In stage 1 that takes a probe to teach: an average of weights that were random a moment ago cannot.
        """
        if stage == 1 and (self.probe is None or self.wants_probe):
            return False
        # A weight of 0 saves the call; terms that have no weight of this name always want it.
        return bool(self._terms(stage, mixed=True)) and bool(
            getattr(self.parameters_of_method, "mix_weight", 1.0)
        )

    def asks_teacher(self, stage: int) -> bool:
        """Whether a term of this stage looks at the teacher; those about mixed images take what there is."""
        return any("teacher" in TERMS[name].needs for name in self._terms(stage, mixed=False))

    def _terms(self, stage: int, mixed: bool) -> list[str]:
        """Return the names of a stage's terms that are about mixed images, or of those that are not."""
        terms = self.method.stage2 if stage == 2 else self.method.stage1
        return [name for name in terms if ("mixed" in TERMS[name].needs) == mixed]

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
        parts: tuple[Callable[..., Any], ...] = (self.network, self._judge, self._judge_mixed)
        for name, function in zip(_COMPILED, parts, strict=True):
            object.__setattr__(self, name, _sparing(torch.compile(function, **compiled)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: all but compiled code, which belongs to this process and learner."""
        return {name: value for name, value in self.__dict__.items() if name not in _COMPILED}

    def _run_network(self, images: Tensor, with_pairs: bool) -> NetworkOutput:
        output: NetworkOutput = self.network(images, with_pairs=with_pairs)
        return output

    def _judge(
        self,
        output: NetworkOutput,
        labels: Tensor,
        indices: Tensor,
        stage: int,
        ramp: Tensor | float,
        observe: bool,
        teacher: Tensor | None,
        noise: Tensor | None,
        batch: Tensor | None,
    ) -> StepResult:
        """Everything of :meth:`forward` that follows the network: scores, pseudo-labels, losses, histograms."""
        evidence, scores, pseudo = None, {}, {}
        if self.generators:
            evidence = self._evidence(output, labels, indices, teacher)
        if evidence is not None and (stage == 2 or observe):
            scores = {name: generator(evidence) for name, generator in self.generators.items()}
            _check_scores(scores, labels)
        if stage == 2:
            pseudo = {
                name: self._rule(name).pseudo_labels(_or_else(score, -1.0), labels, indices)
                for name, score in scores.items()
            }
        rules = {name: self._rule(name) for name in scores}
        parameters = self.parameters_of_method
        context = StepContext(parameters, output, labels, scores, pseudo, rules, teacher, noise, batch)
        parts = {
            name: TERMS[name](context) * (ramp if TERMS[name].ramped else 1.0)
            for name in self._terms(stage, mixed=False)
        }
        if stage == 2:
            parts |= self._threshold_loss(scores, labels)
        if observe:
            for name, score in scores.items():
                rules[name].observe(_or_else(score, torch.nan).detach(), labels)
        _check_parts(parts)
        loss = torch.stack(list(parts.values())).sum()
        if stage == 1:
            loss = loss + self._nothing_from_rules()
        return StepResult(loss, _detached(parts), pseudo, evidence)

    def _judge_mixed(
        self, output: NetworkOutput, labels: Tensor, stage: int, teacher: Tensor | None, shares: Tensor
    ) -> StepResult:
        """What :meth:`_judge` is for a step's images, for mixed ones: the terms that are about them."""
        context = StepContext(
            self.parameters_of_method, output, labels, {}, {}, {}, teacher=teacher, shares=shares
        )
        parts = {name: TERMS[name](context) for name in self._terms(stage, mixed=True)}
        _check_parts(parts)
        loss = torch.stack(list(parts.values())).sum() + self._nothing_from_rules()
        return StepResult(loss, _detached(parts), {}, None)

    def _nothing_from_rules(self) -> Tensor | float:
        """Zero, with a gradient: several processes can add up gradients only if every parameter has one."""
        return sum(0.0 * parameter.sum() for parameter in self.rules.parameters())

    def _threshold_loss(self, scores: dict[str, Scores], labels: Tensor) -> dict[str, Tensor]:
        """Return the loss of the rules that learn by gradient, if there are any, by the name of the term."""
        costs = [
            rule.loss(score.values, torch.where(score.informative, labels, 0))
            for name, score in scores.items()
            if isinstance(rule := self._rule(name), LearnedThreshold)
        ]
        return {"threshold": torch.stack(costs).sum()} if costs else {}

    @property
    def wants_probe(self) -> bool:
        """Whether a probe is part of the teacher, and has still to be fitted."""
        return self.probe is not None and len(self.probe.logits) == 0

    def taught(self, probabilities: Tensor | None, indices: Tensor) -> Tensor:
        """Return what the teacher says ``(B, C)``: an averaged network's probabilities and the probe's, once fitted.

        Args:
            probabilities: ``(B, C)`` of the averaged network; None where the probe is to speak alone.
            indices: ``(B,)`` index of each image in the training set.
        """
        if probabilities is None:
            assert self.probe is not None
            return self.probe.probabilities(indices)
        if self.probe is None or self.wants_probe:
            return probabilities
        return self.probe.blend(probabilities, indices, self.probe_weight)

    @torch.no_grad()
    def remember(self, evidence: Evidence | None) -> None:
        """Let the generators take in a batch; call it after the backward pass."""
        if evidence is not None:
            for generator in self._generators():
                generator.remember(evidence)

    def lighten(self) -> None:
        """Let the generators keep what they remember in bfloat16, for networks that compute in it."""
        for generator in self._generators():
            generator.lighten()

    def survey_size(self, epoch: int) -> int:
        """Return how many known positives per class the generators want to see before an epoch of stage 2.

        ``epoch`` counts the epochs of stage 2 that are done; 0 known positives mean that nobody wants a survey.
        """
        return max((generator.survey_size(epoch) for generator in self._generators()), default=0)

    def study(self, survey: Survey, epoch: int, seed: int) -> None:
        """Show a survey to the generators that want one before this epoch."""
        for generator in self._generators():
            if generator.survey_size(epoch) > 0:
                generator.study(survey, seed)

    def update_thresholds(self) -> None:
        """Move the thresholds of all generators."""
        for name in self.rules:
            self._rule(name).update()

    @torch.no_grad()
    def score(self, images: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Return generator scores and the class probability ``(B, C)`` of a batch, for reports and figures.

        Scores that mean nothing (see :class:`satl.scoring.Scores`) are NaN. The network itself takes the
        teacher's place.
        """
        output = self.network(images, with_pairs=self.method.needs("pairs"))
        result = {"probability": output.logits.float().sigmoid()}
        if self.generators:
            teacher = self.taught(result["probability"], indices)
            evidence = self._evidence(output, labels, indices, teacher)
            for name, generator in self.generators.items():
                result[name] = _or_else(generator(evidence), torch.nan)
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

    def _evidence(
        self, output: NetworkOutput, labels: Tensor, indices: Tensor, teacher: Tensor | None
    ) -> Evidence:
        pairs = None
        if output.pair_logits is not None:
            pairs = symmetric_pairs(output.pair_logits.float().sigmoid(), labels.shape[1], diagonal=1.0)
        return Evidence(output.features, pairs, labels, indices, output.logits, teacher)


def _check_scores(scores: dict[str, Scores], labels: Tensor) -> None:
    """Refuse scores that are not one for each cell, which would be broadcast."""
    for name, score in scores.items():
        for kind in ("values", "informative"):
            shape = getattr(score, kind).shape
            if shape != labels.shape:
                raise ValueError(
                    f"generator {name!r}: the {kind} of its scores must be (B, C), here {tuple(labels.shape)}, "
                    f"got {tuple(shape)}."
                )


def _check_parts(parts: dict[str, Tensor]) -> None:
    """Refuse losses that are not scalars."""
    for name, part in parts.items():
        if part.ndim:
            raise ValueError(f"loss term {name!r} must return a scalar, got the shape {tuple(part.shape)}.")


def _or_else(scores: Scores, other: float) -> Tensor:
    """Return the scores, and ``other`` where they mean nothing."""
    return torch.where(scores.informative, scores.values, other)


def _detached(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.detach() for name, part in parts.items()}


def _sparing(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that is generated, at its first call, with :data:`KEPT_FOR_BACKWARD`."""

    def call(*arguments: Any, **named: Any) -> Any:
        with functorch.patch(activation_memory_budget=KEPT_FOR_BACKWARD):
            return compiled(*arguments, **named)

    return call
