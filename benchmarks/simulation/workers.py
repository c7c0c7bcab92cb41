"""Runs in a history: they load, take turns, write journals, and misbehave as their seed says.

The real writer writes their journals into the real folder.
"""

import json
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulation.kernel import Kernel, Process, Violation
from benchmarks.simulation.system import End, System
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.event_log import EventLog

ABANDONED_SECONDS = 1.0
"""Most seconds that a run lives without its supervisor."""
NONSENSE = (
    b"\n",
    b"[]\n",
    b"hello\n",
    b'{"say": 3}\n',
    b'{"say": "done"}\n',
    b"\xff\xfe\n",
    b'{"say": "finished", "round": -1}\n',
    b'{"say": "ready"}\n',
)
STOPPING_SECONDS = 3.0
"""Seconds after a request to stop until a run ends, whatever it does."""


@dataclass(frozen=True, kw_only=True)
class Nature:
    """How one attempt at a run behaves."""

    load_seconds: float
    step_seconds: float
    last_breath: tuple[str, int] = ("", 0)
    """The phase in which it ends by itself, and the exit status."""
    is_deaf: bool = False
    """Whether it ignores SIGTERM."""
    is_stuck: bool = False
    """Whether it also misses the death of its supervisor."""
    hangs_in: str = ""
    """The phase that it never leaves."""
    repeats_itself: bool = False
    """Whether it sends messages twice, the second time later."""
    tears_messages: bool = False
    talks_nonsense: bool = False
    """Whether its other code writes into the pipe."""
    closes_pipe: bool = False
    """Whether its code closes descriptors of others."""
    leaves_child: bool = False
    """Whether one of its processes survives, outside its group."""
    death_seconds: float = 0.0
    """Seconds from SIGKILL until it is dead."""
    leaves_checkpoints: bool = False

    @classmethod
    def drawn(cls, chance: random.Random) -> "Nature":
        phase = chance.choice(("load", "work", "report", "end"))
        kinds: list[dict[str, Any]] = [{}] * 8 + [
            {"last_breath": (phase, -9)},
            {"last_breath": (phase, 1)},
            {"last_breath": (phase, 0)},
            {"last_breath": (phase, int(WorkerExit.OUT_OF_MEMORY))},
            {"is_deaf": True},
            {"is_deaf": True, "is_stuck": True},
            {"hangs_in": phase},
            {"hangs_in": phase, "is_deaf": True, "is_stuck": True},
            {"repeats_itself": True},
            {"tears_messages": True},
            {"talks_nonsense": True},
            {"closes_pipe": True},
            {"leaves_child": True},
            {"death_seconds": chance.uniform(0, 2)},
        ]
        return cls(
            load_seconds=chance.choice((0.05, 0.5, 3.0)) * chance.random(),
            step_seconds=chance.choice((0.002, 0.05, 0.5)) * chance.random(),
            leaves_checkpoints=chance.random() < 0.5,
            **chance.choice(kinds),
        )


