"""Run folders for tests, written as a worker and a supervisor would, through the real classes."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, RunSpec, TrainingSpec
from breakeven.runner.worker.event_log import EventLog

EXPERIMENT_ID = "20261121-093015-123456-7f3a"
GONE = ProcessIdentity(pid=2**22 + 1, started="a boot long ago/1")
"""A process that does not run: its pid is higher than Linux allows."""


def experiment_spec(
    num_steps: int = 40, block_steps: int = 10, epochs: int = 1, **changes: Any
) -> ExperimentSpec:
    """Baseline, control and inductor; batches of 8; `num_steps` over all epochs."""
    samples = 8 * num_steps // epochs
    return ExperimentSpec(
        **{
            "name": "test",
            "data": DataSpec(num_train_samples=samples, num_eval_samples=200),
            "training": TrainingSpec(batch_size=8, epochs=epochs),
            "block_steps": block_steps,
            **changes,
        }
    )


class Recording:
    """A run folder that a test writes."""

    def __init__(
        self,
        runs: Path,
        label: str,
        spec: ExperimentSpec | None = None,
        experiment_id: str = EXPERIMENT_ID,
    ) -> None:
        self.spec = experiment_spec() if spec is None else spec
        arm = next(arm for arm in self.spec.possible_arms if arm.label == label)
        run_spec = RunSpec(experiment_id=experiment_id, experiment=self.spec, arm=arm)
        self.run_id = run_spec.run_id
        self.run = RunDir(runs / run_spec.run_id)
        self.run.write_spec(run_spec)
        self.log = EventLog(self.run.events_file)
        self.num_steps = 0
        self._num_blocks = 0
        self._last_first_step = 0
        self.captures = arm.role == "backend" and arm.backend is not None
        """Whether the compiler captures something, unless blocks say that they compiled."""

    def start(self, *, environment: dict[str, Any] | None = None, **workload: Any) -> "Recording":
        """The events that precede training; keyword arguments change the workload."""
        self.log.append("phase", phase="preparing")
        versions = {"torch": "2.13.0", "transformers": "5.23.0"}
        self.log.append(
            "environment",
            **{
                "host": "box",
                "python": "3.11.7",
                "device_name": "Test CPU",
                "versions": versions,
                "variables": {"TORCHINDUCTOR_CACHE_DIR": str(self.run.compile_cache)},
                **(environment or {}),
            },
        )
        self.log.append(
            "workload",
            **{
                "num_parameters": 1000,
                "num_steps": self.spec.num_steps,
                "steps_per_epoch": self.spec.steps_per_epoch,
                "samples_per_step": 8,
                "tokens_per_step": 1024,
                "majority_share": 0.2,
                "weights_sha256": "aa",
                "data_sha256": "bb",
                "notes": [],
                **workload,
            },
        )
        self.log.append("phase", phase="waiting")
        self.log.append("phase", phase="training")
        self.log.flush()
        return self

    def block(
        self,
        seconds: Sequence[float],
        losses: Sequence[float | None],
        compiled: Sequence[int] = (),
        peak_memory_bytes: int | None = None,
        reserved_memory_bytes: int | None = None,
        warm_up: bool = False,
        samples: int | None = None,
        tokens: int | None = None,
    ) -> "Recording":
        """The steps of one turn; `compiled` has the indices within the block that compiled."""
        if self.captures and not compiled:
            self.log.append(
                "compile_metrics",
                step=0,
                phase="training",
                compile_id="0/0",
                function="forward",
                graph_ops=1,
            )
        self.captures = False
        for index, (duration, loss) in enumerate(zip(seconds, losses, strict=True)):
            self.log.append(
                "step",
                step=self.num_steps + index,
                epoch=(self.num_steps + index) // self.spec.steps_per_epoch,
                round=self._num_blocks,
                loss=loss,
                seconds=duration,
                compiled=index in compiled,
            )
        self.log.append(
            "block",
            round=self._num_blocks,
            position=0,
            first_step=self.num_steps,
            num_steps=len(seconds),
            seconds=sum(seconds),
            compiled=bool(compiled),
            warm_up=warm_up,
            peak_memory_bytes=peak_memory_bytes,
            reserved_memory_bytes=reserved_memory_bytes,
            samples=samples,
            tokens=tokens,
        )
        self.log.flush()
        self._last_first_step = self.num_steps
        self.num_steps += len(seconds)
        self._num_blocks += 1
        return self

    def device(self, **fields: Any) -> "Recording":
        """A sample of the device in the latest block, or, before the first block, its state at the
        start."""
        of_block = {"round": self._num_blocks - 1, "first_step": self._last_first_step}
        self.log.append("device", **(of_block if self._num_blocks else {}), **fields)
        self.log.flush()
        return self

    def blocks(
        self, step_seconds: Sequence[float], losses: Sequence[float], compile_seconds: float = 0.0
    ) -> "Recording":
        """One block per entry of `step_seconds`, whose steps all take this time. With
        `compile_seconds` the very first step compiles and takes that much longer."""
        size = self.spec.block_steps
        for number, duration in enumerate(step_seconds):
            seconds = [duration] * size
            compiles = compile_seconds > 0 and number == 0
            if compiles:
                seconds[0] += compile_seconds
            part = losses[number * size : (number + 1) * size]
            self.block(seconds, part, compiled=[0] if compiles else ())
        return self

    def evaluation(
        self,
        accuracy: float | None,
        loss: float = 1.0,
        epoch: int = 0,
        num_samples: int = 200,
        **fields: Any,
    ) -> "Recording":
        """Without `fields`, as journals were before splits and metrics existed."""
        self.log.append(
            "evaluation",
            epoch=epoch,
            step=self.num_steps,
            loss=loss,
            accuracy=accuracy,
            num_samples=num_samples,
            seconds=0.1,
            **fields,
        )
        self.log.flush()
        return self

    def checkpoint(self, *, value: float | None = None, removed: Sequence[int] = ()) -> "Recording":
        """A checkpoint after the steps so far; `removed` has the steps of the checkpoints that it
        replaces."""
        self.log.append(
            "checkpoint",
            step=self.num_steps,
            file=_checkpoint(self.num_steps),
            bytes=1000,
            seconds=0.5,
            value=value,
            removed=[_checkpoint(step) for step in removed],
        )
        self.log.flush()
        return self

    def resume(self, step: int, attempt: int = 2, **fields: Any) -> "Recording":
        """A new process continues after so many steps, in the rounds that follow."""
        self.start()
        self.log.append("resumed", step=step, file=_checkpoint(step), attempt=attempt, **fields)
        self.log.flush()
        self.num_steps = step
        return self

    def time_more(
        self,
        seconds: Sequence[float],
        memory: int | None = None,
        compiled: Collection[int] = (),
        **fields: Any,
    ) -> "Recording":
        """A further process, timed in rounds of these seconds; its steps are not recorded.
        `compiled`: the rounds that compiled, from 0."""
        self.log.append("resumed", step=self.num_steps, attempt=2, **fields)
        for number, block_seconds in enumerate(seconds):
            self.log.append(
                "block",
                round=self._num_blocks,
                position=0,
                first_step=self.num_steps,
                num_steps=self.spec.block_steps,
                seconds=block_seconds,
                compiled=number in compiled,
                warm_up=False,
                peak_memory_bytes=memory,
                reserved_memory_bytes=memory,
            )
            self.num_steps += self.spec.block_steps
            self._num_blocks += 1
        self.log.flush()
        return self

    def skip_rounds(self, count: int) -> "Recording":
        """Rounds in which the run has no turn."""
        self._num_blocks += count
        return self

    def profile(self, kernels: Sequence[Mapping[str, Any]], **fields: Any) -> "Recording":
        """A profiled turn of three steps; each kernel has a name and seconds at least."""
        whose = {"round": self._num_blocks}
        defaults = {"op": None, "phase": None, "dtype": None, "calls": 1.0}
        self.log.extend("profile_kernel", [defaults | dict(kernel) for kernel in kernels], **whose)
        busy = sum(kernel["seconds"] for kernel in kernels)
        self.log.append(
            "profile",
            **whose,
            **{
                "steps": 3,
                "cost_seconds": 0.5,
                "seconds": busy,
                "issue_seconds": busy,
                "busy_seconds": busy,
                "launches": float(len(kernels)),
                "host_seconds": {},
                "compiled": False,
                **fields,
            },
        )
        self.log.flush()
        self._num_blocks += 1
        return self

    def stop(self, reason: str, **ending: Any) -> "Recording":
        """Training ends by its own rules, or measuring by the supervisor's rules."""
        more = {"ending": ending} if ending else {}
        self.log.append("stopped", step=self.num_steps, reason=reason, **more)
        self.log.flush()
        return self

    def claim(self, process: ProcessIdentity = GONE) -> "Recording":
        """The run is claimed by this process, which is also its supervisor."""
        claim = Claim.by(process)
        alone = Claim(host=claim.host, process=process, supervisor=process, time=claim.time)
        self.run.write_claim(alone)
        return self

    def end(self, state: RunState = RunState.FINISHED, reason: str = "all steps done") -> RunDir:
        """Closes the journal and records the end, as the supervisor does."""
        self.log.append("phase", phase="done")
        self.log.close()
        self.run.write_exit(Exit.now(state, reason, 0 if state is RunState.FINISHED else 1))
        return self.run


