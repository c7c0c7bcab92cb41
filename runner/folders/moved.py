"""Runs that resume on other devices: `devices.json` in their folders.

The specification remains unchanged. The file has the new devices and their kind of parallelism. It
applies until the run is moved again or restarts from the beginning.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import write_atomically
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.fields import Spec, require
from breakeven.runner.specs.place import Parallel


@dataclass(frozen=True, kw_only=True)
class OnDevices(Spec):
    """The devices on which a run resumes."""

    devices: tuple[str, ...]
    parallel: Parallel


def moved_spec(
    spec: ExperimentSpec, devices: Sequence[str] | None, parallel: str | None
) -> ExperimentSpec:
    """The same training on other devices; raises `InvalidSpec` if the change is impossible.

    All devices together compute one batch, so batch size, order of samples and all other settings
    stay the same.
    """
    new = tuple(devices) if devices else spec.devices
    mode = parallel or spec.parallel
    if len(new) > 1:
        rule = "cannot change to or from spread when a run resumes: each device has its own runs"
        require("spread" not in (mode, spec.parallel), "parallel", mode, rule)
    rule = "cannot change to another kind of device when a run resumes, only in number"
    kinds = {name.partition(":")[0] for name in (*new, *spec.devices)}
    require(len(kinds) == 1, "devices", new, rule)
    rule = "cannot be changed for a script, which selects its device itself"
    require(not spec.is_script, "devices", new, rule)
    moved: ExperimentSpec = replace(spec, devices=new, parallel=mode)  # type: ignore[arg-type]
    return moved


def write_devices(run: RunDir, spec: ExperimentSpec) -> None:
    """Makes the run resume on the devices of `spec`."""
    moved = OnDevices(devices=spec.devices, parallel=spec.parallel)
    write_atomically(run.devices_file, moved.to_json())


def spec_in_use(run: RunDir) -> RunSpec:
    """The run's specification with its current devices; raises `RunnerError` if a file is
    unreadable."""
    spec = run.read_spec()
    moved = run.read(run.devices_file, OnDevices)
    if moved is None:
        return spec
    experiment = replace(spec.experiment, devices=moved.devices, parallel=moved.parallel)
    return replace(spec, experiment=experiment)


def devices_in_use(run: RunDir, spec: ExperimentSpec) -> tuple[str, ...]:
    """The current devices, for planning; those of `spec` if `devices.json` is missing or
    unreadable."""
    if run.devices_file.exists():
        with suppress(RunnerError):
            return spec_in_use(run).experiment.devices
    return spec.devices
