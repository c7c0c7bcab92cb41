"""Runs that go on on other devices than they began on: `devices.json` of their folders.

The specification remains unchanged. The file has the devices on which a run continues, and how they
share it, until the run is moved again or begins anew.
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
    """Where a run goes on."""

    devices: tuple[str, ...]
    parallel: Parallel


def moved_spec(
    spec: ExperimentSpec, devices: Sequence[str] | None, parallel: str | None
) -> ExperimentSpec:
    """The same training on other devices; raises `InvalidSpec` for what cannot be.

    The batch is what all devices work on together, so that it, the order of samples and all else
    of the training stay as they are.
    """
    many = tuple(devices) if devices else spec.devices
    how = parallel or spec.parallel
    if len(many) > 1:
        rule = "cannot be entered or left by a run that goes on: each device has runs of its own"
        require("spread" not in (how, spec.parallel), "parallel", how, rule)
    rule = "cannot be changed to another kind of device by a run that goes on, but their number can"
    kinds = {name.partition(":")[0] for name in (*many, *spec.devices)}
    require(len(kinds) == 1, "devices", many, rule)
    rule = "cannot be changed for a script, which knows itself where it computes"
    require(not spec.is_script, "devices", many, rule)
    moved: ExperimentSpec = replace(spec, devices=many, parallel=how)  # type: ignore[arg-type]
    return moved


def write_devices(run: RunDir, spec: ExperimentSpec) -> None:
    """Has the run go on where `spec` says."""
    on = OnDevices(devices=spec.devices, parallel=spec.parallel)
    write_atomically(run.devices_file, on.to_json())


def spec_in_use(run: RunDir) -> RunSpec:
    """The run's specification, on its present devices; raises `RunnerError` where it, or the file
    of devices, cannot be read."""
    spec = run.read_spec()
    on = run.read(run.devices_file, OnDevices)
    if on is None:
        return spec
    experiment = replace(spec.experiment, devices=on.devices, parallel=on.parallel)
    return replace(spec, experiment=experiment)


def devices_in_use(run: RunDir, spec: ExperimentSpec) -> tuple[str, ...]:
    """The present devices alone, for planning: those of `spec` without a readable file of
    devices."""
    if run.devices_file.exists():
        with suppress(RunnerError):
            return spec_in_use(run).experiment.devices
    return spec.devices
