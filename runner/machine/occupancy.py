"""Lists the devices and CPUs that experiments hold, and the requests of those that wait."""

from collections.abc import Iterable
from contextlib import suppress

from breakeven.runner.errors import ProbeFailed, RunnerError
from breakeven.runner.experiments.queue import Experiment
from breakeven.runner.machine.capabilities import (
    VisibleHardware,
    known_devices,
    knows_devices,
    probe,
    shows_gpu,
    visible_hardware,
)
from breakeven.runner.machine.cpus import cpu_allowance, cpus_by_core, cpus_by_device, numa_nodes
from breakeven.runner.machine.placement import CPU, Machine, Place, ResourceRequest, StartPlan, plan
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import devices_in_use
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.place import parse_cpus, write_cpus


def this_machine(data_dir: DataDir) -> Machine:
    """This machine: its devices from the last probe, and the CPUs that this process may use."""
    cpus = cpu_allowance().cpus
    nodes = {device.id: device.numa_node for device in known_devices(data_dir) if device.id != CPU}
    return Machine(
        cpus=cpus, cpus_by_device=cpus_by_device(nodes, cpus_by_core(cpus), numa_nodes())
    )


def learn_devices(
    data_dir: DataDir, requests: Iterable[ResourceRequest], in_vain: VisibleHardware | None = None
) -> VisibleHardware | None:
    """Lists the devices of this machine with torch (takes seconds), if they are unknown in its
    current state, and a request names one or there is a GPU. Without the list, each device gets all
    CPUs, so that requests run one after another.

    Must not be called during a measurement, whose CPUs it would share. Returns the state of the
    machine if torch failed; with this state as `in_vain`, the next call does not run torch again.
    """
    sight = visible_hardware()
    if sight == in_vain or knows_devices(data_dir):
        return in_vain
    if not shows_gpu(sight) and all(
        name == CPU for request in requests for name in request.devices
    ):
        return in_vain
    with suppress(ProbeFailed):  # The next run reports the reason.
        probe(data_dir)
    return None if knows_devices(data_dir) else sight


def resource_request(experiment: Experiment) -> ResourceRequest:
    """The resource request of an experiment."""
    spec = experiment.spec
    waiting = next((run for run in experiment.runs if not run.is_recorded), experiment.runs[0])
    return ResourceRequest(
        key=experiment.experiment_id,
        devices=devices_in_use(waiting, spec),
        cpus=None if spec.cpus is None else parse_cpus(spec.cpus),
        exclusive=spec.exclusive,
    )


def places_in_use(experiments: Iterable[Experiment]) -> dict[str, Place]:
    """The places of the running experiments by id, from the claims of their supervisor."""
    places: dict[str, Place] = {}
    for experiment in experiments:
        for run in experiment.runs:
            with suppress(RunnerError):
                claim = run.read_claim() if run.state is RunState.RUNNING else None
                if claim is not None and claim.cpus is not None:
                    places[experiment.experiment_id] = Place(
                        devices=claim.devices,
                        cpus=parse_cpus(claim.cpus),
                        exclusive=experiment.spec.exclusive,
                    )
                    break
    return places


def held_words(place: Place) -> str:
    """A place in words: `cuda:0, CPUs 0-15`."""
    alone = ", alone on the machine" if place.exclusive else ""
    return f"{', '.join(place.devices)}, CPUs {write_cpus(place.cpus)}{alone}"


def waiting_words(experiment: Experiment, others: str, *, devices_known: bool) -> str:
    """Tells in words why a queued experiment waits. `others`: experiments that hold its devices or
    CPUs, or come earlier for them. `devices_known`: result of `knows_devices`."""
    words = f"waits for {others}"
    if devices_known or all(name == CPU for name in resource_request(experiment).devices):
        return words
    return f"{words}; torch lists the devices as soon as nothing is measured"


def plan_starts(
    data_dir: DataDir, queue: Iterable[Experiment], running: Iterable[Experiment]
) -> StartPlan:
    """Plans which queued requests can start, and which experiments the others wait for."""
    at_work = places_in_use(running)
    requests = [
        resource_request(experiment)
        for experiment in queue
        if experiment.experiment_id not in at_work
    ]
    return plan(requests, at_work, this_machine(data_dir))
