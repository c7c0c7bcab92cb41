"""Runs a script as `python train.py` would, with `breakeven` attached to a session.

Libraries that train a script's model are patched after the script imports them, so that unused
libraries are not imported. A script that makes no steps is ended, because the other runs and the
user would wait for ever.
"""

import faulthandler
import importlib.util
import os
import pkgutil
import re
import runpy
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import breakeven
from breakeven.runner.errors import WorkloadError
from breakeven.runner.experiments.continuing import steps_measured
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.texts import first_few
from breakeven.runner.worker.before_torch import name_of_visible
from breakeven.runner.worker.compiler.compile_with_backend import explained, set_ddp_mode
from breakeven.runner.worker.context import ALONE, RankGroup, RunContext, on_rank_0
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import seed_all
from breakeven.runner.worker.ranks.exchange import CONSEQUENCE
from breakeven.runner.worker.script.loaders import forced_loader_workers, paused_processes
from breakeven.runner.worker.script.script_checkpoints import ScriptCheckpoints, read_earlier
from breakeven.runner.worker.script.script_optimizers import forced_optimizer_form
from breakeven.runner.worker.script.script_session import EndOfScript, ScriptSession, record_ending
from breakeven.runner.worker.script.spawned import started_ranks
from breakeven.runner.worker.script.starting_again import BeforeScript, meeting_anew
from breakeven.runner.worker.script.trainers import TRAINERS
from breakeven.runner.worker.script.workplaces import Workplace, workplace_of
from breakeven.runner.worker.session import record_environment
from breakeven.runner.worker.turn_source import Turns

LOOK_SECONDS = 1.0
LATER_SECONDS = 5.0
"""Time after its patience until a rank ends that waits for other ranks; without patience, if the
script of another rank has ended."""
BLOCKED_SECONDS = 20.0
"""Time that a rank waits for others before its first step until it counts as blocked."""
PATIENCE_OF_RANKS = 540.0
"""Longest patience on GPUs: after 600 seconds NCCL ends a rank that only waits."""
TOO_LONG = (
    "no step for {patience:g} s: the script neither compiled nor waited for its turn. If it trains "
    "meanwhile, say where a step ends, with breakeven.step(loss) behind optimizer.step(); if it "
    "needs so long, raise it by --set script.patience_seconds=SECONDS. Where it was stands in the "
    "output"
)
WAITING_CODE = re.compile(r"[/\\]torch[/\\](autograd|distributed)[/\\](?!elastic)")
"""Paths of the files of torch in which ranks wait for each other."""
Attach = Callable[[ModuleType, Any], Callable[[], None]]
"""Patches a module, the first argument, to inform a session, the second; returns what takes the
patch away."""
NO_INPUT = "A run has no standard input: give the script its answers as arguments"
NOT_INSTALLED = (
    f"The run uses the Python {sys.executable}: install what the script needs there, or name the "
    "Python that has it: --environment mine=path/to/python"
)


@contextmanager
def watchdog(session: ScriptSession, patience: float, context: RunContext) -> Iterator[None]:
    """Ends a script that makes no step for `patience` seconds; checks once a second. Of several
    ranks, those that only wait for others end later, so that the rank that hangs is named."""
    over = threading.Event()
    group, device = context.group, context.device
    if group.size > 1 and device.works_by_itself:
        patience = min(patience, PATIENCE_OF_RANKS)

    def why_stuck(waited: float) -> str | None:
        waits = group.size > 1 and waits_for_ranks(device)
        if waits and waited > LATER_SECONDS and group.left_behind():
            return group.left_behind()
        too_long = patience + (LATER_SECONDS if waits else 0)
        return TOO_LONG.format(patience=patience) if waited > too_long else None

    def watch() -> None:
        seen, since, was_blocked = -1, time.monotonic(), False
        while not over.wait(LOOK_SECONDS):
            is_moving = session.num_steps != seen or session.is_excused
            waited = 0.0 if is_moving else time.monotonic() - since
            is_blocked = (
                waited > BLOCKED_SECONDS and not session.is_begun and waits_for_ranks(device)
            )
            if group.size > 1 and is_blocked != was_blocked:
                group.blocked(is_blocked)
                was_blocked = is_blocked
            if is_moving:
                seen, since = session.num_steps, time.monotonic()
                continue
            message = why_stuck(waited)
            if message is not None:
                _end_stuck(message, context)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def waits_for_ranks(device: Device) -> bool:
    """Whether the main thread is in a collective, or in a backward pass, which has some, or its
    device is busy: all that a rank does if another one is missing."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if WAITING_CODE.search(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return device.is_busy()


def _end_stuck(message: str, context: RunContext) -> None:
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    sys.stderr.write(message + "\n")
    fields = {
        "error": "WorkloadError",
        "message": message,
        "traceback": message,
        "out_of_memory": False,
    }
    context.group.report_failure(context.log, WorkerExit.FAILED, fields)
    os._exit(WorkerExit.FAILED)


@contextmanager
def after_import(modules: Mapping[str, Attach], listener: Any) -> Iterator[None]:
    """Calls each module's function: at once if the module is loaded, else after its import."""
    with ExitStack() as patches:
        for name, attach in modules.items():
            if name in sys.modules:
                patches.callback(attach(sys.modules[name], listener))
        finder = _Finder(modules, listener, patches)
        sys.meta_path.insert(0, finder)
        patches.callback(sys.meta_path.remove, finder)
        yield