def _checkpoint(step: int) -> str:
    return f"checkpoints/step-{step}.pt"


def falling_losses(num_steps: int) -> list[float]:
    """Losses from 2 to 1 in equal steps: a training that clearly learns."""
    return [2 - step / (num_steps - 1) for step in range(num_steps)]


def record_experiment(
    runs: Path,
    spec: ExperimentSpec | None = None,
    experiment_id: str = EXPERIMENT_ID,
    backend_offset: float = 0.0,
    backend_seconds: float = 0.1,
    environment: dict[str, Any] | None = None,
) -> str:
    """A finished experiment of four blocks or more; returns its id.

    Baseline and control take 0.2 s a step, backends `backend_seconds` after 3 s of compiling. The
    control's loss lies 1e-5 beside the baseline's, the backends' `backend_offset`.
    """
    spec = experiment_spec() if spec is None else spec
    losses = falling_losses(spec.num_steps)
    offsets = {"baseline": 0.0, "control": 1e-5, "backend": backend_offset}
    num_blocks = spec.num_steps // spec.block_steps
    for arm in spec.arms:
        compiles = arm.role == "backend"
        shifted = [loss + offsets[arm.role] for loss in losses]
        recording = Recording(runs, arm.label, spec, experiment_id).claim()
        recording.start(environment=environment)
        recording.blocks(
            [backend_seconds if compiles else 0.2] * num_blocks, shifted, 3.0 if compiles else 0.0
        )
        recording.evaluation(0.8).end()
    return experiment_id
