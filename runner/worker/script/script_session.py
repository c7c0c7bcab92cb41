"""Measures the steps that a script makes itself.

Elsewhere the runner makes the steps and calls the model. Here the script calls the runner at the
end of each step; the call does all work between two steps, in the order that `blocks.py` defines.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from breakeven.runner.errors import WorkloadError
from breakeven.runner.experiments.continuing import steps_measured
from breakeven.runner.machine.run_variables import WITHHELD_VARIABLE
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.texts import first_few
from breakeven.runner.worker.callbacks import OwnValue
from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import random_state
from breakeven.runner.worker.script.clock import ScriptClock
from breakeven.runner.worker.script.detected_steps import (
    BackwardPasses,
    DetectedStep,
    StepDetector,
    StepEnd,
)
from breakeven.runner.worker.script.input_shapes import InputShapes
from breakeven.runner.worker.script.loaders import LoaderClock
from breakeven.runner.worker.script.recorded_inputs import EvaluatedInputs, RecordedInputs
from breakeven.runner.worker.script.script_blocks import ScriptBlocks, ScriptSteps
from breakeven.runner.worker.script.script_checkpoints import (
    EarlierAttempts,
    Resuming,
    SavedCheckpoint,
    ScriptCheckpoints,
)
from breakeven.runner.worker.script.script_optimizers import ScriptOptimizers
from breakeven.runner.worker.script.script_sources import marks_steps, named_in_source
from breakeven.runner.worker.script.script_workload import (
    ScriptWorkload,
    StepFlops,
    find_models,
    has_lazy_weights,
    hash_inputs,
    make_lazy_weights,
    random_states,
)
from breakeven.runner.worker.script.state_or_data import ResultsFollower
from breakeven.runner.worker.script.torch_compile import ScriptCompiler, within_parallelism
from breakeven.runner.worker.script.trained_models import (
    FoundModel,
    TrainedModels,
    describe_models,
    names_of,
)
from breakeven.runner.worker.training.block_timer import BlockTimer
from breakeven.runner.worker.training.profiler import StepProfiler
from breakeven.runner.worker.training.step_rows import BlockRecorder
from breakeven.runner.worker.turn_source import Turns

MAX_RAISED = 1000
"""Number of times that `EndOfScript` is raised before the process ends: scripts may catch it."""
SPLITS = {"eval": "validation", "valid": "validation", "val": "validation", "dev": "validation"}
"""Other names of splits."""
NOTHING_COMPILED = (
    "a step ended, and nothing was called before that a backend can compile: neither a function "
    "given to torch.compile nor a torch.nn.Module that was called with gradients and holds an "
    "optimizer's weights. Name what to compile, `model = breakeven.compile(model)`, which also "
    "takes a function that makes a step"
)
BY_LIBRARY = (
    "a step ended, and nothing was called that the run's backend compiles: a library compiles "
    "functions of its own ({}), with its own settings. Switch that off, and compile the model in "
    "the script: `model = breakeven.compile(model)`"
)
NO_STEP = (
    "the script ended without a step. Breakeven looked in its process for steps of optimizers of "
    "torch.optim, for backward passes, and for breakeven.step(loss). A training in a process that "
    "the script starts, in C++ or with another library than torch cannot be measured. If the "
    "script trains here, call breakeven.step(loss) at the end of each step"
)

WITHHELD = (
    "The script names environment variables of your shell that runs do not get: {0}. Write them "
    "before the command: breakeven run {1}=... train.py"
)
OF_SHELL = {"", "_", "SHLVL", "OLDPWD"}
"""Variables that shells set for themselves."""


def nothing_to_check() -> None:
    """What a script without changes has imported may be anything."""


class EndOfScript(BaseException):
    """Ends a script that has made all its steps or whose run was stopped.

    It is not an `Exception`, because scripts catch those.
    """


class ScriptSession:
    """Carries out the functions of `breakeven` while a script is measured."""

    def __init__(
        self,
        context: RunContext,
        turns: Turns,
        earlier: EarlierAttempts | None,
        turn: Turn | None = None,
    ) -> None:
        """`turn`: the turn in which the script starts again."""
        self._experiment, self._arm = context.experiment, context.arm
        self._only_times = context.only_times
        self._may_resume = not self._only_times and context.group.size == 1
        """Whether a later attempt may resume from a checkpoint: no training that has finished, and
        none of several ranks, of which each would need one."""
        self._device, self._log, self._group = context.device, context.log, context.group
        self._workplace = context.workplace
        self._turns = turns
        self._values: list[OwnValue] = []
        self.observer = CompileObserver(self._log, context.workplace)
        self._recorder = BlockRecorder(
            self._log,
            values=self._values,
            group=self._group,
            weights=self._weights,
            with_steps=not self._only_times,
        )
        self._timer = BlockTimer(context, self.observer, self._recorder)
        self._profiler = StepProfiler(context, self.observer)
        self._results = ResultsFollower()
        self.compiler = ScriptCompiler(
            self._arm, self.on_compile, self.on_call, self._results.add, self.on_own_compile
        )
        self.clock = ScriptClock()
        self.optimizers = ScriptOptimizers()
        self.detector = StepDetector(
            self, self.optimizers, copies_losses=self._arm.captures_cuda_graphs
        )
        self.models = TrainedModels(
            self.optimizers, self._experiment.script.compiles, self._looks_for_models, self._found
        )
        self.workload = ScriptWorkload(context, self.compiler.calls, self.clock.places)
        self._inputs = RecordedInputs(self._log, self._group)
        self._evaluated_inputs = EvaluatedInputs()
        self._shapes = InputShapes()
        self._blocks = ScriptBlocks(
            self._experiment,
            self.workload,
            turns,
            self._timer,
            self._profiler,
            self._log,
            self.clock,
            self._inputs,
            self._group,
            self._work_out,
        )
        self._checkpoints = ScriptCheckpoints(context.run, self._log, only_times=self._only_times)
        self.resuming = Resuming(self._checkpoints, self._device, self._blocks, earlier)
        if self._only_times:
            self._blocks.time_more_after(
                steps_measured(context.run), turn, (earlier and earlier.workload["num_steps"]) or 0
            )
        self.loaders = LoaderClock()
        self._flops = StepFlops()
        self._has_counted = False
        self._modules: list[nn.Module] = []
        self._functions: list[Callable[..., Any]] = []
        self._training, self._trained = set[nn.Module](), set[nn.Module]()
        """Modules called in training mode in the open step, and in the one before."""
        self._looks_until = 0
        """Number of finished blocks up to which models are looked for."""
        self.check_code: Callable[[], None] = nothing_to_check
        """Raises `WorkloadError` if the script has not imported what it should; called once."""
        self._is_evaluating = self._begins_evaluating = False
        self._num_evaluations: Counter[str] = Counter()
        self._num_raised = 0
        self._trainer: str | None = None
        self.has_compiled = False
        """Whether the script itself says what to compile."""
        self._found_models: list[FoundModel] = []
        self._marks_steps: bool | None = None
        """Whether the script itself marks its steps; None before the first one."""
        self._charted: str | None = None
        """Place of the backward pass whose loss is that of the step."""

    @property
    def num_steps(self) -> int:
        """Finished steps of the training."""
        return self._blocks.num_steps

    @property
    def is_begun(self) -> bool:
        """Whether the first step has begun."""
        return self._blocks.is_begun

    @property
    def is_excused(self) -> bool:
        """Whether the script has a reason to make no step: it waits for its turn, compiles,
        evaluates, or has made its last step."""
        is_busy = self._is_evaluating or self.observer.is_compiling
        is_waiting = self._blocks.is_waiting or self._group.is_waiting
        return is_waiting or is_busy or self._blocks.is_over

    # Calls of the script.

    def compile(self, target: Any, model: nn.Module | None, given: dict[str, Any]) -> Any:
        self.on_own_compile()
        if model is not None:
            self._modules.append(model)
        if isinstance(target, nn.Module):
            self.compiler.compile_in_place(within_parallelism(target), given)
            return target
        return self.compiler.compile(target, given)

    def step(
        self, loss: Tensor | float | None, samples: int | None = None, tokens: int | None = None
    ) -> None:
        self._marks_steps = True
        if self.step_is_last(loss, samples, tokens):
            self._end_script()

    def step_is_last(
        self, loss: Tensor | float | None, samples: int | None, tokens: int | None
    ) -> bool:
        """Ends a step; returns whether it is the last one, for callers that can end a training
        properly. Raises `EndOfScript` if the run was stopped or the supervisor ended it."""
        return self._end_step(BackwardPasses(self._kept_loss(loss), samples, tokens))

    def _end_step(self, end: StepEnd) -> bool:
        blocks = self._blocks
        if not blocks.is_begun:
            libraries = ", ".join(sorted(self.compiler.of_libraries))
            raise WorkloadError(BY_LIBRARY.format(libraries) if libraries else NOTHING_COMPILED)
        if blocks.num_steps == 0:
            self.check_code()
        if self._flops.is_counting or self._results.is_last_step:
            self._end_counting(end)
        if self._is_evaluating:
            self.evaluate(False)
        if not blocks.is_over:
            rate = end.learning_rate if isinstance(end, DetectedStep) else None
            self._read_learning_rate(rate)
            blocks.made.ends.append(end)
            blocks.made.loading.append(self.loaders.read())
            has_looked = blocks.step_made()
            self.detector.has_trained = False
            self._forget_earlier_models()
            if not has_looked:
                return False
            self._count_whole_step()
            if blocks.num_blocks > self._looks_until:
                self.models.stop()
        if self._turns.stop_requested or blocks.ending is not None:
            self._end_script()
        return blocks.is_over

    def _end_script(self) -> NoReturn:
        """Raises `EndOfScript`; ends the process of a script that keeps catching it."""
        self._num_raised += 1
        if self._num_raised > MAX_RAISED:
            if self.finish():
                self._log.append("phase", phase="done")
                self._turns.done(finished=True)
            self._log.flush(durable=True)
            os._exit(WorkerExit.CANCELLED if self._turns.stop_requested else 0)
        raise EndOfScript

    def evaluated(self, split: str, samples: int | None, metrics: dict[str, Any]) -> None:
        self.evaluate(False)
        # A training between two steps that the script marks is no evaluation.
        if not (self._marks_steps and self.detector.has_trained):
            self._leave_out()
        if self._only_times:
            return
        values = {name: None if value is None else float(value) for name, value in metrics.items()}
        name = SPLITS.get(split, split)
        self._num_evaluations[name] += 1
        number = self._num_evaluations[name] + self.resuming.num_evaluations.get(name, 0)
        loss = values.pop("loss", None)
        self._log.append(
            "evaluation",
            epoch=number - 1,
            step=self.num_steps,
            split=name,
            compiled=False,
            loss=loss,
            metrics=values,
            accuracy=values.get("accuracy"),
            num_samples=samples,
            inputs_sha256=self._evaluated_inputs.take(),
        )

    def record(self, name: str, value: float | Tensor) -> None:
        if not self._only_times:
            self._values.append((self.num_steps, name, value))

    def save(self, state: Any, file: Any) -> None:
        with self._at_checkpoint():
            path = _absolute(file)
            if self._blocks.is_begun and self._may_resume:
                random = random_state(self._device)
                self._checkpoints.write(state, self.num_steps, path, random)
            else:  # useless for resuming, as before the first step
                torch.save(state, path)

    def load(self, file: Any, arguments: dict[str, Any]) -> Any:
        saved = self._checkpoints.latest(path=_absolute(file))
        if saved is None:
            return None
        state = torch.load(saved.path, **arguments)
        self.resuming.resume_from(saved)
        return state

    # What is found in a script that says nothing.

    def detects_steps(self) -> bool:
        if self._marks_steps is None:
            self._marks_steps = marks_steps(self._workplace)
        return not self._marks_steps and self._trainer is None

    def part_made(self) -> None:
        self._forget_earlier_models()
        if self._is_training:
            self._timer.mark_early()

    def steps_detected(self, steps: list[DetectedStep]) -> None:
        if self._charted is None:
            self._note_what_was_found(steps[0])
        if any([step.num_marks for step in steps]) and self._is_training:
            for step in steps:
                self._timer.made_early(step.num_marks, ends_now=not step.is_marked)
        for step in steps:
            if self._end_step(step):
                self._end_script()

    def _work_out(self, made: ScriptSteps) -> None:
        """Fills in the losses, samples and tokens of steps that have ended."""
        for number, end in enumerate(made.ends, made.first):
            numbers, others = self._numbers_of(end)
            if not self._only_times:
                self._values += [(number, f"loss at {place}", loss) for place, loss in others]
            loss, (samples, tokens) = numbers.loss, self._of_all_ranks(numbers)
            made.losses.append(None if loss is None else loss.reshape(()))
            made.samples.append(samples)
            made.tokens.append(tokens)
            self.workload.count(samples, tokens)

    def _numbers_of(self, end: StepEnd) -> tuple[BackwardPasses, list[tuple[str, Tensor]]]:
        """What the script said, or the backward passes at the charted place and the losses of other
        ones."""
        if isinstance(end, BackwardPasses):
            return end, []
        passes = end.passes()
        charted = self._charted if self._charted in passes else next(iter(passes), None)
        others = [
            (place, other.loss)
            for place, other in passes.items()
            if place != charted and other.loss is not None
        ]
        return BackwardPasses() if charted is None else passes[charted], others

    def _of_all_ranks(self, numbers: BackwardPasses) -> tuple[int | None, int | None]:
        """The samples and tokens of a step."""
        of_all_ranks = self.workload.of_all_ranks
        return of_all_ranks(numbers.samples), of_all_ranks(numbers.tokens)

    def _note_what_was_found(self, step: DetectedStep) -> None:
        self._charted = next(iter(step.passes()), "")
        findings = self.workload.findings
        modules = [model.module for model in self._found_models]
        names = dict(zip(modules, names_of(self._found_models), strict=True))
        findings.step_ends = self.detector.describe(names)
        findings.loss_at = self._charted or None

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.optimizers.add(optimizer)
        self.optimizer_begins()

    def optimizer_begins(self) -> None:
        """Looks for the models of an optimizer in this block and, if its first step has ended the
        block, in the next one."""
        self._looks_until = self._blocks.num_blocks + 1 if self._blocks.num_blocks else 0
        self.models.look()

    def _looks_for_models(self) -> bool:
        return self._trainer is None and not self.has_compiled and not self._blocks.is_over

    def _found(self, model: FoundModel) -> None:
        """Compiles a model that the script trains."""
        module = model.module
        self.compiler.compile_in_place(module, {})
        self._found_models.append(model)
        self.workload.findings.models = describe_models(self._found_models)
        if self._blocks.is_begun and not has_lazy_weights(module):
            self.workload.add_model(module, is_late=self._blocks.num_blocks > 0)

    # Calls of libraries that train the script's model.

    def begin_library_training(self, name: str, model: nn.Module | None, num_steps: int) -> None:
        """Notes that a library begins to train for `num_steps` steps, 0 if unknown. Compiles
        `model` unless the script has compiled anything."""
        if self._trainer != name:
            self._trainer = name
            self.workload.notes.append(
                f"The script trains with {name}, which marks the end of each step."
            )
        if num_steps > 0 and not self._experiment.script.steps:
            self.workload.num_steps = num_steps
        if model is not None and not self.has_compiled:
            self.compiler.compile_in_place(model, {})

    @contextmanager
    def checkpointing(self, name: str, path: Path, step: int, *, is_whole: bool) -> Iterator[None]:
        """Surrounds the writing of a library's checkpoint after `step` of its steps; `is_whole` if
        the library can resume from it without any difference."""
        with self._at_checkpoint():
            self._checkpoints.forget(path)
            since = time.perf_counter()
            yield
            is_useful = is_whole and self._may_resume
            if is_useful and step == self.num_steps > 0 and path.exists():
                random = random_state(self._device)
                saved = SavedCheckpoint(step=step, by=name, path=path, random=random)
                self._checkpoints.written(saved, time.perf_counter() - since)

    @contextmanager
    def _at_checkpoint(self) -> Iterator[None]:
        """Writes all rows of earlier steps to the disk first; excludes the time from steps."""
        self.evaluate(False)
        if self._group.size == 1:  # other ranks may save nothing
            self._blocks.end_block()
            self._recorder.write_values()
            self._log.flush(durable=True)
        yield
        self._leave_out()

    # Calls of compiled functions.

    def on_own_compile(self) -> None:
        self.has_compiled = True
        self.models.stop()  # before somebody keeps the call of a module that is looked at

    def on_compile(self, module: nn.Module | None, function: Callable[..., Any]) -> None:
        if module is None:
            self._functions.append(function)
            return
        parts = set(module.modules())
        for part in [model for model in self._found_models if model.module in parts]:
            part.module._compiled_call_impl = None  # it was called alone before, as in a trial
            self._found_models.remove(part)
            self._modules.remove(part.module)
        self._modules.append(module)

    def on_call(self, module: nn.Module | None, arguments: tuple[Any, Any]) -> None:
        if self._blocks.is_over:
            return
        if not self._blocks.is_begun:
            if module is not None and has_lazy_weights(module):
                make_lazy_weights(module, *arguments)
            self._begin(arguments)
            self.evaluate(self._begins_evaluating)
        # A model that does not train, such as a teacher, is part of the step.
        is_training = module is None or module.training
        if module is not None and is_training:
            self._training.add(module)
        if is_training == self._is_evaluating and (
            is_training or module in self._training or module in self._trained
        ):
            self.evaluate(not is_training)
        if not is_training and (module in self._training or module in self._trained):
            self._evaluated_inputs.add(*arguments)
        if is_training and not self._marks_steps and torch.is_grad_enabled():
            self.detector.forward_begins(module, *arguments)
        if is_training and not self._only_times:
            self._look_at_call(module, arguments)

    def _look_at_call(self, module: nn.Module | None, arguments: tuple[Any, Any]) -> None:
        # Here, because a schedule may change the rate at the end of a step or at its start.
        self._read_learning_rate()
        if torch.is_grad_enabled():
            self._shapes.add(module, *arguments)
        if self._blocks.looks_at_inputs:
            self._blocks.looks_at_inputs = False
            self._hash(module, arguments)

    def _forget_earlier_models(self) -> None:
        """At the end of a step, forgets which models trained before this step."""
        if self._training:
            self._training, self._trained = set(), self._training

    def _read_learning_rate(self, rate: float | Tensor | None = None) -> None:
        """Reads the rate of the open step, once, unless it is given."""
        made = self._blocks.made
        if len(made.learning_rates) == len(made.ends):
            made.learning_rates.append(self.optimizers.learning_rate() if rate is None else rate)

    def evaluate(self, is_evaluating: bool) -> None:
        """Begins or ends an evaluation, whose time is excluded from steps. Lightning evaluates two
        batches before the first step."""
        if not self._blocks.is_begun:
            self._begins_evaluating = is_evaluating
        if is_evaluating == self._is_evaluating or not self._is_training:
            return
        self._is_evaluating = is_evaluating
        self._flops.pause(is_evaluating)
        if is_evaluating:
            self._timer.pause()
        else:
            self.loaders.read()
        self.observer.report()
        self.observer.phase = "evaluating" if is_evaluating else "training"
        self._log.append("phase", phase=self.observer.phase)
        self._log.flush()
        if not is_evaluating:
            self.observer.compiled_since_last_call()
            self._timer.resume()

    def _hash(self, module: nn.Module | None, arguments: tuple[Any, Any]) -> None:
        self._timer.pause()
        self._shapes.count_padding(module, *arguments)
        inputs, random = hash_inputs(arguments), random_states(self._device)
        hashes: dict[str, Any] = {}
        if inputs is not None:
            is_known = [self._results.knows(tensor) for tensor in inputs.tensors]
            state = [place for place, is_state in enumerate(is_known) if is_state]
            hashes = {"sha256": inputs.sha256, "floats": inputs.floats}
            if state:
                hashes["state"] = state
            if self._results.is_following:
                self.workload.perturb_state([inputs.tensors[place] for place in state])
        settings = {**self.optimizers.settings(), **self.detector.gradient_scales()}
        row = {"step": self.num_steps, "random": random, "settings": settings, **hashes}
        self._inputs.add(row)
        if self._arm.backend is None:
            self._results.begin_step()
        self._timer.resume()

    def _count_whole_step(self) -> None:
        """Counts a step of the first block, the first one that is observed as a whole."""
        may_count = self._arm.backend is None and not self._only_times and not self._has_counted
        is_early = self._blocks.num_blocks == 0 and not self._blocks.is_over
        if may_count and is_early and not self._timer.has_made_early:
            self._has_counted = True
            self._flops.begin()

    def _end_counting(self, end: StepEnd) -> None:
        """Ends what observes the operations of the second step."""
        if self._flops.is_counting:
            numbers, _ = self._numbers_of(end)
            self._flops.end()
            if self.observer.num_compilations:  # by the script, which hides operations
                self._flops.uncounted.add("what the script compiles by itself")
            self.workload.counted(self._flops, *self._of_all_ranks(numbers))
        if self._results.is_last_step:
            self._results.end()

    def _kept_loss(self, loss: Tensor | float | None) -> Tensor | None:
        if loss is None or isinstance(loss, (int, float)):
            return None if loss is None else torch.tensor(float(loss))
        if loss.numel() != 1:
            raise WorkloadError(
                f"breakeven.step was given a loss of shape {tuple(loss.shape)}: it must have one "
                "element. Pass the mean, as backward() gets it"
            )
        kept = loss.detach()
        return kept.clone() if self._arm.captures_cuda_graphs else kept

    def _note_withheld_variables(self) -> None:
        """Alone, the script would have read these variables."""
        withheld = set(os.environ.get(WITHHELD_VARIABLE, "").split(",")) - OF_SHELL
        if names := named_in_source(sorted(withheld), self._workplace):
            self.workload.notes.append(WITHHELD.format(first_few(names, 5), names[0]))

    def _begin(self, arguments: object) -> None:
        """Waits for this run's turn; the first step may then begin."""
        closed_over = [model for function in self._functions for model in find_models(function)]
        models = [
            m for m in dict.fromkeys([*self._modules, *closed_over]) if not has_lazy_weights(m)
        ]
        if not self._only_times:
            self.workload.notes += self.resuming.log()
            self._note_withheld_variables()
        earlier = self.resuming.resumed_attempts
        if earlier is None:
            self.workload.begin(models, arguments)
        else:
            self.workload.resume(models, earlier.workload)
        self.observer.step = self._blocks.journal_step
        self._blocks.begin()
        self.loaders.read()  # The first batch was loaded before.

    def _weights(self) -> Iterator[Tensor]:
        """The weights of the compiled models and of all optimizers."""
        for model in self._modules:
            yield from model.parameters()
        yield from self.optimizers.tensors()

    @property
    def _is_training(self) -> bool:
        return self._blocks.is_begun and not self._blocks.is_over

    def _leave_out(self) -> None:
        """Excludes the time since the last step from the next step."""
        if self._is_training:
            self._timer.leave_out()
            self.loaders.read()

    # The end.

    def finish(self) -> bool:
        """Writes the remaining rows after the script; False if the run was stopped.

        Raises `WorkloadError` for a script that made no step.
        """
        with suppress(EndOfScript):
            self.detector.end()
        if not self.num_steps:
            raise WorkloadError(NO_STEP)
        if not self._blocks.is_begun:  # an earlier attempt ended after the last step
            self.workload.notes += self.resuming.log()
        self.end_block()
        self.observer.phase = "evaluating"
        self.observer.report()
        if self._turns.stop_requested:
            return False
        if not self._only_times:
            self.workload.num_steps = self.num_steps
        if self._blocks.ending is not None and not self._checkpoints.run.is_later_start:
            record_ending(self._log, self.workload.num_steps, self._blocks.ending)
        elif not self._only_times and self.num_steps < self._experiment.script.steps:
            self._log.append("stopped", step=self.num_steps, reason="the script ended")
        self.workload.shapes_counted(self._shapes.summary(), self._shapes.padding_share)
        self.workload.write()
        return True

    @property
    def starts_again(self) -> bool:
        """Whether the script, which has ended, is to run again for more rounds."""
        return self._blocks.starts_again and not self._turns.stop_requested

    def end_block(self) -> None:
        """Writes the steps of the open block; there will be no further step."""
        self._flops.end()
        self._results.end()
        self._blocks.end()


def record_ending(log: EventLog, num_steps: int, ending: Ending) -> None:
    """Writes why the supervisor ended a run; `num_steps`: those of its training."""
    log.append("stopped", step=num_steps, reason=ending.reason, ending=asdict(ending))


def _absolute(file: Any) -> Path:
    """The absolute path; keeps links, whose targets may be the user's own files."""
    return Path(os.path.abspath(file))
