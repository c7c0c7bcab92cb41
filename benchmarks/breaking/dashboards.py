"""Faults of the dashboard, while runs write journals and the dashboard ingests them."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

from benchmarks.breaking.trials import stepping
from benchmarks.breaking.world import Outcome, World
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.states import RunState
from tests.helpers.machine import MACHINE, keep

STARTING_SECONDS = 6.0
"""Period in which a dashboard is hit: from its start until after its first looks at the runs."""


def hit_dashboard(how: str, world: World, chance: random.Random) -> Outcome:
    """The dashboard is killed and another one started; or it is suspended for a while. Afterwards
    its answers must be true, and its index must match the journals."""
    keep(world.data_dir, MACHINE)  # so that nothing starts torch
    runs, _ = stepping(world, steps=1500)
    dashboard, address = _serve(world)
    deadline = time.monotonic() + chance.uniform(0, STARTING_SECONDS)
    while time.monotonic() < deadline:
        _ask(address)  # makes it read the run folders
        time.sleep(0.05)
    if how == "kill":
        world.kill(dashboard)
        begun = time.monotonic()
        dashboard, address = _serve(world)
    else:
        os.kill(dashboard.pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 3.0))
        os.kill(dashboard.pid, signal.SIGCONT)
        begun = time.monotonic()
    world.wait(lambda: '"status": "ok"' in _ask(address), "a healthy dashboard")
    outcome = Outcome(seconds=time.monotonic() - begun)
    world.recorded(runs)
    expected = f'"finished": {len(runs)}'
    world.wait(lambda: expected in _ask(address), "finished runs on the dashboard")
    outcome.expect(runs, RunState.FINISHED)
    dashboard.terminate()
    dashboard.wait(30)
    outcome.problems += _differences(world)
    return world.judge(world.acknowledged(), outcome)


def _serve(world: World) -> tuple["subprocess.Popen[bytes]", str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (world.data_dir.path / "dashboard.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "serve.py"],
            cwd=PROJECT_ROOT,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "BREAKEVEN_DATA": str(world.data_dir.path),
                "BREAKEVEN_PORT": str(port),
            },
        )
    world.processes.append(process)
    return process, f"http://127.0.0.1:{port}/healthz"


def _ask(address: str) -> str:
    with suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
        return str(answer.read().decode())
    return ""


def _differences(world: World) -> list[str]:
    """Differences between the index of the dashboard and one built from the journals."""
    from breakeven.storage.index.store import Store

    question = "SELECT run_id, count(*), sum(step) FROM steps GROUP BY 1 ORDER BY 1"
    run_ids = {run.run_id for run in world.data_dir.run_dirs()}
    with Store.open(world.data_dir) as left:
        left.ingest()
        kept = [row for row in left.rows(question) if row[0] in run_ids]
    with Store.in_memory(world.data_dir) as built:
        anew = built.rows(question)
    return [] if kept == anew else [f"the index has {kept}, the journals {anew}"]
