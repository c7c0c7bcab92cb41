"""The process of a run with several ranks, which torchrun's elastic launch starts; as a program,
the process of an additional machine."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.placement import DEVICES_VARIABLE, placed
from breakeven.runner.processes import signal_group
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.exit_status import WorkerExit, explain
from breakeven.runner.protocol.meetings import (
    Meeting,
    Meetings,
    free_port,
    own_address,
    wait_for_others,
)
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.worker.before_torch import prepare
from breakeven.runner.worker.ranks.exchange import CONSEQUENCE, Exchange

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig

SILENCE_SECONDS = 20.0
"""Time without heartbeats after which a rank counts as hung: longer than any call of a compiler or
driver blocks all threads of a process."""
CLOSING_SECONDS = 4.0
"""Time for ranks that must end, a little longer than their own time limit."""
TICK_SECONDS = 0.25
LOOK_SECONDS = 1.0
STAYING_SECONDS = 10.0
"""Time that an additional machine continues after its run, for ranks to notice its end."""


@dataclass
class RankFailure:
    """The failure of a rank."""

    rank: int
    status: int | None
    """The exit status that it announced, if any."""
    fields: dict[str, Any]
    """Fields of an `error` event."""


class RankListener:
    """Listens to each rank in a separate thread; the main thread belongs to elastic."""

    def __init__(self, turn_fds: Sequence[int], num_ranks: int) -> None:
        """Sends `turn_fds`, the pipes from and to the supervisor, to rank 0; they are empty for a
        run without a supervisor. The ranks of a script exchange values here."""
        self.failures: list[RankFailure] = []
        """Failures in the order of their reports."""
        self.was_abandoned = False
        """Whether rank 0 reported that the supervisor is gone."""
        self._turn_fds = list(turn_fds)
        self._exchange = Exchange(num_ranks)
        self._folder = tempfile.TemporaryDirectory(prefix="breakeven-")
        self.address = str(Path(self._folder.name) / "ranks")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.address)
        self._server.listen()
        self._server.settimeout(TICK_SECONDS)
        self._pids: set[int] = set()
        self._is_open = True
        self._kill_at: float | None = None
        self._thread = threading.Thread(target=self._accept, name="rank listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and kills the remaining ranks."""
        self._is_open = False
        self._thread.join()
        self._kill_all()
        while self._turn_fds:
            os.close(self._turn_fds.pop())
        self._server.close()
        self._folder.cleanup()

    def close_in_time(self) -> None:
        """Kills ranks that do not end soon."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + CLOSING_SECONDS

    def _accept(self) -> None:
        while self._is_open:
            with contextlib.suppress(TimeoutError):
                connection, _ = self._server.accept()
                connection.settimeout(SILENCE_SECONDS)
                threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._kill_all()

    def _listen(self, connection: socket.socket) -> None:
        rank, pid = -1, 0
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            try:
                for line in lines:
                    if not line.endswith(b"\n"):  # the rank was killed meanwhile
                        break
                    message = json.loads(line)
                    if message.get("kind") == "hello":
                        rank, pid = message["rank"], message["pid"]
                        self._pids.add(pid)
                        self._send_turn_fds(connection, rank)
                        self._exchange.join(rank, connection)
                    else:
                        self._take(rank, message)
            except TimeoutError:
                self._give_up(rank)
        if pid:
            # Processes that the rank started belong to its session and end with it.
            self._kill(pid)
            self._pids.discard(pid)

    def _send_turn_fds(self, connection: socket.socket, rank: int) -> None:
        fds = self._turn_fds if rank == 0 else []
        socket.send_fds(connection, [b"\n"], fds)
        # The second shows the supervisor that the run is alive, also when rank 0 has ended.
        for fd in fds[:1]:
            os.close(fd)
        del fds[:1]

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        match message.pop("kind"):
            case "failed":
                self.failures.append(RankFailure(rank, message.pop("status"), message))
                self.close_in_time()
            case "abandoned":
                self.was_abandoned = True
            case "value":
                self._exchange.give(rank, message["value"])
            case "blocked":
                self._exchange.block(rank, message["is_blocked"])
            case "ended":
                self._exchange.end(rank, message["steps"])

    def _give_up(self, rank: int) -> None:
        """Reports a silent rank; elastic then ends the other ranks."""
        message = (
            f"rank {rank} was silent for {SILENCE_SECONDS:g} s (stopped, hung, or swapped "
            "out) and was killed"
        )
        self.failures.append(RankFailure(rank, None, {"error": "RankLost", "message": message}))
        self.close_in_time()

    def _kill_all(self) -> None:
        for pid in list(self._pids):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(PermissionError):
            signal_group(pid, signal.SIGKILL)


RANK_MODULE = "breakeven.runner.worker.ranks.rank"
LOOPBACKS = ("lo", "lo0")
"""Names of the loopback interface, on Linux and on macOS."""
COMING_SECONDS = 600.0
"""Time that several machines wait for each other."""
TELLING_SECONDS = 3.0
"""Time for another machine to report why it failed."""


def launch(run: RunDir, spec: RunSpec) -> WorkerExit:
    """Runs all ranks to their end, and records failures in the journal."""
    prepare(spec, run)
    pipes = os.environ.pop(TURN_PIPES_VARIABLE, "")
    listener = RankListener([int(fd) for fd in pipes.split(",") if fd], spec.experiment.num_ranks)
    try:
        if spec.experiment.nodes > 1:
            failure = _with_others(run, spec, listener)
        else:
            failure = run_ranks(run, spec, listener)
        if failure is None:
            return WorkerExit.FINISHED
        if listener.was_abandoned or failure.status == WorkerExit.CANCELLED:
            return WorkerExit.CANCELLED
        return _record(run, spec, failure)
    finally:
        listener.close()


def _with_others(run: RunDir, spec: RunSpec, listener: RankListener) -> RankFailure | None:
    """Calls the other machines and runs the ranks, on the first machine; returns a failure."""
    data_dir = DataDir(run.path.parent.parent)
    meetings = Meetings(data_dir)
    meeting = Meeting(
        run_id=run.run_id,
        attempt=run.attempt,
        nodes=spec.experiment.nodes,
        address=own_address(data_dir),
        port=free_port(),
        devices=spec.experiment.devices,
    )
    meetings.call(meeting)
    signal.signal(signal.SIGTERM, _leave)  # until elastic sets its own handler
    try:
        if not wait_for_others(meetings, meeting, COMING_SECONDS):
            came = 1 + meetings.num_here(run.run_id)
            message = (
                f"{came} of {meeting.nodes} machines were there within {COMING_SECONDS:g} s: have "
                "`breakeven queue start --join` run on the others, with the same data folder"
            )
            fields = {"error": "MachinesMissing", "message": message}
            return RankFailure(0, WorkerExit.FAILED, fields)
        failure = run_ranks(run, spec, listener, meeting)
        if failure is not None and failure.status != WorkerExit.CANCELLED:
            time.sleep(TELLING_SECONDS)
            return _remote_failure(meetings, run.run_id) or failure
        return failure
    finally:
        meetings.close(run.run_id)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(WorkerExit.CANCELLED)


def _remote_failure(meetings: Meetings, run_id: str) -> RankFailure | None:
    """The failure that another machine reports, unless it follows from another one's end."""
    reported = [RankFailure(**fields) for fields in meetings.failures(run_id)]
    own = [
        failure
        for failure in reported
        if not CONSEQUENCE.search(str(failure.fields.get("message")))
    ]
    return own[0] if own else None


