"""What of this machine is held by which experiment, and what those that wait need."""

from collections.abc import Iterable
from contextlib import suppress

from breakeven.runner.errors import ProbeFailed, RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.moved import devices_in_use
from breakeven.runner.folders.queue import Experiment
from breakeven.runner.folders.states import RunState
from breakeven.runner.machine.capabilities import (
    Sight,
    known_devices,
    knows_devices,
    probe,
    seen,
    shows_gpu,
)
from breakeven.runner.machine.cpus import cores, cpu_allowance, numa_nodes, shares
from breakeven.runner.machine.placement import CPU, Machine, Place, ResourceRequest, StartPlan, plan
from breakeven.runner.specs.place import parse_cpus, write_cpus


def this_machine(data_dir: DataDir) -> Machine:
    """Its devices as they were last probed, and the CPUs that this process may use."""
    cpus = cpu_allowance().cpus
    nodes = {one.id: one.numa_node for one in known_devices(data_dir) if one.id != CPU}
    return Machine(cpus=cpus, shares=shares(nodes, cores(cpus), numa_nodes()))


def learn_devices(
    data_dir: DataDir, requests: Iterable[ResourceRequest], in_vain: Sight | None = None
) -> Sight | None:
    """Calls torch (seconds) for the devices of this machine, if they are unknown in its present
    state, and a request names one or there is a GPU: each unknown device gets all CPUs, so that
    requests run one after the other.

    Does nothing during a measurement, whose CPUs it would share. Returns the state of the machine
    when torch gave no usable answer; with this state as `in_vain`, the next call does not call
    torch again.
    """
    sight = seen()
    if sight == in_vain or knows_devices(data_dir):
        return in_vain
    if not shows_gpu(sight) and all(
        name == CPU for request in requests for name in request.devices
    ):
        return in_vain
    with suppress(ProbeFailed):  # What runs then tells the reason.
        probe(data_dir)
    return None if knows_devices(data_dir) else sight


def resource_request(experiment: Experiment) -> ResourceRequest:
    """What an experiment asks for."""
    spec = experiment.spec
    waiting = next((run for run in experiment.runs if not run.is_recorded), experiment.runs[0])
    return ResourceRequest(
        key=experiment.experiment_id,
        devices=devices_in_use(waiting, spec),
        cpus=None if spec.cpus is None else parse_cpus(spec.cpus),
        exclusive=spec.exclusive,
    )


def held_by(experiments: Iterable[Experiment]) -> dict[str, Place]:
    """What those of them that are at work hold, as their supervisor wrote it down, by their id."""
    found: dict[str, Place] = {}
    for experiment in experiments:
        for run in experiment.runs:
            with suppress(RunnerError):
                claim = run.read_claim() if run.state is RunState.RUNNING else None
                if claim is not None and claim.cpus is not None:
                    # Of one that is spread over devices each run has some of the CPUs.
                    here = found.get(experiment.experiment_id)
                    found[experiment.experiment_id] = Place(
                        devices=claim.devices,
                        cpus=parse_cpus(claim.cpus) | (here.cpus if here else frozenset()),
                        exclusive=experiment.spec.exclusive,
                    )
                    if experiment.spec.num_places == 1:
                        break
    return found


def held_words(place: Place) -> str:
    """A place in words: `cuda:0, CPUs 0-15`."""
    alone = ", alone on the machine" if place.exclusive else ""
    return f"{', '.join(place.devices)}, CPUs {write_cpus(place.cpus)}{alone}"


def waiting_words(experiment: Experiment, others: str, *, devices_known: bool) -> str:
    """What an experiment of the queue waits for; `others`: what holds, or was there before for,
    what it needs; `devices_known` as `knows_devices` says."""
    words = f"waits for {others}"
    if devices_known or all(name == CPU for name in resource_request(experiment).devices):
        return words
    return f"{words}; torch lists the devices as soon as nothing is measured"


def outlook(
    data_dir: DataDir, queue: Iterable[Experiment], running: Iterable[Experiment]
) -> StartPlan:
    """Which requests of the queue can start, and what the others wait for."""
    at_work = held_by(running)
    requests = [resource_request(one) for one in queue if one.experiment_id not in at_work]
    return plan(requests, at_work, this_machine(data_dir))