class _Finder(MetaPathFinder):
    def __init__(self, modules: Mapping[str, Attach], listener: Any, patches: ExitStack) -> None:
        self._left, self._patches = dict(modules), patches
        self._listener = listener

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        attach = self._left.pop(name, None)  # first, because `find_spec` calls this finder again
        spec = None if attach is None else importlib.util.find_spec(name)
        if attach is None or spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._patches.callback(attach(module, self._listener))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def run_script(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    turns: Turns,
    device: Device | None = None,
    group: RankGroup = ALONE,
) -> bool:
    """Runs a script from the specification to the last event; False if it was stopped.

    One of several ranks passes its `device` and the `group` of all.
    """
    experiment = spec.experiment
    log.enter("preparing")
    device = device or open_device(name_of_visible(spec.device))
    if experiment.settings == "harness" or spec.arm.tf32:
        device.allow_tf32(True)
    device.reduce_math_attention(spec.arm.math_attention == "reduced")
    set_ddp_mode(spec.arm)
    context = RunContext(spec, run, device, log, group)
    record_environment(context)
    before = BeforeScript(device, next(iter(experiment.script.names_of_module), ""))
    ended = _run_once(context, turns)
    if group.rank == 0 and (ended.is_whole or not run.has_checkpoint) and not context.only_times:
        workplace_of(experiment).tidy(run.workplace)
    while ended.is_whole and ended.starts_again:
        group.script_starts_again()
        turns.done(finished=False)
        with paused_processes():
            turn = turns.wait()
        if turn is None:
            return False
        if turn.last is not None:
            if not run.is_later_start:
                record_ending(log, ended.num_steps, turn.last)
            break
        # From here on whatever fails leaves the training finished.
        log.append("resumed", step=steps_measured(run), file=None, attempt=run.attempt)
        log.enter("preparing")
        before.restore()
        group.gather(None)  # else a rank may meet rank 0 where it was before
        context = replace(context, earlier_times=context.earlier_times + 1)
        ended = _run_once(context, turns, turn)
    if ended.is_whole:
        log.append("phase", phase="done")
        turns.done(finished=True)
    return ended.is_whole


@dataclass(frozen=True)
class Ended:
    """How a script has ended."""

    is_whole: bool
    """Whether it was not stopped."""
    starts_again: bool
    num_steps: int
    """Steps of a training from its beginning to its end."""


def _run_once(context: RunContext, turns: Turns, turn: Turn | None = None) -> Ended:
    """Runs the script to its end; `turn`: the turn in which it starts again."""
    spec, run, log, group = context.spec, context.run, context.log, context.group
    experiment = spec.experiment
    session = ScriptSession(context, turns, read_earlier(run), turn)
    workplace = workplace_of(experiment)
    outside: list[Path] = []
    """Files that the arm's revision changes, and that the copy does not have."""

    def set_up() -> None:
        if context.only_times or ScriptCheckpoints(run, log).latest() is None:
            # An interrupted attempt or a foreign run folder may have left modules there, which
            # would replace others.
            shutil.rmtree(context.workplace, ignore_errors=True)
        elif spec.arm.revision or spec.arm.diff:
            return  # The copy is that of the revision already.
        linked = workplace.make(context.workplace)
        if linked:
            session.workload.notes.append(
                f"Linked into each run's folder, not copied: {first_few(linked, 5)}."
            )
        outside.extend(workplace.change(context.workplace, spec.arm))
        if outside:
            session.workload.notes.append(
                f"{spec.arm.label}: its revision also changes files outside of the copied folder "
                f"{workplace.top}, which stay as they are: {first_few([*map(str, outside)], 5)}."
            )

    if run.only_times and not context.earlier_times:
        session.resuming.log()
    on_rank_0(group, set_up)
    session.check_code = partial(workplace.check_imports, context.workplace, spec.arm, outside)
    with watchdog(session, experiment.script.patience_seconds, context):
        _execute_to_the_end(workplace, context, session)
    is_whole = session.finish()
    group.gather(None)  # All ranks have ended their work in the folder.
    return Ended(is_whole, session.starts_again, session.workload.num_steps)


