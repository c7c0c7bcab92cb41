"""Outcomes of trials, the judgement of tensors in them, and their records in the journal, from
which a later attempt takes outcomes."""

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from breakeven.runner.masking import mask
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.texts import first_sentence
from breakeven.runner.worker.correctness.equal_tensors import judge, own_scales
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.process_end import is_out_of_memory

Kind = Literal["passes", "raises", "differs", "crashes", "times out"]
ROUNDING = 1e-6
"""Relative change that shows what rounding does where double precision cannot."""
PLAUSIBLE = 0.05
"""Largest relative error of a reference; one with other random numbers lies farther away."""
DEVICE_ERROR = "CUDA error"
"""Part of the message of an error after which a process cannot use its device any more."""
LEAST_MASK = 9e3
"""Masks in logits are larger: -1e4, -1e9, the least number of a type. Beside them any other number
would count as rounding."""
NOT_FINITE = "the loss is not finite"
SAME_CHARACTERS = 40
"""Later parts of a message name shapes and nodes, which change as a graph shrinks."""
AROUND = re.compile(r"^(\w+: )+(?=\w*(Error|Exception)\b)")
"""Names of errors that a stage of the compiler puts around another error."""
Tensors = dict[tuple[str, str], Tensor]
"""Tensors by quantity (`loss`, `gradient`, ...) and name."""
KIND = "investigation_trial"
ANOTHER = "another fault"
"""Recorded in place of the outcome of a trial that fails, but not as the investigated run."""
NEUTRAL = ("passes", "times out")
SAME = ("python", "versions", "device_name", "variables")
"""Recorded facts of a process on which outcomes depend."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one trial."""

    kind: Kind
    step: int | None = None
    error: str | None = None
    """Class and message of the exception."""
    traceback: str | None = None
    quantity: str | None = None
    tensor: str | None = None
    """The tensor's name; where a loss is not finite without a compiler, the place where that
    begins, and `quantity` is the pass."""
    max_error: float | None = None
    """Largest difference to the tensor without a compiler."""
    allowed_error: float | None = None
    """Root mean square error of the tensor without a compiler, against double precision; of a loss
    in a repeated training, the half width of the band."""
    out_of_memory: bool = False
    is_unstable: bool = False
    """Whether the same computation without a compiler differs as much from itself."""

    @property
    def fails(self) -> bool:
        return self.kind != "passes"

    @property
    def kills(self) -> bool:
        """Whether its process is dead, or cannot use its device any more."""
        return self.kind == "crashes" or DEVICE_ERROR in (self.error or "")

    @property
    def detail(self) -> str | None:
        """One line about the failure."""
        if self.kind == "differs":
            error = "unknown" if self.max_error is None else f"{self.max_error:.3g}"
            names = " ".join(filter(None, dict.fromkeys([self.quantity, self.tensor])))
            is_finite = self.max_error is None or math.isfinite(self.max_error)
            return f"{names} differs by up to {error}" if is_finite else f"{names} is not finite"
        if self.error == NOT_FINITE and self.tensor is not None:
            return f"{self.error}, first in {self.tensor}"
        return None if self.error is None else first_sentence(self.error)


PASSES = Outcome(kind="passes")


def raised(error: BaseException, trace: str, step: int | None = None) -> Outcome:
    """The outcome of a trial that ended with an exception."""
    text = f"{type(error).__name__}: {error}"
    lacks_memory = is_out_of_memory(error)
    if lacks_memory and "memory" not in text:
        text = f"{text} (out of memory)"
    return Outcome(
        kind="raises", error=text, traceback=trace, step=step, out_of_memory=lacks_memory
    )


def is_same(outcome: Outcome, other: Outcome) -> bool:
    """Whether two failures are of one kind. Errors must begin alike, apart from numbers and from
    what a stage of the compiler puts around them."""
    if (outcome.out_of_memory and other.out_of_memory) or (outcome.kills and other.kills):
        return True
    if outcome.kind != other.kind or not outcome.fails:
        return False
    return outcome.kind != "raises" or _beginning(outcome) == _beginning(other)


def is_alike(error: str, recorded: str) -> bool:
    """Whether an error may be the recorded one: it has the same class, and for torch's most general
    class the same beginning. Nothing recorded is like every error."""
    kind, other = (text.partition(":")[0] for text in (error, recorded))
    if not recorded:
        return True
    return kind == other and (kind != "RuntimeError" or _stripped(error) == _stripped(recorded))


def _beginning(outcome: Outcome) -> str:
    return _stripped(AROUND.sub("", (outcome.error or "").rpartition("raised:\n")[2]))


def _stripped(error: str) -> str:
    return re.sub(r"\d+", "", error)[:SAME_CHARACTERS]


def is_plausible(reference: Tensors, expected: Tensors) -> bool:
    """Whether loss and outputs of a reference are about those without a compiler. Dropout draws
    other numbers in double precision, and such a reference would excuse any fault."""
    results = {name: tensor for name, tensor in expected.items() if name[0] in ("loss", "output")}
    compared = {
        name: tensor.to(results[name].dtype)
        for name, tensor in reference.items()
        if name in results
    }
    return are_close(compared, results, PLAUSIBLE)


