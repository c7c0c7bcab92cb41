"""The scenario `accuracy`: checks whether a backend computes the model and gradients correctly.

For training and for inference, it runs a reference in double precision, the baseline, the baseline
again, which must be equal to the last bit, then the run's backend. Each starts from the same
weights and uses the same batch. Results have the terms of PyTorch's Dynamo harness.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Literal

import torch

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.texts import first_few
from breakeven.runner.worker.compiler.observer import MAX_REASON_CHARACTERS, CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.correctness.batch_tensors import BASELINE, Outcome, TensorName, Trial
from breakeven.runner.worker.correctness.equal_tensors import (
    Judgement,
    judge,
    own_scales,
    tensor_tolerance,
)
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.process_end import is_out_of_memory
from breakeven.runner.worker.turn_source import Turns

CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
Status = Literal[
    "pass",
    "fail_accuracy",
    "fail_to_run",
    "OOM",
    "eager_1st_run_fail",
    "eager_1st_run_OOM",
    "eager_2nd_run_fail",
    "eager_2nd_run_OOM",
    "eager_two_runs_differ",
]
"""The harness's terms for the results of a check."""
PHASES: dict[Part, Literal["training", "evaluating"]] = {
    "training": "training",
    "inference": "evaluating",
}
MAX_NAMED = 3
VANISHED = (
    "With the outputs of its layers kept, the backend computes what the model says: that makes it "
    "compile other code, in which the fault does not come"
)


class NotDeterministic(Exception):
    """Raised if the model needs an operation that is not deterministic."""