def _execute_to_the_end(workplace: Workplace, context: RunContext, session: ScriptSession) -> None:
    """Records the measured steps of a script that fails; ends its forked processes silently."""
    process = os.getpid()
    try:
        _execute(workplace, context, session)
    except Exception as error:
        if os.getpid() != process:
            os._exit(1)
        if (message := _left_behind(error, context.group)) is not None:
            raise WorkloadError(message) from error
        with suppress(Exception):  # the device may have failed, too; the script's error counts
            if context.group.size == 1:  # else other ranks may never come to the end of the block
                session.end_block()
        raise
    if os.getpid() != process:
        os._exit(0)
    context.group.script_ended(session.num_steps)


def _left_behind(error: Exception, group: RankGroup) -> str | None:
    """Why a rank fails by an error that only says that others are gone."""
    if group.size == 1 or not CONSEQUENCE.search(str(error)):
        return None
    time.sleep(LOOK_SECONDS)  # The end of another rank's script may be told a little later.
    return group.left_behind()


def _execute(workplace: Workplace, context: RunContext, session: ScriptSession) -> None:
    spec = context.spec
    name = spec.script.module.partition("=")[0] or workplace.script.name
    os.chdir(workplace.start_in(context.workplace))
    start = _started(workplace, context)
    # For scripts that do not. The supervisor also sets PYTHONHASHSEED, for the order of sets.
    seed_all(spec.experiment.training.seed)
    breakeven._attach(session)
    try:
        with (
            explained(spec.arm),
            session.compiler.in_place_of_torch(),
            forced_optimizer_form(
                spec.arm.optimizer, session.workload.fixed, session.optimizer_made
            ),
            forced_loader_workers(spec.arm.loader_workers, pinned=context.device.works_by_itself),
            session.loaders.watching(),
            session.detector.listening(),
            session.models.looking(),
            started_ranks(context.group),
            meeting_anew(context.earlier_times),
            session.clock.replacing_time_functions(),
            after_import(TRAINERS, session),
        ):
            start()
    except EndOfScript:
        pass
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise WorkloadError(f"{name} ended with sys.exit({leaving.code!r})") from leaving
    except EOFError as error:
        raise WorkloadError(f"{name}: {error}. {NO_INPUT}") from error
    except ModuleNotFoundError as error:
        raise WorkloadError(f"{name}: {error}. {NOT_INSTALLED}") from error
    finally:
        breakeven._attach(None)


def _started(workplace: Workplace, context: RunContext) -> Callable[[], object]:
    """Sets `sys.argv` and `sys.path` as Python does for a script, a module or the command of a
    package; returns the function that runs it."""
    spec = context.spec.script
    file = workplace.copy_of(workplace.script, context.workplace)
    command, is_command, function = spec.module.partition("=")
    if is_command:
        program = Path(sys.executable).with_name(command)
        first, folder = str(program), program.parent
    else:
        first, folder = str(file), Path.cwd() if spec.module else file.parent
    sys.argv = [first, *spec.arguments]
    if not getattr(sys.flags, "safe_path", False):  # Python 3.10 has no such option.
        sys.path.insert(0, str(folder))
    if context.spec.arm.revision or context.spec.arm.diff:
        sys.path[:] = [str(workplace.copy_of(Path(entry), context.workplace)) for entry in sys.path]
    if not spec.module:
        return lambda: runpy.run_path(str(file), run_name="__main__")
    _check_module(workplace, context)
    if is_command:
        return lambda: _call_as_command(program, function, spec.names_of_module[0])
    return lambda: runpy.run_module(spec.module, run_name="__main__", alter_sys=True)


def _call_as_command(program: Path, function: str, package: str) -> None:
    """Calls a function as the file of a package's command does, as the main module."""
    before, main = sys.modules["__main__"], ModuleType("__main__")
    main.__file__, main.__package__ = str(program), package
    sys.modules["__main__"] = main
    try:
        sys.exit(pkgutil.resolve_name(function)())
    finally:
        sys.modules["__main__"] = before


def _check_module(workplace: Workplace, context: RunContext) -> None:
    """Raises `WorkloadError` unless an import of the module takes the package that may run."""
    spec, package = context.experiment.script, workplace.package
    outermost = spec.names_of_module[0]
    located = importlib.util.find_spec(outermost)
    places = [] if located is None else [*(located.submodule_search_locations or ())]
    if not places and located is not None and located.origin:
        places = [str(Path(located.origin).parent)]
    expected = {package, workplace.copy_of(package, context.workplace).resolve()}
    if not expected & {Path(place).resolve() for place in places}:
        raise WorkloadError(
            f"{spec.module}: an import of {outermost} takes {', '.join(places) or 'nothing'}, not "
            f"{package}, which the command named. {NOT_INSTALLED}"
        )
