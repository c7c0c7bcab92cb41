"""A script's steps, measured where the script makes them.

Elsewhere the runner makes the steps and the model is what it calls. Here it is the other way round:
the script calls, at the end of each of its steps, and all that lies between two steps happens in
that call. What is done there in which order stands in `_blocks`, which waits at each `yield` for
the script to make its next step.
"""

import os
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from runner.errors import WorkloadError
from runner.folders.run_dir import RunDir
from runner.specs.experiment import RunSpec
from runner.supervision.exits import WorkerExit
from runner.supervision.turns import Turn
from runner.worker.callbacks import OwnValue
from runner.worker.compiler.compiling import CompileObserver
from runner.worker.device.base import Device
from runner.worker.event_log import EventLog
from runner.worker.profiling.profiler import StepProfiler
from runner.worker.script.compiling import ScriptCompiler
from runner.worker.script.sameness import inputs_of, models_of, random_states
from runner.worker.script.workload import ScriptWorkload
from runner.worker.training.plan import Block
from runner.worker.training.recording import BlockRecorder, Steps
from runner.worker.training.timing import BlockTimer, NoMoreSteps
from runner.worker.turn_source import TurnSource

BLOCKS_BEFORE_PROFILE = 2
"""Of a script whose end nobody knows: one that compiles and one that is timed."""
BLOCKS_BESIDE_PROFILE = 4
"""Without a profile of a script that is so short that hardly anything else would be measured."""
MAX_RAISED = 1000
"""Steps of a script that goes on although it was ended: it catches everything."""
SPLITS = {"eval": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
"""Other names of splits."""
NOTHING_COMPILED = (
    "a step is over, and nothing that was compiled has been called: say "
    "`model = breakeven.compile(model)` before the first step, or hand it the function that makes "
    "one, and call what it returns"
)


class EndOfScript(BaseException):
    """Ends a script in the middle: it has made the steps asked for, or somebody wants it to stop.

    No Exception, which scripts catch.
    """


class ScriptSession:
    """What the functions of `breakeven` do while a script is measured."""

    def __init__(
        self, spec: RunSpec, run: RunDir, device: Device, log: EventLog, turns: TurnSource
    ) -> None:
        self._experiment = experiment = spec.experiment
        self._variant = spec.variant
        self._device = device
        self._log = log
        self._turns = turns
        self._values: list[OwnValue] = []
        self.observer = CompileObserver(log)
        recorder = BlockRecorder(log, values=self._values)
        self._timer = BlockTimer(spec.experiment_id, device, log, self.observer, recorder)
        self._profiler = StepProfiler(experiment, run, device, log, self.observer)
        self.compiler = ScriptCompiler(spec.variant, self)
        self.workload = ScriptWorkload(spec, run, device, log, self.compiler.asked)
        self._modules: list[nn.Module] = []
        self._functions: list[Callable[..., Any]] = []
        self._trained: set[nn.Module] = set()
        self._plan: Generator[int, None, None] | None = None
        self._made = Steps()
        self._is_evaluating = False
        self._hash_is_due = False
        self._is_over = False
        self._num_evaluations: dict[str, int] = {}
        self.num_steps = 0
        self._num_raised = 0
        self._trainer: str | None = None
        self._is_waiting = False

    @property
    def is_excused(self) -> bool:
        """Whether the script makes no step because it waits for its turn, compiles, evaluates, or
        has made its last one."""
        is_at_work = self._is_evaluating or self.observer.is_compiling
        return self._is_waiting or is_at_work or self._is_over

    # What the script says.

    def compile(self, target: Any, model: nn.Module | None, given: dict[str, Any]) -> Any:
        if model is not None:
            self._modules.append(model)
        return self.compiler.compile(target, given)

    def step(
        self, loss: Tensor | float | None, samples: int | None = None, tokens: int | None = None
    ) -> None:
        if self.step_is_last(loss, samples, tokens):
            self._num_raised += 1
            if self._num_raised > MAX_RAISED:
                self.finish()
                self._log.flush(durable=True)
                os._exit(WorkerExit.CANCELLED if self._turns.stop_requested else 0)
            raise EndOfScript

    def step_is_last(
        self, loss: Tensor | float | None, samples: int | None, tokens: int | None
    ) -> bool:
        """For who can end a training in good order; raises `EndOfScript` where there is no time for
        that."""
        if self._plan is None:
            raise WorkloadError(NOTHING_COMPILED)
        self.evaluate(False)
        if not self._is_over:
            self._made.losses.append(self._kept(loss))
            self.workload.count(samples, tokens)
            self.num_steps += 1
            self._go_on()
        if self._turns.stop_requested:
            raise EndOfScript
        return self._is_over

    def evaluated(self, split: str, samples: int | None, metrics: dict[str, Any]) -> None:
        if self._plan is not None and not self._is_over:
            self.evaluate(False)
            self._timer.leave_out()
        told = {name: None if value is None else float(value) for name, value in metrics.items()}
        name = SPLITS.get(split, split)
        number = self._num_evaluations[name] = self._num_evaluations.get(name, 0) + 1
        loss = told.pop("loss", None)
        self._log.append(
            "evaluation", epoch=number - 1, step=self.num_steps, split=name, compiled=False,
            loss=loss, metrics=told, accuracy=told.get("accuracy"), num_samples=samples,
        )  # fmt: skip

    def record(self, name: str, value: float | Tensor) -> None:
        self._values.append((self.num_steps, name, value))

    # What libraries say that train on its behalf.

    @property
    def has_compiled(self) -> bool:
        """Whether anything was given to the compiler."""
        return bool(self._modules or self._functions)

    def has_compiled_besides(self, module: nn.Module) -> bool:
        return bool(self._functions) or any(one is not module for one in self._modules)

    def may_step(self, name: str) -> bool:
        """Whether nobody but the library of this name trains."""
        return self._trainer in (None, name)

    def trained_by(self, name: str, model: nn.Module | None, num_steps: int) -> None:
        """A library begins to train, for so many steps, 0 if it does not know; `model` is compiled
        unless the script had something compiled itself."""
        if self._trainer != name:
            self._trainer = name
            self.workload.notes.append(
                f"The script trains with {name}, which tells where steps end."
            )
        if num_steps > 0 and not self._experiment.script.steps:
            self.workload.num_steps = num_steps
        if model is not None and not self.has_compiled:
            self.compile(model, None, {})

    # What happens around what it compiled.

    def on_compile(self, module: nn.Module | None, function: Callable[..., Any]) -> None:
        if module is not None:
            self._modules.append(module)
        else:
            self._functions.append(function)

    def on_call(self, module: nn.Module | None, arguments: object) -> None:
        if self._is_over:
            return
        if self._plan is None:
            self._begin(arguments)
        # A model that never trains, such as a teacher, is part of the step.
        is_training = module is None or module.training
        if module is not None and is_training:
            self._trained.add(module)
        if is_training or module in self._trained:
            self.evaluate(not is_training)
        if self._hash_is_due and is_training:
            self._hash(arguments)

    def evaluate(self, is_evaluating: bool) -> None:
        """What is compiled in between belongs to the evaluation, which is part of no step."""
        if is_evaluating == self._is_evaluating or self._plan is None or self._is_over:
            return
        self._is_evaluating = is_evaluating
        if is_evaluating:
            self._timer.pause()
        self.observer.report()
        self.observer.phase = "evaluating" if is_evaluating else "training"
        self._log.append("phase", phase=self.observer.phase)
        self._log.flush()
        if not is_evaluating:
            self.observer.compiled_since_last_asked()
            self._timer.resume()

    def _hash(self, arguments: object) -> None:
        self._hash_is_due = False
        self._timer.pause()
        inputs, random = inputs_of(arguments), random_states(self._device)
        found = {} if inputs is None else {"sha256": inputs.sha256, "floats": inputs.floats}
        self._log.append("inputs", step=self.num_steps, random=random, **found)
        self._timer.resume()

    def _kept(self, loss: Tensor | float | None) -> Tensor | None:
        if loss is None or isinstance(loss, (int, float)):
            return None if loss is None else torch.tensor(float(loss))
        if loss.numel() != 1:
            raise WorkloadError(
                f"breakeven.step was given a loss of shape {tuple(loss.shape)}: it must have one "
                "element. Give it the mean, as it goes into backward()"
            )
        kept = loss.detach().reshape(())
        return kept.clone() if self._variant.captures_cuda_graphs else kept

    # The plan.

    def _begin(self, arguments: object) -> None:
        """All is set up: the first step may begin as soon as it is this run's turn."""
        found = [model for function in self._functions for model in models_of(function)]
        self.workload.begin(list(dict.fromkeys([*self._modules, *found])), arguments)
        self._plan = self._blocks()
        self._go_on()

    def _go_on(self) -> None:
        """To where the next step has to be made, or to the end."""
        assert self._plan is not None
        try:
            place = next(self._plan)
        except StopIteration:
            self._is_over = True
        else:
            # Where hashing costs no time that counts: in the first block, and where the device is
            # idle anyway, at the beginning of each.
            self._hash_is_due = place in (0, self.num_steps)

    def _blocks(self) -> Generator[int, None, None]:
        """Turn after turn; waits at each `yield`, of a place in its block, for the script to make a
        step."""
        self._log.append("phase", phase="waiting")
        self._log.flush(durable=True)
        self._turns.ready()
        number = 0
        while (turn := self._wait()) is not None:
            if number == BLOCKS_BEFORE_PROFILE:
                self.workload.write()
            if self._profiles(number):
                yield from self._profiled_block(turn)
            else:
                yield from self._block(turn, self._block_steps())
            if self._stops():
                return
            number += 1
            self._turns.done(finished=False)

    def _wait(self) -> Turn | None:
        self._is_waiting = True
        turn = self._turns.wait()
        self._is_waiting = False
        return turn

    def _stops(self) -> bool:
        limit = self._experiment.script.steps
        return self._is_over or self._turns.stop_requested or 0 < limit <= self.num_steps

    def _block(
        self, turn: Turn, num_steps: int, *, warm_up: bool = False
    ) -> Generator[int, None, None]:
        first = self.num_steps
        block = Block(first_step=first, num_steps=num_steps, epoch=0, window=first,
                      evaluate=False, ends_epoch=False, warm_up=warm_up)  # fmt: skip
        self._made = Steps()
        return self._timer.steps(block, turn, self._made, self._stops)

    def _block_steps(self) -> int:
        """Up to the end of a block, of the script, or of what comes before the profile."""
        ends = [self.num_steps + self._experiment.block_steps]
        limit = self.workload.num_steps
        if limit:
            ends += [end for end in (limit - self._profile_steps, limit) if end > self.num_steps]
        return min(ends) - self.num_steps

    @property
    def _profile_steps(self) -> int:
        """At the end of a script of known length; none of one too short to be timed beside."""
        steps = self._profiler.num_turns * self._profiler.steps_of_turn
        timed = self.workload.num_steps - steps
        return steps if timed >= BLOCKS_BESIDE_PROFILE * self._experiment.block_steps else 0

    def _profiles(self, number: int) -> bool:
        """Whether the block of this number is profiled: the last ones if it is known which these
        are, else early ones."""
        turns = self._profiler.num_turns
        if not self.workload.num_steps:
            return BLOCKS_BEFORE_PROFILE <= number < BLOCKS_BEFORE_PROFILE + turns
        left = self.workload.num_steps - self.num_steps
        return self._profile_steps > 0 and 0 < left <= self._profile_steps

    def _profiled_block(self, turn: Turn) -> Generator[int, None, None]:
        """Counts in no timing, like a warm-up; the steps are steps of the training all the same."""
        num_steps = self._profiler.steps_of_turn
        timed = self._block(turn, num_steps, warm_up=True)
        profiled = self._profiler.steps(turn.round)
        for place in timed:
            next(profiled, None)
            try:
                yield place
            except NoMoreSteps as end:
                with suppress(StopIteration):
                    timed.throw(end)
                break
        if len(self._made) == num_steps:
            next(profiled, None)

    # The end.

    def finish(self) -> bool:
        """The script is over: writes what is left; whether it came to its end, and was not stopped.

        Raises `WorkloadError` for a script that made no step.
        """
        if not self.num_steps:
            raise WorkloadError(NO_STEP)
        self.end_block()
        self._evaluate_no_more()
        if self._turns.stop_requested:
            return False
        if self.num_steps < self._experiment.script.steps:
            reason = "the script came to its end"
            self._log.append("stopped", step=self.num_steps, reason=reason)
        self.workload.num_steps = self.num_steps
        self.workload.write()
        self._log.append("phase", phase="done")
        self._turns.done(finished=True)
        return True

    def end_block(self) -> None:
        """There will be no further step: writes down those of the block that is open."""
        if self._plan is not None and not self._is_over:
            self._is_over = True
            with suppress(StopIteration):
                self._plan.throw(NoMoreSteps())

    def _evaluate_no_more(self) -> None:
        self.observer.phase = "evaluating"
        self.observer.report()


NO_STEP = (
    "the script ended without a step: nothing called breakeven.step(loss). Call it at the end of "
    "each step, behind optimizer.step(); a script that trains with transformers.Trainer, "
    "accelerate or lightning needs no change, if it is that what trains"
)