def are_close(result: Tensors, expected: Tensors, tolerance: float) -> bool:
    """Whether all tensors agree within the tolerance, relative to the size of each; quick."""
    return all(_is_close(result.get(name), tensor, tolerance) for name, tensor in expected.items())


def _is_close(result: Tensor | None, expected: Tensor, tolerance: float) -> bool:
    if result is None or result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    usual = expected[expected.abs() < LEAST_MASK]
    usual = usual if usual.numel() else expected
    size = usual.double().square().mean().sqrt().item() if usual.numel() else 0.0
    size = size if math.isfinite(size) else 1.0
    return torch.allclose(result, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def first_difference(
    result: Tensors,
    expected: Tensors,
    reference: Mapping[tuple[str, str], Tensor],
    tolerance: float,
) -> Outcome | None:
    """The first tensor that differs by more than rounding; None if all agree.

    `reference`: the tensors in double precision, as far as they exist.
    """
    scales: dict[tuple[str, str], float] = {}
    for quantity in {quantity for quantity, _ in expected}:
        group = {name: tensor for (kind, name), tensor in expected.items() if kind == quantity}
        scales |= {(quantity, name): size for name, size in own_scales(group).items()}
    for name, tensor in expected.items():
        compared = result.get(name)
        if compared is None:
            return Outcome(kind="differs", quantity=name[0], tensor=f"{name[1]} is missing")
        scale = min(1.0, scales[name])
        judged = judge(
            compared, tensor, reference.get(name), tolerance, scale=scale, equal_nan=True
        )
        if not judged.passed:
            return Outcome(
                kind="differs",
                quantity=name[0],
                tensor=name[1],
                max_error=judged.max_difference,
                allowed_error=judged.baseline_rmse,
            )
    return None


class Trials:
    """Makes trials and records them; those of earlier attempts are not made again.

    The search asks for trials in the same order as before, as long as their outcomes are the same.
    """

    def __init__(self, run: RunDir, log: EventLog) -> None:
        log.flush()
        events = each_event(run.events_file) if run.events_file.exists() else ()
        earlier, self._number = _earlier(events)
        self._log, self._earlier, self._place = log, deque(earlier), 0

    def made(
        self,
        stage: str,
        what: str,
        make: Callable[[], Outcome],
        detail: str | None = None,
        has_fault: Callable[[Outcome], bool] = lambda outcome: True,
    ) -> Outcome:
        """The outcome of the next trial; its texts have no secrets. `has_fault`: whether a trial
        that fails does so as the investigated run."""
        self._place += 1
        known = self._known(stage, what)
        if known is not None:
            return known
        self.forget()
        began = time.monotonic()
        outcome = make()
        outcome = replace(
            outcome, error=_masked(outcome.error), traceback=_masked(outcome.traceback)
        )
        self._number += 1
        self._log.append(
            KIND,
            number=self._number,
            place=self._place,
            stage=stage,
            what=what,
            outcome=outcome.kind if outcome.kind in NEUTRAL or has_fault(outcome) else ANOTHER,
            detail=_masked(detail or outcome.detail),
            trial_seconds=time.monotonic() - began,
            ended=outcome.kind,
            **{name: value for name, value in asdict(outcome).items() if name != "kind"},
        )
        self._log.flush()
        return outcome

    def forget(self) -> None:
        """Makes all further trials, because what is tried has changed since the earlier attempt."""
        self._earlier.clear()

    def _known(self, stage: str, what: str) -> Outcome | None:
        """The outcome that an earlier attempt recorded; None if it made another trial here."""
        if not self._earlier:
            return None
        event = self._earlier.popleft()
        try:
            if (event["stage"], event["what"]) != (stage, what):
                return None
            return _outcome(event)
        except (KeyError, TypeError, ValueError):  # An older version recorded less.
            return None


def _earlier(events: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Trials of earlier attempts in the order of the search, and the number of all. None, if code,
    packages, device or variables were others than those of the newest process."""
    facts: dict[str, Any] = {}
    known: list[tuple[dict[str, Any], dict[str, Any]]] = []
    number = 0
    for event in events:
        if event["kind"] == "environment":
            if known and known[-1][1].get("ended") == "crashes":
                known.pop()  # It may have died with the attempt.
            facts = {name: event.get(name) for name in SAME}
        elif event["kind"] == "source":
            facts[f"source {event.get('source')}"] = event.get("sha256")
        elif event["kind"] == KIND:
            number += 1
            # A trial that was made again replaces the earlier one and all that followed.
            del known[max(0, int(event.get("place", number)) - 1) :]
            known.append((facts, event))
    is_same = all(earlier == facts for earlier, _ in known)
    return [event for _, event in known] if is_same else [], number


def _outcome(event: dict[str, Any]) -> Outcome:
    known = {field.name: event[field.name] for field in fields(Outcome) if field.name != "kind"}
    for name in ("max_error", "allowed_error"):  # The journal has texts for NaN and infinity.
        known[name] = None if known[name] is None else float(known[name])
    return Outcome(kind=event["ended"], **known)


def _masked(text: str | None) -> str | None:
    return mask(text) if text else None