class Worker:
    """One attempt at a run."""

    def __init__(
        self,
        system: System,
        process: Process,
        inherited: dict[int, End],
        workers: list["Worker"],
        acknowledged: list[tuple[str, int]],
    ) -> None:
        self.system = system
        self.kernel: Kernel = system.kernel
        self.began = self.kernel.now
        assert process.parent is not None
        self.supervisor = process.parent.pid
        """Pid of the process that passes turns to it."""
        self.process = process
        self.run = RunDir(Path(str(process.run_folder)))
        self.spec: RunSpec = self.run.read_spec()
        self.nature = Nature.drawn(self.kernel.chance)
        self.is_working = False
        self.has_finished = False
        self._turns_pipe = next(end.pipe for end in inherited.values() if end.mode == "r")
        self._replies = next(end for end in inherited.values() if end.mode == "w")
        self._turns_pipe.on_change = self._hear
        self._unheard = b""
        self._turns: list[dict[str, Any]] = []
        self._is_loaded = False
        self._is_stopping = False
        self._rounds = 0
        self._log: EventLog | None = None
        self._workers = workers
        self._acknowledged = acknowledged
        process.on_signal = self._on_signal
        workers.append(self)
        self.kernel.say(f"run {process.pid} of {self.run.run_id[-12:]} begins: {self.nature}")
        self._soon(0.3 * self.nature.load_seconds, self._open)

    # Its life

    def _soon(self, seconds: float, act: Callable[[], None]) -> None:
        """Acts after this time, unless the process is dead by then."""
        self.kernel.at(seconds, lambda: act() if self.process.is_alive else None)

    def _breathe(self, phase: str) -> bool:
        """Whether it survives a phase; else it has ended, or hangs forever."""
        if self.nature.last_breath[0] == phase:
            self._die(self.nature.last_breath[1])
            return False
        return self.nature.hangs_in != phase

    def _open(self) -> None:
        self._log = EventLog(self.run.events_file)
        self._write("phase", phase="waiting")
        if self.nature.leaves_child:
            child = self.kernel.new_process("run", run_folder=self.process.run_folder)
            child.on_signal = lambda number: self.kernel.die(child, -number)
        if self._breathe("load"):
            self._soon(0.7 * self.nature.load_seconds, self._ready)

    def _ready(self) -> None:
        if self.nature.closes_pipe:
            self._close_replies()
        self._is_loaded = True
        self._say("ready")
        self._begin()

    def _hear(self) -> None:
        """Reads the pipe, as the run's thread does."""
        if not self.process.is_alive:
            return
        self._unheard += self._turns_pipe.content
        self._turns_pipe.content = b""
        *lines, self._unheard = self._unheard.split(b"\n")
        self._turns += map(json.loads, lines)
        self._begin()
        if not self._turns_pipe.writers and not self.nature.is_stuck:
            self._soon(ABANDONED_SECONDS * self.kernel.chance.random(), lambda: self._die(-9))

    def _begin(self) -> None:
        if not (self._turns and self._is_loaded) or self.is_working or self._is_stopping:
            return
        turn = self._turns.pop(0)
        self.kernel.say(f"{self.process.pid} takes turn {turn['round']}")
        self.is_working = True
        self._check_alone()
        if self._breathe("work"):
            seconds = self.nature.step_seconds * (1 + self.kernel.chance.random())
            self._soon(seconds, lambda: self._end_block(turn))

    @property
    def devices(self) -> set[str]:
        """The devices of its experiment."""
        return set(self.process.devices.split(","))

    def _check_alone(self) -> None:
        """Checks the guarantee of turns: no other run works on this run's devices."""
        devices = self.devices
        for other in self._workers:
            theirs = other.devices
            if other is self or not (other.is_working and other.process.is_alive):
                continue
            together = self.spec.experiment.compiling_together
            beside = (
                other.spec.experiment_id == self.spec.experiment_id
                and {self.spec.arm.label, other.spec.arm.label} <= together
                and self._rounds == 0
            )
            if not beside and (devices & theirs or "cpu" in devices | theirs):
                raise Violation(f"{self.run.run_id} works while {other.run.run_id} does")

    def _end_block(self, turn: dict[str, Any]) -> None:
        number = turn["round"]
        self._rounds += 1
        self._write("step", step=self._rounds, round=number, loss=1.0, seconds=0.1, compiled=False)
        self._write(
            "block",
            round=number,
            position=turn["position"],
            seconds=0.1,
            compiled=False,
            supervisor=self.supervisor,
        )
        if self.nature.leaves_checkpoints:
            self.run.checkpoints.mkdir(parents=True, exist_ok=True)
            (self.run.checkpoints / f"{number}.pt").touch()
        if not self._breathe("report"):
            return
        steps = self.spec.experiment.num_steps // self.spec.experiment.block_steps
        is_last = turn["last"] is not None or self._rounds >= steps
        self.is_working = False
        if not is_last:
            self._say("done", round=number)
            if self._is_stopping:
                self._die(WorkerExit.CANCELLED)
            self._begin()
            return
        self._is_loaded = False  # so that it takes no more turns
        self._say("finished", round=number)
        self.has_finished = self.nature.last_breath == ("end", 0)
        if self._breathe("end"):
            self._soon(0.2 + 0.05 * self.kernel.chance.random(), self._finish)

    def _finish(self) -> None:
        self._write("phase", phase="done")
        self.has_finished = True
        self._die(WorkerExit.FINISHED)

    # Its words

    def _write(self, kind: str, **fields: Any) -> None:
        """Writes to the journal; from then on the line must not get lost."""
        assert self._log is not None
        mark = len(self._acknowledged)
        self._log.append(kind, mark=mark, **fields)
        self._log.flush()
        self._acknowledged.append((self.run.run_id, mark))

    def _say(self, word: str, **fields: Any) -> None:
        message = json.dumps({"say": word, **fields}).encode() + b"\n"
        if self.nature.tears_messages:
            cut = self.kernel.chance.randrange(1, len(message))
            self._put(message[:cut])
            self._soon(0.2 * self.kernel.chance.random(), lambda: self._put(message[cut:]))
        else:
            self._put(message)
        if self.nature.repeats_itself:
            self._soon(self.kernel.chance.random(), lambda: self._put(message))
        if self.nature.talks_nonsense:
            self._soon(0.5, lambda: self._put(self.kernel.chance.choice(NONSENSE)))

    def _put(self, part: bytes) -> None:
        self._replies.pipe.content += part

    def _close_replies(self) -> None:
        inherited = self.system.inherited[self.process]
        if self._replies in inherited:
            inherited.remove(self._replies)
            self._replies.close()

    # Its end

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.is_working = self.is_working and self.nature.death_seconds > 0
            self._soon(self.nature.death_seconds, lambda: self._die(-9))
        elif number == signal.SIGTERM and not self.nature.is_deaf and not self._is_stopping:
            self._is_stopping = True
            if self._log is None:
                self._die(-15)  # before it has set up a handler
            elif not self.is_working:
                self._soon(0.05, lambda: self._die(WorkerExit.CANCELLED))
            self._soon(STOPPING_SECONDS, lambda: self._die(WorkerExit.CANCELLED))

    def _die(self, status: int) -> None:
        if self.process.is_alive:
            self.is_working = False
            if self._log is not None:
                self._log.close_as_it_is()
            self.kernel.say(f"run {self.process.pid} ends with {status}")
            self.kernel.die(self.process, status)
