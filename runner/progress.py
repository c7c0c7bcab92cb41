"""How far a run has come, read from its journal as it grows."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from runner.events import read_events
from runner.run_dir import RunDir, RunState

NUM_RECENT_STEPS = 20


@dataclass
class RunProgress:
    """What the terminal shows of a run; call `update` before looking."""

    run: RunDir
    num_steps: int
    state: RunState = RunState.QUEUED
    phase: str = ""
    steps_done: int = 0
    loss: float | None = None
    accuracy: float | None = None
    compiling_since: float | None = None
    """Seconds since the epoch; None while nothing compiles."""
    error: str = ""
    _offset: int = 0
    _recent_seconds: list[float] = field(default_factory=list)

    @property
    def step_seconds(self) -> float | None:
        """Median of the last steps that compiled nothing."""
        return median(self._recent_seconds) if self._recent_seconds else None

    def update(self) -> None:
        """Reads what was written since the last look."""
        # The state first: events written before the end are then sure to be read below.
        self.state = self.run.state
        events, self._offset = read_events(self.run.events_file, self._offset)
        for event in events:
            self._take(event)
        if self.state.is_final:
            self.compiling_since = None

    def _take(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "phase":
                self.phase = event["phase"]
            case "compile_started":
                self.compiling_since = event["time"]
            case "compile_ended":
                self.compiling_since = None
            case "step":
                self.steps_done = event["step"] + 1
                self.loss = float(event["loss"])
                if not event["compiled"]:
                    recent = [*self._recent_seconds, event["seconds"]]
                    self._recent_seconds = recent[-NUM_RECENT_STEPS:]
            case "evaluation":
                self.accuracy = float(event["accuracy"])
            case "error":
                self.error = event["message"]
