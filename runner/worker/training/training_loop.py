"""The training loop: one block of steps per turn, with all measurements and records."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import count
from typing import Any, Literal

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.experiments.continuing import steps_measured, steps_trained
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import MODEL_LOSS, SplitName
from breakeven.runner.worker.callbacks import (
    GradientStatistics,
    Hooks,
    StopEarly,
    StopOnNonfinite,
    TrainingState,
)
from breakeven.runner.worker.compiler.compile_with_backend import compile_blocks, make_compiler
from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import ParallelModel, RunContext
from breakeven.runner.worker.correctness.own_random_numbers import RandomNumbersCheck
from breakeven.runner.worker.data.splits import (
    EpochBatches,
    FixedBatches,
    MicroBatch,
    Split,
    Windows,
)
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.random_state import step_seed
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.optimizers import LearningRate, make_optimizers
from breakeven.runner.worker.step.stepping import (
    MixedPrecision,
    StepMaker,
    StepResult,
    uncompiled_copy,
)
from breakeven.runner.worker.training.block_timer import BlockTimer
from breakeven.runner.worker.training.blocks import Block, plan_blocks
from breakeven.runner.worker.training.checkpoints import (
    Checkpointed,
    Checkpoints,
    FreshState,
    latest_checkpoint,
)
from breakeven.runner.worker.training.evaluation import Predictions, evaluate
from breakeven.runner.worker.training.profiler import MakeStep, StepProfiler
from breakeven.runner.worker.training.step_rows import BlockRecorder, Steps
from breakeven.runner.worker.turn_source import Turns
from breakeven.runner.worker.user_code import load_object


class Trainer:
    """Trains one model under one backend. Losses and gradient norms stay on the device until their
    block ends, so nothing waits for the device inside a block."""

    def __init__(self, context: RunContext, workload: Workload) -> None:
        """The workload's model is on the device already."""
        self._experiment = experiment = context.work
        self._arm = arm = context.arm
        self._device, self._log, self._group = context.device, context.log, context.group
        self._run, self._workload = context.run, workload
        self._context = context
        device, group = self._device, self._group
        model = workload.model.train()
        self._splits = _splits_in_use(experiment, workload, device.torch_device)
        self._observer = CompileObserver(self._log)
        training = experiment.training
        precision = MixedPrecision(training, device.torch_device)
        self._objective = Objective(training, workload)
        self._parallel = parallel = ParallelModel(model, experiment, device, group)
        # Ranks that divide the weights do not divide the optimizer's step counts.
        capturable = device.captures_graphs and not parallel.is_sharded
        optimizers = make_optimizers(
            training, model, device.torch_device, capturable=capturable, form=arm.optimizer
        )
        self._rate = LearningRate(training, experiment.num_steps, optimizers)
        self._state = TrainingState(model=model, optimizers=optimizers)
        self._inference = Inference(
            model,
            precision,
            arm,
            training.batch_size,
            parallel.part,
            own_loss=MODEL_LOSS in self._objective.names,
        )
        callbacks, checkpoints = _make_callbacks(
            context, precision.scaler, self._inference, self._splits
        )
        self._hooks = Hooks(callbacks, self._state)
        self._checkpointed = Checkpointed(
            model=model,
            optimizers=optimizers,
            rate=self._rate,
            scaler=precision.scaler,
            hooks=self._hooks,
            context=context,
        )
        if checkpoints is not None:
            checkpoints.set_source(self._checkpointed)
        may_start_again = experiment.is_until_decided or context.only_times
        may_start_again &= not parallel.is_sharded
        self._fresh = FreshState(self._checkpointed) if may_start_again else None
        names, values = self._objective.names, self._state.values
        self._recorder = BlockRecorder(
            self._log,
            names,
            values,
            group,
            model.parameters,
        )
        self._timer = BlockTimer(context, self._observer, self._recorder)
        self._profiler = StepProfiler(context, self._observer)
        if arm.scope == "blocks":
            compile_blocks(model, arm)
        self._windows: Windows | None = None
        self._ending: Ending | None = None
        self._block_steps: int | None = None
        """Most steps of the next blocks, as the last turn said."""
        if experiment.kind.cycles_batches:
            self._windows = FixedBatches(self._splits["train"], experiment, parallel.part)
        self._check = self._make_check()
        maker = StepMaker(
            model,
            self._objective,
            optimizers,
            precision,
            training,
            self._hooks,
            parallel,
            like_harness=experiment.steps_like_harness,
        )
        self._step = maker.make(arm.scope, make_compiler(arm))
        if experiment.steps_like_harness and arm.backend is not None and group.size == 1:
            self._profiler.alternate_with(self._uncompiled_steps)

    def _make_check(self) -> RandomNumbersCheck | None:
        # The baseline's random numbers and losses say nothing about larger batches.
        is_equal = self._arm.role == "backend" and self._arm.batch_times == 1
        if not is_equal or not self._experiment.kind.trains_fully:
            return None
        if not self._parallel.is_sharded:
            return RandomNumbersCheck(
                self._context, self._parallel, self._objective, self._inference
            )
        if self._experiment.has_dropout:
            why = "It is not checked on devices that each keep a part of all weights (fsdp)."
            self._log.append("random_numbers", error=why)
        return None

    def train(self, turns: Turns) -> bool:
        """Trains to the end of the plan or until a stopping rule ends training (True), or until the
        run is stopped (False). Resumes from the latest checkpoint if there is one."""
        # All runs of an experiment also draw the same random numbers outside of steps.
        torch.manual_seed(self._parallel.seed)
        if self._context.only_times:
            return self._train_again(turns)
        self._hooks.call("train_begin")
        self._resume()
        for block in plan_blocks(self._experiment, self._state.step, lambda: self._block_steps):
            turn = turns.wait()
            if turn is None or not self._take_turn(block, turn, turns):
                return False
            self._block_steps = turn.block_steps
            if turn.last is not None:
                self._ending = turn.last
                self._state.stop(turn.last.reason)
            if block.is_last or self._state.stop_reason:
                break
            turns.done(finished=False)
        else:
            # Nothing is left to train: the run was interrupted after its last step.
            turn = turns.wait()
        if turn is None:
            return False
        self._close()
        if self._state.stop_reason is not None or self._fresh is None or not turn.again:
            return self._end(turns)
        return self._train_again(turns)

    def _train_again(self, turns: Turns) -> bool:
        """Starts the training anew, as often as it takes, for the times alone, until the supervisor
        ends it (True) or the run is stopped (False)."""
        assert self._fresh is not None
        self._recorder.with_steps = False
        num_steps, recorded = self._experiment.num_steps, 0
        trained = num_steps
        if self._context.only_times:  # in a new process, whose state is fresh
            recorded, trained = steps_measured(self._run), steps_trained(self._run) or num_steps
        with self._hooks.muted():
            for passes in count(0 if self._context.only_times else 1):
                if passes:
                    # Still in the turn of the last block, so that it disturbs no other run.
                    self._fresh.restore()
                    self._state.step = 0
                    turns.done(finished=False)
                for block in plan_blocks(self._experiment, 0, lambda: self._block_steps):
                    turn, self._state.epoch = turns.wait(), block.epoch
                    block = replace(
                        block, first_step=recorded + passes * num_steps + block.first_step
                    )
                    if turn is None or not self._train_block(block, turn, turns):
                        return False
                    self._block_steps, self._ending = turn.block_steps, turn.last
                    if turn.last is not None:
                        self._state.step = trained
                        self._state.stop(turn.last.reason)
                        if self._experiment.is_until_decided and not self._run.is_later_start:
                            self._record_stop()
                        return self._end(turns)
                    if not block.is_last:
                        turns.done(finished=False)
        return True

    def _resume(self) -> None:
        checkpoint = latest_checkpoint(self._run)
        if checkpoint is None:
            return
        step, file = checkpoint
        before = self._checkpointed.load(file)
        self._state.step = self._observer.step = step
        self._log.append(
            "resumed",
            step=step,
            file=str(file.relative_to(self._run.path)),
            attempt=self._run.attempt,
            num_devices=self._experiment.num_devices,
            num_devices_before=before,
        )
        self._log.flush(durable=True)

    def _take_turn(self, block: Block, turn: Turn, turns: Turns) -> bool:
        """Trains a block, evaluates and calls callbacks; False if the run was stopped meanwhile."""
        self._state.epoch = block.epoch
        if block.window == 0:
            self._hooks.call("epoch_begin")
        if not self._train_block(block, turn, turns):
            return False
        stops = self._state.stop_reason is not None
        if block.ends_epoch and not stops:
            self._hooks.call("epoch_end")
        if block.evaluate or (stops and self._experiment.evaluates != "never"):
            self._evaluate()
        self._hooks.call("block_end")
        if self._group.size > 1:
            self._agree()
        self._recorder.write_values()
        return True

    def _train_block(self, block: Block, turn: Turn, turns: Turns) -> bool:
        """Trains a block; False if the run was stopped meanwhile."""
        state, hooks = self._state, self._hooks
        batches = self._epoch_batches(block.epoch)
        replays_graphs = self._arm.captures_cuda_graphs
        seed = self._parallel.seed

        def step(place: int, steps: Steps) -> None:
            self._device.seed(step_seed(seed, state.step))
            hooks.call("batch_begin")
            result = self._make_step(batches.window(block.window + place))
            if state.step == 0 and self._check is not None:
                self._check.first_loss = result.loss.clone()
            steps.add(result, self._rate.current, copy=replays_graphs)
            self._rate.step_done()
            state.loss = steps.losses[-1]
            hooks.call("batch_end")
            state.step += 1
            if self._agrees_in_steps:
                self._agree()

        def stops() -> bool:
            return turns.stop_requested or state.stop_reason is not None

        return self._timer.run(block, turn, step, stops) or state.stop_reason is not None

    @property
    def _agrees_in_steps(self) -> bool:
        """Whether one rank may decide within a block that training has to end."""
        experiment = self._experiment
        return self._group.size > 1 and (
            experiment.stopping.nonfinite or bool(experiment.callbacks)
        )

    def _agree(self) -> None:
        """Ends training on every rank if one rank ends it."""
        reasons = self._group.gather(self._state.stop_reason)
        self._state.stop_reason = next((reason for reason in reasons if reason is not None), None)

    def _epoch_batches(self, epoch: int) -> Windows:
        if self._windows is None or self._windows.epoch != epoch:
            # Frees the last epoch's samples before the next epoch's are made.
            self._windows = None
            training = self._experiment.training
            can_be_symbolic = self._arm.backend is not None and self._arm.dynamic is not False
            self._windows = EpochBatches(
                self._splits["train"],
                training,
                epoch,
                self._parallel.part,
                symbolic_size=can_be_symbolic and training.last_batch == "dynamic",
            )
        return self._windows

    def _evaluate(self) -> None:
        """Evaluates every split of the specification, without a compiler and with the run's."""
        evaluation, state = self._experiment.evaluation, self._state
        self._enter("evaluating")
        self._hooks.call("evaluation_begin")
        for name in evaluation.splits:
            plain = self._evaluate_split(name)
            if name == evaluation.primary_split:
                state.scores = {"loss": plain["loss"], **plain["metrics"]}
                state.scores_step = state.step
                self._rate.evaluated(plain["loss"])
        self._hooks.call("evaluation_end")
        self._enter("training")

    def _evaluate_split(self, name: SplitName) -> dict[str, Any]:
        """Evaluates a split; returns the result without a compiler."""
        experiment = self._experiment
        results = evaluate(
            self._inference,
            self._workload,
            self._objective,
            name,
            self._splits[name],
            precision=experiment.training.precision,
            compiled=experiment.evaluation.compiled and self._arm.backend is not None,
            group=self._group,
        )
        for result in results:
            self._log.append("evaluation", epoch=self._state.epoch, step=self._state.step, **result)
        return results[0]

    def _enter(self, phase: Literal["evaluating", "checking", "training"]) -> None:
        """Enters a phase; compilations since the last step belong to the phase that ends."""
        self._observer.report()
        self._observer.compiled_since_last_call()
        self._observer.phase = "training" if phase == "training" else "evaluating"
        self._log.enter(phase)

    def _record_stop(self) -> None:
        """Writes why training ends before its last step, or starts again no more."""
        state = self._state
        if state.stop_reason is not None:
            ending = {} if self._ending is None else {"ending": asdict(self._ending)}
            self._log.append("stopped", step=state.step, reason=state.stop_reason, **ending)

    def _close(self) -> None:
        """Does the work after the last step of the training whose losses count."""
        self._record_stop()
        self._enter("evaluating")
        self._hooks.call("train_end")
        self._recorder.write_values()
        self._enter("training")

    def _end(self, turns: Turns) -> bool:
        """Does the work after the last step of all; returns True, because training has ended."""
        if self._context.only_times:
            turns.done(finished=True)
            return True
        with self._hooks.muted():
            is_profiled = self._ending is None or self._ending.is_profiled
            if not is_profiled or self._profiler.take_turns(turns, self._profiled_step):
                self._check_random_numbers()
                turns.done(finished=True)
        return True

    def _profiled_step(self, number: int) -> None:
        self._make_step(self._profiled_batches(number))

    def _profiled_batches(self, number: int) -> list[MicroBatch]:
        batches = self._epoch_batches(self._state.epoch)
        return batches.window(number % max(1, self._experiment.num_full_steps))

    def _uncompiled_steps(self) -> MakeStep:
        """Returns steps without a compiler that train a copy of the model."""
        step = uncompiled_copy(
            self._state.model, self._objective, self._experiment, self._device.torch_device
        )

        def uncompiled(number: int) -> None:
            step(self._profiled_batches(number))

        return uncompiled

    def _make_step(self, batches: Sequence[MicroBatch]) -> StepResult:
        if self._arm.captures_cuda_graphs:
            # Allows the compiler to overwrite the results of the last step.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._step(batches)

    def _check_random_numbers(self) -> None:
        """Checks random numbers, last of all because this changes weights and compiled code."""
        if self._check is not None:
            self._enter("checking")
            self._rate.restore_rates()
            self._check.run(self._make_step, self._state.optimizers, self._step_batches)
            self._enter("training")

    def _step_batches(self, step: int) -> list[MicroBatch]:
        """The samples of a step of training."""
        block = next(plan_blocks(self._experiment, step))
        return self._epoch_batches(block.epoch).window(block.window)


