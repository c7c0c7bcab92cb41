"""The scenario `accuracy`: does a backend compute what the model says, gradients included?

For training and for inference: a reference in double precision, the baseline, the baseline again,
which must agree with itself to the last bit, then the run's backend. Each starts from the same
weights and works on the same batch. The journal has the result in the words of PyTorch's
Dynamo harness.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from breakeven.runner.specs.scenarios import Part
from breakeven.runner.worker.compiler.observer import MAX_REASON_CHARACTERS, CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.correctness.sameness import (
    Judgement,
    default_tolerance,
    judge,
    own_scales,
)
from breakeven.runner.worker.correctness.trial import BASELINE, LayerOutputs, Name, Outcome, Trial
from breakeven.runner.worker.model.workload import Workload
from breakeven.runner.worker.process import is_out_of_memory
from breakeven.runner.worker.turn_source import TurnSource

CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
Status = Literal[
    "pass", "fail_accuracy", "fail_to_run", "OOM", "eager_1st_run_fail", "eager_1st_run_OOM",
    "eager_2nd_run_fail", "eager_2nd_run_OOM", "eager_two_runs_differ",
]  # fmt: skip
"""The harness's words for how a check ended."""
PHASES: dict[Part, Literal["training", "evaluating"]] = {
    "training": "training",
    "inference": "evaluating",
}
MAX_NAMED = 3
VANISHED = (
    "With the outputs of its layers kept, the backend computes what the model says: that makes it "
    "compile other code, in which the fault does not come"
)


class CannotRepeat(Exception):
    """An operation that has to repeat itself says that it cannot."""


def prepare() -> None:
    """Gives matrix products the memory with which they repeat themselves: before the first of the
    process, later it is not looked at."""
    os.environ.setdefault(*CUBLAS)


