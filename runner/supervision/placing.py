"""An experiment at its place: processes are kept to CPUs of their own and told their devices."""

import os
from collections.abc import Mapping
from dataclasses import replace

from breakeven.runner.machine.placement import Machine, Place
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.place import write_cpus

DEVICES_VARIABLE = "BREAKEVEN_DEVICES"
"""Environment variable that tells a run where it was placed, as "cuda:0,cuda:1"."""


def keep_to(place: Place, machine: Machine) -> str | None:
    """Keeps the calling thread, and every process that it starts from now on, to the CPUs of a
    place, so that neighbours disturb each other less; why that cannot be, in a sentence.

    Nothing is done where a place has all CPUs, or the system knows no such thing (macOS).
    """
    if place.cpus == machine.cpus or not hasattr(os, "sched_setaffinity"):
        return None
    if not place.cpus <= machine.cpus:
        return (
            f"cpus = {write_cpus(place.cpus)}: this machine has CPUs {write_cpus(machine.cpus)}; "
            "name some of these"
        )
    os.sched_setaffinity(0, place.cpus)
    return None


def given_devices(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Where the supervisor placed this process; None for one that was started by hand."""
    given = environment.get(DEVICES_VARIABLE)
    return tuple(given.split(",")) if given else None


def placed(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The run on the devices that it was given; by hand, where any one will do, on the first."""
    devices = given_devices(environment) or tuple(
        f"{name}:{place}" if name == "cuda" else name
        for place, name in enumerate(spec.experiment.devices)
    )
    if devices == spec.experiment.devices:
        return spec
    return replace(spec, experiment=replace(spec.experiment, devices=devices))