def _splits_in_use(
    experiment: ExperimentSpec, workload: Workload, device: torch.device
) -> dict[SplitName, Split]:
    """The splits that the run uses to train, evaluate or predict, on the device."""
    evaluation, data = experiment.evaluation, workload.data
    used = {"train", *evaluation.predictions}
    if experiment.evaluates != "never":
        # Loaded before the first turn: the import takes a second.
        import breakeven.runner.worker.model.task_metrics  # noqa: F401

        used |= set(evaluation.splits)
    if experiment.training.last_batch == "pad" and not data.train.can_pad:
        raise WorkloadError(
            "training.last_batch = 'pad': labels that are numbers have no value for samples that "
            "do not count; choose 'drop' or 'dynamic'"
        )
    return {name: split.to(device) for name, split in data.splits.items() if name in used}


def _make_callbacks(
    context: RunContext,
    scaler: torch.amp.GradScaler,
    inference: Inference,
    splits: Mapping[SplitName, Split],
) -> tuple[list[Any], Checkpoints | None]:
    """The callbacks of one run in the order of their calls, and the callback that writes
    checkpoints."""
    experiment = context.work
    every = experiment.training.gradient_statistics_every
    callbacks: list[Any] = []
    if every is not None:
        callbacks.append(GradientStatistics(every, scaler, context.log))
    if experiment.stopping.nonfinite:
        callbacks.append(StopOnNonfinite())
    if experiment.stopping.follows_evaluation:
        callbacks.append(StopEarly(experiment.stopping, experiment.evaluation))
    if experiment.evaluation.predictions:
        callbacks.append(Predictions(context, inference, splits))
    callbacks += [_make_callback(source) for source in experiment.callbacks]
    if experiment.checkpoints.every is None:
        return callbacks, None
    # Last, so that a checkpoint holds the final states of the other callbacks.
    checkpoints = Checkpoints(context)
    return [*callbacks, checkpoints], checkpoints


def _make_callback(source: str) -> Any:
    kind = load_object(source)
    try:
        return kind()
    except TypeError as error:
        raise WorkloadError(
            f"callbacks: {source!r} cannot be called without arguments: {error}"
        ) from error