@contextmanager
def repeatable(*, strictly: bool) -> Iterator[None]:
    """Has torch choose operations that repeat themselves. Strictly, what cannot is an error; else
    it is let through, and so are attention's fused kernels as they are fastest."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=not strictly)
    try:
        with warnings.catch_warnings():
            # What cannot repeat itself is seen in the baseline.
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def require_repeatable(error: Exception) -> None:
    """Raises `CannotRepeat` for the error of an operation that strictly has to repeat itself, and
    nothing for any other."""
    is_strict = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if is_strict and "deterministic" in str(error):
        what, _, _ = str(error).partition(", but you set")
        raise CannotRepeat(what) from error


class _Ended(Exception):
    """A check came to an end before tensors could be compared with the backend's."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class AccuracyCheck:
    """Checks one run's backend, in a single turn."""

    def __init__(self, context: RunContext, workload: Workload) -> None:
        """The workload's model is on the device already."""
        self._experiment, self._variant = context.experiment, context.variant
        self._device, self._log = context.device, context.log
        self._trial = Trial(self._experiment, workload, self._device)
        self._observer = CompileObserver(self._log)
        self._ended: dict[Part, tuple[Status, list[str]]] = {}
        """How each part came out, with its notes."""
        self._cannot_repeat: set[Part] = set()
        prepare()

    def check(self, turns: TurnSource) -> bool:
        """Checks every part of the specification; False if the run was stopped before that."""
        if turns.wait() is None:
            return False
        for part in self._experiment.accuracy.parts:
            if turns.stop_requested:
                return False
            self._observer.phase = PHASES[part]
            self._log.enter(PHASES[part])
            self._check(part)
        for part in self._experiment.accuracy.parts:
            if not turns.stop_requested and self._is_asked_for_layers(part):
                with repeatable(strictly=part not in self._cannot_repeat):
                    self._look_at_layers(part)
        turns.done(finished=True)
        return True

    def _check(self, part: Part) -> None:
        status: Status
        message, notes = None, list[str]()
        try:
            status = "pass" if self._compare_repeatably(part, notes) else "fail_accuracy"
        except _Ended as end:
            status, message = end.status, str(end)[:MAX_REASON_CHARACTERS]
        self._observer.report()
        self._record(part, status, message, notes)

    def _record(self, part: Part, status: Status, message: str | None, notes: list[str]) -> None:
        """Writes how a part came out; of two such lines the later one counts."""
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
        self._ended[part] = (status, notes)

    def _is_asked_for_layers(self, part: Part) -> bool:
        status, _ = self._ended[part]
        layers = self._experiment.accuracy.layers
        was_compared = status in ("pass", "fail_accuracy")
        fits = layers == "always" or (layers == "failed" and status == "fail_accuracy")
        return self._variant.backend is not None and was_compared and fits

    def _look_at_layers(self, part: Part) -> None:
        """Records what the rule finds of every layer's output, in runs of their own.

        The verdict stands already, and what the compiler does here counts as no compile latency: a
        reset also dismisses the observer, and has hooks traced where other code was compiled."""
        torch._dynamo.reset()
        layers, notes = LayerOutputs(), list[str]()
        try:
            reference = self._reference(part, notes, layers)
            baseline = self._trial.run(part, BASELINE, layers)
            outcome = self._trial.run(part, self._variant, layers)
        except Exception as error:
            sys.stderr.write(traceback.format_exc())
            notes = [f"The outputs of single layers could not be compared: {_said(error)}"]
        else:
            found = {name: tensor for name, tensor in outcome.items()
                     if name.quantity == "activation" and name in baseline}  # fmt: skip
            agree = self._judge(part, found, baseline, reference)
            rest = {name: tensor for name, tensor in outcome.items() if name not in found}
            notes = [] if self._shows(part, agree, rest, baseline, reference) else [VANISHED]
        finally:
            torch._dynamo.reset()
        if notes:
            status, before = self._ended[part]
            self._record(part, status, None, [*before, *notes])

    def _shows(
        self, part: Part, agree: bool, rest: Outcome, baseline: Outcome, reference: Outcome
    ) -> bool:
        """Whether what the check found is there with the outputs of layers kept, too."""
        if not agree or self._ended[part][0] == "pass":
            return True
        return not all(judgement.passed for _, judgement, _ in
                       self._judged(part, rest, baseline, reference))  # fmt: skip

    def _compare_repeatably(self, part: Part, notes: list[str]) -> bool:
        """`_compare` with operations that repeat themselves; where the model needs one that cannot,
        with those of them that there are."""
        try:
            with repeatable(strictly=True):
                return self._compare(part, notes)
        except CannotRepeat as reason:
            self._cannot_repeat.add(part)
            notes[:] = [f"Not every operation repeats itself: {reason}"[:MAX_REASON_CHARACTERS]]
            with repeatable(strictly=False):
                return self._compare(part, notes)

    def _compare(self, part: Part, notes: list[str]) -> bool:
        """Whether every tensor of the run's backend passes; without one, of the baseline's
        repetition."""
        reference = self._reference(part, notes)
        baseline = _attempt("eager_1st_run", lambda: self._trial.run(part, BASELINE))
        again = _attempt("eager_2nd_run", lambda: self._trial.run(part, BASELINE))
        _require_equal(baseline, again)
        if self._variant.backend is None:
            return self._judge(part, again, baseline, reference)
        del again  # big models leave no room for it
        outcome = _attempt("backend", lambda: self._trial.run(part, self._variant))
        return self._judge(part, outcome, baseline, reference)

    def _reference(
        self, part: Part, notes: list[str], layers: LayerOutputs | None = None
    ) -> Outcome:
        """Empty if the model cannot be run in double precision."""
        try:
            return self._trial.reference(part, layers)
        except Exception as error:
            require_repeatable(error)
            notes.append(
                "The model does not run in double precision, so tensors are compared with the "
                f"baseline's alone: {_said(error)}"
            )
            return {}

    def _judge(self, part: Part, outcome: Outcome, baseline: Outcome, reference: Outcome) -> bool:
        """Records what the rule finds of every tensor; True if all pass."""
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
                max_difference=judgement.max_difference,
                rmse=judgement.rmse,
                baseline_rmse=judgement.baseline_rmse,
                multiplier=judgement.multiplier,
                passed=judgement.passed,
            )
        return passed

    def _judged(
        self, part: Part, outcome: Outcome, baseline: Outcome, reference: Outcome
    ) -> Iterator[tuple[Name, Judgement, float]]:
        """What the rule finds of each tensor, and its scale."""
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
        if tolerance is not None:
            return tolerance
        return default_tolerance(self._experiment, part, self._device)


def _attempt(
    who: Literal["eager_1st_run", "eager_2nd_run", "backend"], run: Callable[[], Outcome]
) -> Outcome:
    """The outcome of a run; raises `_Ended` with the harness's word for one that fails."""
    statuses: dict[str, tuple[Status, Status]] = {
        "eager_1st_run": ("eager_1st_run_fail", "eager_1st_run_OOM"),
        "eager_2nd_run": ("eager_2nd_run_fail", "eager_2nd_run_OOM"),
        "backend": ("fail_to_run", "OOM"),
    }
    try:
        return run()
    except Exception as error:
        require_repeatable(error)
        sys.stderr.write(traceback.format_exc())
        raise _Ended(statuses[who][is_out_of_memory(error)], _said(error)) from error


def _require_equal(baseline: Outcome, again: Outcome) -> None:
    differing = [name for name in baseline if not _equal(baseline[name], again[name])]
    if differing:
        named = ", ".join(_title(name) for name in differing[:MAX_NAMED])
        more = f" and {len(differing) - MAX_NAMED} more" if len(differing) > MAX_NAMED else ""
        raise _Ended(
            "eager_two_runs_differ",
            f"the baseline does not agree with itself: two runs differ in {named}{more}",
        )


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """To the last bit; not a number equals itself."""
    return torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)


def _title(name: Name) -> str:
    return name.tensor if name.tensor in ("logits", "loss") else f"{name.quantity} {name.tensor}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