@contextmanager
def deterministic(*, strictly: bool) -> Iterator[None]:
    """Makes torch choose deterministic operations. With `strictly`, any other operation is an
    error; else others are allowed, including the fastest fused kernels of attention."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=not strictly)
    try:
        with warnings.catch_warnings():
            # Two runs of the baseline show which operations are not deterministic.
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def reraise_not_deterministic(error: Exception) -> None:
    """Raises `NotDeterministic` for an error of `deterministic(strictly=True)`; ignores others."""
    is_strict = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if is_strict and "deterministic" in str(error):
        message, _, _ = str(error).partition(", but you set")
        raise NotDeterministic(message) from error


class _Ended(Exception):
    """Ends a check before its tensors can be compared with the backend's."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class AccuracyCheck:
    """Checks one run's backend, in a single turn."""

    def __init__(self, context: RunContext, workload: Workload) -> None:
        """The workload's model is on the device already."""
        self._experiment, self._arm = context.experiment, context.arm
        self._device, self._log = context.device, context.log
        self._trial = Trial(self._experiment, workload, self._device)
        self._observer = CompileObserver(self._log)
        self._results: dict[Part, tuple[Status, list[str]]] = {}
        """The status and notes of each part."""
        self._not_deterministic: set[Part] = set()
        # This memory makes matrix products deterministic, if it is set before the first product.
        os.environ.setdefault(*CUBLAS)

    def check(self, turns: Turns) -> bool:
        """Checks every part of the specification; False if the run was stopped earlier."""
        if turns.wait() is None:
            return False
        for part in self._experiment.accuracy.parts:
            if turns.stop_requested:
                return False
            self._observer.phase = PHASES[part]
            self._log.enter(PHASES[part])
            self._check(part)
        for part in self._experiment.accuracy.parts:
            if not turns.stop_requested and self._compares_layers(part):
                with deterministic(strictly=part not in self._not_deterministic):
                    self._compare_layers(part)
        turns.done(finished=True)
        return True

    def _check(self, part: Part) -> None:
        status: Status
        message, notes = None, list[str]()
        try:
            status = "pass" if self._compare_deterministically(part, notes) else "fail_accuracy"
        except _Ended as end:
            status, message = end.status, str(end)[:MAX_REASON_CHARACTERS]
        self._observer.report()
        self._record(part, status, message, notes)

    def _record(self, part: Part, status: Status, message: str | None, notes: list[str]) -> None:
        """Records the result of a part; the last such row counts."""
        self._log.append(
            "accuracy_status",
            part=part,
            status=status,
            message=message,
            tolerance=self._tolerance(part),
            iterations=self._experiment.accuracy.iterations,
            notes=notes,
        )
        self._log.flush(durable=True)
        self._results[part] = (status, notes)

    def _compares_layers(self, part: Part) -> bool:
        status, _ = self._results[part]
        wanted = {"always": ("pass", "fail_accuracy"), "failed": ("fail_accuracy",)}
        layers = self._experiment.accuracy.layers
        return self._arm.backend is not None and status in wanted.get(layers, ())

    def _compare_layers(self, part: Part) -> None:
        """Records the judgement of every layer's output, in additional runs.

        The verdict does not change. Compilations here count in no latency: a reset also removes the
        observer, and makes Dynamo trace the hooks."""
        torch._dynamo.reset()
        notes = list[str]()
        try:
            reference = self._reference(part, [], layers=True)
            baseline = self._trial.run(part, BASELINE, layers=True)
            outcome = self._trial.run(part, self._arm, layers=True)
        except Exception as error:
            sys.stderr.write(traceback.format_exc())
            notes = [f"The outputs of single layers could not be compared: {_describe(error)}"]
        else:
            layers = {
                name: tensor
                for name, tensor in outcome.items()
                if name.quantity == "activation" and name in baseline
            }
            layers_pass = self._judge(part, layers, baseline, reference)
            rest = {name: tensor for name, tensor in outcome.items() if name not in layers}
            if layers_pass and self._results[part][0] == "fail_accuracy":
                judgements = self._judged(part, rest, baseline, reference)
                if all(judgement.passed for _, judgement, _ in judgements):
                    notes = [VANISHED]
        finally:
            torch._dynamo.reset()
        if notes:
            status, before = self._results[part]
            self._record(part, status, None, [*before, *notes])

    def _compare_deterministically(self, part: Part, notes: list[str]) -> bool:
        """Calls `_compare` with deterministic operations only, unless the model needs others."""
        try:
            with deterministic(strictly=True):
                return self._compare(part, notes)
        except NotDeterministic as reason:
            self._not_deterministic.add(part)
            notes[:] = [f"Not every operation repeats itself: {reason}"[:MAX_REASON_CHARACTERS]]
            with deterministic(strictly=False):
                return self._compare(part, notes)

    def _compare(self, part: Part, notes: list[str]) -> bool:
        """Whether every tensor of the run's backend passes; without a backend, whether the
        repeated baseline does."""
        reference = self._reference(part, notes)
        baseline = self._attempt(part, BASELINE, "eager_1st_run_fail", "eager_1st_run_OOM")
        repeated = self._attempt(part, BASELINE, "eager_2nd_run_fail", "eager_2nd_run_OOM")
        _require_equal(baseline, repeated)
        if self._arm.backend is None:
            return self._judge(part, repeated, baseline, reference)
        del repeated  # frees memory for big models
        outcome = self._attempt(part, self._arm, "fail_to_run", "OOM")
        return self._judge(part, outcome, baseline, reference)

    def _attempt(self, part: Part, arm: Arm, failed: Status, out_of_memory: Status) -> Outcome:
        """The outcome of a run; raises `_Ended` with one of the two statuses if it fails."""
        try:
            return self._trial.run(part, arm)
        except Exception as error:
            reraise_not_deterministic(error)
            sys.stderr.write(traceback.format_exc())
            status = out_of_memory if is_out_of_memory(error) else failed
            raise _Ended(status, _describe(error)) from error

    def _reference(self, part: Part, notes: list[str], *, layers: bool = False) -> Outcome:
        """The reference; empty if the model cannot run in double precision."""
        try:
            return self._trial.reference(part, layers=layers)
        except Exception as error:
            reraise_not_deterministic(error)
            notes.append(
                "The model does not run in double precision, so tensors are compared with the "
                f"baseline's alone: {_describe(error)}"
            )
            return {}

    def _judge(self, part: Part, outcome: Outcome, baseline: Outcome, reference: Outcome) -> bool:
        """Records the judgement of every tensor; True if all pass."""
        passed = True
        for name, judgement, scale in self._judged(part, outcome, baseline, reference):
            passed = passed and judgement.passed
            self._log.append(
                "accuracy",
                part=part,
                **name._asdict(),
                num_elements=outcome[name].numel(),
                scale=scale,
                tolerance=self._tolerance(part),
                **asdict(judgement),
            )
        return passed

    def _judged(
        self, part: Part, outcome: Outcome, baseline: Outcome, reference: Outcome
    ) -> Iterator[tuple[TensorName, Judgement, float]]:
        """Yields the name, judgement and scale of each tensor."""
        sized = reference or baseline
        scales = {
            quantity: own_scales({n.tensor: t for n, t in sized.items() if n.quantity == quantity})
            for quantity in ("gradient", "activation")
        }
        for name, tensor in outcome.items():
            scale = scales.get(name.quantity, {}).get(name.tensor, 1.0)
            yield (
                name,
                judge(
                    tensor,
                    baseline[name],
                    reference.get(name),
                    self._tolerance(part),
                    scale=scale,
                    equal_nan=self._experiment.training.precision in ("bf16", "fp16"),
                ),
                scale,
            )

    def _tolerance(self, part: Part) -> float:
        tolerance = self._experiment.accuracy.tolerance
        if tolerance is None:
            tolerance = tensor_tolerance(self._experiment, part, self._device)
        return tolerance


def _require_equal(baseline: Outcome, again: Outcome) -> None:
    """Raises `_Ended` unless all tensors are equal to the last bit; NaN equals NaN."""
    differing = [
        name
        for name, tensor in baseline.items()
        if not torch.allclose(tensor, again[name], rtol=0, atol=0, equal_nan=True)
    ]
    if differing:
        named = first_few([_title(name) for name in differing], MAX_NAMED)
        raise _Ended(
            "eager_two_runs_differ",
            f"the baseline does not agree with itself: two runs differ in {named}",
        )


def _title(name: TensorName) -> str:
    return name.tensor if name.tensor in ("logits", "loss") else f"{name.quantity} {name.tensor}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
