"""Addresses for monitoring: `/healthz` for probes, `/metrics` for readers of OpenMetrics.

Both report numbers and problems, without names of experiments and paths. Viewers may read them.
"""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from breakeven.runner.folders.states import RunState
from breakeven.views.shared.resources import data_dir
from breakeven.views.upkeep.state import State, look, own_process

NOT_STORED = {"cache-control": "no-store"}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LIMIT_SECONDS = 10.0
"""The longest wait for a disk that hangs."""
SILENT = "the data folder gave no answer: its disk hangs, or takes very long"
lookers = ThreadPoolExecutor(2, thread_name_prefix="probe")


async def looked() -> State | None:
    """The state of everything; None if it could not be determined in time."""
    try:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.run_in_executor(lookers, look), LIMIT_SECONDS)
    except TimeoutError:
        return None


async def healthz(request: Request) -> Response:
    """200 if everything works, else 503 with the problems."""
    state, where = await looked(), str(data_dir().path)
    content: dict[str, Any] = {"status": "wrong", "problems": [SILENT]}
    if state is not None:
        content = {
            "status": "ok" if state.is_healthy else "wrong",
            "problems": [problem.replace(where, "the data folder") for problem in state.problems],
            "runs": state.runs,
            "experiments_waiting": state.waiting,
            "supervisor_alive": state.heartbeat.is_alive,
            "ingest_age_seconds": state.ingest_age,
            "disk_free_bytes": state.disk_free,
        }
    status = 200 if content["status"] == "ok" else 503
    return Response(json.dumps(content) + "\n", status, NOT_STORED, "application/json")


async def metrics(request: Request) -> Response:
    text = open_metrics(await looked(), own_process())
    return Response(text, headers=NOT_STORED, media_type=OPEN_METRICS)


ROUTES = [Route("/healthz", healthz), Route("/metrics", metrics)]


def open_metrics(state: State | None, process: Mapping[str, float]) -> str:
    """The state as OpenMetrics 1.0, without unknown numbers."""
    families = [
        _family("healthy", "gauge", "1 while /healthz says ok.", bool(state and state.is_healthy)),
        *([] if state is None else _of_data_folder(state)),
        _family("process_resident_bytes", "gauge", "Memory of the dashboard.",
                process.get("resident_bytes"), "bytes"),
        _family("process_open_fds", "gauge", "Open files of the dashboard.",
                process.get("open_fds")),
        _family("process_threads", "gauge", "Threads of the dashboard.", process.get("threads")),
        _family("process_cpu_seconds", "counter", "Processor time of the dashboard.",
                process.get("cpu_seconds"), "seconds"),
    ]  # fmt: skip
    return "".join(families) + "# EOF\n"


def _of_data_folder(state: State) -> list[str]:
    heartbeat, is_alive = state.heartbeat, state.heartbeat.is_alive
    return [
        _family("runs", "gauge", "Runs of the data folder by state.",
                {str(name): state.runs.get(name, 0) for name in RunState}),
        _family("queue_experiments", "gauge", "Experiments that wait to be started; none held.",
                state.waiting),
        _family("queue_oldest_seconds", "gauge", "How long the oldest of them has been waiting.",
                state.oldest_waiting_seconds, "seconds"),
        _family("queue_paused", "gauge", "1 while nothing new begins.", state.is_paused),
        _family("supervisor_alive", "gauge", "1 while a supervisor holds the data folder.",
                is_alive),
        _family("supervisor_silence_seconds", "gauge", "Since the supervisor's last sign of life.",
                heartbeat.seconds_since_beat if is_alive else None, "seconds"),
        _family("supervisor_stuck_experiments", "gauge",
                "Experiments at work that its threads have stopped to look after.",
                len(heartbeat.stuck) if is_alive else None),
        _family("ingest_age_seconds", "gauge", "Since pages had all that the run folders hold.",
                state.ingest_age, "seconds"),
        _family("ingest_seconds", "gauge", "How long the index has been at what it takes in.",
                state.ingest_seconds, "seconds"),
        _family("run_folders_unreadable", "gauge", "Run folders that cannot be read.",
                state.unreadable),
        _family("disk_free_bytes", "gauge", "Free where the data folder lies.",
                state.disk_free, "bytes"),
        _family("disk_size_bytes", "gauge", "Size of that file system.",
                state.disk_size, "bytes"),
    ]  # fmt: skip


def _family(
    name: str, kind: str, text: str, value: float | Mapping[str, float] | None, unit: str = ""
) -> str:
    """One metric with its value, or its values by state; without a value only its description."""
    whole = f"breakeven_{name}"
    lines = [f"# TYPE {whole} {kind}", *([f"# UNIT {whole} {unit}"] if unit else []),
             f"# HELP {whole} {text}"]  # fmt: skip
    if isinstance(value, Mapping):
        lines += [f'{whole}{{state="{state}"}} {float(one)!r}' for state, one in value.items()]
    elif value is not None:
        lines.append(f"{whole}{'_total' if kind == 'counter' else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"
