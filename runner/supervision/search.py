"""Searches for the fastest way to train: reads the journals of the runs for the race, and queues
the training that confirms the best.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from breakeven.runner.experiments.continuing import why_not_again
from breakeven.runner.experiments.queue import Experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.endings import COMPILES_TOO_LONG, Ending
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.candidates import backend_text
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.supervision.decision import Decision
from breakeven.runner.supervision.race import LARGEST_GROUP, Race
from breakeven.runner.supervision.stopping_rule import JournalTails

CONFIRMING_SHARE = 0.5
"""Steps of all runs of the confirming training together, as a share of the search's budget."""
LONGEST_NAME = 100
"""Longest part of the search's name in the name of the training, in characters."""
MIN_STEPS = 100
"""Fewest steps of that training: with fewer a model learns too little for a verdict."""
MIN_BLOCKS = 16
"""Fewest blocks of that training: up to five compile or are profiled, and with fewer than six timed
rounds a speedup has no interval."""


def confirming_steps(
    spec: ExperimentSpec, finalists: Sequence[Arm], step_seconds: float, rounds: float
) -> int:
    """Steps of the training that confirms a search. `step_seconds` are the baseline's; `rounds`
    would show the lead."""
    seconds = CONFIRMING_SHARE * spec.tune.max_seconds
    affordable = int(seconds / step_seconds / (len(finalists) + 2))
    # With a larger batch, fewer steps train on as many samples.
    times = max(finalist.batch_times for finalist in finalists)
    steps = max(affordable, MIN_STEPS * times, MIN_BLOCKS * spec.block_steps)
    own = spec.training_steps
    # For a small lead, a training may be longer, up to the plan, unless it ends by itself.
    extends = spec.workload.has_known_length
    needed = math.ceil(min(spec.tune.steps, rounds * spec.block_steps)) if extends else 0
    return min(steps, times * max(own, needed) or steps)


class Search:
    """Decides for the scheduler of a search after each round."""

    def __init__(
        self, spec: ExperimentSpec, runs: Mapping[RunDir, Arm], compiling_at_once: int
    ) -> None:
        """`runs`: includes the ended runs of a resumed search. `compiling_at_once`: how many
        candidates may compile at the same time."""
        self._spec = spec
        self.compiling_at_once = compiling_at_once
        self._may_repeat = why_not_again(spec) is None
        self._race = Race(spec, compiling_at_once)
        self._tails = JournalTails()
        self._labels: dict[RunDir, str] = {}
        """The name of each run in the race."""
        self._dropped: dict[str, Ending] = {}
        self._over: Ending | None = None
        self._began = time.monotonic()
        for run, arm in runs.items():
            self.add(run, arm)
        self._read()
        self._began -= self._race.seconds

    @property
    def group(self) -> int:
        """How many candidates compile and join together; 0 if each compiles alone."""
        is_together = self._spec.compile == "together" and self.compiling_at_once > 1
        return min(self.compiling_at_once, LARGEST_GROUP) if is_together else 0

    def add(self, run: RunDir, arm: Arm) -> None:
        """Adds a run to the race."""
        self._labels[run] = arm.label
        self._race.add(arm)

    def decide(self, living: Sequence[str]) -> Decision:
        """The decision from the rounds so far."""
        self._read()
        decision = self._race.decide(living, self._elapsed)
        # A run that still loads hears of an earlier decision in its first turn.
        self._dropped |= decision.dropped
        self._over = self._over or decision.over
        joining = decision.joining if self._over is None else ()
        for arm in joining:
            self._race.add(arm)
        return Decision(
            dropped=dict(self._dropped),
            joining=joining,
            over=self._over,
            profiled=("baseline", self._race.best),
            block_steps=self._race.block_steps,
            again=self._may_repeat,
        )

    def why_too_long(self, run: RunDir, seconds: float) -> str | None:
        """Why a run that has held the turn for `seconds` can no longer win; None while it can."""
        if not self._race.is_compiling(self._labels[run]):
            return None
        most = self._race.most_compile_seconds()
        if most is not None and seconds > most:
            return (
                f"{COMPILES_TOO_LONG} of {self._spec.tune.steps:,} steps takes under "
                f"{self._race.best}"
            )
        if self._elapsed > self._spec.tune.max_seconds:
            return f"the budget of {self._spec.tune.max_seconds:.4g} s was spent"
        return None

    def confirm(self, data_dir: DataDir, experiment: Experiment) -> str | None:
        """Queues a training of the best candidates from the beginning, in new processes and with
        all checks. Returns its id, or None if no candidate beat the baseline."""
        self._read()
        finalists = self._race.finalists()
        step = self._race.baseline_step_seconds
        if not finalists or step is None:
            return None
        spec = experiment.spec
        spec = replace(spec, block_steps=self._race.block_steps or spec.block_steps)
        steps = confirming_steps(spec, finalists, step, self._race.rounds_to_confirm(finalists))
        if not spec.workload.has_known_length:  # It may end before its speed is decided.
            budget = CONFIRMING_SHARE * spec.tune.max_seconds
            plan = PlanSpec(steps=spec.tune.steps, max_seconds=budget, parity="full")
            spec = replace(spec, plan=plan)
        return submit(
            data_dir,
            replace(
                spec.with_training_steps(steps),
                name=f"{spec.name[:LONGEST_NAME]}, confirmed",
                scenario="train",
                compile="alone",
                backends=tuple(backend_text(finalist, spec) for finalist in finalists),
                confirms=experiment.experiment_id,
            ),
        )

    @property
    def _elapsed(self) -> float:
        """Seconds since the search began, including the blocks under an earlier supervisor."""
        return time.monotonic() - self._began

    def _read(self) -> None:
        for run, label in self._labels.items():
            for event in self._tails.read(run):
                # Damaged events are ignored.
                with suppress(KeyError, TypeError, ValueError):
                    self._race.take(label, event)
