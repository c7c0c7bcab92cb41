"""A process that makes trials, which a faulty compiler may crash or stop."""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
import transformers
from torch._inductor.compiler_bisector import BisectionResult
from torch._inductor.utils import run_and_get_code

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.arm_fields import Arm, Role
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.worker.correctness.equal_tensors import tensor_tolerance
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.investigation.failing_program import Program, make_program
from breakeven.runner.worker.investigation.graphs import (
    Graph,
    GraphTrials,
    Recorder,
    bisect,
    compile_graph,
    minify,
    run_graph,
)
from breakeven.runner.worker.investigation.lockstep import Lockstep
from breakeven.runner.worker.investigation.repetition import Repetition, repeat_run
from breakeven.runner.worker.investigation.trial_outcomes import PASSES, Outcome, raised
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.session import apply_precision, local_device_name

POLL_SECONDS = 0.2
REPLAYED_CALLS = 3
"""Calls until a CUDA graph was warmed up, captured and replayed."""
RECORDER = "breakeven_recorder"


class Stopped(Exception):
    """Ends an investigation that was stopped, or has no time left."""


class TrialServer:
    """The trials of one experiment; lives in a process of its own."""

    def __init__(self, spec: RunSpec, *, accumulates: bool = False) -> None:
        """`accumulates`: whether a script is taken to have several micro-batches per step."""
        transformers.utils.logging.disable_progress_bar()
        self._experiment: ExperimentSpec = spec.experiment
        device = open_device(local_device_name(spec))
        # A cache would return code of an earlier trial that compiled with other passes.
        torch._inductor.config.force_disable_caches = True
        torch._inductor.config.fallback_random = True
        if spec.experiment.investigation.problem == "raises":
            # Errors of processes that compile side by side have other texts each time.
            torch._inductor.config.compile_threads = 1
        self._spec, self._device = spec, device
        self._tolerance = strict_tolerance(spec.experiment, device)
        self._graphs: dict[int, list[Graph]] = {}
        self._small: dict[int, Graph] = {}
        self._accumulates = accumulates

    @cached_property
    def _lockstep(self) -> Lockstep:
        """Single steps of the training; a script makes its own."""
        workload = load_workload(self._experiment)
        workload.model.to(self._device.torch_device)
        return Lockstep(self._experiment, workload, self._device, self._tolerance)

    @cached_property
    def _repetition(self) -> Repetition:
        return Repetition(self._spec)

    def baseline(self, steps: int) -> Outcome:
        return self._lockstep.baseline(steps)

    def compare(self, arm: Arm, first: int, last: int) -> Outcome:
        """The outcome of the steps from `first` up to `last`, without it."""
        torch._dynamo.reset()
        return self._lockstep.compare(arm, first, last)

    def repeat(self, backend: str | None, steps: int) -> Outcome:
        """The outcome of the run's first steps under a backend, as written; None: no compiler."""
        role: Role = "baseline" if backend is None else "backend"
        try:
            repeat_run(self._spec, role, backend, steps)
        except Exception as error:  # Any error of the training is a result here.
            return raised(error, traceback.format_exc())
        return PASSES

    def can_judge_losses(self, step: int) -> bool:
        """Whether the loss of a step shows a fault if the training is made again; False if it
        cannot be made again without a compiler."""
        try:
            return self._repetition.can_judge(step)
        except Exception:  # A script may be unable to run twice in one process.
            traceback.print_exc()
            return False

    def losses(self, backend: str, step: int) -> Outcome:
        """The outcome of the losses up to `step` under a backend, as written."""
        try:
            return self._repetition.outcome(backend, step)
        except Exception as error:  # Any error of the training is a result here.
            return raised(error, traceback.format_exc())

    def num_graphs(self, arm: Arm, step: int) -> int:
        """How many graphs the step has in the scope of the arm."""
        return len(self._captured(arm, step))

    def graph_outcome(self, arm: Arm, step: int, number: int) -> Outcome:
        """The outcome of one of the step's graphs alone, counted from 0."""
        graph = self._graph(arm, step, number)
        try:
            trials = GraphTrials(graph, self._tolerance)
        except Exception as error:  # Optimizers' graphs change weights, which torch forbids here.
            return replace(PASSES, error=f"cannot run alone: {error}")
        return trials.outcome(arm)

    def minify(self, arm: Arm, step: int, number: int, outcome: Outcome, seconds: float) -> int:
        """Replaces the graph by a smaller one that fails alike; returns its operations."""
        graph = self._captured(arm, step)[number]
        until = time.monotonic() + seconds
        self._small[number] = minify(graph, arm, outcome, self._tolerance, until)
        return self._small[number].num_nodes

    def bisect(self, arm: Arm, step: int, number: int, outcome: Outcome) -> BisectionResult | None:
        graph = self._graph(arm, step, number)
        return bisect(graph, arm, outcome, self._tolerance)

    def generated_code(self, arm: Arm, step: int, number: int) -> str:
        """The code that Inductor generates for the graph, forward pass first."""
        graph = self._graph(arm, step, number)
        torch._dynamo.reset()
        call = compile_graph(graph.module, arm)
        _, codes = run_and_get_code(lambda: run_graph(call, graph, graph.inputs))
        return "\n\n".join(codes)

    def program(
        self, arm: Arm, step: int, number: int, outcome: Outcome, title: str
    ) -> Program | None:
        graph = self._graph(arm, step, number)
        return make_program(graph, arm, outcome, self._tolerance, title)

    def _graph(self, arm: Arm, step: int, number: int) -> Graph:
        """The graph as small as it was made."""
        return self._small.get(number) or self._captured(arm, step)[number]

    def _captured(self, arm: Arm, step: int) -> list[Graph]:
        if step not in self._graphs:
            self._graphs[step] = self._capture(arm, step)
        return self._graphs[step]

    def _capture(self, arm: Arm, step: int) -> list[Graph]:
        """The graphs of a step, whose optimizer has a state already if the step is not the first
        one; of a script, all graphs of its first steps."""
        torch._dynamo.reset()
        recorder = Recorder()
        if not self._experiment.workload.has_single_steps:
            record_script(self._spec, recorder, step + 1)
        else:
            compiler = partial(torch.compile, backend=recorder, dynamic=arm.dynamic)
            self._lockstep.compare(arm, step, step + 1, compiler)
        torch._dynamo.reset()
        accumulates = self._accumulates or self._experiment.batches_per_step > 1
        replays = REPLAYED_CALLS if arm.captures_cuda_graphs else 1
        return recorder.graphs(
            num_calls=max(replays, 2 if accumulates else 1),
            accumulates=accumulates,
            trains=not self._experiment.is_inference,
            apply_precision=partial(apply_precision, self._experiment, device=self._device),
        )