def run_ranks(
    run: RunDir,
    spec: RunSpec,
    listener: RankListener,
    meeting: Meeting | None = None,
    number: int = 0,
) -> RankFailure | None:
    """Starts the ranks of this machine, number `number` of a meeting, and waits until all have
    ended; returns their failure, with the status CANCELLED if they were stopped."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    # The run reports failures itself.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        rendezvous = [] if meeting is not None else [f"{folder}/ranks"]
        if meeting is None:
            _stay_on_this_machine()
        started = elastic_launch(_config(spec, folder, meeting, number), sys.executable)
        try:
            started("-u", "-m", RANK_MODULE, str(run.path), listener.address, *rendezvous)
        except SignalException:
            return RankFailure(0, WorkerExit.CANCELLED, {})
        except ChildFailedError as error:
            failure = _first_failure(listener, error)
            listener.close()
            return failure
    return None


def _stay_on_this_machine() -> None:
    """Makes ranks meet in a file and communicate over the loopback interface, unless another one is
    set, so that no port is open to the network."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    for _, name in socket.if_nameindex():
        if name in LOOPBACKS:
            for library in ("GLOO", "NCCL"):
                os.environ.setdefault(f"{library}_SOCKET_IFNAME", name)


def _config(spec: RunSpec, folder: str, meeting: Meeting | None, number: int) -> "LaunchConfig":
    from torch.distributed.launcher.api import LaunchConfig

    nodes = 1 if meeting is None else meeting.nodes
    # On one machine, in a file: torch's TCP store listens to the whole network without
    # authentication, and the agent unpickles, and so executes, all contents of the store.
    where: dict[str, Any] = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": f"{folder}/agent",
        "local_addr": "localhost",
        "rdzv_configs": {"store_type": "file"},
    }
    if meeting is not None:
        # The first machine has the turn and the journal, so its address is known.
        where = {
            "rdzv_backend": "static",
            "rdzv_endpoint": f"{meeting.address}:{meeting.port}",
            "rdzv_configs": {"rank": number, "timeout": int(COMING_SECONDS)},
        }
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=spec.experiment.ranks_per_node,
        run_id=spec.run_id,
        max_restarts=0,
        monitor_interval=0.1,
        **_outputs(spec.experiment, folder),
        **where,
    )


