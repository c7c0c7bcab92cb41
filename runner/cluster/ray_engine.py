"""Runs experiments on Ray: each has a placement group with an actor that executes it.

Groups and actors are detached: they outlive the driver, and the next driver finds them by name.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.cluster.driver import JobLost
from breakeven.runner.cluster.host import WORKER, Delivery, HomeFile, Host, NodeFacts, node_facts
from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.placement import Place
from breakeven.runner.project import PROJECT_ROOT

PACKAGES = ("breakeven",)
"""Copied to every machine, so that all run the driver's code."""
PREFIX = "breakeven."
UNAVAILABLE_SECONDS = 60.0
"""A machine that does not answer for this time counts as lost."""


class RayEngine:
    """The machines of a Ray cluster."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "breakeven",
        packages: Sequence[str] = PACKAGES,
        worker: Sequence[str] = WORKER,
        patience_seconds: float = 600.0,
    ) -> None:
        """Connects to the cluster; raises `RunnerError` if it cannot be reached."""
        self._worker = tuple(worker)
        self._patience_seconds = patience_seconds
        self._facts: dict[str, NodeFacts] = {}
        self.alive: set[str] = set()
        """Ids of the machines that were alive at the last call of `nodes`."""
        self._request: dict[str, Any] = {}
        variables = {CODE_VARIABLE: os.environ.get(CODE_VARIABLE, "")}
        with tempfile.TemporaryDirectory() as staged:
            for package in packages:
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(PROJECT_ROOT / package, Path(staged, package), ignore=ignore)
            environment = {"working_dir": staged, "env_vars": variables}
            try:
                ray.init(
                    address=address,
                    namespace=namespace,
                    runtime_env=environment,
                    log_to_driver=False,
                    logging_level="warning",
                )
            except (ConnectionError, ValueError, RuntimeError, RayError) as error:
                raise RunnerError(f"--ray {address}: {error}") from error

    def nodes(self) -> dict[str, NodeFacts]:
        """Machines that have reported their `NodeFacts`; each machine reports once."""
        known = {}
        alive = [node for node in ray.nodes() if node["Alive"]]
        self.alive = {str(node["NodeID"]) for node in alive}
        for node in alive:
            name = str(node["NodeID"])
            if name not in self._facts:
                self._request_facts(name, int(node["Resources"].get("GPU", 0)))
            if name in self._facts and node["Resources"].get("CPU", 0) >= 1:
                known[name] = self._facts[name]
        return known

    def _request_facts(self, node: str, num_gpus: int) -> None:
        if node not in self._request:
            on_node = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(num_cpus=0)(node_facts).options(scheduling_strategy=on_node)
            self._request[node] = task.remote(num_gpus)
        ready, _ = ray.wait([self._request[node]], timeout=0)
        if ready:
            try:
                self._facts[node] = ray.get(self._request.pop(node))
            except RayError:
                return  # the next call tries again, if the machine is alive

    def start(
        self, key: str, node: str, place: Place, files: Mapping[str, Mapping[str, bytes]]
    ) -> "RayJob":
        alive = {
            machine["NodeID"]: machine["Resources"] for machine in ray.nodes() if machine["Alive"]
        }
        if node not in alive:
            raise JobLost("its machine has left the cluster")
        num_gpus = sum(name.startswith("cuda") for name in place.devices)
        cpus = min(float(len(place.cpus)), float(alive[node]["CPU"]))
        bundle = {"CPU": cpus} | ({"GPU": float(num_gpus)} if num_gpus else {})
        group = placement_group(
            [bundle],
            strategy="STRICT_PACK",
            name=PREFIX + key,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": node}],
        )
        # In the actor, Ray numbers the allocated GPUs from 0.
        devices = tuple(f"cuda:{number}" for number in range(num_gpus)) or place.devices
        inside = Place(devices=devices, cpus=place.cpus, exclusive=place.exclusive)
        actor = (
            ray.remote(num_cpus=cpus, num_gpus=num_gpus, max_concurrency=2)(Host)
            .options(
                name=PREFIX + key,
                lifetime="detached",
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
            )
            .remote(key.rpartition(".")[0], files, inside, self._worker, self._patience_seconds)
        )
        return RayJob(self, actor, group, node)

    def left_behind(self) -> dict[str, "RayJob"]:
        jobs = {}
        for name in ray.util.list_named_actors():
            if name.startswith(PREFIX):
                with suppress(ValueError):  # The actor may have ended meanwhile.
                    job = RayJob(self, ray.get_actor(name), _group(name), None)
                    jobs[name.removeprefix(PREFIX)] = job
        return jobs


def _group(name: str) -> PlacementGroup | None:
    try:
        return ray.util.get_placement_group(name)
    except ValueError:
        return None


class RayJob:
    """An actor and its placement group."""

    def __init__(
        self, engine: RayEngine, actor: Any, group: PlacementGroup | None, node: str | None
    ) -> None:
        self.node = node
        self._engine = engine
        self._actor = actor
        self._group = group
        self._request: Any = None
        self._silent_since = time.monotonic()

    def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
        if self._request is None:
            self._request = self._actor.deliver.remote(
                {run: dict(has) for run, has in known.items()}
            )
        ready, _ = ray.wait([self._request], timeout=0)
        if not ready:
            if self.node is not None and self.node not in self._engine.alive:
                raise JobLost("its machine has left the cluster")
            return None
        request, self._request = self._request, None
        try:
            parts: Delivery = ray.get(request, timeout=10)
        except (ActorUnavailableError, GetTimeoutError) as error:
            if time.monotonic() - self._silent_since > UNAVAILABLE_SECONDS:
                raise JobLost(f"no answer for {UNAVAILABLE_SECONDS:.0f} s: {error}") from error
            return None
        except RayActorError as error:
            raise JobLost(str(error).splitlines()[0]) from error
        except RayError as error:
            raise JobLost(str(error)) from error
        self._silent_since = time.monotonic()
        if parts.is_over:
            self._actor.clean.remote()
        return parts

    def cancel(self, run_ids: list[str]) -> None:
        self._actor.cancel.remote(run_ids)

    def end(self) -> None:
        try:
            if self._request is None:
                ray.wait([self._actor.clean.remote()], timeout=5)
            ray.kill(self._actor)
        except RayError:
            pass  # The actor has ended already.
        if self._group is not None:
            remove_placement_group(self._group)