def strict_tolerance(experiment: ExperimentSpec, device: Device) -> float:
    """The tolerance of the scenario `accuracy`, but in single precision the stricter one
    of some suites: a fault of 1 % is one, and what rounding does is known from double precision."""
    part: Part = "inference" if experiment.is_inference else "training"
    usual = tensor_tolerance(experiment, part, device)
    is_half = experiment.training.precision in ("bf16", "fp16")
    return usual if is_half else min(usual, device.training_tolerance)


def serve(connection: Connection, spec: RunSpec, accumulates: bool) -> None:
    """Answers requests, each the name of a method with its arguments, until the pipe ends."""
    server: TrialServer | None = None
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            server = server or TrialServer(spec, accumulates=accumulates)
            answer = getattr(server, name)(*arguments)
        except Exception as error:  # The other end raises it; not every exception can travel.
            traceback.print_exc()
            answer = RunnerError(f"{type(error).__name__}: {error}")
        connection.send(answer)


class TrialProcess:
    """The other end: starts the process again after a crash."""

    def __init__(self, spec: RunSpec, is_stopped: Callable[[], bool], until: float) -> None:
        """`until`: time of `time.monotonic` at which an investigation has to end."""
        self._spec, self._is_stopped, self._until = spec, is_stopped, until
        self.accumulates = False
        """As in `TrialServer`, for processes that start from now on."""
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of a method of `TrialServer`; the outcome `crashes` if the process died.

        Raises `Stopped`, and the exception of a trial that could not be made.
        """
        if self._process is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((name, arguments))
            while not self._pipe.poll(POLL_SECONDS):
                if self._is_stopped() or time.monotonic() > self._until:
                    self.close()
                    raise Stopped
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join()
            status = self._process.exitcode
            self.close()
            if self._is_stopped():  # The request to stop also goes to this process.
                raise Stopped from None
            return Outcome(kind="crashes", error=f"the process ended with exit status {status}")
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Outcome) and answer.kills:
            self.close()
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=serve, args=(far_end, self._spec, self.accumulates))
        self._process.start()
        far_end.close()

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def record_script(spec: RunSpec, recorder: Recorder, steps: int) -> None:
    """Runs the script for some steps; `recorder` compiles what the run's backend compiled."""
    torch._dynamo.register_backend(recorder, name=RECORDER)
    # The graphs that came before an error of the script are worth trying.
    with suppress(Exception):
        repeat_run(spec, "backend", RECORDER, steps)
