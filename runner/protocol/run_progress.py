"""Progress of a run, read from its growing journal."""

from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from breakeven.runner.errors import RunnerError, short_cause
from breakeven.runner.protocol.events import JournalPosition, read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import MAX_STEPS

NUM_RECENT_STEPS = 20


@dataclass
class RunProgress:
    """Progress of a run for terminal and pages; `update` reads the latest events."""

    run: RunDir
    spec: ExperimentSpec
    state: RunState = RunState.QUEUED
    phase: str = ""
    phase_started: float | None = None
    """Seconds since the epoch."""
    steps_done: int = 0
    loss: float | None = None
    held_out: tuple[str, float] | None = None
    """Name and value of the accuracy, or else the loss, in the latest evaluation of the primary
    split without a compiler."""
    compiling_since: float | None = None
    """Seconds since the epoch; None while nothing compiles."""
    compiled_seconds: float = 0.0
    """Seconds of all compilations that have ended."""
    checkpoint_step: int | None = None
    """Steps done at the last checkpoint."""
    trial: str = ""
    """The last trial of an investigation, with its outcome."""
    stopped: str = ""
    """Why training ended before its last step."""
    error: str = ""
    waits: str = ""
    """Why an active run waits, if it waits for disk space."""
    _reported_steps: int | None = None
    _offset: int = 0
    _position: JournalPosition = field(default_factory=JournalPosition)
    _open: set[tuple[Any, Any]] = field(default_factory=set)
    """Running compilations, by id and trigger; some contain others."""
    _recent_seconds: list[float] = field(default_factory=list)

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is timed: the run checks random numbers, or its process ends."""
        if self.phase == "checking":
            return self.steps_done == self.num_steps
        return self.state.is_final or (self.state is RunState.RUNNING and self.phase == "done")

    @property
    def num_steps(self) -> int | None:
        """Planned steps of the run; None until a script has reported how many."""
        if not self.spec.kind.has_planned_steps:
            return None
        # A run with larger batches reports fewer steps.
        known = filter(None, (self.spec.num_steps, self._reported_steps))
        return min(known, default=None)

    @property
    def step_seconds(self) -> float | None:
        """Median of the latest steps without compiling."""
        return median(self._recent_seconds) if self._recent_seconds else None

    def skip_to(self, offset: int, last_seq: int) -> None:
        """Skips the beginning of the journal, which was read elsewhere."""
        self._offset, self._position = offset, JournalPosition(last_seq)

    def update(self) -> None:
        """Reads the events since the last call, until the run has ended."""
        if self.state.is_final:
            return
        # The state comes first, so that all events before the end are read below.
        status = self.run.status
        self.state = status.state
        self.waits = (status.state.is_active and status.reason) or ""
        try:
            events, self._offset = read_events(self.run.events_file, self._offset, self._position)
        except RunnerError as error:
            events, self.error = [], str(error)
        for event in events:
            # A foreign journal may have events with wrong fields.
            with suppress(KeyError, TypeError, ValueError, OverflowError):
                self._take(event)
        if self.state.is_final:
            self.compiling_since = None

    def _take(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "phase":
                self.phase, self.phase_started = str(event["phase"]), float(event["time"])
            case "compile_started" | "compile_ended":
                self._take_compilation(event)
            case "step":
                self._take_step(event)
            case "workload":
                num_steps = event.get("num_steps")
                self._reported_steps = None if num_steps is None else max(1, int(num_steps))
            case "evaluation" if self._is_telling(event):
                name = "loss" if event.get("accuracy") is None else "accuracy"
                self.held_out = (name, float(event[name]))
            case "accuracy_status" | "investigation_trial":
                self._take_check(event)
            case "checkpoint":
                self.checkpoint_step = self._count(event["step"])
            case "resumed":
                self.steps_done = self._count(event["step"])
                self.compiling_since, self.compiled_seconds, self._open = None, 0.0, set()
                self.stopped, self.error = "", ""
            case "stopped" | "error":
                self._take_end(event)

    def _take_compilation(self, event: dict[str, Any]) -> None:
        compilation = (event.get("compile_id"), event.get("trigger"))
        time = float(event["time"])
        if event["kind"] == "compile_started":
            self._open.add(compilation)
            self.compiling_since = time if self.compiling_since is None else self.compiling_since
            return
        self._open.discard(compilation)
        if self.compiling_since is not None and not self._open:
            self.compiled_seconds += max(0.0, time - self.compiling_since)
            self.compiling_since = None

    def _take_check(self, event: dict[str, Any]) -> None:
        if event["kind"] == "accuracy_status":
            self.steps_done = self._count(event["iterations"])
        else:
            self.steps_done = self._count(event["number"])
            self.trial = f"{event['what']} {event['outcome']}"

    def _take_end(self, event: dict[str, Any]) -> None:
        if event["kind"] == "error":
            self.error = short_cause(str(event.get("error")), str(event["message"]))
        else:
            self.stopped = f"stopped after step {event['step']}: {event['reason']}"

    def _take_step(self, step: dict[str, Any]) -> None:
        loss = None if step["loss"] is None else float(step["loss"])
        seconds = float(step["seconds"])
        self.steps_done = self._count(step["step"] + 1)
        self.loss = self.loss if loss is None else loss
        if not step["compiled"]:
            recent = [*self._recent_seconds, seconds]
            self._recent_seconds = recent[-NUM_RECENT_STEPS:]

    def _count(self, steps: Any) -> int:
        return max(0, min(int(steps), self.num_steps or MAX_STEPS))

    def _is_telling(self, evaluation: dict[str, Any]) -> bool:
        split = self.spec.evaluation.primary_split
        return not evaluation.get("compiled") and evaluation.get("split", "validation") == split
