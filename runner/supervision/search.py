"""Runs a search: feeds the journals to its race, and queues the training that confirms it."""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.candidates import text_of
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios import SCENARIOS
from breakeven.runner.specs.variants import Variant
from breakeven.runner.supervision.race import Decision, Race
from breakeven.runner.supervision.stopping_rule import JournalTails

UNCONFIRMED = "No candidate gained enough to be confirmed by a training."
STOPPED = "The search was stopped: this is its best so far, which no training has confirmed."
CONFIRMING_SHARE = 0.5
"""Share of the search time that all runs of the confirming training together may take."""
LONGEST_NAME = 100
"""Longest part of the search's name in the name of the training, in characters."""
MIN_STEPS = 100
"""Fewest steps of that training: with fewer a model learns too little for a verdict."""


def why_unconfirmed(baseline: RunState) -> str:
    """Why no training confirms an answer of a search, whose baseline ended in this state."""
    if baseline is RunState.CANCELLED:
        return STOPPED
    if baseline.ended_early:
        how = baseline.replace("_", " ")
        return f"The baseline ended early ({how}), so the search has no answer to confirm."
    return UNCONFIRMED


class Search:
    """Decides for the scheduler of a search after each round."""

    def __init__(self, spec: ExperimentSpec, runs: Mapping[RunDir, Variant]) -> None:
        """`runs`: includes the ended runs of a resumed search."""
        self._spec = spec
        self._race = Race(spec)
        self._tails = JournalTails()
        self._labels: dict[RunDir, str] = {}
        self._began = time.monotonic()
        for run, variant in runs.items():
            self.add(run, variant)
        self._read()
        self._began -= self._race.seconds

    def add(self, run: RunDir, variant: Variant) -> None:
        """Adds a run to the race."""
        self._labels[run] = variant.label
        self._race.add(variant)

    def decide(self, living: Collection[RunDir]) -> Decision:
        """The decision from the rounds so far."""
        self._read()
        return self._race.decide({self._labels[run] for run in living}, self._elapsed)

    def why_too_long(self, run: RunDir, seconds: float) -> str | None:
        """Why a run that has held the turn for `seconds` can no longer win; None while it can."""
        most = self._race.most_compile_seconds()
        if most is None or not self._race.is_compiling(self._labels[run]):
            return None
        if seconds > most:
            return (f"compiling took longer than the whole training of {self._spec.tune.steps:,} "
                    f"steps takes under {self._race.best}")  # fmt: skip
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
        affordable = int(CONFIRMING_SHARE * spec.tune.max_seconds / step / (len(finalists) + 2))
        # With a larger batch, fewer steps train on as many samples.
        times = max(one.batch_times for one in finalists)
        steps = max(affordable, MIN_STEPS * times)
        most = spec.script.steps if spec.is_script else SCENARIOS["train"].num_steps(spec)
        steps = min(steps, times * most or steps)
        return submit(data_dir, replace(
            spec,
            name=f"{spec.name[:LONGEST_NAME]}, confirmed",
            scenario="train",
            backends=tuple(text_of(one, spec) for one in finalists),
            training=spec.training if spec.is_script else replace(spec.training, max_steps=steps),
            script=replace(spec.script, steps=steps if spec.is_script else 0),
            confirms=experiment.experiment_id,
        ))  # fmt: skip

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
