"""The run folder, the source of truth about a run.

    file           what                      written by
    spec.json      what to run               the submitter, once
    claim.json     who runs it, since when   the supervisor, once
    events.jsonl   all events                the run, append only
    output.log     stdout and stderr         the run
    cancel         marker: request to stop   the dashboard or the command line
    devices.json   its devices, if it        the resuming process
                   resumes on others
    plan.json      request to time it        the process that continues a
                   further                   finished run
    later-start    marker: start once more   the supervisor, after its training
                   with its compile cache
    unchecked      marker: check this with   the submitter, in the folder of the
                   torch first               baseline
    unconfirmed    marker: the training      the supervisor, in the folder of the
                   that confirms this        baseline; removed after the search
                   search may follow
    exit.json      how it ended              the supervisor, once
    labels.json    name, tags and notes      the holder of the library lock; in the
                   by users                  folder of an experiment's first run
    artifacts/     optional files, such as   the run
                   checkpoints
    attempts/N/    claim, exit and cancel    the resuming process
                   of an earlier attempt,
                   or all its files
    compile-cache/ the run's own compile     the run; removed by the supervisor
                   cache, empty at first
    work/          working folder of a       the run
                   user's script

Only `RunDir` has these names. A run's state is derived from the files and never stored separately.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import BinaryIO, TypeVar

from breakeven.runner.disk_space import lacks_room
from breakeven.runner.errors import InvalidRunFolder, InvalidSpec, RunnerError
from breakeven.runner.files import UNFINISHED, write_atomically
from breakeven.runner.masking import mask
from breakeven.runner.protocol.events import each_event, open_journal
from breakeven.runner.protocol.plain_files import (
    open_inside,
    read_document,
    remove_tree,
    require_plain_tree,
    walk,
)
from breakeven.runner.protocol.records import Claim, Exit, Labels
from breakeven.runner.protocol.states import RunState, RunStatus
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.fields import UNKNOWN_FIELD, Spec, require
from breakeven.runner.specs.place import Parallel
from breakeven.runner.texts import printable

CHECKPOINT_ENDINGS = (".pt", ".sharded")
"""Suffixes of a file from one device, and of a folder from several devices."""


Document = TypeVar("Document", bound=Spec)
LINKED = "its folder is a link to one elsewhere: it is read, and not run here"
NEWER = ". If a newer version of Breakeven wrote the folder, update this one to use it"


def _inside(name: str) -> cached_property[Path]:
    """A file or folder of a run folder. The path object is built on first use: code that walks
    thousands of run folders uses few paths."""
    return cached_property(lambda run: run.path / name)


class RunDir:
    """One run folder; all code gets its paths and its state from here.

    The folder may be a copy from anywhere and contain anything: only plain files inside it are
    opened, and all content is checked.
    """

    spec_file = _inside("spec.json")
    claim_file = _inside("claim.json")
    events_file = _inside("events.jsonl")
    output_file = _inside("output.log")
    cancel_file = _inside("cancel")
    devices_file = _inside("devices.json")
    plan_file = _inside("plan.json")
    later_start_file = _inside("later-start")
    unchecked_file = _inside("unchecked")
    unconfirmed_file = _inside("unconfirmed")
    exit_file = _inside("exit.json")
    labels_file = _inside("labels.json")
    artifacts = _inside("artifacts")
    checkpoints = _inside("artifacts/checkpoints")
    attempts = _inside("attempts")
    compile_cache = _inside("compile-cache")
    workplace = _inside("work")

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def is_link(self) -> bool:
        """Whether the folder is a link, perhaps to another run's or a foreign folder: it is read,
        but nothing is run, written or removed there."""
        return self.path.is_symlink()

    def _require_own(self) -> None:
        """Raises `OSError` if the folder is a link: nothing is written through it."""
        if self.is_link:
            raise OSError(
                errno.EROFS, "the run folder is a link, and nothing is written through it"
            )

    def read_spec(self) -> RunSpec:
        """The run's specification; raises `InvalidSpec` or `InvalidRunFolder`, naming the file."""
        try:
            written = os.lstat(self.spec_file)
            spec = _cached_spec(self.path, written.st_mtime_ns, written.st_size, written.st_ino)
        except InvalidSpec as error:
            field = f"{printable(self.spec_file)}: {error.field}"
            newer = NEWER if UNKNOWN_FIELD in error.rule else ""
            raise InvalidSpec(field, error.value, error.rule + newer) from None
        except FileNotFoundError:
            rule = "holds no spec.json, so it is not a run folder"
            raise InvalidRunFolder(f"{printable(self.path)} {rule}") from None
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            raise InvalidRunFolder(f"{printable(self.spec_file)} {why}") from None
        if spec.run_id != self.run_id:
            rule = f"describes run {spec.run_id!r}; rename its folder to that"
            raise InvalidRunFolder(f"{printable(self.spec_file)} {rule}")
        return spec

    def read_claim(self) -> Claim | None:
        return self.read(self.claim_file, Claim)

    def read_exit(self) -> Exit | None:
        return self.read(self.exit_file, Exit)

    def read_labels(self) -> Labels:
        """The labels by users; empty without the file."""
        return self.read(self.labels_file, Labels) or Labels()

    def read(self, file: Path, kind: type[Document]) -> Document | None:
        """The content of a file of the folder; None without the file. Raises `InvalidRunFolder`,
        naming the file."""
        try:
            return kind.from_json(read_document(self.path, file.name))
        except FileNotFoundError:
            return None
        except InvalidSpec as error:
            is_json = error.field != kind.__name__
            why = (
                f"cannot be used: {printable(error)}"
                if is_json
                else (f"cannot be read: it {error.rule}")
            )
            raise InvalidRunFolder(f"{printable(file)} {why}") from None

    def open(self, name: str) -> BinaryIO:
        """Opens a plain file of the folder, by its path relative to it, for reading.

        Raises `FileNotFoundError`, or `InvalidRunFolder` for a path out of the folder, a link, a
        pipe, or anything else but a plain file.
        """
        if name == self.events_file.name:
            return open_journal(self.events_file)
        return open_inside(self.path, name)

    def check_plain(self) -> None:
        """Raises `InvalidRunFolder` if a write into the folder could change, or wait for, anything
        outside it."""
        if self.is_link:
            raise InvalidRunFolder(
                f"{printable(self.path)} is a link; a run has a folder of its own"
            )
        require_plain_tree(self.path, ignore=(self.compile_cache.name, self.workplace.name))

    def write_spec(self, spec: RunSpec, *, is_checked: bool = True) -> None:
        """Writes spec.json. A new folder becomes visible only with its specification, and with the
        marker `unchecked` if torch must check the experiment."""
        if self.path.exists():
            write_atomically(self.spec_file, spec.to_json())
            return
        hidden = self.path.with_name(f".{self.run_id}")
        hidden.mkdir(parents=True, exist_ok=True)
        try:
            write_atomically(hidden / self.spec_file.name, spec.to_json())
            if not is_checked:
                (hidden / self.unchecked_file.name).touch()
            os.rename(hidden, self.path)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise

    def write_claim(self, claim: Claim) -> None:
        self._require_own()
        write_atomically(self.claim_file, claim.to_json())

    def write_exit(self, ended: Exit) -> None:
        self._require_own()
        write_atomically(self.exit_file, ended.to_json())

    def write_labels(self, labels: Labels) -> None:
        """The caller holds the library lock."""
        self._require_own()
        write_atomically(self.labels_file, labels.to_json())
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        """Touches the folder of all runs, so that watchers notice a change. A finished run changes
        so rarely that its own folder is hardly ever read."""
        with suppress(OSError):
            os.utime(self.path.parent)

    def drop_leftovers(self) -> None:
        """Removes files that are useless after the process ended: its compile caches, and
        incomplete files and folders."""
        if self.is_link:
            return
        shutil.rmtree(self.compile_cache, ignore_errors=True)
        if not self.artifacts.is_symlink():
            for parent, folders, files in walk(self.artifacts):
                for name in folders:
                    if name.endswith(UNFINISHED):
                        shutil.rmtree(Path(parent, name), ignore_errors=True)
                for name in files:
                    if name.endswith(UNFINISHED):
                        with suppress(OSError):
                            os.unlink(Path(parent, name))

    def drop_cache(self) -> None:
        """Removes the compile caches: they are code, and only code compiled later is trusted.
        Raises `OSError`."""
        self._require_own()
        if os.path.lexists(self.compile_cache):
            remove_tree(self.compile_cache)

    def take_cache(self, other: "RunDir") -> None:
        """Takes over the compile caches of another run, if there are any."""
        self.drop_cache()
        if other.compile_cache.exists():
            os.rename(other.compile_cache, self.compile_cache)

    @property
    def attempt(self) -> int:
        """Number of the current attempt: 1, plus 1 for each time the run was reopened."""
        return 1 + sum(1 for _ in self.attempts.glob("*"))

    @property
    def earlier_processes(self) -> list[tuple[float, float]]:
        """Begin and end, in seconds since the epoch, of each process before the current one that
        left a record of both."""
        spans = []
        for aside in self.attempts.glob("*"):
            with suppress(InvalidRunFolder):
                claim, ended = RunDir(aside).read_claim(), RunDir(aside).read_exit()
                if claim is not None and ended is not None:
                    spans.append((claim.time, ended.time))
        return spans

    @property
    def only_times(self) -> bool:
        """Whether the run has trained to its end, so that its process only times more steps: the
        script runs again in it, or an earlier attempt finished. A finished run that restarts no
        longer has a request to continue."""
        with suppress(InvalidRunFolder):
            starts = (event for event in each_event(self.events_file) if event["kind"] == "resumed")
            if any(event.get("file") is None and event.get("step") for event in starts):
                return True
        if not (os.path.lexists(self.plan_file) or self.is_later_start):
            return False
        for aside in self.attempts.glob("*"):
            with suppress(InvalidRunFolder):
                ended = RunDir(aside).read_exit()
                if ended is not None and ended.state is RunState.FINISHED:
                    return True
        return False

    @property
    def is_later_start(self) -> bool:
        """Whether the run, whose training is over, starts once more with the compile caches that it
        left, to time that."""
        return os.path.lexists(self.later_start_file)

    @property
    def caches(self) -> str | None:
        """The compile caches with which its process begins: those that its first process left
        (`kept`); None for empty ones."""
        return "kept" if self.is_later_start else None

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has a checkpoint to resume from. An investigation needs none: its
        journal has the outcomes of its trials."""
        with suppress(OSError):
            if any(file.endswith(CHECKPOINT_ENDINGS) for file in os.listdir(self.checkpoints)):
                return True
        with suppress(InvalidRunFolder, InvalidSpec):
            return self.read_spec().experiment.kind.makes_trials
        return False

    def reopen(self) -> None:
        """Moves claim and exit record to `attempts/`, so that the run is queued again.

        All its data stays; it will resume from its latest checkpoint.
        """
        self._put_aside(self.cancel_file, self.exit_file, self.later_start_file)

    def begin_anew(self) -> None:
        """Moves all files of an attempt to `attempts/`, so that the run is queued as if it had
        never begun."""
        self._put_aside(
            self.cancel_file,
            self.exit_file,
            self.output_file,
            self.artifacts,
            self.events_file,
            self.devices_file,
            self.plan_file,
            self.later_start_file,
        )

    def start_later(self, ended: Exit) -> None:
        """Queues the run, which has just finished, to start once more with its compile caches. Its
        exit record goes to `attempts/` at once, so that the experiment does not look finished."""
        self.check_plain()
        self.compile_cache.mkdir(exist_ok=True)  # A backend may leave none.
        self.later_start_file.touch()
        aside = self.attempts / str(self.attempt)
        aside.mkdir(parents=True)
        write_atomically(aside / self.exit_file.name, ended.to_json())
        os.replace(self.claim_file, aside / self.claim_file.name)
        self._tell_watchers()

    def _put_aside(self, *files: Path) -> None:
        self.check_plain()
        shutil.rmtree(self.compile_cache, ignore_errors=True)
        aside = self.attempts / str(self.attempt)
        aside.mkdir(parents=True)
        # The claim is moved last: without it the run is queued.
        for file in (*files, self.claim_file):
            if os.path.lexists(file):
                os.replace(file, aside / file.name)
        self._tell_watchers()

    @property
    def is_recorded(self) -> bool:
        """Whether the run has an exit record. A lost run without a record may restart."""
        return os.path.lexists(self.exit_file)

    def request_cancel(self) -> None:
        self._require_own()
        with suppress(FileExistsError):
            self.cancel_file.touch(exist_ok=False)

    @property
    def is_unchecked(self) -> bool:
        """Whether torch must check the experiment while its runs load (`runner.checks`)."""
        return os.path.lexists(self.unchecked_file)

    @property
    def cancel_requested(self) -> bool:
        return os.path.lexists(self.cancel_file)

    @property
    def state(self) -> RunState:
        return self.status.state

    @property
    def status(self) -> RunStatus:
        """The state, derived from exit.json, claim.json, the cancel marker and living processes.

        Raises nothing for damaged content: a run whose records cannot be read is lost.
        """
        try:
            return self._status()
        except InvalidRunFolder as error:
            return RunStatus(state=RunState.LOST, reason=str(error))

    def _status(self) -> RunStatus:
        ended = self.read_exit()
        if ended is not None:
            return self._after(ended)
        claim = self.read_claim()
        if claim is None and self.is_link:
            return RunStatus(state=RunState.LOST, reason=LINKED)
        if claim is None:
            state = RunState.CANCELLED if self.cancel_requested else RunState.QUEUED
            if state is RunState.CANCELLED and self.only_times:
                state = RunState.FINISHED
            return RunStatus(state=state, reason=self._lacks_room("begin", state))
        if not claim.is_from_this_host:
            return RunStatus(state=RunState.ELSEWHERE, claimed=claim.time)
        # After the end of a run, its living supervisor is about to write exit.json.
        is_alive = claim.process.is_alive
        if is_alive or claim.supervisor.is_alive:
            to_do = "go on" if is_alive else "record how it ended"
            reason = self._lacks_room(to_do, RunState.RUNNING)
            return RunStatus(state=RunState.RUNNING, reason=reason, claimed=claim.time)
        # exit.json may have been written since the first look.
        ended = self.read_exit()
        lost = RunStatus(state=RunState.LOST, claimed=claim.time)
        return lost if ended is None else self._after(ended)

    def _lacks_room(self, to_do: str, state: RunState) -> str | None:
        lack = lacks_room(self.path.parent) if state.is_active else None
        return lack and f"waits for disk space to {to_do}: {lack}"

    def _after(self, ended: Exit) -> RunStatus:
        try:
            claim = self.read_claim()
        except InvalidRunFolder:
            claim = None  # Only the time of the claim is unknown.
        claimed = None if claim is None else claim.time
        return RunStatus(
            state=ended.state, reason=ended.reason, claimed=claimed, ended=float(ended.time)
        )

    def log_tail(self, num_lines: int = 40) -> str:
        """The last lines of output.log without secrets; empty without the file."""
        try:
            with self.open(self.output_file.name) as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 500 * num_lines))
                text = log.read(500 * num_lines).decode(errors="replace")
        except FileNotFoundError:
            return ""
        return mask("\n".join(text.splitlines()[-num_lines:]))


@lru_cache(maxsize=2_000)
def _cached_spec(folder: Path, *version: int) -> RunSpec:
    """Caches spec.json, which is written once but read at every look at the queue."""
    return RunSpec.from_json(read_document(folder, "spec.json"))


@dataclass(frozen=True, kw_only=True)
class OnDevices(Spec):
    """The devices on which a run resumes. The specification remains unchanged; `devices.json`
    applies until the run is moved again or restarts from the beginning."""

    devices: tuple[str, ...]
    parallel: Parallel


def moved_spec(
    spec: ExperimentSpec, devices: Sequence[str] | None, parallel: str | None
) -> ExperimentSpec:
    """The same training on other devices; raises `InvalidSpec` if the change is impossible.

    All devices together compute one batch, so batch size, order of samples and all other settings
    stay the same.
    """
    new = tuple(devices) if devices else spec.devices
    mode = parallel or spec.parallel
    rule = "cannot change to another kind of device when a run resumes, only in number"
    kinds = {name.partition(":")[0] for name in (*new, *spec.devices)}
    require(len(kinds) == 1, "devices", new, rule)
    rule = "cannot be changed for a script, which selects its device itself"
    require(not spec.workload.selects_device, "devices", new, rule)
    moved: ExperimentSpec = replace(spec, devices=new, parallel=mode)  # type: ignore[arg-type]
    return moved


def write_devices(run: RunDir, spec: ExperimentSpec) -> None:
    """Makes the run resume on the devices of `spec`."""
    moved = OnDevices(devices=spec.devices, parallel=spec.parallel)
    write_atomically(run.devices_file, moved.to_json())


def spec_in_use(run: RunDir) -> RunSpec:
    """The run's specification with its current devices; raises `RunnerError` if a file is
    unreadable."""
    spec = run.read_spec()
    moved = run.read(run.devices_file, OnDevices)
    if moved is None:
        return spec
    experiment = replace(spec.experiment, devices=moved.devices, parallel=moved.parallel)
    return replace(spec, experiment=experiment)


def devices_in_use(run: RunDir, spec: ExperimentSpec) -> tuple[str, ...]:
    """The current devices, for planning; those of `spec` if `devices.json` is missing or
    unreadable."""
    if run.devices_file.exists():
        with suppress(RunnerError):
            return spec_in_use(run).experiment.devices
    return spec.devices
