"""Options of `queue start` for several machines: the queue on a cluster (`--ray`, `--slurm`), and
this machine in runs of several machines (`--join`)."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading

from breakeven.runner.cluster.driver import Engine, drive
from breakeven.runner.commands.entry import tell
from breakeven.runner.errors import RunnerError
from breakeven.runner.extras import how_to_install
from breakeven.runner.machine.run_variables import run_variables
from breakeven.runner.processes import end_group, start_in_own_session
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.meetings import Meeting, Meetings
from breakeven.runner.supervision.supervisor import LINGER_SECONDS


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run experiments on the machines of this Ray cluster (auto: the cluster of this "
        "machine) until stopped",
    )
    parser.add_argument(
        "--slurm",
        nargs="?",
        const="slurm",
        choices=("slurm", "local"),
        help="run each experiment as a Slurm job; the machines must see the data folder. local: as "
        "processes of this machine, for trials",
    )
    parser.add_argument(
        "--slurm-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=_option,
        help="parameter of the jobs, by its name in submitit (slurm_partition=gpu, "
        "timeout_min=600, cpus_per_task=16); can be given several times",
    )
    parser.add_argument(
        "--until-empty",
        action="store_true",
        help="with --ray or --slurm: end when no experiment waits or runs",
    )
    parser.add_argument(
        "--join",
        action="store_true",
        help="let this machine take part in runs of several machines until stopped; the data "
        "folder is that of the first machine (docs/devices.md)",
    )
    parser.add_argument(
        "--same-versions",
        action="store_true",
        help="with --ray: skip machines with other versions of Python, torch, transformers, triton "
        "or numpy than here",
    )
    parser.add_argument(
        "--orphan-patience",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="with --ray or --slurm: how long work continues without a supervisor (default: 600)",
    )


def _option(text: str) -> tuple[str, str | int]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} must read NAME=VALUE")
    return name, int(value) if value.isdigit() else value


def supervise_cluster(data_dir: DataDir, options: argparse.Namespace) -> bool:
    """Returns False if another supervisor holds the data folder; raises `RunnerError` if a package
    of the cluster is missing."""
    try:
        engine = _engine(data_dir, options)
    except ImportError as error:
        why = f"a package for clusters is missing ({error}): {how_to_install('cluster')}"
        raise RunnerError(why) from error
    linger = LINGER_SECONDS if options.until_empty else None
    return drive(data_dir, engine, same_versions=options.same_versions, linger=linger)


def _engine(data_dir: DataDir, options: argparse.Namespace) -> Engine:
    """Imports the package of the cluster here, because only users of a cluster need it."""
    if options.slurm is not None:
        from breakeven.runner.cluster.submitit_engine import SubmititEngine

        if options.same_versions:
            raise RunnerError("--same-versions does not work with Slurm, which chooses machines")
        return SubmititEngine(
            data_dir,
            cluster=options.slurm,
            parameters=dict(options.slurm_option),
            patience_seconds=options.orphan_patience,
        )
    from breakeven.runner.cluster.ray_engine import RayEngine

    return RayEngine(
        options.ray,
        namespace=f"breakeven {data_dir.path}",
        patience_seconds=options.orphan_patience,
    )


LOOK_SECONDS = 0.25


class Joiner:
    """Starts this machine's part of every run that requests machines and has a free place."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._meetings = Meetings(data_dir)
        self._holder = f"{socket.gethostname()}-{os.getpid()}"
        self._at_work: dict[tuple[str, int, int], subprocess.Popen[bytes]] = {}
        """Processes by run, attempt and port."""

    def look(self) -> None:
        """Starts requested parts, and forgets those that have ended."""
        self._meetings.keep_seats(self._holder)
        meetings = {
            (meeting.run_id, meeting.attempt, meeting.port): meeting
            for meeting in self._meetings.all()
        }
        for key, meeting in meetings.items():
            if key not in self._at_work:
                number = self._meetings.take_seat(meeting, self._holder)
                # A part may outlive the `--join` that started it.
                if number is not None and not self._meetings.is_here(meeting.run_id, number):
                    self._at_work[key] = self._start(meeting, number)
        for key, process in list(self._at_work.items()):
            if process.poll() is not None and key not in meetings:
                del self._at_work[key]

    def _start(self, meeting: Meeting, number: int) -> subprocess.Popen[bytes]:
        run = self._data_dir.run_dir(meeting.run_id)
        command = [sys.executable, "-m", "breakeven.runner.worker.ranks.elastic"]
        tell(f"{meeting.run_id}: machine {number + 1} of {meeting.nodes}")
        return start_in_own_session(
            [*command, str(run.path), str(number)],
            run.path / f"output-{number}.log",
            run_variables(os.environ),
        )

    def close(self) -> None:
        """Ends all parts and frees their places."""
        for process in self._at_work.values():
            end_group(process)
        self._meetings.leave(self._holder)


def join_until_stopped(data_dir: DataDir) -> int:
    """Takes part until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    joiner = Joiner(data_dir)
    try:
        while not stop.wait(LOOK_SECONDS):
            joiner.look()
    finally:
        joiner.close()
    return 0
