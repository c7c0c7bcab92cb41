"""The run folder, which is the truth about a run.

    file           what                      written by
    spec.json      what to run               whoever submits, once
    claim.json     who runs it, since when   the supervisor, once
    events.jsonl   all that happened         the run, append only
    output.log     stdout and stderr         the run
    cancel         marker: stop, please      the dashboard or the command line
    exit.json      how it ended              the supervisor, once
    artifacts/     optional files, such as   the run
                   checkpoints
    attempts/N/    claim, exit and cancel    whoever has the run go on
                   of an earlier attempt
    compile-cache/ the run's own compile     the run; removed by the supervisor
                   cache, empty at first

`RunDir` is the only place that knows these names. A run's state is derived from the files, never
stored beside them.
"""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from runner.errors import InvalidRunFolder, InvalidSpec
from runner.process import ProcessIdentity
from runner.spec import RunSpec


class RunState(StrEnum):
    """Where a run stands; the last six are final."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    """Claimed on another machine; how it goes on there cannot be seen from here."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"
    """Its process vanished without a word, for instance through SIGKILL or a power cut."""

    @property
    def is_final(self) -> bool:
        return self not in (RunState.QUEUED, RunState.RUNNING, RunState.ELSEWHERE)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who runs a run. Times are seconds since the epoch."""

    host: str
    process: ProcessIdentity
    supervisor: ProcessIdentity
    time: float

    @classmethod
    def by(cls, process: ProcessIdentity) -> "Claim":
        """A claim made now, on this machine, by the calling process."""
        supervisor = ProcessIdentity.of(os.getpid())
        return cls(
            host=socket.gethostname(), process=process, supervisor=supervisor, time=time.time()
        )

    @property
    def is_from_this_host(self) -> bool:
        return self.host == socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a run ended. `time` is in seconds since the epoch; `reason` is one sentence."""

    state: RunState
    reason: str
    returncode: int | None
    """Exit status of the process, negative for a signal; None if nobody saw it end."""
    time: float


class RunDir:
    """One run folder; every path and every state question goes through it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec_file = path / "spec.json"
        self.claim_file = path / "claim.json"
        self.events_file = path / "events.jsonl"
        self.output_file = path / "output.log"
        self.cancel_file = path / "cancel"
        self.exit_file = path / "exit.json"
        self.artifacts = path / "artifacts"
        self.checkpoints = path / "artifacts" / "checkpoints"
        self.attempts = path / "attempts"
        self.compile_cache = path / "compile-cache"

    @property
    def run_id(self) -> str:
        return self.path.name

    def read_spec(self) -> RunSpec:
        """The run's specification; raises `InvalidSpec` or `InvalidRunFolder`, naming the file."""
        try:
            spec = RunSpec.from_json(self.spec_file.read_text())
        except InvalidSpec as error:
            raise InvalidSpec(f"{self.spec_file}: {error.field}", error.value, error.rule) from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRunFolder(f"{self.spec_file} cannot be read: {error}") from None
        if spec.run_id != self.run_id:
            message = f"{self.spec_file} describes run {spec.run_id!r}; rename its folder to that"
            raise InvalidRunFolder(message)
        return spec

    def read_claim(self) -> Claim | None:
        content = self._read_json(self.claim_file)
        if content is None:
            return None
        try:
            content["process"] = ProcessIdentity(**content["process"])
            content["supervisor"] = ProcessIdentity(**content["supervisor"])
            return Claim(**content)
        except (TypeError, KeyError) as error:
            raise InvalidRunFolder(f"{self.claim_file} is not a claim: {error}") from None

    def read_exit(self) -> Exit | None:
        content = self._read_json(self.exit_file)
        if content is None:
            return None
        try:
            return Exit(**{**content, "state": RunState(content["state"])})
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidRunFolder(f"{self.exit_file} is not an exit record: {error}") from None

    def write_spec(self, spec: RunSpec) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.spec_file, spec.to_json())

    def write_claim(self, claim: Claim) -> None:
        write_atomically(self.claim_file, json.dumps(asdict(claim), indent=2) + "\n")

    def write_exit(self, state: RunState, reason: str, returncode: int | None) -> None:
        record = Exit(state=state, reason=reason, returncode=returncode, time=time.time())
        write_atomically(self.exit_file, json.dumps(asdict(record), indent=2) + "\n")

    def inherit_cache(self, other: "RunDir") -> None:
        """Takes over the compile caches that another run left, if it left any."""
        if other.compile_cache.exists():
            shutil.rmtree(self.compile_cache, ignore_errors=True)
            os.rename(other.compile_cache, self.compile_cache)

    @property
    def attempt(self) -> int:
        """Which attempt at the run this is: 1, and one more each time it was reopened."""
        return 1 + sum(1 for _ in self.attempts.glob("*"))

    @property
    def has_checkpoint(self) -> bool:
        """Whether a run that ended early could go on from somewhere."""
        return any(self.checkpoints.glob("*.pt"))

    def reopen(self) -> None:
        """Puts aside how the run was claimed and ended, so that it waits in the queue again.

        All that it recorded stays; it will go on from its latest checkpoint.
        """
        shutil.rmtree(self.compile_cache, ignore_errors=True)
        aside = self.attempts / str(self.attempt)
        aside.mkdir(parents=True)
        # The claim last: without it the run is queued.
        for file in (self.cancel_file, self.exit_file, self.claim_file):
            if file.exists():
                os.replace(file, aside / file.name)

    def request_cancel(self) -> None:
        self.cancel_file.touch()

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_file.exists()

    @property
    def state(self) -> RunState:
        """Derived from exit.json, claim.json, the cancel marker and the living processes."""
        ended = self.read_exit()
        if ended is not None:
            return ended.state
        claim = self.read_claim()
        if claim is None:
            return RunState.CANCELLED if self.cancel_requested else RunState.QUEUED
        if not claim.is_from_this_host:
            return RunState.ELSEWHERE
        # Between the end of a run and its exit.json the supervisor is alive and about to write it.
        if claim.process.is_alive or claim.supervisor.is_alive:
            return RunState.RUNNING
        # exit.json may have been written between the first look and this one.
        ended = self.read_exit()
        return RunState.LOST if ended is None else ended.state

    def log_tail(self, num_lines: int = 40) -> str:
        """The last lines of output.log, or an empty text."""
        try:
            with self.output_file.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 500 * num_lines))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-num_lines:])

    def _read_json(self, path: Path) -> dict[str, Any] | None:
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidRunFolder(f"{path} cannot be read: {error}") from None
        if not isinstance(content, dict):
            raise InvalidRunFolder(f"{path} holds {content!r}; an object was expected")
        return content


class DataDir:
    """The data folder: all run folders, the database, and what coordinates their owners."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().resolve()
        self.runs = self.path / "runs"
        self.database_file = self.path / "breakeven.duckdb"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.supervisor_log = self.path / "supervisor.log"
        self.capabilities_file = self.path / "capabilities.json"

    def run_dir(self, run_id: str) -> RunDir:
        return RunDir(self.runs / run_id)

    def run_dirs(self) -> Iterator[RunDir]:
        """All run folders that hold a spec, oldest experiment first."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.runs) if entry.is_dir())
        except FileNotFoundError:
            return
        for name in names:
            run_dir = self.run_dir(name)
            if run_dir.spec_file.exists():
                yield run_dir


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` by `text` so that a reader sees the old content or the new, never a part."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