def _outputs(experiment: ExperimentSpec, folder: str) -> dict[str, Any]:
    """What ranks print stands in the run's output; of a script, lines of other ranks than rank 0
    say whose they are, so that those of rank 0 read as usual."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

    others = range(1, experiment.num_ranks) if experiment.workload.is_own_program else ()
    return {
        "logs_specs": DefaultLogsSpecs(log_dir=folder, tee=dict.fromkeys(others, Std.ALL)),
        "log_line_prefix_template": "[rank ${rank}] ",
    }


def _first_failure(listener: RankListener, error: "ChildFailedError") -> RankFailure:
    """The failure of a killed rank, which could not report it; else the first report. After a kill,
    the reports of other ranks are consequences, such as a closed connection or a request to
    stop."""
    reports = sorted(listener.failures, key=lambda report: report.status is not None)
    if reports and reports[0].status is None:
        return reports[0]
    for rank, ended in error.failures.items():
        if ended.exitcode < 0:
            return _lost(rank, ended.exitcode)
    if reports:
        own = [failure for failure in reports if failure.status != WorkerExit.CANCELLED]
        return (own or reports)[0]
    rank, first = error.get_first_failure()
    return _lost(rank, first.exitcode)


def _lost(rank: int, exitcode: int) -> RankFailure:
    _, reason = explain(exitcode)
    return RankFailure(rank, None, {"error": "RankLost", "message": f"rank {rank}: {reason}"})


def _record(run: RunDir, spec: RunSpec, failure: RankFailure) -> WorkerExit:
    """Records the failure in the journal; only this process writes to it now."""
    from breakeven.runner.worker.event_log import EventLog

    device = spec.experiment.devices[failure.rank % len(spec.experiment.devices)]
    fields = {"traceback": "", "out_of_memory": False, **failure.fields}
    if spec.experiment.workload.is_own_program and not fields["message"].startswith("rank "):
        fields["message"] = f"rank {failure.rank}: {fields['message']}"
    sys.stderr.write(f"rank {failure.rank} ({device}): {fields['message']}\n")
    try:
        log = EventLog(run.events_file)
        log.append("error", rank=failure.rank, **fields)
        log.close()
    except OSError:
        return WorkerExit.DISK_FULL
    return WorkerExit.RANK_LOST if failure.status is None else WorkerExit(failure.status)


def main() -> int:
    """Takes part in a run as an additional machine; arguments: RUN_FOLDER NUMBER.

    It starts the ranks of this machine, which connect to the ranks of the first machine. The first
    machine takes the turns, writes the journal and ends the run.
    """
    run, number = RunDir(Path(sys.argv[1])), int(sys.argv[2])
    meetings = Meetings(DataDir(run.path.parent.parent))
    meeting = meetings.read(run.run_id)
    if meeting is None:
        sys.stderr.write(f"{run.run_id} has no place to meet\n")
        return WorkerExit.FAILED
    threading.Thread(target=_watch, args=(run, meetings, meeting), daemon=True).start()
    os.environ[DEVICES_VARIABLE] = ",".join(meeting.devices)
    spec = placed(spec_in_use(run), os.environ)
    prepare(spec, run)
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        # Compile caches should not lie on a network drive.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        listener = RankListener([], spec.experiment.num_ranks)
        meetings.come(run.run_id, number)
        try:
            failure = run_ranks(run, spec, listener, meeting, number)
        finally:
            listener.close()
    if failure is None or failure.status == WorkerExit.CANCELLED:
        return WorkerExit.FINISHED
    meetings.fail(run.run_id, number, asdict(failure))
    return WorkerExit.FAILED


def _watch(run: RunDir, meetings: Meetings, meeting: Meeting) -> None:
    """Ends this process and its ranks when the run is over or has begun again without it."""
    while not _is_over(run) and meetings.read(run.run_id) == meeting:
        time.sleep(LOOK_SECONDS)
    time.sleep(STAYING_SECONDS)
    os._exit(WorkerExit.CANCELLED)


def _is_over(run: RunDir) -> bool:
    try:
        return run.is_recorded
    except RunnerError:
        return True


if __name__ == "__main__":
    sys.exit(main())
